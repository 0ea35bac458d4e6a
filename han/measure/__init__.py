"""Measuring commands: bench, ablation, limits, waits, set-up costs."""
