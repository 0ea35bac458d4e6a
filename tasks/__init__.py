"""Collectives as graphs of tasks: what a call does, whichever submodules carry it out."""
