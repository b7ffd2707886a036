"""The pages of runs: overview, list, run, node, switch."""
