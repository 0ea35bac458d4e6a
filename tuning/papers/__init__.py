"""Figures of papers, computed from formulas and by the simulator, beside what the papers say."""
