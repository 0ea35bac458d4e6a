"""Trees and buffers of Jain et al.: collectives inside a node by release and gather (RG).

Figure 11 and the text of sections VI-A and VI-B: what each of the paper's optimisations is worth.
Each call is predicted alone, as the paper measures calls with a barrier between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from han.common.units import format_size
from han.model.series import Panel
from han.tuning.papers.figure import (
    Claim,
    Computed,
    Figure,
    Points,
    Printed,
    Series,
    Setting,
    Way,
    call,
    gains,
    sizes,
)

PAPER = "Jain et al.: Collectives inside a node by release and gather"
KiB, MiB = 1 << 10, 1 << 20
RG = "RG"
SMALL, LARGE = 512, 8 * KiB  # bytes from which the trees of a reduce change (section VI)
RING = "chunk=8KiB,cells=4"
NOT_INLINE = "inline=false"  # the paper keeps data and flags apart (section VI)
CELLS = f"{RING},{NOT_INLINE}"
STEPS = sizes(8, 4 * MiB)
WHY = (
    "The paper names processors and caches of its machine, and prints no costs; "
    "configs/machines/skylake.yaml says which are assumed. In the simulator all readers of a flag "
    "or of a cell get it at the same time, as if its cache line came to all of them at once."
)


# ---- ways to carry out calls --------------------------------------------------------------------


def flat(cells: str = CELLS) -> str:
    """Spell the broadcast of the paper."""
    return f"sm.flat:{cells}"


def unaware(radix: int, cells: str = CELLS) -> str:
    """Spell a reduce along a k-nomial tree of all ranks."""
    return f"sm.knomial:radix={radix},{cells}"


def aware(radix: int, cells: str = CELLS, leaders: str = "last", skew: str = "right") -> str:
    """Spell a reduce along k-ary trees in sockets, and a tree of their leaders."""
    tree = f"leaders={leaders},skew={skew},socket_tree=kary,socket_radix={radix}"
    return f"sm.kary:{tree},{cells}"


def on_node(name: str, node: str, least: int = 0, most: int | None = None) -> Way:
    """Return a way to carry out calls on one node."""
    return Way(name, (f"node={node}",), "whole", least=least, most=most)


def by_size(name: str, cells: str = CELLS, more: str = "") -> list[Way]:
    """Return the paper's reduce, whose trees depend on the size (section VI)."""
    bounds = ((unaware(4, cells), 0, SMALL), (aware(3, cells), SMALL, LARGE))
    found = [on_node(name, spelt + more, least, most - 1) for spelt, least, most in bounds]
    return [*found, on_node(name, aware(2, cells) + more, LARGE)]


# ---- figure 11: trees of a reduce ---------------------------------------------------------------


AWARE, UNAWARE = "topology-aware", "topology-unaware"
FIRST, LEFT, K2, K3 = "leaders first", "skewed left", "K = 2", "K = 3"
ALONG = (
    on_node(AWARE, aware(3), most=4 * KiB),
    on_node(AWARE, aware(2), least=4 * KiB + 1),
    on_node(UNAWARE, unaware(8), most=16 * KiB),
    on_node(UNAWARE, unaware(2), least=16 * KiB + 1),
)
SHAPED = (
    *by_size(RG),
    on_node(FIRST, aware(3, leaders="first"), least=SMALL, most=LARGE - 1),
    on_node(FIRST, aware(2, leaders="first"), least=LARGE),
    on_node(LEFT, aware(3, skew="left"), least=SMALL, most=LARGE - 1),
    on_node(LEFT, aware(2, skew="left"), least=LARGE),
)
BRANCHES = (on_node(K2, aware(2)), on_node(K3, aware(3)))
NOMIAL = tuple(on_node(f"K = {k}", unaware(k), most=SMALL - 1) for k in (2, 3, 4, 8))


def trees(setting: Setting) -> Computed:
    """Figure 11: topology-aware and topology-unaware trees of a reduce; the text of VI-B."""
    along, shaped, branches, nomial = (
        setting.over_sizes(ways, call("reduce")) for ways in (ALONG, SHAPED, BRANCHES, NOMIAL)
    )
    gain = gains(along, AWARE, UNAWARE)
    small, large = split(gain, SMALL)
    panels = (
        Panel("reduce, simulated", "bytes", along),
        Panel("trees by sockets, by order of children", "bytes", shaped),
        Panel("trees by sockets, by branching factor", "bytes", branches),
        Panel("trees of all ranks, by branching factor", "bytes", nomial),
    )
    return Computed(
        panels,
        (
            at_most("topology-aware trees are faster, up to", 1.8, large),
            Claim(
                "trees of all ranks are slightly faster below 512 B", spread(small),
                max(small.values(), default=2.0) <= 1.0,
            ),
            *(_order(shaped, name) for name in (FIRST, LEFT)),
            _slower(branches, K2, K3, LARGE, None, 1.17),
            _slower(branches, K3, K2, SMALL, LARGE, 1.03),
            _slower(nomial, "K = 4", K2, 0, SMALL, 1.15),
            _slower(nomial, "K = 4", K3, 0, SMALL, 1.20),
            _slower(nomial, "K = 4", "K = 8", 0, SMALL, 1.0),
        ),
    )  # fmt: skip


