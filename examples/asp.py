"""Find all shortest paths of a graph by Floyd and Warshall's algorithm, on all ranks.

    mpiexec -n 4 python examples/asp.py --comm han --config configs/virtual-2x2.yaml

This is the application ASP of the HAN paper (section IV-B). Each rank has a block of rows. In step
k the owner of row k broadcasts it, and every rank relaxes its own rows with it. So each rank is the
root in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from _common import (
    Check,
    CommKind,
    CommOption,
    CompareOption,
    ConfigOption,
    Done,
    How,
    JsonOption,
    Stopwatch,
    all_agree,
    conclude,
    fail,
    from_rank_0,
    part_of,
    run,
    starts_of,
)
from mpi4py import MPI
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

CHECK_UP_TO = 1024
"""Vertices up to which the distances are checked unless --no-check says otherwise."""


class DType(str, Enum):
    """Type of weights and distances."""

    INT32 = "int32"
    FLOAT64 = "float64"


NO_PATH = {DType.INT32: 2**30 - 1, DType.FLOAT64: np.inf}
"""Distance of vertices without a path; twice this value fits the type."""


@dataclass(frozen=True)
class Graph:
    """A directed graph as an edge list without duplicates; weights are not negative."""

    n: int
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    dtype: DType

    @classmethod
    def build(cls, n: int, edges: np.ndarray, dtype: DType) -> Graph:
        """Make a graph of rows ``u v w``; of parallel edges, keep the lightest.

        Raise ValueError for a vertex that is not in ``0 .. n-1`` and for weights that are
        negative, not of `dtype`, or so large that a path could reach ``NO_PATH``.
        """
        ends, weight = edges[:, :2].astype(np.int64), edges[:, 2]
        _check_edges(n, edges, dtype)
        order = np.lexsort((weight, ends[:, 1], ends[:, 0]))
        _, first = np.unique(ends[order], axis=0, return_index=True)
        kept = order[first]
        return cls(n, ends[kept, 0], ends[kept, 1], weight[kept].astype(dtype.value), dtype)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows ``start .. stop-1`` of the weights, ``NO_PATH`` where there is no edge."""
        block = np.full((stop - start, self.n), NO_PATH[self.dtype], dtype=self.dtype.value)
        mine = (self.source >= start) & (self.source < stop)
        block[self.source[mine] - start, self.target[mine]] = self.weight[mine]
        block[np.arange(stop - start), np.arange(start, stop)] = 0
        return block


def _check_edges(n: int, edges: np.ndarray, dtype: DType) -> None:
    """Raise ValueError if `edges` cannot be a graph of `n` vertices and type `dtype`."""
    ends, weight = edges[:, :2], edges[:, 2]
    if not np.all((ends >= 0) & (ends < n) & (ends == np.floor(ends))):
        raise ValueError(f"edges: vertices must be whole numbers from 0 to {n - 1}")
    if not np.all(weight >= 0):
        raise ValueError(f"edges: weights must not be negative, the least is {weight.min()}")
    if dtype is DType.INT32 and not np.all(weight == np.floor(weight)):
        raise ValueError("edges: weights are not whole numbers; use --dtype float64")
    longest = weight.max(initial=0) * max(n - 1, 1)
    if longest >= NO_PATH[dtype]:
        raise ValueError(f"edges: a path may be {longest:g} long, too much for {dtype.value}")


def random_graph(n: int, degree: int, seed: int, dtype: DType) -> Graph:
    """Return a random graph of `n` vertices with about `degree` edges from each.

    The weights lie between 1 and 100.
    """
    rng = np.random.default_rng(seed)
    ends = rng.integers(n, size=(n * degree, 2))
    weight = rng.uniform(1, 100, size=n * degree)
    if dtype is DType.INT32:
        weight = np.rint(weight)
    return Graph.build(n, np.column_stack([ends, weight]), dtype)


def read_graph(path: Path, dtype: DType) -> Graph:
    """Read lines ``u v w``: an edge from vertex u to vertex v of weight w; ``#`` comments."""
    edges = np.loadtxt(path, ndmin=2)
    if edges.size == 0 or edges.shape[1] != 3:
        raise ValueError(f"{path}: expected lines of 3 numbers, 'u v w'")
    return Graph.build(int(edges[:, :2].max()) + 1, edges, dtype)


