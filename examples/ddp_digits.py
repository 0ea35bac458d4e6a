"""Train a network of PyTorch on handwritten digits with DistributedDataParallel.

    mpiexec -n 4 python examples/ddp_digits.py --backend han
    mpiexec -n 4 python examples/ddp_digits.py --backend gloo

Every rank computes the gradient over its part of each mini-batch, and PyTorch averages the
gradients in buckets while it computes others. The time without communication is that of the same
steps under ``no_sync``; the rest of the time is communication that computation does not hide.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated

import torch
import torch.distributed as dist
import typer
from _common import JsonOption, all_agree, fail, report, run
from mpi4py import MPI
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import han.torch  # noqa: F401  # registers "han", and lets ranks of mpiexec find each other


class Backend(str, Enum):
    """Who carries out the collectives."""

    HAN = "han"
    GLOO = "gloo"
    MPI = "mpi"


@dataclass(frozen=True)
class Settings:
    """What to train and how long."""

    epochs: int = 10
    batch: int = 64
    hidden: int = 256
    seed: int = 0
    rate: float = 0.05


@dataclass(frozen=True)
class Data:
    """Images as rows of 64 grey values in [0, 1], and their digits."""

    images: Tensor
    digits: Tensor
    test_images: Tensor
    test_digits: Tensor


def load_data(settings: Settings) -> Data:
    """Return scikit-learn's digits: four fifths for training, one fifth for tests."""
    images, digits = load_digits(return_X_y=True)
    parts = train_test_split(
        images / 16, digits, test_size=0.2, random_state=settings.seed, stratify=digits
    )
    mine, others, my_digits, other_digits = map(torch.from_numpy, parts)
    return Data(mine.float(), my_digits, others.float(), other_digits)


def network(settings: Settings) -> nn.Module:
    """Return a network with two hidden layers; its weights depend on the seed alone."""
    torch.manual_seed(settings.seed)
    width = settings.hidden
    return nn.Sequential(
        nn.Linear(64, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 10)
    )


def shares(samples: int, settings: Settings) -> Iterator[Tensor]:
    """Yield this rank's part of every mini-batch; all parts of a mini-batch are equally large."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    generator = torch.Generator().manual_seed(settings.seed)
    part = settings.batch // ranks
    for _ in range(settings.epochs):
        order = torch.randperm(samples, generator=generator)
        for first in range(0, samples - part * ranks + 1, part * ranks):
            yield order[first + rank * part : first + (rank + 1) * part]


def descend(model: DistributedDataParallel, data: Data, settings: Settings, talk: bool) -> float:
    """Improve the model by gradient descent; return the seconds that it took.

    Without `talk` the ranks do not average their gradients.
    """
    optimizer = torch.optim.SGD(model.parameters(), settings.rate, momentum=0.9)
    alone = contextlib.nullcontext if talk else model.no_sync
    dist.barrier()
    begun = time.perf_counter()
    for chosen in shares(len(data.digits), settings):
        optimizer.zero_grad()
        with alone():
            scores = model(data.images[chosen])
            nn.functional.cross_entropy(scores, data.digits[chosen]).backward()
        optimizer.step()
    return time.perf_counter() - begun


def accuracy(model: nn.Module, data: Data) -> float:
    """Return the share of test images whose digit gets the highest score."""
    with torch.no_grad():
        found = model(data.test_images).argmax(1)
    return float((found == data.test_digits).float().mean())


def same_weights(model: nn.Module) -> bool:
    """Tell whether all ranks hold the same bits."""
    mine = torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])
    first = mine.clone()
    dist.broadcast(first, 0)
    return all_agree(MPI.COMM_WORLD, torch.equal(first, mine))


def slowest(seconds: float) -> float:
    """Return the largest time of all ranks."""
    return float(MPI.COMM_WORLD.allreduce(seconds, MPI.MAX))


def main(
    backend: Annotated[Backend, typer.Option(help="Who carries out the collectives.")]
    = Backend.HAN,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 10,
    batch: Annotated[int, typer.Option(min=1, help="Samples of a step, of all ranks.")] = 64,
    hidden: Annotated[int, typer.Option(min=1, help="Units of a hidden layer.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Seed of split, weights, shuffling.")] = 0,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Train with DistributedDataParallel, and tell what share of the time is communication.

    Exits with 1 if the ranks' weights differ in any bit.
    """
    if backend is Backend.MPI and not dist.is_mpi_available():
        raise typer.BadParameter("this PyTorch is built without MPI: --backend han or gloo")
    torch.set_num_threads(1)
    settings = Settings(epochs, batch, hidden, seed)
    dist.init_process_group(backend.value)
    if settings.batch < dist.get_world_size():
        raise typer.BadParameter(f"--batch {settings.batch}: each rank needs a sample of a batch")
    data = load_data(settings)
    warm = replace(settings, epochs=1)  # first calls count for neither time
    descend(DistributedDataParallel(network(settings)), data, warm, talk=True)
    model = DistributedDataParallel(network(settings))
    seconds = slowest(descend(model, data, settings, talk=True))
    found, same = accuracy(model.module, data), same_weights(model.module)
    alone = slowest(descend(model, data, settings, talk=False))
    record = {
        "backend": backend.value,
        "ranks": dist.get_world_size(),
        "weights": sum(weight.numel() for weight in model.parameters()),
        "test_accuracy": found,
        "same_on_all_ranks": same,
        "total_s": seconds,
        "without_communication_s": alone,
        "communicate_share": max(0.0, 1 - alone / seconds),
    }
    report(MPI.COMM_WORLD, record, as_json)
    dist.destroy_process_group()
    if not same:
        fail(MPI.COMM_WORLD, "the ranks hold different weights")


if __name__ == "__main__":
    run(main)
