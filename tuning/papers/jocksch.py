"""Figures of Jocksch et al.: Flexible allreduce in shared memory and between nodes.

The paper chose its factors by trial; here the fastest of a few factorisations counts. The
libraries that it compares with run Rabenseifner's algorithm (section 2.1.1), for short messages
recursive doubling; here that is messages between all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import prod

from han.common.units import format_size
from han.config.config import load_config
from han.model.program import Base, Code, Program
from han.model.series import Panel
from han.submodules.parts.factors import Factors, both_ways, primes, recursive_factors, spell
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.imagined import ImaginedMachine
from han.tuning.papers.figure import (
    Claim,
    Computed,
    Figure,
    Printed,
    Setting,
    Way,
    call,
    gains,
    sizes,
)

BOX = 64  # bytes of a box of figure 3
SHOWN = (-2, 2, 2)
LINES = {Base.SEND: 0, Base.RECV: 2, Base.SCRATCH: 4}
# The right side of figure 3 in the words of section 2.1.2.
SCRIPT = """STEP
FRAC 4 RECVFROM 1
FRAC 1 SENDTO 1
FRAC 2 REDUCEFROM 0 4
STEP
FRAC 4 RECVFROM 2
FRAC 2 SENDTO 2
FRAC 2 REDUCEFROM 2 4
STEP
FRAC 3 RECVFROM 1
FRAC 2 SENDTO 1"""
TEN = "2x2x2 2x3x2 2x4 3x2x2 3x3 4x2 5x2 6x2 7x2 8"  # of eight tasks, section 2.2.2


# ---- figure 3 -----------------------------------------------------------------------------------


def script(program: Program) -> list[str]:
    """Spell a program as the script of figure 3.

    Lines 0 and 1 are boxes of the send buffer, 2 and 3 of the receive buffer, 4 and 5 of temporary
    memory.
    """
    lines, waited = ["STEP"], False
    for row in program.code:
        pairs = zip(row["base"], row["off"], strict=True)
        at = [LINES[Base(b)] + int(o) // BOX for b, o in pairs if b]
        starts = row["code"] in (Code.ISEND, Code.IRECV)
        if starts and waited:
            lines.append("STEP")
        waited = not starts
        if row["code"] == Code.IRECV:
            lines.append(f"FRAC {at[0]} RECVFROM {row['peer']}")
        elif row["code"] == Code.ISEND:
            lines.append(f"FRAC {at[0]} SENDTO {row['peer']}")
        elif row["code"] == Code.REDUCE:
            lines.append(f"FRAC {at[0]} REDUCEFROM {at[1]} {at[2]}")
    return lines


def _plan(nodes: int, factors: Factors) -> Plan:
    machine = ImaginedMachine.even(nodes, 1)
    between = level_choice("exchange", "recursive", factors=factors, whole=0)
    levels = (level_choice("sm", "flat"), between)
    signature = Signature("allreduce", 2 * BOX // 8, 8, "sum", "f8")
    topology = machine.topology(load_config())
    return plan_of_choice(topology, signature, Choice(levels), 1 << 18)


def program(setting: Setting) -> Computed:
    """Figure 3: the program of node 0 of four, factors -2, 2, 2."""
    found = script(lower(_plan(4, SHOWN), 0))
    same = found == SCRIPT.split("\n")
    return Computed(
        claims=(Claim(f"the script of node 0, factors {spell(SHOWN)}", "the same" if same else
                      "another one", same),),
        text=tuple(found),
    )  # fmt: skip


# ---- table 1 ------------------------------------------------------------------------------------


def recursive(tasks: int) -> Iterator[Factors]:
    """Yield the factors of recursive exchanges: ordered factorisations of the number of tasks."""
    if tasks == 1:
        yield ()
    for factor in range(2, tasks + 1):
        if tasks % factor == 0:
            yield from ((factor, *rest) for rest in recursive(tasks // factor))


def cyclic(tasks: int, held: int = 1) -> Iterator[Factors]:
    """Yield the factors of cyclic shifts: the last one is the least that reaches all tasks."""
    last = -(-tasks // held)
    yield (last,)
    for factor in range(2, last):
        yield from ((factor, *rest) for rest in cyclic(tasks, held * factor))


@cache
def count_recursive(tasks: int) -> int:
    """Return how many factorisations ``recursive`` yields."""
    return 1 if tasks == 1 else sum(
        count_recursive(tasks // f) for f in range(2, tasks + 1) if tasks % f == 0
    )  # fmt: skip


@cache
def count_cyclic(tasks: int) -> int:
    """Return how many factorisations ``cyclic`` yields for so many tasks."""
    return 1 + sum(count_cyclic(-(-tasks // f)) for f in range(2, tasks))


COUNTED = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 71, 72, 127, 128, 283, 288)


def table(setting: Setting) -> Computed:
    """Table 1: how many factorisations a reduce-scatter or an allgather may have."""
    series = {
        "recursive exchange": {n: float(count_recursive(n)) for n in COUNTED},
        "cyclic shift": {n: float(count_cyclic(n)) for n in COUNTED},
    }
    ours = " ".join(sorted(spell(factors) for factors in cyclic(8)))
    listed = [set(recursive(8)) <= set(cyclic(8)), count_cyclic(8) == 10]
    return Computed(
        (Panel("factorisations", "tasks", series, "number"),),
        (
            Claim(f"a cyclic shift of 8 tasks has ten: {TEN}", ours, ours == TEN,
                  (Printed("factorisations of 8 tasks", 10, len(ours.split()), "number"),)),
            Claim(
                "they include those of the recursive exchange",
                f"{count_recursive(8)} of {count_cyclic(8)}", all(listed),
            ),
            Claim(
                "a recursive exchange of a prime number of tasks has one",
                str(count_recursive(127)),
                count_recursive(127) == 1,
            ),
        ),
    )  # fmt: skip


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


# ---- figures 9 to 13 ----------------------------------------------------------------------------


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


def ways(ppn: int) -> list[Way]:
    """Return the candidates inside a node: recursive exchanges, or cyclic shifts for primes."""
    if max(primes(ppn), default=1) > MOST_FACTOR:
        return [
            Way(OURS, ("node=exchange.cyclic",), "whole"),
            Way(OURS, ("node=exchange.copyin",), "whole"),
        ]
    found = [Way(OURS, ("node=exchange.recursive",), "whole")]
    for factors in _joined(ppn):
        signed = spell(both_ways(factors))
        found.append(Way(OURS, (f"node=exchange.recursive:factors={signed}",), "whole"))
    return found


def one_node(setting: Setting) -> Computed:
    """Figures 9 to 12: an allreduce on one node, and on a prime number of its cores."""
    panels, most = [], {}
    for ppn in (setting.ppn, prime_below(setting.ppn)):
        found = _node(replace(setting, ppn=ppn), call("allreduce"))
        panels.append(found)
        most[ppn] = _gain(found)
    (many, best), (prime, worst) = most.items()
    return Computed(
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


def in_place(setting: Setting) -> Computed:
    """Figure 12: the same in place. han runs one program for both, and predicts one time."""
    panel = _node(setting, call("allreduce"))
    return Computed(
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
    return max(gains(panel.series, OURS, LIBRARY).values())


def prime_below(number: int) -> int:
    """Return the largest prime number that is less; 2 if there is none."""
    return next((n for n in range(number - 1, 2, -1) if primes(n) == [n]), 2)


def across(setting: Setting) -> Computed:
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
    found = gains(series, OURS, LIBRARY)
    long = [g for n, g in found.items() if n > SHORT]
    title = f"{setting.nodes} nodes of {setting.ppn} tasks, simulated"
    return Computed(
        (Panel(title, "bytes", series),),
        (
            Claim(
                "the library is slower for all but very small messages",
                f"{min(long):.1f} to {max(long):.1f} times", min(long) > 1,
            ),
            Claim(
                "equally fast for very small messages",
                f"{found[least]:.1f} times faster at {format_size(least)}",
                0.8 < found[least] < 1.25,
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
    "jocksch-table-1": Figure(PAPER, "numbers of factorisations", table, printed=True),
}  # fmt: skip
