"""Figures of Jain et al.: release and gather (RG) beside libraries, on a node and on several.

What stands for a library is what the paper says of it. MPICH and Open MPI send messages inside the
node, by the algorithms and sizes of section VI. MVAPICH has trees in shared memory without the
paper's optimisations, flat and 4-ary ones (section VII).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from statistics import fmean

from han.model.series import Panel
from han.tuning.papers import jain_trees
from han.tuning.papers.figure import (
    FASTER,
    Claim,
    Computed,
    Figure,
    Printed,
    Series,
    Setting,
    Way,
    call,
    gains,
    wins,
)
from han.tuning.papers.jain_trees import (
    CELLS,
    PAPER,
    RG,
    RING,
    STEPS,
    WHY,
    KiB,
    at_most,
    by_size,
    flat,
    on_node,
    split,
    spread,
)

MVAPICH, OPEN_MPI, MPICH = "trees (MVAPICH)", "messages (Open MPI)", "messages (MPICH)"


# ---- figure 10: beside libraries ----------------------------------------------------------------


def _allreduce(way: Way) -> Way:
    """Return a reduce with the paper's broadcast behind it."""
    return replace(way, algorithms=(*way.algorithms, f"node.bcast=flat:{RING}"))


PLAIN = f"{CELLS},read_parent_flag=false,in_recv=false"
BCASTS = (
    on_node(RG, flat()),
    on_node(MVAPICH, flat(PLAIN)),
    on_node(OPEN_MPI, "adapt.binomial"),
    on_node(OPEN_MPI, "adapt.binary:segment=8KiB", least=16 * KiB),
    on_node(OPEN_MPI, "adapt.chain:segment=128KiB", least=512 * KiB),
    on_node(MPICH, "adapt.binomial", most=64 * KiB),
    on_node(MPICH, "exchange.scatter", least=64 * KiB + 1),
)
TREES = (
    on_node(MVAPICH, flat(PLAIN)),
    on_node(MVAPICH, f"sm.kary:radix=4,{PLAIN}"),
)
REDUCES = (
    *by_size(RG),
    *TREES,
    on_node(OPEN_MPI, "adapt.binomial"),
    on_node(OPEN_MPI, "adapt.binary:segment=32KiB", least=64 * KiB),
    on_node(OPEN_MPI, "adapt.chain:segment=64KiB", least=256 * KiB),
    on_node(MPICH, "adapt.binomial", most=8 * KiB),
)
HALVING = (on_node(MPICH, "exchange.halving", least=8 * KiB + 1),)
ALLREDUCES = (
    *map(_allreduce, by_size(RG)),
    *map(_allreduce, TREES),
    on_node(OPEN_MPI, "exchange.recursive_doubling"),
    on_node(OPEN_MPI, "exchange.halving", least=16 * KiB),
    on_node(MPICH, "adapt.binomial", most=8 * KiB),
    *HALVING,
)
SAID = {  # how many times faster RG is: at most, on average (section I)
    "bcast": {MVAPICH: (1.32, 1.22), OPEN_MPI: (5.96, 4.00), MPICH: (3.96, 2.99)},
    "reduce": {MVAPICH: (14.27, 4.43), OPEN_MPI: (13.37, 4.71), MPICH: (6.32, 3.23)},
    "allreduce": {MVAPICH: (3.17, 1.80), OPEN_MPI: (7.71, 3.38), MPICH: (4.17, 2.72)},
}
FASTEST = {
    "bcast": ("for all sizes", 0),
    "reduce": ("from 128 B on", 128),
    "allreduce": ("from 64 B on", 64),
}


def beside_libraries(setting: Setting) -> Computed:
    """Figure 10: a broadcast, a reduce and an allreduce on a node, beside libraries."""
    every = {
        "bcast": setting.over_sizes(BCASTS, call("bcast")),
        "reduce": _reduces(setting),
        "allreduce": setting.over_sizes(ALLREDUCES, call("allreduce")),
    }
    panels = [Panel(f"{name}, simulated", "bytes", series) for name, series in every.items()]
    claims = [
        _beside(name, series, other, *said)
        for name, series in every.items()
        for other, said in SAID[name].items()
    ]
    return Computed(tuple(panels), (*claims, *_fastest(every)))


def _fastest(every: Mapping[str, Series]) -> Iterable[Claim]:
    """Yield the claims about sizes at which RG is the fastest."""
    for name, (paper, bound) in FASTEST.items():
        series = every[name]
        held = [n for n in wins(series, RG) if n >= bound]
        expected = [n for n in series[RG] if n >= bound]
        ours = f"in {len(held)} of {len(expected)} sizes"
        yield Claim(f"{name}: RG is the fastest {paper}", ours, held == expected)
    small = gains(every["reduce"], MVAPICH, RG)
    yield at_most(f"reduce: {MVAPICH} are faster below 128 B,", 1.1, split(small, 128)[0])


