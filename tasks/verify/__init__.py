"""Proofs that Programs are right: one process examines those of all ranks, without MPI."""

from han.tasks.verify.classes import Unproved, verify_class
from han.tasks.verify.report import Report
from han.tasks.verify.story import Refuted
from han.tasks.verify.verifier import Progress, lower_all, verify

__all__ = [
    "Progress", "Refuted", "Report", "Unproved", "lower_all", "verify", "verify_class",
]  # fmt: skip
