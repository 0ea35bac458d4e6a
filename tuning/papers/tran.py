"""Figures of Tran et al.: allgather that uses all adapters of a node (multi-HCA aware, MHA).

Figures 11 and 12 are drawings in the paper; here they are what they say, by equations 1 and 2. The
others are measurements. Here MHA is equations 2, 6 and 7, and what stands for libraries are the
algorithms of section 2.2 among all ranks: in recursive doubling the ranks of a node share all
adapters, and a ring gains nothing by them. han's lines are its programs in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from textwrap import wrap

from han.common.units import format_size, plural
from han.model.series import Panel
from han.tuning import multi_rail
from han.tuning.formulas import faster_up_to
from han.tuning.multi_rail import Hockney
from han.tuning.papers.figure import (
    CLOSE,
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
    modelled,
    sizes,
)

PAPER = "Tran et al.: Accelerating communication with multi-HCA aware collectives"
KiB, MiB = 1 << 10, 1 << 20
MHA, RD, RING, LIBRARIES = "MHA", "recursive doubling", "ring", "one level (libraries)"
LEADERS, LANES, KEPT = "han, leaders", "han, lanes", "no offload"
RAILS = (1, 2, 4, 8)
SMALL, LARGE = KiB, 16 * KiB  # the paper's bounds of small and of large messages, section 2.2
RING_FROM = 2000  # bytes, section 2.2.1
THAN = "less time than HPC-X and MVAPICH2-X"
NEAR = 10  # percentage points within which a number counts as the paper's
ALLGATHERS = (
    Way(LEADERS, ("network=bundle.doubling",), None, "tree"),
    Way(LEADERS, ("network=bundle.ring",), None, "tree"),
    Way(LANES, ("network=bundle.ring",), None, "lanes"),
)
ALLREDUCES = (Way(LEADERS, (), None, "tree"), Way(LANES, (), None, "lanes"))
Seconds = Callable[[Setting, int], float]  # of a block or a message of so many bytes


# ---- the models at a setting --------------------------------------------------------------------


def _costs(setting: Setting, rails: int = 0, contention: float = 1.0) -> Hockney:
    return Hockney.of(setting.machine, contention, rails or setting.machine.node.rails)


def in_node(setting: Setting, nbytes: int, rails: int) -> float:
    """Return the seconds of equation 2, with the offload of equation 1; of 0 rails without it."""
    h = _costs(setting, rails)
    offload = multi_rail.offloaded(h, nbytes, setting.ppn) if rails else 0.0
    return multi_rail.allgather_in_node(h, nbytes, setting.ppn, offload)


def doubled(setting: Setting, nbytes: float, rails: int = 0) -> float:
    """Return the seconds of equation 6, with the offload of equation 1."""
    h, nodes, ppn = _costs(setting, rails), setting.nodes, setting.ppn
    offload = multi_rail.offloaded(h, nbytes, ppn)
    return multi_rail.allgather_doubling(h, nbytes, nodes, ppn, offload)


def rung(setting: Setting, nbytes: float, rails: int = 0) -> float:
    """Return the seconds of equation 7, with the offload of equation 1."""
    h, nodes, ppn = _costs(setting, rails), setting.nodes, setting.ppn
    offload = multi_rail.offloaded(h, nbytes, ppn)
    return multi_rail.allgather_ring(h, nbytes, nodes, ppn, offload)


def mha(setting: Setting, nbytes: float, rails: int = 0) -> float:
    """Return the seconds of the faster one of both."""
    return min(doubled(setting, nbytes, rails), rung(setting, nbytes, rails))


def flat_doubling(setting: Setting, nbytes: float) -> float:
    """Return the seconds of recursive doubling among all ranks; those of a node share all rails."""
    h = _costs(setting, contention=setting.ppn)
    return multi_rail.doubling(h, nbytes, setting.nodes, setting.ppn)


def flat_ring(setting: Setting, nbytes: float) -> float:
    """Return the seconds of a ring of all ranks."""
    return multi_rail.ring(_costs(setting), nbytes, setting.nodes, setting.ppn)


def flat(setting: Setting, nbytes: float) -> float:
    """Return the seconds of the faster one of both among all ranks."""
    return min(flat_doubling(setting, nbytes), flat_ring(setting, nbytes))


def ring_allreduce(setting: Setting, nbytes: int) -> float:
    """Return the seconds of a ring allreduce of all ranks."""
    return multi_rail.allreduce_ring(_costs(setting), nbytes, setting.nodes, setting.ppn)


def mha_allreduce(setting: Setting, nbytes: int) -> float:
    """Return the seconds of the ring's reduce-scatter, then MHA's allgather (section 5.4)."""
    first = multi_rail.ring_reduce_scatter(_costs(setting), nbytes, setting.nodes, setting.ppn)
    return first + mha(setting, nbytes / setting.size)


# ---- what figures and claims share --------------------------------------------------------------


def _series(setting: Setting, formulas: Mapping[str, Seconds]) -> Series:
    return modelled(setting.sizes, {name: partial(f, setting) for name, f in formulas.items()})


def _panel(setting: Setting, series: Series) -> Panel:
    return Panel(f"{plural(setting.nodes, 'node')} of {setting.ppn}", "bytes", series)


def _parts(setting: Setting, count: int) -> list[Setting]:
    """Return the settings of a figure's parts: on all nodes, half of them before, and so on."""
    return [replace(setting, nodes=max(2, setting.nodes >> k)) for k in reversed(range(count))]


