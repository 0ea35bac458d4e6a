"""What ranks check of the backend: each call against the same computed on one rank.

mpiexec -n 3 python tests/pytorch/on_ranks.py
"""

import functools
import sys
import traceback
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from expected import (
    DTYPES,
    SHAPE,
    WAYS,
    apart,
    combined,
    given,
    made,
    ops_of,
    rank,
    same,
    same_bytes,
    size,
)
from mpi4py import MPI
from torch import nn
from torch.distributed import ReduceOp
from torch.nn.parallel import DistributedDataParallel

import han
import han.torch

# ---- collectives --------------------------------------------------------------------------------


def check_reductions():
    for dtype in DTYPES:
        for k, op in enumerate(ops_of(dtype)):
            expected, way = combined(op, dtype), WAYS[k % len(WAYS)]
            for lay in (torch.clone, apart):
                mine = lay(given(rank(), dtype))
                made(way, lambda later, t=mine, o=op: dist.all_reduce(t, o, async_op=later))
                same(mine, expected)
            root = k % size()
            mine = given(rank(), dtype)
            made(way, lambda later, t=mine, o=op, r=root: dist.reduce(t, r, o, async_op=later))
            same(mine, expected if rank() == root else given(rank(), dtype))


def check_reduce_scatter():
    for dtype in DTYPES:
        whole = functools.partial(given, shape=(size(), *SHAPE))
        for k, op in enumerate(ops_of(dtype)):
            way, expected = WAYS[k % len(WAYS)], combined(op, dtype, make=whole)[rank()]
            mine, into = whole(rank(), dtype), torch.zeros(SHAPE, dtype=dtype)
            made(way, lambda later, i=into, m=mine, o=op: dist.reduce_scatter_single(
                i, m, o, async_op=later
            ))  # fmt: skip
            same(into, expected)
            into = apart(torch.zeros_like(into))
            made(way, lambda later, i=into, m=mine, o=op: dist.reduce_scatter(
                i, [*m], o, async_op=later
            ))  # fmt: skip
            same(into, expected)


def check_parts_of_different_sizes():
    parts = [torch.arange(3.0 * r) + 1 for r in range(size())]
    into = torch.zeros(3 * rank())
    dist.reduce_scatter(into, [part.clone() for part in parts])
    same(into, parts[rank()] * size())
    found = [torch.zeros_like(part) for part in parts]
    dist.all_gather(found, parts[rank()])
    for one, part in zip(found, parts, strict=True):
        same(one, part)


def check_movements():
    for dtype in [*DTYPES, torch.uint16, torch.float8_e5m2]:
        for way in WAYS:
            everybody = [given(r, dtype) for r in range(size())]
            root = size() - 1
            for lay in (torch.clone, apart):
                mine = lay(everybody[rank()])
                made(way, lambda later, t=mine, r=root: dist.broadcast(t, r, async_op=later))
                same_bytes(mine, everybody[root])
            found = [torch.zeros(SHAPE, dtype=dtype) for _ in everybody]
            made(way, lambda later, f=found, m=mine: dist.all_gather(f, m, async_op=later))
            for one in found:
                same_bytes(one, everybody[root])
            rooted(dtype, way, everybody, root)
            whole = torch.zeros((size() * SHAPE[0], SHAPE[1]), dtype=dtype)
            mine = everybody[rank()]
            made(way, lambda later, w=whole, m=mine: dist.all_gather_single(
                w, m, async_op=later
            ))  # fmt: skip
            same_bytes(whole, torch.cat(everybody))


def rooted(dtype, way, everybody, root):
    mine, found = everybody[rank()], None
    if rank() == root:
        found = [torch.zeros(SHAPE, dtype=dtype) for _ in everybody]
    made(way, lambda later: dist.gather(mine, found, root, async_op=later))
    for one, expected in zip(found or [], everybody, strict=rank() == root):
        same_bytes(one, expected)
    into = torch.zeros(SHAPE, dtype=dtype)
    made(way, lambda later: dist.scatter(into, found, root, async_op=later))
    same_bytes(into, mine)


