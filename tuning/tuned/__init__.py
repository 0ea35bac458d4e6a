"""Tuned tables: what ``han tune`` has found to be best on a machine, and the measurements."""
