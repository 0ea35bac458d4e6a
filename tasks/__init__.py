"""Collectives as graphs of tasks: what is to be done, and nothing of how."""
