"""What the launcher tells a process before MPI is initialized."""

from __future__ import annotations

import os
from collections.abc import Mapping

# Variables in which launchers store a rank: Open MPI, PMIx, MPICH and Intel MPI, Slurm.
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")


def is_first(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is rank 0, or was started without a launcher."""
    told = [environ[name] for name in RANK_VARIABLES if name in environ]
    return not told or told[0] == "0"
