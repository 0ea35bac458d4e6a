"""Train a small network on handwritten digits, data parallel, with one allreduce per step.

    mpiexec -n 4 python examples/train_digits.py --comm han --config configs/virtual-2x2.yaml

Every rank computes the gradient over its part of each global mini-batch. All gradients are in one
flat vector, which one persistent allreduce sums. The weights do not depend on the number of ranks,
up to rounding. All ranks hold the same bits.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from _common import (
    CommKind,
    CommOption,
    ConfigOption,
    JsonOption,
    Stopwatch,
    all_agree,
    fail,
    open_comm,
    report,
    run,
    time_record,
)
from mpi4py import MPI
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits


class DType(str, Enum):
    """Precision of weights and gradients."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"


TOLERANCE = {DType.FLOAT64: 1e-10, DType.FLOAT32: 1e-4}
"""The largest difference of a weight that another order of summation may cause."""


@dataclass(frozen=True)
class Settings:
    """What to train and how long."""

    epochs: int = 30
    batch: int = 64
    hidden: int = 128
    seed: int = 0
    dtype: DType = DType.FLOAT64
    rate: float = 0.1
    momentum: float = 0.9


@dataclass(frozen=True)
class Outcome:
    """A trained network, and how it was trained; `seconds` are the slowest rank's."""

    accuracy: float
    weights: np.ndarray
    same_on_all_ranks: bool
    steps: int
    allreduce: str
    seconds: dict[str, float]


class Data(NamedTuple):
    """Images as rows of 64 grey values in [0, 1], and their digits."""

    train_images: np.ndarray
    train_digits: np.ndarray
    test_images: np.ndarray
    test_digits: np.ndarray


def load_data(settings: Settings) -> Data:
    """Return scikit-learn's digits: four fifths for training, one fifth for tests."""
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(settings.dtype.value)
    train_images, test_images, train_digits, test_digits = train_test_split(
        images, digits, test_size=0.2, random_state=settings.seed, stratify=digits
    )
    return Data(train_images, train_digits, test_images, test_digits)