def _reduces(setting: Setting) -> Series:
    """Simulate the reduces. A scatter of sums and a gather cost MPICH what its allreduce does."""
    series = setting.over_sizes(REDUCES, call("reduce"))
    series[MPICH] |= setting.over_sizes(HALVING, call("allreduce"))[MPICH]
    return series


def _beside(name: str, series: Series, other: str, most: float, mean: float) -> Claim:
    """Return the claim that RG is so many times faster than a library, at most and on average."""
    found = list(gains(series, RG, other).values())
    about = f"{name}, than {other}"
    numbers = (
        Printed(f"{about}: at most", most, max(found)),
        Printed(f"{about}: on average", mean, fmean(found)),
    )
    return Claim(
        f"{about}: up to {most} times faster, {mean} times on average",
        f"{min(found):.2f} to {max(found):.2f} times, {fmean(found):.2f} on average",
        all(one.close for one in numbers),
        numbers,
    )


# ---- figures 12 and 13: several nodes -----------------------------------------------------------


def _nodes(name: str, network: str, node: str, most: int | None = None, least: int = 0) -> Way:
    return Way(name, (f"network={network}", node), "whole", "tree", most=most, least=least)


def _with_rg(network: str, least: int, most: int | None) -> list[Way]:
    """Return RG's allreduce inside nodes, with an algorithm between nodes, for sizes of both."""
    found = []
    for way in map(_allreduce, by_size(RG)):
        low = max(least, way.least)
        high = min((n for n in (most, way.most) if n is not None), default=None)
        if high is None or low <= high:
            algorithms = (f"network={network}", *way.algorithms)
            found.append(replace(way, algorithms=algorithms, composition="tree", least=low,
                                 most=high))  # fmt: skip
    return found


BINOMIAL = "node=adapt.binomial"
DOUBLING, HALVED = "exchange.recursive_doubling", "exchange.halving"
BCASTS_OVER_NODES = (
    _nodes(RG, "adapt.binomial", f"node={flat()}"),
    _nodes(MPICH, "adapt.binomial", BINOMIAL),
)
ALLREDUCES_OVER_NODES = (
    *_with_rg(DOUBLING, 0, 8 * KiB),
    *_with_rg(HALVED, 8 * KiB + 1, None),
    _nodes(MPICH, DOUBLING, BINOMIAL, most=8 * KiB),
    _nodes(MPICH, HALVED, BINOMIAL, least=8 * KiB + 1),
)


def over_nodes(
    setting: Setting, collective: str, ways: tuple[Way, ...], low: float, high: float
) -> Computed:
    """Figures 12 and 13: RG inside nodes, with the same algorithms between nodes as MPICH."""
    series = setting.over_sizes(ways, call(collective))
    found = gains(series, RG, MPICH)
    numbers = (
        Printed(f"{collective}: least", low, min(found.values())),
        Printed(f"{collective}: most", high, max(found.values())),
    )
    where = f"{setting.nodes} nodes of {setting.ppn}"
    grows = list(found.values())
    return Computed(
        (
            Panel(f"{collective}, {where}, simulated", "bytes", series),
            Panel("RG", "bytes", {f"than {MPICH}": found}, FASTER),
        ),
        (
            Claim(
                f"between {low} and {high} times faster than MPICH (conclusions)", spread(found),
                all(one.close for one in numbers), numbers,
            ),
            Claim(
                "the difference increases with the size",
                f"{grows[0]:.2f} times for the smallest, {grows[-1]:.2f} for the largest",
                grows[-1] > grows[0],
            ),
        ),
    )  # fmt: skip


STANDS = f"{WHY} What stands for a library is its kind of algorithm, without overhead of software."
FIGURES = {
    "jain-10": Figure(PAPER, "bcast, reduce and allreduce on 40 cores, beside libraries",
                      beside_libraries, "skylake", 1, 40, STEPS, STANDS, True),
    **jain_trees.FIGURES,
    "jain-12": Figure(PAPER, "bcast on 32 nodes, RG or messages inside them",
                      partial(over_nodes, collective="bcast", ways=BCASTS_OVER_NODES, low=1.16,
                              high=2.18), "skylake", 32, 40, STEPS, STANDS, True),
    "jain-13": Figure(PAPER, "allreduce on 32 nodes, RG or messages inside them",
                      partial(over_nodes, collective="allreduce", ways=ALLREDUCES_OVER_NODES,
                              low=1.29, high=2.50), "skylake", 32, 40, STEPS, STANDS, True),
}  # fmt: skip