def split(points: Points, bound: int) -> tuple[Points, Points]:
    """Return the values below a size, and the others."""
    below = {x: value for x, value in points.items() if x < bound}
    return below, {x: value for x, value in points.items() if x >= bound}


def spread(points: Points) -> str:
    """Spell the least and the largest of some gains."""
    if not points:
        return "no size"
    return f"{min(points.values()):.2f} to {max(points.values()):.2f} times"


def at_most(about: str, said: float, points: Points) -> Claim:
    """Return the claim of a largest gain; it holds if what is found is close to it."""
    one = Printed(about.rstrip(","), said, max(points.values(), default=0.0))
    return Claim(f"{about} {said} times", spread(points), one.close, (one,))


def _order(series: Series, other: str) -> Claim:
    """Return the claim of both orders of children: 1.1 to 1.25 times below 64 KB, less above."""
    all_sizes = gains(series, RG, other)
    below, above = split(all_sizes, 64 * KiB)
    about = f"leaders last and right skew, beside {other}"
    low, high = (pick(below.values(), default=0.0) for pick in (min, max))
    numbers = (
        Printed(f"{about}: least below 64 KB", 1.1, low),
        Printed(f"{about}: most below 64 KB", 1.25, high),
    )
    return Claim(
        f"{about}: 1.1 to 1.25 times faster below 64 KB, less above",
        f"{spread(below)} below, {spread(above)} above",
        all(one.close for one in numbers) and max(above.values(), default=0.0) <= high,
        numbers,
    )


def _slower(
    series: Series, name: str, other: str, least: int, below: int | None, said: float
) -> Claim:
    """Return the claim of how much slower at most another way is, for some sizes."""
    found = {
        x: gain
        for x, gain in gains(series, name, other).items()
        if least <= x and (below is None or x < below)
    }
    where = f"below {format_size(below)}" if below else f"from {format_size(least)} on"
    where = f"from {format_size(least)} to {format_size(below)}" if least and below else where
    about = f"{where}, {other} is slower than {name}, up to"
    return at_most(about, said, found)


# ---- sections VI-A and VI-B: buffers and flags --------------------------------------------------


BUFFERS = {count: f"chunk={32 // count}KiB,cells={count},{NOT_INLINE}" for count in (1, 2, 4, 8)}
WAITS = ",trailing=true"  # a rank waits until its only buffer has been read
OWN_FLAGS, COPIED = "own flags", "with a copy more"


def buffers(setting: Setting) -> Computed:
    """Sections VI-A and VI-B: numbers of buffers, the parent's flag, and the copy of the root."""
    bcasts: list[Way] = []
    reduces: list[Way] = []
    for count, cells in BUFFERS.items():
        spelt = cells + (WAITS if count == 1 else "")
        bcasts.append(on_node(_buffers(count), flat(spelt)))
        reduces += by_size(_buffers(count), spelt)
    bcasts.append(on_node(OWN_FLAGS, flat(f"{CELLS},read_parent_flag=false")))
    reduces += by_size(OWN_FLAGS, more=",read_parent_flag=false")
    reduces += by_size(COPIED, more=",in_recv=false")
    bcast = setting.over_sizes(bcasts, call("bcast"))
    reduced = setting.over_sizes(reduces, call("reduce"))
    return Computed(
        (Panel("bcast, simulated", "bytes", bcast), Panel("reduce, simulated", "bytes", reduced)),
        (
            *_counts("bcast", bcast, small=1.9, large=None, eight=1.35),
            *_counts("reduce", reduced, small=1.2, large=2.3, eight=1.25),
            Claim(
                "reading the parent's flag is beneficial in a broadcast",
                spread(gains(bcast, _buffers(4), OWN_FLAGS)),
                max(gains(bcast, _buffers(4), OWN_FLAGS).values()) > 1,
            ),
            at_most("a reduce with a copy more is slower, up to", 1.08,
                  gains(reduced, _buffers(4), COPIED)),
        ),
    )  # fmt: skip


def _buffers(count: int) -> str:
    return f"{count} buffers" if count > 1 else "1 buffer"


def _counts(
    name: str, series: Series, small: float, large: float | None, eight: float
) -> Iterable[Claim]:
    """Yield the claims about numbers of buffers: one is slower, eight are, two are enough."""
    four = partial(gains, series, _buffers(4))
    below, above = split(four(_buffers(1)), LARGE)
    yield at_most(f"{name}: one buffer is slower for small messages, up to", small, below)
    if large is not None:
        yield at_most(f"{name}: one buffer is slower for large messages, up to", large, above)
    _, above = split(four(_buffers(8)), 32 * KiB + 1)
    yield at_most(f"{name}: eight buffers are slower for large messages, up to", eight, above)
    two = four(_buffers(2))
    yield Claim(
        f"{name}: two buffers are enough", f"{spread(two)} slower", max(two.values()) <= 1.1
    )


FIGURES = {
    "jain-11": Figure(PAPER, "trees of a reduce: by sockets, order, branching factor", trees,
                      "skylake", 1, 40, STEPS, WHY, True),
    "jain-buffers": Figure(PAPER, "numbers of buffers, the parent's flag, the root's copy", buffers,
                           "skylake", 1, 40, STEPS, WHY, True),
}  # fmt: skip
