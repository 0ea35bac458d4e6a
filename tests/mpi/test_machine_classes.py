"""Calls on machines of a class, as if nodes had its cores and adapters."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from _support import WAIT, opened
from machines import topology_of
from mpi4py import MPI

import han
from han.ranks.discover import Conditions
from han.tuning.built_in import machine_classes
from han.tuning.built_in.choosing import NodeTraits

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.size, WORLD.rank
SIZES = (1, 64, 512, 4096, 32_768, 200_000)  # numbers
CLASSES = [one for one in machine_classes.shipped() if one.rows]


def comm_of(found: machine_classes.MachineClass, ppn: int) -> han.Comm:
    """Return a communicator whose nodes have `ppn` ranks and belong to a class."""
    latency = 5e4 if found.has_long_links else 0.0
    cores = int(max(profile.cores for _, profile in found.machines))
    traits = [NodeTraits(True, cores=cores, rdma=rdma, latency=latency) for rdma in (False, True)]
    traits = [one for one in traits if found.holds(one)]
    place = topology_of([[rank // ppn for rank in range(SIZE)], [0] * SIZE], 0)
    topology = replace(place, names=("node", "network"), symbols=("s", "i"))
    conditions = Conditions(True, cores=cores, rdma=traits[0].rdma, latency=latency)
    with mock.patch("han.runtime.making.discover", return_value=(topology, conditions)):
        return han.Comm(WORLD.Dup(), {"wait": WAIT})


@pytest.mark.mpi(ranks=[4, 6, 8], timeout=180, unit="s")
@pytest.mark.parametrize("found", CLASSES, ids=[one.name for one in CLASSES])
def test_calls_are_right_on_machines_of_a_class(mpi_ranks, found):
    decided = set()
    for ppn in (2, 3, 4):
        with opened(comm_of(found, ppn)) as comm:
            for count in SIZES:
                send = np.arange(float(count)) + RANK
                total = SIZE * np.arange(float(count)) + SIZE * (SIZE - 1) / 2
                for turn in range(3):
                    result, root = np.zeros(count), turn % SIZE
                    comm.Allreduce(send, result)
                    assert (result == total).all(), (ppn, count)
                    comm.Reduce(send, result if root == RANK else None, root=root)
                    data = np.full(count, float(RANK))
                    comm.Bcast(data, root=root)
                    assert (data == root).all()
                decided |= {
                    comm.explain(name, 8 * count).rule for name in ("allreduce", "bcast", "reduce")
                }
    assert f"class {found.name}" in decided
