"""Proving Programs right: all ranks' programs, examined in one process without MPI."""

from han.tasks.verify.story import Refuted
from han.tasks.verify.verifier import Progress, Report, lower_all, verify

__all__ = ["Progress", "Refuted", "Report", "lower_all", "verify"]