def check_all_to_all():
    n, me = size(), rank()
    for dtype in (torch.float32, torch.bool, torch.bfloat16, torch.complex64):
        for way in WAYS:
            rows = [given(r, dtype, (n, 2)) for r in range(n)]
            into = torch.zeros((n, 2), dtype=dtype)
            made(way, lambda later, i=into, m=rows[me]: dist.all_to_all_single(
                i, m, async_op=later
            ))  # fmt: skip
            same(into, torch.stack([row[me] for row in rows]))
            counts, expected = (
                [k + 1 for k in range(n)],
                [given(r, dtype, (me + 1, 2)) for r in range(n)],
            )
            mine = torch.cat([given(me, dtype, (c, 2)) for c in counts])
            into = torch.zeros((n * (me + 1), 2), dtype=dtype)
            made(way, lambda later, i=into, m=mine, c=counts: dist.all_to_all_single(
                i, m, [me + 1] * n, c, async_op=later
            ))  # fmt: skip
            same(into, torch.cat(expected))
            found = [torch.zeros((me + 1, 2), dtype=dtype) for _ in range(n)]
            made(way, lambda later, f=found, m=mine, c=counts: dist.all_to_all(
                f, [*m.split(c)], async_op=later
            ))  # fmt: skip
            same(torch.cat(found), torch.cat(expected))


def check_tensors_that_overlap():
    n, me = size(), rank()
    whole = torch.zeros(n, 2)
    whole[me] = me
    dist.all_gather_single(whole, whole[me])
    same(whole, torch.arange(float(n)).repeat_interleave(2).reshape(n, 2))
    dist.reduce_scatter_single(whole[0], whole)
    same(whole[0], torch.full((2,), float(n * me)))
    mine = torch.arange(float(n))
    dist.all_to_all_single(mine, mine)
    same(mine, torch.full((n,), float(me)))


def check_several_tensors_in_a_call():
    warnings.simplefilter("ignore", FutureWarning)
    mine = [given(rank(), torch.float32), given(rank(), torch.float32, (5,))]
    dist.all_reduce_coalesced(mine)
    same(mine[0], combined(ReduceOp.SUM, torch.float32))
    mine = [given(rank(), torch.int32), given(rank(), torch.int32, (2,))]
    found = [[torch.zeros_like(one) for one in mine] for _ in range(size())]
    dist.all_gather_coalesced(found, mine)
    for r, (first, second) in enumerate(found):
        same(first, given(r, torch.int32))
        same(second, given(r, torch.int32, (2,)))
    several = [torch.full((3,), float(k)) for k in range(3)]
    with dist.distributed_c10d._coalescing_manager():
        for one in several:
            dist.all_reduce(one)
    for k, one in enumerate(several):
        same(one, torch.full((3,), float(k * size())))
    outs = [torch.zeros(2 * size()) for _ in range(2)]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        for k, out in enumerate(outs):
            dist.all_gather_single(out, torch.full((2,), float(rank() + k)))
    manager.wait()
    for k, out in enumerate(outs):
        same(out, torch.arange(float(size())).repeat_interleave(2) + k)
    into = [torch.zeros(1) for _ in range(2)]
    with dist.distributed_c10d._coalescing_manager():
        for one in into:
            dist.reduce_scatter_single(one, torch.arange(float(size())))
    for one in into:
        same(one, torch.tensor([float(rank() * size())]))


def check_barrier_and_empty_tensors():
    dist.barrier()
    dist.barrier(async_op=True).wait()
    for dtype in (torch.float32, torch.bfloat16, torch.bool):
        dist.all_reduce(torch.zeros(0, dtype=dtype))
        dist.broadcast(torch.zeros(0, dtype=dtype), 0)
    alone = torch.tensor(float(rank()), requires_grad=True)
    dist.all_reduce(alone)
    same(alone.detach(), torch.tensor(float(sum(range(size())))))


