"""Find the principal components of handwritten digits, the samples distributed: two allreduces.

    mpiexec -n 4 python examples/pca.py --compare 9

Each rank has some of scikit-learn's 1797 digits. An allreduce of 64 numbers gives the mean of all
samples, one of 64 x 64 numbers their covariance. Each rank finds its eigenvectors, and projects its
own samples onto them.
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
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

MOST = 60
"""Components: three of the 64 pixels are the same in all digits."""


class Components(NamedTuple):
    """Orthonormal rows, the variance along each, and this rank's samples in these coordinates."""

    rows: np.ndarray
    variances: np.ndarray
    projected: np.ndarray


def components(
    comm: MPI.Intracomm, samples: np.ndarray, count: int, number: int, watch: Stopwatch
) -> Components:
    """Return the leading `number` components of all ranks' `count` samples; collective."""
    with watch("compute"):
        mean = samples.sum(axis=0)
    with watch("communicate"):
        comm.Allreduce(MPI.IN_PLACE, mean)
    with watch("compute"):
        mean /= count
        centred = samples - mean
        covariance = centred.T @ centred
    with watch("communicate"):
        comm.Allreduce(MPI.IN_PLACE, covariance)
    with watch("compute"):
        values, vectors = np.linalg.eigh(covariance / (count - 1))
        rows = vectors[:, : -number - 1 : -1].T
        return Components(rows, values[: -number - 1 : -1], centred @ rows.T)


def analyse(
    comm: MPI.Intracomm, samples: np.ndarray, count: int, number: int, turns: int, watch: Stopwatch
) -> Components:
    """Find the components in each of some turns; collective."""
    comm.Barrier()
    with watch("total"):
        for _ in range(turns):
            found = components(comm, samples, count, number, watch)
    return found


def is_right(comm: MPI.Intracomm, samples: np.ndarray, found: Components) -> bool:
    """Tell whether variances and directions are those of scikit-learn; collective.

    The sign of a component is arbitrary, so the projections onto their space are compared.
    """
    model = PCA(len(found.rows), svd_solver="full").fit(samples)
    expected = model.components_.T @ model.components_
    same = np.allclose(found.variances, model.explained_variance_, rtol=1e-9)
    return all_agree(comm, same and np.allclose(found.rows.T @ found.rows, expected, atol=1e-6))


def main(
    kind: CommOption = CommKind.HAN,
    config: ConfigOption = None,
    compare: CompareOption = 0,
    number: Annotated[
        int, typer.Option("--components", min=1, max=MOST, help="Components to find.")
    ] = 10,
    turns: Annotated[int, typer.Option(min=1, help="Analyses, one after the other.")] = 100,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Compare with sklearn.decomposition.PCA.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Find the principal components of digits that are distributed over the MPI ranks.

    Times are the slowest rank's, without the check. Exits with 1 if the check fails.
    """
    samples = load_digits().data
    total_variance = samples.var(axis=0, ddof=1).sum()

    def work(comm: MPI.Intracomm) -> Done:
        watch = Stopwatch("total", "compute", "communicate")
        mine = samples[part_of(comm, len(samples))]
        found = analyse(comm, mine, len(samples), number, turns, watch)
        right = is_right(comm, samples, found) if check else None
        explained = float(found.variances.sum() / total_variance)
        facts = {"samples": len(samples), "components": number, "explained_variance": explained}
        return Done(facts | {"analyses": turns}, watch, right)

    check_name = Check("agrees_with_sklearn", "the components differ from scikit-learn's")
    conclude(work, check_name, How(kind, config, compare, as_json))


if __name__ == "__main__":
    run(main)
