"""Figures of Bienz, Olson, Gropp: Node-aware improvements to allreduce (NAP).

Figure 5 and figures 10 and 11 are models in the paper: equation 3, and equations 4 to 6. Here they
are the same equations, beside the same messages in the simulator (figure 5). Figures 12 to 17 are
measurements in the paper; here the simulator runs han's programs.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import partial

from han.common.units import format_size
from han.model.series import Panel
from han.tuning.formulas import FORMULAS, MaxRate, crossover, message
from han.tuning.papers.figure import (
    FASTER,
    Claim,
    Computed,
    Figure,
    Points,
    Printed,
    Series,
    Setting,
    Way,
    call,
    faster,
    fastest,
    sizes,
    wins,
)

PAPER = "Bienz, Olson, Gropp: Node-aware improvements to allreduce"
RD, SMP, NAP, MPI = "recursive doubling", "SMP", "NAP", "MPI"
DOUBLING = "network=exchange.recursive_doubling"
WAYS = (
    Way(RD, (DOUBLING,), "whole", "flat"),
    Way(SMP, (DOUBLING,), "whole", "tree"),
    Way(NAP, (), "whole", "nap"),
)
LIMIT = 2048  # the paper's crossover of NAP and SMP, bytes
SENDERS = (1, 4, 16)
SHARED = (
    "In the paper, messages inside a node are MPI messages; in han they are flags and small "
    "slots in shared memory, which makes SMP and NAP faster beside recursive doubling. The paper "
    "prints no parameters of Blue Waters; configs/machines/blue-waters.yaml says which are assumed."
)


def one_message(setting: Setting) -> Computed:
    """Figure 5: the time of one message inside a socket, inside a node, and between nodes."""
    model, series = setting.machine, Series()
    for link in model.levels[:-1]:
        series[link.name] = {n: 1e6 * message(model, link, n, 1) for n in setting.sizes}
    for ppn in (n for n in SENDERS if n <= setting.ppn):
        points = {n: 1e6 * message(model, model.levels[-1], n, ppn) for n in setting.sizes}
        series[f"network, {ppn} a node"] = points
    least, most = min(setting.sizes), max(setting.sizes)
    small, large = ([points[n] for points in series.values()] for n in (least, most))
    network = large[len(model.levels) - 1 :]
    return Computed(
        (Panel("one message, max-rate model", "bytes", series, "time (us)"),),
        (
            Claim(
                "messages inside a socket are cheaper than inside a node, and these than between "
                "nodes", ", ".join(f"{us:.2f}" for us in small) + f" us at {format_size(least)}",
                small == sorted(small),
            ),
            Claim(
                "between nodes, large messages cost more with more senders a node (injection)",
                ", ".join(f"{us:.0f}" for us in network) + f" us at {format_size(most)}",
                network == sorted(network) and network[-1] > 1.1 * network[0],
            ),
        ),
    )  # fmt: skip


def _modelled(setting: Setting, nbytes: int, nodes: int) -> dict[str, float]:
    costs = MaxRate.of(setting.machine, setting.ppn)
    return {name: 1e6 * f(costs, nbytes, nodes, setting.ppn) for name, f in FORMULAS.items()}


def _turned(rows: dict[int, dict[str, float]]) -> Series:
    names = next(iter(rows.values()))
    return {name: {x: row[name] for x, row in rows.items()} for name in names}


def modelled_over_ranks(setting: Setting) -> Computed:
    """Figure 10: equations 4 to 6 for one value, over numbers of processes."""
    rows = {n * setting.ppn: _modelled(setting, 8, n) for n in setting.powers}
    series = _turned(rows)
    return Computed((Panel("one value, modelled", "ranks", series),), (_over_ranks(series),))


def modelled_over_sizes(setting: Setting) -> Computed:
    """Figure 11: equations 4 to 6 over reduction sizes."""
    series = _turned({n: _modelled(setting, n, setting.nodes) for n in setting.sizes})
    costs = MaxRate.of(setting.machine, setting.ppn)
    limit = crossover(costs, NAP, SMP, setting.nodes, setting.ppn)
    marks = {LIMIT: "the paper's crossover: 2048 B", limit: f"this model's: {limit} B"}
    panel = Panel(f"{setting.size} ranks, modelled", "bytes", series, marks=marks)
    return Computed((panel,), (_small(series), _large(series)))


def _over_ranks(series: Series) -> Claim:
    held, every = len(wins(series, NAP)), len(series[NAP])
    most = max(series[NAP])
    gain = min(points[most] / series[NAP][most] for n, points in series.items() if n != NAP)
    return Claim(
        "NAP is the fastest for one value, more so with more processes",
        f"fastest in {held} of {every} numbers of processes; {gain:.2f} times faster than the next "
        f"on {most}", held == every,
    )  # fmt: skip


def _small(series: Series) -> Claim:
    small = [n for n in series[NAP] if n <= LIMIT]
    held = [n for n in wins(series, NAP) if n <= LIMIT]
    last = format_size(max(held)) if held else "no size"
    return Claim(
        "NAP is the fastest up to 2048 bytes",
        f"fastest in {len(held)} of {len(small)} sizes up to 2 KiB; the last is {last}",
        len(held) == len(small),
    )


def _large(series: Series) -> Claim:
    best = {n: name for n, name in fastest(series).items() if n > LIMIT}
    others = {name for name in best.values() if name != SMP}
    return Claim(
        "SMP is the fastest above 2048 bytes",
        "so here" if not others else f"not everywhere: {', '.join(sorted(others))} too",
        not others,
    )


def _ranks(setting: Setting) -> Series:
    return {
        way.name: {
            n * setting.ppn: 1e6 * setting.seconds(way, call("allreduce"), n)
            for n in setting.powers
        }
        for way in WAYS
    }


def simulated_over_ranks(setting: Setting) -> Computed:
    """Figure 12: the cost of an allreduce of one value, over numbers of processes."""
    series = _ranks(setting)
    return Computed((Panel("one value, simulated", "ranks", series),), (_over_ranks(series),))


def faster_over_ranks(setting: Setting) -> Computed:
    """Figure 13: how many times faster NAP is, over numbers of processes."""
    gains = faster(_ranks(setting), NAP)
    smp = gains[f"than {SMP}"]
    powers = [n for n in smp if _is_power(n, setting.ppn)]
    peaks = [n for n in powers if smp[n] > max(smp.get(n // 2, 0), smp.get(2 * n, 0))]
    return Computed(
        (Panel("NAP, one value, simulated", "ranks", gains, FASTER),),
        (
            Claim(
                "NAP is faster than both", f"{min(smp.values()):.2f} to {max(smp.values()):.2f} "
                "times faster than SMP", all(g > 1 for points in gains.values() for g in
                points.values()),
            ),
            Claim(
                "most at powers of the processes a node",
                f"of {_listed(powers)}, {_listed(peaks)} exceed their neighbours",
                peaks == powers,
            ),
        ),
    )  # fmt: skip


def _is_power(ranks: int, ppn: int) -> bool:
    while ranks % ppn == 0 and ppn > 1:
        ranks //= ppn
    return ranks == 1


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def simulated_over_sizes(setting: Setting, gains: bool = False) -> Computed:
    """Figures 14 and 15: the cost over reduction sizes, or how many times faster NAP is."""
    series = setting.over_sizes(WAYS, call("allreduce"))
    title, marks = f"{setting.size} ranks, simulated", {LIMIT: "the paper's crossover"}
    panel = Panel(title, "bytes", series, marks=marks)
    if gains:
        panel = Panel(f"NAP, {title}", "bytes", faster(series, NAP), FASTER, marks)
    return Computed((panel,), (_small(series), _large(series)))


def with_library(setting: Setting) -> Computed:
    """Figures 16 and 17: SMP inside the library against SMP and NAP on top of it.

    What the calls of MPI cost on top of it is half of the overhead of a message.
    """
    levels = tuple(
        k.model_copy(update={"overhead": k.overhead / 2}) for k in setting.machine.levels
    )
    inside = replace(setting, machine=setting.machine.model_copy(update={"levels": levels}))
    series = inside.over_sizes([replace(WAYS[1], name=MPI)], call("allreduce"))
    series |= setting.over_sizes(WAYS[1:], call("allreduce"))
    least = min(setting.sizes)
    cost, gain = (series[name][least] / series[MPI][least] for name in (SMP, NAP))
    return Computed(
        (Panel(f"{setting.size} ranks, simulated", "bytes", series),),
        (
            Claim("SMP on top of MPI is slower than SMP in MPI", f"{cost:.2f} times its time at "
                  f"{format_size(least)}", cost > 1),
            Claim("NAP on top of MPI is slightly faster than SMP in MPI", f"{1 / gain:.2f} times "
                  f"faster at {format_size(least)}", gain < 1),
        ),
    )  # fmt: skip


# ---- where NAP stops to win ---------------------------------------------------------------------


PPNS = (4, 8, 16)
UP_TO = "NAP is faster up to (bytes)"
SIMULATED_NODES = 256
POWERS = tuple(1 << k for k in range(3, 21))  # bytes


def crossovers(setting: Setting) -> Computed:
    """Return up to how many bytes NAP is faster than SMP, over nodes and processes a node."""
    modelled, found = Series(), Series()
    for ppn in (n for n in PPNS if n <= setting.ppn):
        each = replace(setting, ppn=ppn)
        costs = MaxRate.of(setting.machine, ppn)
        limits = {n: crossover(costs, NAP, SMP, n, ppn) for n in each.powers}
        modelled[f"{ppn} a node"] = {n: float(limit) for n, limit in limits.items() if limit}
        wins_up_to = {n: _simulated_crossover(each, n) for n in each.powers if n <= SIMULATED_NODES}
        found[f"{ppn} a node"] = {n: float(limit) for n, limit in wins_up_to.items() if limit}
    panels = [
        Panel(title, "nodes", {name: points for name, points in series.items() if points}, UP_TO)
        for title, series in (("modelled", modelled), ("simulated", found))
    ]
    most = f"{max(PPNS)} a node"
    return Computed(
        tuple(panels),
        tuple(
            _crossing(title, series.get(most, {}))
            for title, series in (("equations 5 and 6", modelled), ("simulated", found))
        ),
    )


def _simulated_crossover(setting: Setting, nodes: int) -> int:
    """Return the largest power of two of bytes at which NAP is faster; 0 if there is none."""

    def slower(nbytes: int) -> bool:
        nap, smp = (setting.seconds(way, call("allreduce", nbytes), nodes) for way in WAYS[:0:-1])
        return nap >= smp

    number = bisect_left(POWERS, True, key=slower)
    return POWERS[number - 1] if number else 0


def _crossing(how: str, points: Points) -> Claim:
    """Return the claim of the crossover on the most nodes; it holds within a factor of two."""
    nodes = max(points, default=0)
    limit = points.get(nodes, 0.0)
    return Claim(
        f"NAP is faster up to {LIMIT} B on 32768 processes ({how})",
        f"up to {limit:.0f} B on {nodes} nodes",
        LIMIT / 2 <= limit <= LIMIT * 2,
        (Printed(f"crossover of NAP and SMP on {nodes} nodes, {how}", LIMIT, limit, "B"),),
    )


NODES, PPN, SIZES = 2048, 16, sizes(8, 128 << 10, 2)
SIMULATED = sizes(8, 32 << 10)
LESS = f"{SHARED} The paper has 32768 processes; --nodes 2048 simulates them."
OVER = (
    "NAP serves one value in one message of a round, so it gains with whole rounds: 256 and 4096 "
    "processes are powers of 16. " + LESS
)
FIGURES = {
    "bienz-5": Figure(PAPER, "cost of one message", one_message, "blue-waters", 2, PPN, SIZES),
    "bienz-10": Figure(
        PAPER, "allreduce of a value over processes, modelled", modelled_over_ranks,
        "blue-waters", NODES, PPN,
    ),
    "bienz-11": Figure(
        PAPER, "allreduce over sizes, modelled", modelled_over_sizes, "blue-waters", NODES, PPN,
        SIZES, "NAP's last whole round is paid in full (section III-A): 2048 nodes of 16 take "
        "three rounds. The paper prints no parameters of Blue Waters; those here are published "
        "numbers and assumptions.",
    ),
    "bienz-12": Figure(
        PAPER, "allreduce of a value over processes, measured there and simulated here",
        simulated_over_ranks, "blue-waters", 256, PPN, why=OVER,
    ),
    "bienz-13": Figure(
        PAPER, "the same as times faster", faster_over_ranks, "blue-waters", 256, PPN, why=OVER,
    ),
    "bienz-14": Figure(
        PAPER, "allreduce over sizes, measured there and simulated here", simulated_over_sizes,
        "blue-waters", 256, PPN, SIMULATED, LESS,
    ),
    "bienz-15": Figure(
        PAPER, "the same as times faster", partial(simulated_over_sizes, gains=True), "blue-waters",
        256, PPN, SIMULATED, LESS,
    ),
    "bienz-crossover": Figure(
        PAPER, "up to which sizes NAP wins, over nodes and processes a node", crossovers,
        "blue-waters", NODES, PPN, printed=True, why="The paper has this number for 2048 nodes of "
        f"16; the simulator runs {SIMULATED_NODES} of them, and up to 1 MiB. {SHARED}",
    ),
    "bienz-16": Figure(
        PAPER, "SMP and NAP on top of MPI, and SMP in MPI, over sizes", with_library, "blue-waters",
        256, PPN, SIMULATED, "The paper has no number for what calls of MPI cost; half of the "
        "overhead is assumed. " + LESS,
    ),
}  # fmt: skip
FIGURES["bienz-17"] = FIGURES["bienz-16"]  # the paper gives both figures the same caption