def check_long_tensors_under_way_together():
    several = [torch.full((n,), float(rank())) for n in (1, 1000, 1 << 18, 3 << 18)]
    works = [dist.all_reduce(one, async_op=True) for one in several]
    futures = [work.get_future() for work in works[::2]]
    for work in reversed(works):
        work.wait(timedelta(seconds=60))
        (found,) = work.result()
        same(found, torch.full_like(found, float(sum(range(size())))))
    assert [future.wait()[0] is not None for future in futures] == [True, True]


# ---- messages, objects, groups ------------------------------------------------------------------


def check_messages():
    if size() < 2:
        return
    after, before = (rank() + 1) % size(), (rank() - 1) % size()
    for dtype in DTYPES:
        into = apart(torch.zeros(SHAPE, dtype=dtype))
        work = dist.isend(given(rank(), dtype), after, tag=3)
        dist.recv(into, before, tag=3)
        work.wait()
        same(into, given(before, dtype))
    pair = [
        dist.P2POp(dist.irecv, into := torch.zeros(3), before),
        dist.P2POp(dist.isend, torch.full((3,), float(rank())), after),
    ]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    same(into, torch.full((3,), float(before)))
    if rank() == 0:
        heard = {dist.recv(torch.zeros(1)) for _ in range(size() - 1)}
        assert heard == {*range(1, size())}
    else:
        dist.send(torch.ones(1), 0)


def check_objects():
    mine = {"rank": rank(), "text": "x" * (10 + rank())}
    found = [None] * size()
    dist.all_gather_object(found, mine)
    assert [one["rank"] for one in found] == [*range(size())]
    gathered = [None] * size() if rank() == 0 else None
    dist.gather_object(mine, gathered)
    assert not gathered or gathered == found
    said = [mine if rank() == size() - 1 else None]
    dist.broadcast_object_list(said, src=size() - 1)
    assert said == [found[-1]]
    into = [None]
    dist.scatter_object_list(into, found if rank() == 0 else None)
    assert into == [mine]


def check_groups():
    halves = [[r for r in range(size()) if r % 2 == k] for k in range(2)]
    groups = [dist.new_group(half) for half in halves if half]
    mine = groups[rank() % 2]
    assert dist.get_world_size(mine) == len(halves[rank() % 2])
    tensor = given(rank(), torch.float32)
    dist.all_reduce(tensor, group=mine)
    same(tensor, combined(ReduceOp.SUM, torch.float32, halves[rank() % 2]))
    everybody = dist.new_group(backend="gloo")
    dist.all_reduce(tensor, group=everybody)
    comm = mine.comm
    dist.destroy_process_group(mine)
    assert comm == MPI.COMM_NULL
    assert dist.get_backend() == "han"
    assert dist.group.WORLD.name() == "han"


def check_functional_calls():
    import torch.distributed._functional_collectives as functional

    found = functional.all_reduce(given(rank(), torch.float32), "sum", dist.group.WORLD)
    same(found + 0, combined(ReduceOp.SUM, torch.float32))
    found = functional.all_gather_tensor(given(rank(), torch.float32), 0, dist.group.WORLD)
    same(found + 0, torch.cat([given(r, torch.float32) for r in range(size())]))


def check_data_parallel_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 300), nn.Tanh(), nn.Linear(300, 2)).double()
    inputs = torch.randn(4 * size(), 6, dtype=torch.float64)
    model(inputs).square().mean().backward()
    serial = [weight.grad.clone() for weight in model.parameters()]
    for more in ({}, {"static_graph": True}, {"gradient_as_bucket_view": True}):
        model.zero_grad(set_to_none=True)
        parallel = DistributedDataParallel(model, bucket_cap_mb=0.001, **more)
        for _ in range(2):
            model.zero_grad(set_to_none=True)
            parallel(inputs.chunk(size())[rank()]).square().mean().backward()
        for weight, expected in zip(model.parameters(), serial, strict=True):
            torch.testing.assert_close(weight.grad, expected)


