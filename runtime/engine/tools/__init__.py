"""The pure tools that every installation has, and the checks that tools share."""
