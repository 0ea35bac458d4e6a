"""Submodules, which carry out the tasks of one level; :mod:`han.submodules.registry` lists them."""
