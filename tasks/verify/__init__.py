"""Proving Programs right: all ranks' programs, examined in one process without MPI."""

from han.tasks.verify.story import Refuted
from han.tasks.verify.verifier import Report, verify

__all__ = ["Refuted", "Report", "verify"]
