"""Cluster handwritten digits by k-means, the samples distributed: an allreduce in each step.

    mpiexec -n 4 python examples/kmeans.py --compare 9

Each rank has some of scikit-learn's 1797 digits. In a step it finds the nearest centre of each of
its samples, and adds up the samples of each centre. The allreduce adds these sums, and the numbers
of samples, of all ranks. All ranks then move the centres alike (Lloyd's algorithm).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

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
    part_of,
    run,
)
from mpi4py import MPI
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits


class Clusters(NamedTuple):
    """The centres of all clusters, and the steps that found them."""

    centres: np.ndarray
    steps: int


def first_centres(samples: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """Return some of the samples, the same on all ranks."""
    chosen = np.random.default_rng(seed).choice(len(samples), clusters, replace=False)
    return samples[chosen]


def add_up(samples: np.ndarray, centres: np.ndarray, out: np.ndarray) -> None:
    """Write the sum of the samples nearest to each centre, and their number in the last column."""
    distances = (centres**2).sum(axis=1) - 2 * samples @ centres.T
    labels = distances.argmin(axis=1)
    members = (labels == np.arange(len(centres))[:, np.newaxis]).astype(float)
    out[:, :-1] = members @ samples
    out[:, -1] = members.sum(axis=1)


def moved(centres: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return the means of the clusters; a centre without samples stays."""
    counts = sums[:, -1:]
    return np.where(counts > 0, sums[:, :-1] / np.maximum(counts, 1), centres)


def cluster(
    comm: MPI.Intracomm, samples: np.ndarray, centres: np.ndarray, most: int, watch: Stopwatch
) -> Clusters:
    """Move the centres until they stay, in at most so many steps; collective."""
    mine = np.empty((len(centres), samples.shape[1] + 1))
    total, steps, stay = np.empty_like(mine), 0, False
    comm.Barrier()
    with watch("total"):
        while not stay and steps < most:
            with watch("compute"):
                add_up(samples, centres, mine)
            with watch("communicate"):
                comm.Allreduce(mine, total)
            with watch("compute"):
                before, centres = centres, moved(centres, total)
                stay = np.array_equal(before, centres)
            steps += 1
    return Clusters(centres, steps)


def is_right(
    comm: MPI.Intracomm, samples: np.ndarray, first: np.ndarray, most: int, found: Clusters
) -> bool:
    """Tell whether all ranks' centres are those of scikit-learn; collective."""
    model = KMeans(len(first), init=first, n_init=1, max_iter=most, tol=0, algorithm="lloyd")
    expected = model.fit(samples).cluster_centers_
    return all_agree(comm, np.allclose(found.centres, expected, rtol=0, atol=1e-9))


def main(
    kind: CommOption = CommKind.HAN,
    config: ConfigOption = None,
    compare: CompareOption = 0,
    clusters: Annotated[int, typer.Option(min=1, max=100, help="Clusters to find.")] = 10,
    most: Annotated[int, typer.Option("--steps", min=1, help="Steps at most.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first centres.")] = 0,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Compare with sklearn.cluster.KMeans.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Cluster scikit-learn's digits, which are distributed over the MPI ranks.

    Times are the slowest rank's, without the check. Exits with 1 if the check fails.
    """
    samples = load_digits().data
    first = first_centres(samples, clusters, seed)

    def work(comm: MPI.Intracomm) -> Done:
        watch = Stopwatch("total", "compute", "communicate")
        found = cluster(comm, samples[part_of(comm, len(samples))], first, most, watch)
        right = is_right(comm, samples, first, most, found) if check else None
        facts = {"samples": len(samples), "clusters": clusters, "steps": found.steps}
        return Done(facts, watch, right)

    check_name = Check("agrees_with_sklearn", "the centres differ from scikit-learn's")
    conclude(work, check_name, How(kind, config, compare, as_json))


if __name__ == "__main__":
    run(main)
