"""What carries out a task on a level: one file each, listed in :mod:`han.submodules.registry`."""
