"""`up`: every process of one machine under one supervisor with one log (DESIGN.md, Processes)."""
