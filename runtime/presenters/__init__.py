"""Runs as the pages show them: values with every text already written, for templates and scripts."""
