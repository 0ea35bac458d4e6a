"""Choosing how a collective runs: rules, built-in heuristics."""
