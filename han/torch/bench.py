"""Measure the backend han beside the other ones of torch.distributed, in turns, in one run.

mpiexec -n 4 python -m han.torch.bench all_reduce 4KiB:64MiB:4
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple

import torch
import torch.distributed as dist
import typer
from mpi4py import MPI
from torch import Tensor

from han.cli import endings, options
from han.cli.common import check_files, keep, prints
from han.cli.measuring import tell_alone, tell_others
from han.cli.progress import progress
from han.cli.words import calls_of
from han.common.errors import ArgumentError, HanError, WrongResultError
from han.common.suggest import expect_known
from han.common.tables import shown_table
from han.common.units import format_size, format_us, parse_sizes
from han.measure.bench_machine import document, heading, look
from han.measure.session import Session
from han.model.measurements import Times

MOST = 1000  # of the numbers in the tensors: whole numbers, which every order sums alike
SIDES = ("han", "gloo", "mpi")
WITHOUT_MPI = (
    "mpi       not measured: this PyTorch is built without MPI (is_mpi_available() is False)"
)
WARM_UP = 5  # calls


class Tensors(NamedTuple):
    """What a rank sends and receives; in calls in place they are the same tensor."""

    send: Tensor
    recv: Tensor


class Operation(NamedTuple):
    """A call of torch.distributed, and how many blocks each side of it has: 1, or one a rank."""

    call: Callable[[Tensors, Any], object]
    sends_all: bool = False
    receives_all: bool = False
    in_place: bool = False


OPERATIONS = {
    "all_reduce": Operation(lambda t, g: dist.all_reduce(t.recv, group=g), in_place=True),
    "broadcast": Operation(lambda t, g: dist.broadcast(t.recv, 0, group=g), in_place=True),
    "all_gather_single": Operation(
        lambda t, g: dist.all_gather_single(t.recv, t.send, group=g), receives_all=True
    ),
    "reduce_scatter_single": Operation(
        lambda t, g: dist.reduce_scatter_single(t.recv, t.send, group=g), sends_all=True
    ),
    "all_to_all_single": Operation(
        lambda t, g: dist.all_to_all_single(t.recv, t.send, group=g), True, True
    ),
}


@dataclass(frozen=True)
class Row:
    """One size of one operation: the times of each side."""

    operation: str
    nbytes: int
    times: Mapping[str, Times]

    def texts(self, sides: Sequence[str]) -> list[str]:
        """Return the row of the table."""
        mine = self.times["han"].median
        shown = [_shown(self.times[side]) for side in sides]
        ratios = [f"{self.times[side].median / mine:.2f}" for side in sides[1:]]
        return [self.operation, format_size(self.nbytes), *shown, *ratios]


def _shown(times: Times) -> str:
    low, high = format_us(times.low), format_us(times.high)
    return f"{format_us(times.median)} ({low} .. {high})"


def _tensors(operation: Operation, nbytes: int, size: int) -> Tensors:
    """Return tensors of float32 whose block has `nbytes` bytes."""
    if nbytes % torch.float32.itemsize:
        raise ArgumentError(f"{nbytes} bytes are no whole number of float32, of 4 bytes each")
    count = nbytes // torch.float32.itemsize
    recv = torch.zeros(count * (size if operation.receives_all else 1))
    if operation.in_place:
        return Tensors(recv, recv)
    return Tensors(torch.zeros(count * (size if operation.sends_all else 1)), recv)


def _result(operation: Operation, tensors: Tensors, group: Any) -> Tensor:
    """Return what a call receives."""
    tensors.recv.zero_()
    send = tensors.send
    send.copy_((torch.arange(send.numel()) + dist.get_rank()) % MOST)
    operation.call(tensors, group)
    return tensors.recv.clone()


def _compare(name: str, tensors: Tensors, groups: Mapping[str, Any], session: Session) -> None:
    """Raise WrongResultError on all ranks unless all sides receive the same."""
    results = {side: _result(OPERATIONS[name], tensors, group) for side, group in groups.items()}
    wrong = [side for side, found in results.items() if not torch.equal(found, results["han"])]
    if any(session.control.allgather(bool(wrong))):
        raise WrongResultError(f"{name}: the results of han and of another backend differ")


def _measure(session: Session, name: str, nbytes: int, groups: Mapping[str, Any], seconds: float
             ) -> Row:  # fmt: skip
    """Measure one size of an operation on all sides."""
    operation = OPERATIONS[name]
    tensors = _tensors(operation, nbytes, session.control.size)
    _compare(name, tensors, groups, session)
    tensors.send.zero_()
    calls = {side: _call(operation, tensors, group) for side, group in groups.items()}
    return Row(name, nbytes, session.times(calls, seconds, WARM_UP))


def _call(operation: Operation, tensors: Tensors, group: Any) -> Callable[[], object]:
    return lambda: operation.call(tensors, group)


def _groups() -> dict[str, Any]:
    """Return a group of all ranks for each backend that this PyTorch has; collective."""
    dist.init_process_group("han")
    groups = {"han": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    if dist.is_mpi_available():
        groups["mpi"] = dist.new_group(backend="mpi")
    return groups


def bench(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPERATIONS] [SIZES]", help=f"{', '.join(OPERATIONS)}; bytes."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Batches of each side, in turns.")] = 9,
    time: Annotated[float, typer.Option(min=0, help="Approximate seconds for a batch.")] = 0.02,
    threads: Annotated[int, typer.Option(min=1, help="Threads of PyTorch on each rank.")] = 1,
    json_file: options.JsonFile = None,
) -> None:
    """Measure han, Gloo and the MPI of PyTorch in turns, on float32 tensors.

    Sizes are in bytes; those of all but all_reduce and broadcast are of one block. Results are
    compared before the timed calls.
    """
    check_files(json_file)
    found = calls_of(words, ["all_reduce"], "4KiB:64MiB:4")
    for name in found.names:
        expect_known("operation", name, OPERATIONS)
    cases = [(name, nbytes) for name in found.names for nbytes in parse_sizes(found.sizes)]
    tell_alone("python -m han.torch.bench")
    torch.set_num_threads(threads)
    _run(cases, rounds, time, prints(json_file), json_file)


def _run(
    cases: Sequence[tuple[str, int]], rounds: int, seconds: float, tell: Callable[[str], None],
    json_file: Any,
) -> None:  # fmt: skip
    """Measure all cases, and print the table; collective."""
    groups = _groups()
    with Session(MPI.COMM_WORLD, rounds) as session:
        machine = look(session.control, groups["han"].comm)
        notes = [f"torch     {torch.__version__}, {torch.get_num_threads()} threads a rank"]
        notes += [] if "mpi" in groups else [WITHOUT_MPI]
        tell(heading("torch.bench", f"float32, median of {rounds} rounds", machine, *notes))
        rows = []
        with progress(len(cases)) as advance:
            for name, nbytes in cases:
                rows.append(_measure(session, name, nbytes, groups, seconds))
                advance()
        sides = [side for side in SIDES if side in groups]
        heads = ["operation", "size", *sides, *(f"{side} / han" for side in sides[1:])]
        title = "microseconds of the slowest rank: median (least .. most)"
        tell(shown_table(title, heads, [row.texts(sides) for row in rows], plain=True))
        others = tell_others(session, tell)
    records = map(asdict, rows)
    how = {"rounds": rounds, "seconds": seconds, "torch": str(torch.__version__)}
    keep(document("han-torch-bench", 1, machine, records, settings=how, others=others), json_file)
    dist.destroy_process_group()


def main() -> None:
    """Run the command; a mistake is printed once."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(bench)
    mistake = ""
    try:
        app(standalone_mode=False)
    except HanError as error:
        if not endings.is_mistake(error):
            endings.abort(str(error))
        mistake = str(error)
    except Exception:
        endings.abort()
    endings.leave(mistake)


if __name__ == "__main__":
    main()
