"""Benchmarks of the planner, for `manage.py bench`; figures are emulated, nothing here is a timed test."""