def better(series: Series, name: str, other: str) -> Points:
    """Return how much less time one way takes than another one, in percent."""
    return {x: 100 * (1 - 1 / gain) for x, gain in gains(series, name, other).items()}


def _percents(about: str, said: tuple[int, ...], ours: float, more: str = "") -> Claim:
    """Return the claim of some numbers; it holds if what is found is within NEAR points of them."""
    told = " and ".join(f"{percent} %" for percent in said)
    near = min(said) - NEAR <= ours <= max(said) + NEAR
    both = (f"less time than {library}" for library in ("HPC-X", "MVAPICH2-X"))
    names = (about.replace(THAN, than) for than in both) if len(said) > 1 else (about,)
    pairs = zip(names, said, strict=True)
    numbers = tuple(Printed(name, percent, ours, "%") for name, percent in pairs)
    return Claim(f"{about}: {told}", f"{ours:.0f} %{more}", near, numbers)


def _falls(numbers: Sequence[float]) -> bool:
    return all(a > b for a, b in pairwise(numbers))


# ---- figures 11, 12 and 15: what is offloaded, and how leaders send ------------------------------


def offload(setting: Setting) -> Computed:
    """Figure 11: the part of a process' transfers that equation 1 leaves to the adapters."""
    nbytes, ranks = max(setting.sizes), replace(setting, nodes=setting.ppn).powers
    series: Series = {}
    for rails in RAILS:
        h = _costs(setting, rails)
        parts = {p: 100 * multi_rail.offloaded(h, nbytes, p) / (p - 1) for p in ranks}
        series[plural(rails, "rail")] = parts
    (few, *_, many), all_rails = series["2 rails"].values(), [p[ranks[-1]] for p in series.values()]
    title = f"blocks of {format_size(nbytes)}, equation 1"
    return Computed(
        (Panel(title, "ranks", series, "offloaded (percent)"),),
        (
            Claim("the offloaded portion gets smaller with more processes", f"{few:.1f} % of "
                  f"{ranks[0]}, {many:.1f} % of {ranks[-1]} with 2 rails",
                  _falls([*series["2 rails"].values()])),
            Claim("more processes need more adapters", f"{all_rails[-1]:.1f} % of {ranks[-1]} with "
                  f"{RAILS[-1]} rails", _falls(all_rails[::-1])),
        ),
    )  # fmt: skip


