"""Figures of Jocksch et al.: Flexible allreduce in shared memory and between nodes.

The paper chose its factors by trial; here the fastest of a few factorisations counts. The
libraries that it compares with run Rabenseifner's algorithm (section 2.1.1), for short messages
recursive doubling; here that is messages between all ranks.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from han.common.units import format_size
from han.submodules.exchange.factors import Factors, both_ways, primes, recursive_factors, spell
from han.tasks.signature import Signature
from han.tuning.papers.factorisations import program, table
from han.tuning.papers.figure import (
    Claim,
    Figure,
    Found,
    Panel,
    Setting,
    Way,
    call,
    sizes,
)

PAPER = "Jocksch et al.: Flexible allreduce"
OURS, LIBRARY = "flexible factors", "messages (libraries)"
SHORT = 2048  # bytes up to which libraries double; above they halve
MOST_FACTOR = 64  # of one step
LIBRARIES = (
    Way(LIBRARY, ("network=exchange.recursive_doubling",), "whole", "flat", most=SHORT),
    Way(LIBRARY, ("network=exchange.halving",), "whole", "flat", least=SHORT + 1),
)
IN_NODE = (
    Way(LIBRARY, ("node=exchange.recursive_doubling",), "whole", most=SHORT),
    Way(LIBRARY, ("node=exchange.halving",), "whole", least=SHORT + 1),
)


def _joined(members: int) -> list[Factors]:
    """Return factorisations: the small factors, pairs of them joined, and two large ones."""
    small = recursive_factors(members)
    found = [small]
    if len(small) > 2:
        found.append(tuple(sorted((small[0] * small[1], *small[2:]), reverse=True)))
        half = len(small) // 2
        ends = (prod(small[:half]), prod(small[half:]))
        found.append(tuple(sorted(ends, reverse=True)))
    return list(dict.fromkeys(found))


def ways(ppn: int, level: str = "node") -> list[Way]:
    """Return the candidates inside a node: recursive exchanges, or cyclic shifts for primes."""
    if max(primes(ppn), default=1) > MOST_FACTOR:
        return [
            Way(OURS, (f"{level}=exchange.cyclic",), "whole"),
            Way(OURS, (f"{level}=exchange.copyin",), "whole"),
        ]
    found = [Way(OURS, (f"{level}=exchange.recursive",), "whole")]
    for factors in _joined(ppn):
        signed = spell(both_ways(factors))
        found.append(Way(OURS, (f"{level}=exchange.recursive:factors={signed}",), "whole"))
    return found


def one_node(setting: Setting) -> Found:
    """Figures 9 to 12: an allreduce on one node, and on a prime number of its cores."""
    panels, gains = [], {}
    for ppn in (setting.ppn, prime_below(setting.ppn)):
        found = _node(replace(setting, ppn=ppn), call("allreduce"))
        panels.append(found)
        gains[ppn] = _gain(found)
    (many, best), (prime, worst) = gains.items()
    return Found(
        tuple(panels),
        (
            _abstract(setting, f"up to {best:.1f} times faster on {many} tasks", best),
            Claim(
                "also on a prime number of tasks, by cyclic shifts",
                f"up to {worst:.1f} times faster on {prime} tasks",
                worst > 1,
            ),
        ),
    )


def _abstract(setting: Setting, ours: str, best: float) -> Claim:
    """Return what the abstract says about a machine."""
    if setting.ppn > 2 * (setting.machine.levels[setting.machine.node_level - 1].ranks or 1):
        text = "almost an order of magnitude faster than the libraries on four sockets (abstract)"
        return Claim(text, ours, best >= 7)
    text = "half an order of magnitude faster than the libraries on two sockets (abstract)"
    return Claim(text, ours, best >= 3)


def in_place(setting: Setting) -> Found:
    """Figure 12: the same in place. han runs one program for both, and predicts one time."""
    panel = _node(setting, call("allreduce"))
    return Found(
        (replace(panel, title=f"{panel.title}, in place"),),
        (
            Claim(
                "the same algorithms serve calls in place (section 2.1.4)",
                f"the same program; up to {_gain(panel):.1f} times faster than the libraries",
                _gain(panel) > 1,
            ),
        ),
    )  # fmt: skip


def _node(setting: Setting, signature: Signature) -> Panel:
    every = [*ways(setting.ppn), *IN_NODE]
    series = setting.over_sizes(every, signature)
    return Panel(f"{setting.ppn} tasks on one node, simulated", "bytes", series)


def _gain(panel: Panel) -> float:
    ours, library = (panel.series[name] for name in (OURS, LIBRARY))
    return max(library[n] / ours[n] for n in library)


def prime_below(number: int) -> int:
    """Return the largest prime number that is less; 2 if there is none."""
    return next((n for n in range(number - 1, 2, -1) if primes(n) == [n]), 2)


def across(setting: Setting) -> Found:
    """Figure 13: an allreduce on four nodes; one exchange of factor 4 for each socket."""
    between = f"network=exchange.recursive:factors={setting.nodes}"
    candidates = [
        Way(OURS, (between,), None, "tree"),
        Way(OURS, (between,), None, "lanes"),
        Way(OURS, (), None, "lanes"),
        Way(OURS, ("network=exchange.recursive",), "whole", "flat"),
    ]
    series = setting.over_sizes([*candidates, *LIBRARIES], call("allreduce"))
    least = min(setting.sizes)
    gains = {n: series[LIBRARY][n] / series[OURS][n] for n in setting.sizes}
    long = [g for n, g in gains.items() if n > SHORT]
    title = f"{setting.nodes} nodes of {setting.ppn} tasks, simulated"
    return Found(
        (Panel(title, "bytes", series),),
        (
            Claim(
                "the library is slower for all but very small messages",
                f"{min(long):.1f} to {max(long):.1f} times", min(long) > 1,
            ),
            Claim(
                "equally fast for very small messages",
                f"{gains[least]:.1f} times faster at {format_size(least)}",
                0.8 < gains[least] < 1.25,
            ),
        ),
    )  # fmt: skip


STEPS = sizes(8, 1 << 20, 8)
WHY = (
    "The libraries are Rabenseifner's algorithm in messages, without overhead of software and with "
    "one copy of a message's bytes on each side. The paper reads users' buffers in place (XPMEM); "
    "han's exchange copies them into cells first, which costs large messages a copy. The paper "
    "prints neither costs nor factors."
)
FIGURES = {
    "jocksch-3": Figure(PAPER, "the program of node 0 of four, factors -2, 2, 2", program),
    "jocksch-9": Figure(PAPER, "allreduce on 128 and 127 AMD EPYC cores", one_node, "alps-epyc", 1,
                        128, STEPS, WHY),
    "jocksch-10": Figure(PAPER, "allreduce on 72 and 71 cores of a Grace", one_node, "alps-grace",
                         1, 72, STEPS, WHY),
    "jocksch-11": Figure(PAPER, "allreduce on 288 and 283 cores of four Grace", one_node,
                         "alps-grace", 1, 288, STEPS, WHY),
    "jocksch-12": Figure(PAPER, "allreduce in place on 288 cores of four Grace", in_place,
                         "alps-grace", 1, 288, STEPS, WHY),
    "jocksch-13": Figure(PAPER, "allreduce on four nodes of AMD EPYC; Grace: --machine alps-grace "
                         "--ppn 288", across, "alps-epyc", 4, 128, STEPS, WHY),
    "jocksch-table-1": Figure(PAPER, "numbers of factorisations", table),
}  # fmt: skip
