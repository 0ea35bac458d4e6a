"""Allreduce by exchanges with any factors (Jocksch et al.)."""
