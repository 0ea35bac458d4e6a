"""Predicting Programs: all ranks' programs in virtual time, on any machine, without MPI."""

from han.tasks.simulate.simulator import Simulation, simulate

__all__ = ["Simulation", "simulate"]