def solve(comm: MPI.Intracomm, graph: Graph, watch: Stopwatch) -> np.ndarray:
    """Return this rank's rows of the distance matrix; collective."""
    starts = starts_of(graph.n, comm.size).tolist()
    rows = graph.rows(starts[comm.rank], starts[comm.rank + 1])
    received, scratch = np.empty(graph.n, dtype=rows.dtype), np.empty_like(rows)
    comm.Barrier()
    with watch("total"):
        for root in range(comm.size):
            for k in range(starts[root], starts[root + 1]):
                row = rows[k - starts[root]] if comm.rank == root else received
                with watch("communicate"):
                    comm.Bcast(row, root=root)
                with watch("compute"):
                    relax(rows, row, k, scratch)
    return rows


def relax(rows: np.ndarray, row: np.ndarray, k: int, scratch: np.ndarray) -> None:
    """Replace paths in `rows`, in place, by shorter ones through vertex `k`."""
    np.add(rows[:, k : k + 1], row, out=scratch)
    np.minimum(rows, scratch, out=rows)


def reference(graph: Graph, start: int, stop: int) -> np.ndarray:
    """Return rows ``start .. stop-1`` of the distances as SciPy's Dijkstra finds them."""
    matrix = csr_matrix((graph.weight, (graph.source, graph.target)), shape=(graph.n,) * 2)
    found = dijkstra(matrix, indices=np.arange(start, stop))
    return np.where(np.isinf(found), NO_PATH[graph.dtype], found)


def is_right(comm: MPI.Intracomm, graph: Graph, rows: np.ndarray) -> bool:
    """Tell whether all ranks' rows equal SciPy's (floats: up to rounding); collective."""
    mine = part_of(comm, graph.n)
    expected = reference(graph, mine.start, mine.stop)
    exact = graph.dtype is DType.INT32
    return all_agree(comm, np.allclose(rows, expected, rtol=0 if exact else 1e-12, atol=0))


def summary(comm: MPI.Intracomm, graph: Graph, rows: np.ndarray) -> dict[str, int | float]:
    """Return the number of connected pairs and the longest distance; collective."""
    lengths = rows[rows < NO_PATH[graph.dtype]]
    return {
        "connected_pairs": comm.allreduce(lengths.size) - graph.n,
        "longest_distance": comm.allreduce(lengths.max(initial=0).item(), op=MPI.MAX),
    }


def main(
    kind: CommOption = CommKind.HAN,
    config: ConfigOption = None,
    compare: CompareOption = 0,
    n: Annotated[int, typer.Option("--n", min=1, help="Vertices of the random graph.")] = 512,
    degree: Annotated[int, typer.Option(min=0, help="Edges from a vertex, on average.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random graph.")] = 0,
    edges: Annotated[
        Path | None,
        typer.Option(help="Read a graph on rank 0 instead: lines 'u v w'."),
    ] = None,
    dtype: Annotated[DType, typer.Option(help="Type of the distances.")] = DType.INT32,
    check: Annotated[
        bool | None,
        typer.Option(
            "--check/--no-check",
            help=f"Compare with SciPy's Dijkstra; by default up to {CHECK_UP_TO} vertices.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find all shortest paths of a graph whose rows are distributed over the MPI ranks.

    Times are the slowest rank's, without the check. Exits with 1 if the check fails.
    """
    try:
        graph = from_rank_0(
            MPI.COMM_WORLD,
            lambda: read_graph(edges, dtype) if edges else random_graph(n, degree, seed, dtype),
        )
    except (ValueError, OSError) as error:
        fail(MPI.COMM_WORLD, str(error))
    wanted = graph.n <= CHECK_UP_TO if check is None else check
    about = {"vertices": graph.n, "edges": graph.weight.size, "dtype": dtype.value}

    def work(comm: MPI.Intracomm) -> Done:
        watch = Stopwatch("total", "compute", "communicate")
        rows = solve(comm, graph, watch)
        right = is_right(comm, graph, rows) if wanted else None
        return Done(about | summary(comm, graph, rows), watch, right)

    check_name = Check("agrees_with_scipy", "the distances differ from SciPy's")
    conclude(work, check_name, How(kind, config, compare, as_json))


if __name__ == "__main__":
    run(main)