def latency_over_offload(setting: Setting) -> Computed:
    """Figure 12: the time of an allgather on a node over what each process offloads."""
    h, nbytes, ppn = _costs(setting), max(setting.sizes), setting.ppn
    series: Series = {"processors": {}, "adapters": {}, "both": {}}
    for eighths in range(1, 8 * (ppn - 1)):
        times = multi_rail.shares(h, nbytes, ppn, eighths / 8)
        for name, seconds in zip(series, (*times, max(times)), strict=True):
            series[name][eighths * nbytes // 8] = 1e6 * seconds
    best = min(series["both"], key=series["both"].__getitem__) / nbytes
    meet = multi_rail.offloaded(h, nbytes, ppn)
    title = f"{ppn} processes, blocks of {format_size(nbytes)}, equation 2"
    marks = {round(meet * nbytes): f"equation 1: {meet:.2f} blocks"}
    return Computed(
        (Panel(title, "bytes of a process that are offloaded", series, "latency (us)", marks),),
        (
            Claim("the best offload is where the falling and the rising line meet",
                  f"they meet at {meet:.2f} blocks; of all eighths {best:.2f} blocks are the best",
                  abs(best - meet) <= 1 / 8),
        ),
    )  # fmt: skip


def leaders(setting: Setting) -> Computed:
    """Figure 15: recursive doubling and the ring between leaders, on two numbers of nodes."""
    panels, limits = [], []
    for each in _parts(setting, 2):
        series = _series(each, {RD: doubled, RING: rung})
        limits.append(faster_up_to(partial(doubled, each), partial(rung, each)))
        marks = {limits[-1]: f"crossover: {limits[-1]} B"} if limits[-1] else {}
        panels.append(replace(_panel(each, series), marks=marks))
    found = " and ".join(f"{limit} B" for limit in limits)
    return Computed(
        tuple(panels),
        (Claim("RD outperforms the ring for small sizes", f"up to {found}", all(limits)),),
    )


# ---- figures 16 and 17: the models beside programs ----------------------------------------------


def _validated(setting: Setting, series: Series, model: str, program: str) -> Computed:
    """Return the claim that the model of a program is close: neither is 1.25 times the other."""
    ratios = gains(series, program, model).values()
    ours = f"{model}: {min(ratios):.2f} to {max(ratios):.2f} times {program}, simulated"
    holds = min(ratios) > 1 / CLOSE and max(ratios) < CLOSE
    claim = Claim("predicted latency is close to the measured one", ours, holds)
    return Computed((_panel(setting, series),), (claim,))


def model_in_node(setting: Setting) -> Computed:
    """Figure 16: equation 2 on one node, beside han's program, which offloads nothing."""
    rails = {MHA: setting.machine.node.rails, KEPT: 0}
    series = _series(setting, {name: partial(in_node, rails=n) for name, n in rails.items()})
    series |= setting.over_sizes([Way("han")], call("allgather"))
    return _validated(setting, series, KEPT, "han")


def model_over_nodes(setting: Setting) -> Computed:
    """Figure 17: equations 6 and 7 by numbers of rails, beside han's programs."""
    names = {n: f"{MHA}, {plural(n, 'rail')}" for n in RAILS}
    series = _series(setting, {name: partial(mha, rails=n) for n, name in names.items()})
    series |= setting.over_sizes(ALLGATHERS, call("allgather"))
    return _validated(setting, series, names[2], LEADERS)


# ---- figures 18 to 25: beside libraries ---------------------------------------------------------


ON_ONE_NODE = {2: (64, 65), 4: (60, 73), 8: (44, 56), 16: (35, 10)}


def one_node(setting: Setting) -> Computed:
    """Figure 18: an allgather with and without offload, on 2 to 16 processes of a node."""
    panels, claims, most = [], [], []
    names = {KEPT: 0, **{plural(n, "rail"): n for n in RAILS}}
    for ppn in replace(setting, nodes=setting.ppn).powers:
        each = replace(setting, ppn=ppn)
        series = _series(each, {name: partial(in_node, rails=n) for name, n in names.items()})
        panels.append(replace(_panel(each, series), title=f"{ppn} processes"))
        two, eight = (max(better(series, k, KEPT).values()) for k in ("2 rails", "8 rails"))
        more = f" less than without offload; {eight:.0f} % with 8 rails"
        if ppn in ON_ONE_NODE:
            claims.append(_percents(f"{ppn} processes, {THAN}", ON_ONE_NODE[ppn], two, more))
        most.append(two)
    told = ", ".join(f"{percent:.1f} %" for percent in most)
    trend = Claim("the benefit decreases with the number of processes", told, _falls(most))
    return Computed(tuple(panels), (*claims, trend))


def algorithms(setting: Setting, count: int) -> Computed:
    """Figures 19 and 20: MHA beside recursive doubling and a ring of all ranks."""
    panels, small, large = [], [], []
    for each in _parts(setting, count):
        series = _series(each, {MHA: mha, RD: flat_doubling, RING: flat_ring})
        panels.append(_panel(each, series))
        small += [percent for n, percent in better(series, MHA, RD).items() if n < SMALL]
        large += [percent for n, percent in better(series, MHA, RING).items() if n >= LARGE]
    first = _parts(setting, count)[0]
    limit = faster_up_to(partial(flat_doubling, first), partial(flat_ring, first))
    return Computed(
        tuple(panels),
        (
            Claim("256 processes: a ring is faster than RD above 2 KB (figure 5)", f"above {limit} "
                  f"B on {first.size} processes", RING_FROM / 2 <= limit <= RING_FROM * 2,
                  (Printed("a ring is faster than RD above", RING_FROM, limit, "B"),)),
            _percents("less time than RD, small messages", (47,), max(small, default=0.0)),
            _percents("less time than a ring, large messages", (41,), max(large, default=0.0)),
        ),
    )  # fmt: skip


def allgather(setting: Setting, ranks: int, said: tuple[int, int]) -> Computed:
    """Figures 21 to 23: MHA and han's programs beside libraries."""
    series = _series(setting, {MHA: mha, LIBRARIES: flat})
    series |= setting.over_sizes(ALLGATHERS, call("allgather"))
    return Computed((_panel(setting, series),), (_up_to(setting, series, ranks, said),))


def _up_to(setting: Setting, series: Series, ranks: int, said: tuple[int, int]) -> Claim:
    """Return the claim about the paper's number of ranks, beside what is found at a setting."""
    most = [max(better(series, name, LIBRARIES).values()) for name in (MHA, LEADERS, LANES)]
    more = (
        f" less than one level on {setting.size}; han's leaders {most[1]:.0f} %, lanes "
        f"{most[2]:.0f} %"
    )
    return _percents(f"{ranks} processes, up to so much {THAN}", said, most[0], more)


def ring_with_mha(setting: Setting) -> Computed:
    """Figure 24: a ring allreduce of all ranks, and the same with MHA's allgather."""
    panels, claims = [], []
    for each, (ranks, said) in zip(_parts(setting, 2), ((256, 10), (512, 26)), strict=True):
        series = _series(each, {MHA: mha_allreduce, RING: ring_allreduce})
        panels.append(_panel(each, series))
        percents = list(better(series, MHA, RING).values())
        average = sum(percents) / len(percents)
        about, more = f"{ranks} processes, less time on average", f" on {each.size}"
        claims.append(_percents(about, (said,), average, more))
    told = f"from {percents[0]:.0f} % to {percents[-1]:.0f} % on {setting.size} processes"
    trend = Claim("the improvement decreases with size, up to 128 MB", told, _falls(percents))
    return Computed(tuple(panels), (*claims, trend))


def allreduce(setting: Setting) -> Computed:
    """Figure 25: a ring with MHA's allgather, and han's programs, beside a ring of all ranks."""
    panels, claims = [], []
    numbers = {256: (34, 15), 512: (39, 31), 1024: (56, 44)}
    for each, (ranks, said) in zip(_parts(setting, 3), numbers.items(), strict=True):
        series = _series(each, {MHA: mha_allreduce, LIBRARIES: ring_allreduce})
        series |= each.over_sizes(ALLREDUCES, call("allreduce"))
        panels.append(_panel(each, series))
        claims.append(_up_to(each, series, ranks, said))
    return Computed(tuple(panels), tuple(claims))


def not_drawn(setting: Setting, said: str) -> Computed:
    """Return what the paper says about a figure that cannot be drawn."""
    return Computed(text=("", *wrap(f"Not drawn. The paper says: {said}", 100)))


INTRA, INTER = sizes(256 * KiB, 16 * MiB), sizes(256, 256 * KiB)
SHORTER, SHORTEST = INTER[:-1], INTER[:-2]  # larger blocks of 1024 ranks take a minute and more
REDUCED = sizes(128 * KiB, 128 * MiB)
COSTS = (
    "The paper prints no costs of Thor; configs/machines/thor.yaml says which are assumed. The "
    "rate of a node's memory, which 32 ranks share, decides most: block by block, MHA and a ring "
    "copy as much."
)
STANDS = (
    f"{COSTS} What stands for the libraries is the model of recursive doubling and of a ring of "
    "all ranks, without overhead of software. han's leaders use one rail, its lanes all."
)
KERNEL = (
    "up to 1.98 and 1.42 times (strong scaling), 1.84 and 1.94 times (weak scaling) faster than "
    "HPC-X and MVAPICH2-X on 1024 processes"
)
TRAINING = "up to 7.83 % less time than MVAPICH2-X for ResNet-50"
NOTHING = (
    "The paper has no times of the computation, so that neither formulas nor the simulator can "
    "draw it."
)
ALONE = f"The paper measures libraries; here equation 2 is beside itself without offload. {COSTS}"
FIGURES = {
    "tran-11": Figure(PAPER, "the part of an allgather on a node that adapters carry", offload,
                      "thor", 1, 32, (MiB,)),
    "tran-12": Figure(PAPER, "an allgather on a node over what adapters carry",
                      latency_over_offload, "thor", 1, 4, (16 * MiB,)),
    "tran-15": Figure(PAPER, "MHA over nodes: recursive doubling and ring of leaders", leaders,
                      "thor", 32, 32, sizes(16, 256 * KiB), COSTS),
    "tran-16": Figure(PAPER, "equation 2 beside a program, four processes", model_in_node, "thor",
                      1, 4, INTRA, "han's program offloads nothing, and makes a copy more: the "
                      "paper's processes read blocks of others, han's copy their own into cells "
                      "first."),
    "tran-17": Figure(PAPER, "equations 6 and 7 beside programs, 256 processes", model_over_nodes,
                      "thor", 8, 32, INTER, COSTS),
    "tran-18": Figure(PAPER, "allgather on 2 to 16 processes of a node, by rails", one_node, "thor",
                      1, 16, INTRA, ALONE, printed=True),
    "tran-19": Figure(PAPER, "allgather beside flat algorithms on 256 processes",
                      partial(algorithms, count=1), "thor", 8, 32, INTER, COSTS, printed=True),
    "tran-20": Figure(PAPER, "the same on 512 and 1024 processes",
                      partial(algorithms, count=2), "thor", 32, 32, INTER, COSTS, printed=True),
    "tran-21": Figure(PAPER, "allgather beside libraries on 256 processes",
                      partial(allgather, ranks=256, said=(21, 29)), "thor", 8, 32, INTER, STANDS,
                      printed=True),
    "tran-22": Figure(PAPER, "the same on 512 processes",
                      partial(allgather, ranks=512, said=(53, 44)), "thor", 16, 32, SHORTER,
                      STANDS, printed=True),
    "tran-23": Figure(PAPER, "the same on 1024 processes",
                      partial(allgather, ranks=1024, said=(61, 62)), "thor", 32, 32, SHORTEST,
                      STANDS, printed=True),
    "tran-24": Figure(PAPER, "ring allreduce with and without MHA's allgather", ring_with_mha,
                      "thor", 16, 32, REDUCED, COSTS, printed=True),
    "tran-25": Figure(PAPER, "allreduce beside libraries on 256 to 1024 processes", allreduce,
                      "thor", 32, 32, REDUCED, STANDS, printed=True),
    "tran-26": Figure(PAPER, "matrix times vector (not drawn)", partial(not_drawn, said=KERNEL),
                      why=NOTHING),
    "tran-27": Figure(PAPER, "training of neural networks (not drawn)",
                      partial(not_drawn, said=TRAINING), why=NOTHING),
}  # fmt: skip
