"""A backend of torch.distributed for tensors in memory of the host, whose collectives are han's.

Importing this registers the backend::

    import han.torch

    torch.distributed.init_process_group("han")  # under mpiexec: ranks and their number are MPI's
"""

from importlib import import_module

from han.common.library import require_mpi, require_torch

require_mpi()
require_torch()
import_module("han.torch.registration").register()