def check_sharded_parameters():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size(),))
    numbers = torch.arange(8.0 * size()).reshape(4 * size(), 2)
    same(distribute_tensor(numbers, mesh, [Shard(0)]).sum().full_tensor(), numbers.sum())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 5), nn.Linear(5, 3))
    model(numbers).mean().backward()
    serial = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad(set_to_none=True)
    fully_shard(model, mesh=mesh)
    model(numbers.chunk(size())[rank()]).mean().backward()
    for weight, expected in zip(model.parameters(), serial, strict=True):
        torch.testing.assert_close(weight.grad.full_tensor(), expected)


def check_a_group_can_be_made_again():
    dist.destroy_process_group()
    dist.init_process_group("han")
    dist.barrier()


# ---- mistakes -----------------------------------------------------------------------------------


def check_a_callback_may_wait_for_another_call():
    """As the hook of PowerSGD does."""
    first, second = torch.ones(4), torch.full((4,), 2.0)

    def after(future):
        dist.all_reduce(second, async_op=True).get_future().wait()
        return future.value()

    dist.all_reduce(first, async_op=True).get_future().then(after).wait()
    assert first.tolist() == [size()] * 4
    assert second.tolist() == [2 * size()] * 4


def check_calls_that_are_over_are_let_go():
    early = torch.zeros(1)
    pending = dist.irecv(early, (rank() - 1) % size(), tag=77) if size() > 1 else None
    works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(20)]
    for work in works:
        work.wait()
    dist.all_reduce(torch.ones(2), async_op=True).wait()
    assert len(dist.group.WORLD._works) < 5
    if pending is not None:
        dist.send(torch.full((1,), 3.0), (rank() + 1) % size(), tag=77)
        pending.wait()
        assert early.item() == 3


def check_mistakes_that_all_ranks_make():
    floats, n = torch.zeros(3), size()
    whole = torch.zeros(3, dtype=torch.int64)
    meta = torch.zeros(3, device="meta")
    for said, call in {
        "the tensor is on meta, han moves memory of the host": lambda: dist.all_reduce(meta),
        "layout torch.sparse_coo": lambda: dist.broadcast(torch.eye(2).to_sparse(), 0),
        "BAND is not defined on float32": lambda: dist.all_reduce(floats, ReduceOp.BAND),
        "averages of int64 are not int64": lambda: dist.all_reduce(whole, ReduceOp.AVG),
        "han has no PREMUL_SUM": lambda: dist.all_reduce(floats, dist._make_nccl_premul_sum(2.0)),
        f"a list of {n + 1} tensors, {n} expected": lambda: dist.all_gather(
            [floats] * (n + 1), floats
        ),
        "a tensor of 2 x float32 where one of 3 x float32": lambda: dist.all_gather(
            [torch.zeros(2)] * n, floats
        ),
        "split sizes [7]": lambda: dist.all_to_all_single(floats, floats, [7], [7]),
        f"3 elements are not {n} parts of 5": lambda: dist.all_gather_single(
            floats, torch.zeros(5)
        ),
        f"{n + 1} rows are not as many for each of {n} ranks": lambda: dist.all_to_all_single(
            torch.zeros(n + 1, n), torch.zeros(n + 1, n)
        ),
        "output is torch.int32, input is torch.float32": lambda: dist.reduce_scatter_single(
            torch.zeros(1, dtype=torch.int32), torch.zeros(n)
        ),
        "resolve_conj().resolve_neg()": lambda: dist.all_reduce(
            torch.ones(3, dtype=torch.complex64).conj().imag
        ),
    }.items():
        if n == 1 and "rows" in said:
            continue
        with pytest.raises(han.HanError) as caught:
            call()
        assert said in str(caught.value), str(caught.value)
    dist.barrier()


CHECKS = {name: one for name, one in globals().items() if name.startswith("check_")}


def main():
    """Run the checks, or those that are named; an error of one rank ends all."""
    dist.init_process_group("han")
    try:
        for name in sys.argv[1:] or CHECKS:
            CHECKS[name]()
            if rank() == 0:
                print(name, flush=True)
    except BaseException:
        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
