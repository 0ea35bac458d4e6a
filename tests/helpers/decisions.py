"""Built-in choices over a grid of calls, as text and as a digest of each collective.

To write the files that tests compare with, after a change that is meant to change choices:
``python tests/helpers/decisions.py``
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

from machines import topology_of

from han.common.units import format_size
from han.model.collectives import COLLECTIVES, ROWS
from han.model.facts import COMPOSITIONS
from han.model.topology import Topology, virtual
from han.tasks.choice import Choice
from han.tasks.compositions import as_called
from han.tasks.outline import levels_of
from han.tasks.signature import Signature
from han.tuning.built_in.choosing import NodeTraits, choose

HERE = Path(__file__).parents[1] / "tuning"
TEXT, DIGESTS = HERE / "built_in_choices.txt", HERE / "built_in_digests.json"
KiB = 1 << 10
EDGES = sorted(
    {
        *(m << k for m in (1, 3) for k in range(3, 28)),
        *(m * 8 * KiB for m in (7, 15, 16, 31, 33, 63)),
        *(m * 16 * KiB for m in (7, 9, 11, 13, 17)),
    }
)
SIZES = sorted({0, *(n + d for n in EDGES for d in (0, 1))})
WIDE = 5000  # bytes of an element that fills no cell
VARIANTS = ("plain", "mapped", "in place", "uneven", "wide")
OPERATIONS = (("sum", True, True), ("user", True, False), ("matmul", False, False))
SHOWN = ("2 ranks", "4 ranks", "8 ranks", "8 ranks by (4,), nodes")
SHOWN_CALLS = ("plain", "plain sum", "plain root 0", "plain sum root 0", "mapped sum")
STRIDE = 17  # of the cases, one in so many counts for a digest
TRAITS = tuple(NodeTraits(*both) for both in product((False, True), repeat=2))


@cache
def machines() -> dict[str, Topology]:
    """Return machines of 1 to 64 ranks on 1 to 4 levels, some uneven, some without a channel."""
    found = {f"{n} ranks": virtual(n) for n in (1, 2, 3, 4, 5, 8, 9, 64)}
    for n, sizes in ((8, (4,)), (6, (2,)), (33, (1,)), (22, (2,)), (26, (2,)), (64, (2, 8, 32))):
        whole = virtual(n, *sizes)
        found[f"{n} ranks by {sizes}"] = whole
        found[f"{n} ranks by {sizes}, nodes"] = replace(whole, memory=whole.domains[0])
        found[f"{n} ranks by {sizes}, apart"] = replace(whole, memory=tuple(range(n)))
    three = virtual(48, 8, 16)
    found["48 ranks by (8, 16), nodes"] = replace(three, memory=three.domains[1])
    found["interleaved"] = topology_of([[0, 1, 0, 1, 1], [0] * 5], 0)
    found["uneven"] = topology_of([[0, 0, 1, 1, 2], [0, 0, 0, 0, 1], [0] * 5], 1)
    for name in ("5 ranks", "8 ranks", "64 ranks", "8 ranks by (4,), nodes"):
        one = found[name]
        found[f"{name}, sockets"] = replace(
            one, sockets=tuple(r // 2 % 2 + 2 * m for r, m in enumerate(one.memory))
        )
    return {name: replace(one, attach=True) for name, one in found.items()}


def calls(collective: str) -> Iterator[tuple[str, Signature]]:
    """Yield the calls of a collective by what is special about them; sizes are put in later."""
    row = ROWS[collective]
    for variant in VARIANTS:
        fits = {
            "in place": row.replaces,
            "uneven": row.uneven,
            "mapped": row.recv,
            "wide": row.recv,
        }
        if not fits.get(variant, True):
            continue
        for op, commutes, native in OPERATIONS if row.reduces else (("", True, True),):
            for root in (0, 1) if row.rooted else (0,):
                element = WIDE if variant == "wide" else 1
                one = Signature(
                    collective, 0, element, op, "f8", commutes, native, root,
                    mapped=variant == "mapped", in_place=variant == "in place",
                    varied=variant == "uneven",
                )  # fmt: skip
                yield (
                    " ".join(filter(None, (variant, op, f"root {root}" if row.rooted else ""))),
                    one,
                )


def described(choice: Choice, topology: Topology, signature: Signature) -> str:
    """Return what levels on which a call communicates run."""
    view = as_called(topology, signature, choice.composition)
    levels = [choice.levels[k].describe() for k in levels_of(view, signature)]
    cut = f"; {format_size(choice.segment)}" if choice.segment is not None else ""
    return " < ".join(levels) + cut


def ranges(
    signature: Signature, topology: Topology, traits: NodeTraits, name: str
) -> Iterator[tuple[int, str]]:
    """Yield the sizes from which on another choice holds, and the choice."""
    last = ""
    for nbytes in SIZES if ROWS[signature.collective].recv else (0,):
        one = replace(signature, count=nbytes // signature.element)
        text = described(choose(one, topology, traits, name), topology, one)
        if text != last:
            yield nbytes, text
        last = text


class Case(NamedTuple):
    """A call without its size on a machine; `name` is a composition."""

    about: str
    machine: str
    traits: NodeTraits
    attach: bool
    signature: Signature
    name: str

    def line(self) -> str:
        """Return the sizes from which on another choice holds, and the choices."""
        topology = replace(machines()[self.machine], attach=self.attach)
        rows = ranges(self.signature, topology, self.traits, self.name)
        told = ", ".join(f"{format_size(n)}: {text}" for n, text in rows)
        facts = {
            "mesh": self.traits.mesh,
            "turns": self.traits.oversubscribed,
            "unattached": not self.attach,
        }
        where = " ".join([self.machine, *(fact for fact, holds in facts.items() if holds)])
        return f"{self.about} | {where} | {self.name} | {told}"


def cases(collective: str) -> Iterator[Case]:
    """Yield all cases of a collective."""
    names = ("tree", "lanes") if ROWS[collective].by_blocks else COMPOSITIONS
    for (machine, topology), traits, attach in product(machines().items(), TRAITS, (True, False)):
        for (about, signature), name in product(calls(collective), names):
            if signature.root < topology.size:
                yield Case(f"{collective} {about}", machine, traits, attach, signature, name)


def digest(collective: str) -> str:
    """Return what stands for the choices of a collective."""
    text = hashlib.sha256()
    for case in islice(cases(collective), 0, None, STRIDE):
        text.update(f"{case.line()}\n".encode())
    return text.hexdigest()[:16]


def shown() -> str:
    """Return the choices of usual calls on a few machines as text."""
    return "".join(
        f"{case.line()}\n"
        for collective in COLLECTIVES
        for case in cases(collective)
        if case.machine in SHOWN and case.about.split(" ", 1)[-1] in SHOWN_CALLS
        if case.attach and not case.traits.oversubscribed and case.name == "tree"
    )


if __name__ == "__main__":
    TEXT.write_text(shown(), encoding="utf-8")
    DIGESTS.write_text(json.dumps({name: digest(name) for name in COLLECTIVES}, indent=1) + "\n")