@dataclass(frozen=True)
class Network:
    """One hidden layer of tanh units; weights and gradients are flat, seen through `views`."""

    hidden: int
    inputs: int = 64
    digits: int = 10

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of W1, b1, W2 and b2."""
        return (
            (self.inputs, self.hidden),
            (self.hidden,),
            (self.hidden, self.digits),
            (self.digits,),
        )

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(map(math.prod, self.shapes))

    def views(self, flat: np.ndarray) -> list[np.ndarray]:
        """Return W1, b1, W2 and b2 as views of `flat`."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        pieces = np.split(flat, ends[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def initialise(self, flat: np.ndarray, seed: int) -> None:
        """Fill `flat` with random weights (Glorot) and zero biases."""
        rng = np.random.default_rng(seed)
        flat[:] = 0
        w1, _, w2, _ = self.views(flat)
        w1[:] = rng.normal(scale=math.sqrt(2 / sum(w1.shape)), size=w1.shape)
        w2[:] = rng.normal(scale=math.sqrt(2 / sum(w2.shape)), size=w2.shape)

    def forward(self, flat: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the hidden activations and the scores of every digit."""
        w1, b1, w2, b2 = self.views(flat)
        hidden = np.tanh(images @ w1 + b1)
        return hidden, hidden @ w2 + b2

    def gradient(
        self, flat: np.ndarray, images: np.ndarray, digits: np.ndarray, out: np.ndarray
    ) -> None:
        """Write the gradient of the cross entropy, summed over `images`, to flat `out`."""
        hidden, scores = self.forward(flat, images)
        error = softmax(scores)
        error[np.arange(len(digits)), digits] -= 1
        back = error @ self.views(flat)[2].T
        back *= 1 - hidden**2
        grad_w1, grad_b1, grad_w2, grad_b2 = self.views(out)
        np.matmul(images.T, back, out=grad_w1)
        np.sum(back, axis=0, out=grad_b1)
        np.matmul(hidden.T, error, out=grad_w2)
        np.sum(error, axis=0, out=grad_b2)

    def accuracy(self, flat: np.ndarray, images: np.ndarray, digits: np.ndarray) -> float:
        """Return the share of `images` whose digit gets the highest score."""
        _, scores = self.forward(flat, images)
        return float(np.mean(scores.argmax(axis=1) == digits))


def softmax(scores: np.ndarray) -> np.ndarray:
    """Turn each row of scores into probabilities."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


WITHOUT_PERSISTENT = "blocking (MPI offers no persistent one)"


class BlockingSum:
    """A blocking allreduce with a request's methods, where MPI has no persistent one."""

    def __init__(self, comm: MPI.Intracomm, send: np.ndarray, recv: np.ndarray):
        self._call = lambda: comm.Allreduce(send, recv, op=MPI.SUM)

    def Start(self) -> None:
        """Sum; the result is complete on return."""
        self._call()

    def Wait(self) -> None:
        """Do nothing."""

    def Free(self) -> None:
        """Do nothing."""


def prepare_sum(
    comm: MPI.Intracomm, send: np.ndarray, recv: np.ndarray
) -> MPI.Prequest | BlockingSum:
    """Return a request that sums `send` over all ranks into `recv` at every start.

    mpi4py raises NotImplementedError if the MPI library has no persistent collectives. The version
    of the standard does not show this: Open MPI has them and reports version 3.1.
    """
    try:
        return comm.Allreduce_init(send, recv, op=MPI.SUM)
    except NotImplementedError:
        return BlockingSum(comm, send, recv)


def shares(
    comm: MPI.Intracomm, samples: int, settings: Settings
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield this rank's part of every mini-batch and the size of the whole batch.

    All ranks draw the same batches, and each takes every `comm.size`-th sample of them. All ranks
    make the same number of steps; a rank's part of a small batch may be empty.
    """
    rng = np.random.default_rng(settings.seed)
    for _ in range(settings.epochs):
        order = rng.permutation(samples)
        for first in range(0, samples, settings.batch):
            batch = order[first : first + settings.batch]
            yield batch[comm.rank :: comm.size], len(batch)


def descend(
    comm: MPI.Intracomm,
    network: Network,
    weights: np.ndarray,
    data: Data,
    settings: Settings,
    watch: Stopwatch,
) -> tuple[int, str]:
    """Improve `weights` in place by stochastic gradient descent.

    Return the number of steps and what kind of allreduce summed the gradients.
    """
    mine, total, velocity = (np.zeros_like(weights) for _ in range(3))
    request = prepare_sum(comm, mine, total)
    steps = 0
    for chosen, batch in shares(comm, len(data.train_digits), settings):
        with watch("compute"):
            images, digits = data.train_images[chosen], data.train_digits[chosen]
            network.gradient(weights, images, digits, out=mine)
        with watch("communicate"):
            request.Start()
            request.Wait()
        with watch("compute"):
            velocity *= settings.momentum
            velocity -= (settings.rate / batch) * total
            weights += velocity
        steps += 1
    request.Free()
    return steps, WITHOUT_PERSISTENT if isinstance(request, BlockingSum) else "persistent"


def first_weights(comm: MPI.Intracomm, network: Network, settings: Settings) -> np.ndarray:
    """Return the initial weights, made on rank 0 and broadcast."""
    weights = np.full(network.size, np.nan, dtype=settings.dtype.value)
    if comm.rank == 0:
        network.initialise(weights, settings.seed)
    comm.Bcast(weights, root=0)
    return weights


def same_bits(comm: MPI.Intracomm, array: np.ndarray) -> bool:
    """Tell whether all ranks hold the same bits; MPI's own allgather compares them."""
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    return len(set(comm.allgather(digest))) == 1


def train(comm: MPI.Intracomm, settings: Settings) -> Outcome:
    """Train a network on all ranks of `comm`; collective, with the same weights on all."""
    data = load_data(settings)
    network = Network(settings.hidden)
    watch = Stopwatch("total", "compute", "communicate")
    weights = first_weights(comm, network, settings)
    comm.Barrier()
    with threadpool_limits(1), watch("total"):
        steps, allreduce = descend(comm, network, weights, data, settings, watch)
    return Outcome(
        accuracy=network.accuracy(weights, data.test_images, data.test_digits),
        weights=weights,
        same_on_all_ranks=same_bits(comm, weights),
        steps=steps,
        allreduce=allreduce,
        seconds=watch.slowest(comm),
    )


def compare(outcome: Outcome, expected: Outcome, settings: Settings) -> dict[str, Any]:
    """Return how far `outcome` is from `expected`; collective, the same on all ranks."""
    distance = float(np.abs(outcome.weights - expected.weights).max())
    tolerance = TOLERANCE[settings.dtype]
    close = distance <= tolerance and abs(outcome.accuracy - expected.accuracy) <= 0.01
    return {
        "mpi_accuracy": expected.accuracy,
        "mpi_communicate_s": expected.seconds["communicate"],
        "weights_differ_by": MPI.COMM_WORLD.allreduce(distance, op=MPI.MAX),
        "weights_may_differ_by": tolerance,
        "agrees_with_mpi": all_agree(MPI.COMM_WORLD, close),
    }


def main(
    kind: CommOption = CommKind.HAN,
    config: ConfigOption = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training data.")] = 30,
    batch: Annotated[int, typer.Option(min=1, help="Samples in a global mini-batch.")] = 64,
    hidden: Annotated[int, typer.Option(min=1, help="Hidden units.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Seed of split, weights, shuffling.")] = 0,
    dtype: Annotated[DType, typer.Option(help="Precision of the weights.")] = DType.FLOAT64,
    check: Annotated[
        bool, typer.Option("--check", help="Train with MPI's own calls too, and compare.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a small network on handwritten digits, data parallel over the MPI ranks.

    One persistent allreduce per step averages the gradients. Times are the slowest rank's.
    Exits with 1 if the ranks' weights differ in any bit, or --check finds a difference.
    """
    if check and kind is CommKind.MPI:
        raise typer.BadParameter("--check compares han with MPI: it needs --comm han")
    settings = Settings(epochs, batch, hidden, seed, dtype)
    comm = open_comm(kind, config)
    outcome = train(comm, settings)
    verdict = compare(outcome, train(MPI.COMM_WORLD, settings), settings) if check else {}
    record = {
        "comm": kind.value,
        "ranks": comm.size,
        "dtype": dtype.value,
        "weights": outcome.weights.size,
        "allreduce": outcome.allreduce,
        "steps": outcome.steps,
        "test_accuracy": outcome.accuracy,
        "same_on_all_ranks": outcome.same_on_all_ranks,
        **time_record(outcome.seconds),
        **verdict,
    }
    report(comm, record, as_json)
    if not outcome.same_on_all_ranks:
        fail(comm, "the ranks hold different weights")
    if not verdict.get("agrees_with_mpi", True):
        fail(comm, "the weights differ from those that MPI's own calls give")


if __name__ == "__main__":
    run(main)
