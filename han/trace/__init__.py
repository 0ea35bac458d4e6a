"""Traces: when each task ran on each rank."""
