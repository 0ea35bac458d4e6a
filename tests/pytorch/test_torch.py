"""The backend of torch.distributed, under mpiexec where PyTorch is installed."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from han.common.errors import MissingLibraryError
from han.common.library import require_torch

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "tests" / "pytorch" / "on_ranks.py"
EXAMPLE = ROOT / "examples" / "ddp_digits.py"
LONGEST = 240  # seconds of a job on a busy machine

with_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make test-torch"
)


def job(ranks, *arguments, **variables):
    """Run Python on some ranks; return the finished launcher."""
    command = [shutil.which("mpiexec"), "-n", str(ranks), sys.executable, *map(str, arguments)]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LONGEST,
        env={**os.environ, "PYTHONPATH": paths, **variables}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def printed(*arguments, **variables):
    """Return what a job prints, which must succeed."""
    done = job(*arguments, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@with_torch
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_calls_have_the_results_of_one_rank(ranks):
    assert "check_data_parallel_gradients" in printed(ranks, CHECKS)


@with_torch
@pytest.mark.slow
def test_calls_between_nodes_have_the_same_results():
    assert "check_reductions" in printed(4, CHECKS, HAN_CONFIG="virtual-2x2")


@with_torch
@pytest.mark.slow
def test_a_network_learns_the_same_with_each_backend():
    found = [
        json.loads(printed(2, EXAMPLE, "--backend", name, "--json")) for name in ("han", "gloo")
    ]
    for one in found:
        assert one["same_on_all_ranks"]
        assert one["test_accuracy"] > 0.95
    assert found[0]["test_accuracy"] == pytest.approx(found[1]["test_accuracy"], abs=0.01)


@with_torch
@pytest.mark.slow
def test_backends_are_measured_beside_each_other(tmp_path):
    names = "all_reduce,broadcast,all_gather_single,reduce_scatter_single,all_to_all_single"
    how = ["--rounds", "2", "--time", "0", "--json", tmp_path / "found.json"]
    said = printed(2, "-m", "han.torch.bench", names, "4KiB,64KiB", *how)
    assert "gloo / han" in said
    assert "ranks     2 on 1 node" in said
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert len(rows) == 10
    assert all(row["times"].keys() >= {"han", "gloo"} for row in rows)


@with_torch
def test_the_bench_tells_a_mistake_in_a_line():
    done = job(1, "-m", "han.torch.bench", "all_sum", "8")
    assert done.returncode == 1
    assert "Error: unknown operation 'all_sum'" in done.stderr


@with_torch
@pytest.mark.parametrize(
    ("before", "variables", "said"),
    [
        ("", {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, "mpiexec -n 2"),
        ("import mpi4py; mpi4py.rc.thread_level = 'serialized'", {}, "MPI_THREAD_MULTIPLE"),
    ],
    ids=["torchrun", "threads"],
)
def test_a_group_that_cannot_be_made_tells_the_way_out(tmp_path, before, variables, said):
    path = tmp_path / "program.py"
    path.write_text(f"""
{before}
import torch.distributed as dist, han.torch
store, told = dist.HashStore(), {variables!r}
more = dict(store=store, rank=0, world_size=2) if told else {{}}
dist.init_process_group("han", **more)
""")
    done = job(1, path)
    assert done.returncode != 0
    assert said in done.stderr


@with_torch
@pytest.mark.slow
def test_a_rank_that_leaves_is_told_in_the_backward_pass(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("""
import torch, torch.distributed as dist, han.torch
dist.init_process_group("han")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
if dist.get_rank() == 1:
    raise ValueError("no input")
try:
    model(torch.rand(2, 8)).sum().backward()
except RuntimeError as error:
    print(str(error).splitlines()[0])
""")
    done = job(2, path)
    assert done.returncode != 0
    assert "rank 1 left: it raised ValueError: no input" in done.stdout


@pytest.mark.parametrize(
    ("version", "said"),
    [("2.4.0+cpu", "needs PyTorch 2.13, this is 2.4.0+cpu"), ("2.13.0", "is built without")],
)
def test_a_torch_that_does_not_do_is_told(monkeypatch, version, said):
    fake = types.SimpleNamespace(
        __version__=version, distributed=types.SimpleNamespace(is_available=lambda: False)
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    with pytest.raises(MissingLibraryError, match=said.replace("+", r"\+")) as caught:
        require_torch()
    assert "pip install" in str(caught.value)


def test_a_newer_torch_is_told(monkeypatch):
    fake = types.SimpleNamespace(
        __version__="3.0.1", distributed=types.SimpleNamespace(is_available=lambda: True)
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    with pytest.warns(UserWarning, match=r"tested with PyTorch 2\.13, this is 3\.0\.1"):
        require_torch()


def test_a_missing_torch_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'torch>=2\.13"):
        require_torch()
