"""Collectives as graphs of tasks: what a call does, independent of who carries it out."""
