"""Choosing how a collective runs, and predicting how long it takes, without MPI."""
