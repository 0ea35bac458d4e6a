"""Figure 3 and table 1 of Jocksch et al.: the program of a node, and numbers of factorisations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from han.config.config import load_config
from han.model.program import Base, Code, Program
from han.submodules.exchange.factors import Factors, spell
from han.tasks.choice import Choice, level_choice
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tuning.imagined import ImaginedMachine
from han.tuning.papers.figure import Claim, Found, Panel, Setting
from han.tuning.parts import plan_of_choice

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


def script(program: Program, box: int = BOX) -> list[str]:
    """Spell a program as the script of figure 3.

    Lines 0 and 1 are boxes of the send buffer, 2 and 3 of the receive buffer, 4 and 5 of temporary
    memory.
    """
    lines, waited = ["STEP"], False
    for row in program.code:
        pairs = zip(row["base"], row["off"], strict=True)
        at = [LINES[Base(b)] + int(o) // box for b, o in pairs if b]
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


def program(setting: Setting) -> Found:
    """Figure 3: the program of node 0 of four, factors -2, 2, 2."""
    found = script(lower(_plan(4, SHOWN), 0))
    same = found == SCRIPT.split("\n")
    return Found(
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


def table(setting: Setting) -> Found:
    """Table 1: how many factorisations a reduce-scatter or an allgather may have."""
    series = {
        "recursive exchange": {n: float(count_recursive(n)) for n in COUNTED},
        "cyclic shift": {n: float(count_cyclic(n)) for n in COUNTED},
    }
    ours = " ".join(sorted(spell(factors) for factors in cyclic(8)))
    listed = [set(recursive(8)) <= set(cyclic(8)), count_cyclic(8) == 10]
    return Found(
        (Panel("factorisations", "tasks", series, "number"),),
        (
            Claim(f"a cyclic shift of 8 tasks has ten: {TEN}", ours, ours == TEN),
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
