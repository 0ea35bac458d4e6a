"""Predictions: the programs of all ranks in virtual time, on any machine model, without MPI."""

from han.tasks.simulate.simulator import Simulation, simulate

__all__ = ["Simulation", "simulate"]
