"""Equations of papers as functions: times in closed form, held against the simulator by tests."""
