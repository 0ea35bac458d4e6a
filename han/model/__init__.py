"""Immutable plain data without MPI: topology, program, timeline, channel layout."""
