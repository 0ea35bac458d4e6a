"""Gatherv, Scatterv and Alltoallv: each rank knows the sizes of its own blocks only."""

import time
from itertools import accumulate, product
from random import Random

import numpy as np
import pytest
from _support import (
    APART,
    FLAT,
    FORMS,
    SECONDS,
    TWO_BY_TWO,
    finish,
    method_of,
    new_comm,
    opened,
    outcome,
)
from mpi4py import MPI

import han
from han._native import packer as native_packer
from han._native import run_start
from han.common.errors import ArgumentError, HanError
from han.message.reader import READER

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.size, WORLD.rank
D = MPI.DOUBLE
on_ranks = pytest.mark.mpi(ranks=[1, 2, 3, 5], timeout=120, unit="s")
on_few = pytest.mark.mpi(ranks=[2, 3], timeout=120, unit="s")
NODES = {"one": FLAT, "alone": APART, "pairs": TWO_BY_TWO}
ON_NODES = pytest.mark.mpi(ranks=[3, 4, 5], timeout=120, unit="s")  # by twos: uneven and even
MOST = (0, 1, 3, 128, 129, 700, 4096, 4097, 30_000)  # elements: in parcels, in cells, and beyond
GAP = 2  # elements between blocks, which stay as they are


def rows_of(random: Random, most: int) -> list[list[int]]:
    """Draw how many elements each rank sends to each."""
    return [[random.choice((0, most, random.randint(0, most))) for _ in range(SIZE)]
            for _ in range(SIZE)]  # fmt: skip


def block(source: int, target: int, count: int) -> np.ndarray:
    return np.arange(count) + 1e6 * source + 1e3 * target


def laid(blocks: list[np.ndarray], gap: int, backwards: bool = False):
    """Return an array of blocks with gaps, their counts and where they begin."""
    order = range(len(blocks))[:: -1 if backwards else 1]
    ends = [*accumulate((blocks[k].size + gap for k in order), initial=gap)]
    starts = [0] * len(blocks)
    for k, at in zip(order, ends, strict=False):
        starts[k] = at
    whole = np.full(ends[-1], -1.0)
    for k, at in enumerate(starts):
        whole[at : at + blocks[k].size] = blocks[k]
    return whole, [b.size for b in blocks], starts


def check(comm: han.Comm, form: str, random: Random, most: int) -> None:
    """Make each call once with counts of up to `most` elements."""
    rows, root = rows_of(random, most), random.randrange(SIZE)
    gap, backwards = random.choice((0, GAP)), random.random() < 0.3
    sends = [block(RANK, t, rows[RANK][t]) for t in range(SIZE)]
    takes = [block(s, RANK, rows[s][RANK]) for s in range(SIZE)]
    source, counts, places = laid(sends, gap)
    expected, wanted, into = laid(takes, gap, backwards)
    result = np.full(expected.size, -1.0)
    call = method_of(comm, form, "Alltoallv")
    finish(call([source, (counts, places), D], [result, (wanted, into), D]))
    assert result.tolist() == expected.tolist(), (form, most, rows)

    gathered, wanted, into = laid([block(s, root, rows[s][root]) for s in range(SIZE)], gap)
    result = np.full(gathered.size, -1.0)
    target = [result, (wanted, into)] if root == RANK else None
    finish(method_of(comm, form, "Gatherv")(sends[root], target, root))
    assert root != RANK or result.tolist() == gathered.tolist(), (form, most, rows)

    spread, given, places = laid([block(root, t, rows[root][t]) for t in range(SIZE)], gap)
    mine = np.full(rows[root][RANK], -1.0)
    origin = [spread, (given, places)] if root == RANK else None
    finish(method_of(comm, form, "Scatterv")(origin, mine, root))
    assert mine.tolist() == takes[root].tolist(), (form, most, rows)


@on_ranks
@pytest.mark.parametrize("levels", NODES.values(), ids=[*NODES])
def test_they_give_the_results_of_mpi(mpi_ranks, levels):
    random = Random(7)
    with opened(new_comm(levels)) as comm:
        for form in FORMS:
            for most in MOST:
                check(comm, form, random, most)
        assert comm.cache_info().made > 0


def composed(name: str) -> han.Comm:
    """Return a communicator of nodes of two ranks, whose calls have this composition."""
    collectives = ["alltoallv", *["gatherv", "scatterv"] * (name != "lanes")]
    rule = {"when": {"collective": collectives}, "use": {"composition": name}}
    return new_comm(TWO_BY_TWO, rules=[rule])


@ON_NODES
@pytest.mark.parametrize("composition", ["tree", "lanes", "flat"])
def test_small_blocks_share_messages_of_nodes(mpi_ranks, composition):
    random = Random(11)
    with opened(composed(composition)) as comm:
        for most in (0, 1, 128, 129, 1000):
            for form in (*FORMS, *FORMS):
                check(comm, form, random, most)
        assert comm.cache_info().made > 0


@ON_NODES
@pytest.mark.parametrize("composition", ["tree", "lanes"])
def test_a_late_rank_delays_its_own_node_and_nobody_s_data(mpi_ranks, composition):
    """Calls follow each other without a wait: a rank may be some of them behind."""
    random = Random(SIZE)
    with opened(composed(composition)) as comm:
        for turn in range(40):
            counts = [[random.choice((0, 1, 3, 200)) for _ in range(SIZE)] for _ in range(SIZE)]
            if turn % SIZE == RANK:
                time.sleep(0.002)
            sends = [block(RANK, t, counts[RANK][t]) + turn for t in range(SIZE)]
            takes = [block(s, RANK, counts[s][RANK]) + turn for s in range(SIZE)]
            source, given, places = laid(sends, 0)
            expected, wanted, into = laid(takes, GAP)
            result = np.full(expected.size, -1.0)
            comm.Alltoallv([source, (given, places)], [result, (wanted, into)])
            assert result.tolist() == expected.tolist(), turn


@ON_NODES
@pytest.mark.parametrize("case", ["Gatherv", "Scatterv", "Alltoallv"])
def test_all_ranks_hear_of_one_that_raised(mpi_ranks, case):
    comm = new_comm(TWO_BY_TWO)
    WORLD.Barrier()

    def call():
        if RANK == SIZE - 1:
            comm.Gatherv(np.zeros(2), [np.zeros(1), [1] * SIZE], RANK)  # too small, so it raises
        for _ in range(3):
            calls(comm, case)
        comm.Barrier()

    error, seconds = outcome(call)
    assert isinstance(error, HanError), error
    assert seconds < SECONDS


def calls(comm: han.Comm, case: str) -> None:
    """Make a call with one number for each pair of ranks."""
    one, each, counts = np.zeros(1), np.zeros(SIZE), [1] * SIZE
    if case == "Gatherv":
        comm.Gatherv(one, [each, counts])
    elif case == "Scatterv":
        comm.Scatterv([each, counts], one)
    else:
        comm.Alltoallv([each, counts], [each.copy(), counts])


@on_ranks
@pytest.mark.parametrize("levels", [FLAT, APART], ids=["one", "alone"])
def test_blocks_in_place(mpi_ranks, levels):
    with opened(new_comm(levels)) as comm:
        for most, form in product((1, 5, 5000), (*FORMS, *FORMS)):
            counts = [most * ((RANK + t) % 3) for t in range(SIZE)]  # as much back as there
            buffer, _, places = laid([block(RANK, t, n) for t, n in enumerate(counts)], GAP)
            expected = laid([block(t, RANK, n) for t, n in enumerate(counts)], GAP)[0]
            finish(method_of(comm, form, "Alltoallv")(MPI.IN_PLACE, [buffer, (counts, places)]))
            assert buffer.tolist() == expected.tolist(), form
            for root in range(SIZE):
                in_place_at_root(comm, root, most)


def in_place_at_root(comm: han.Comm, root: int, most: int) -> None:
    counts = [most + t for t in range(SIZE)]
    whole, _, places = laid([block(t, root, n) for t, n in enumerate(counts)], GAP)
    mine = block(RANK, root, counts[RANK])
    if root == RANK:
        buffer = np.full(whole.size, -1.0)
        buffer[places[root] : places[root] + counts[root]] = mine
        comm.Gatherv(MPI.IN_PLACE, [buffer, (counts, places)], root)
        assert buffer.tolist() == whole.tolist()
        comm.Scatterv([whole, (counts, places)], MPI.IN_PLACE, root)
    else:
        comm.Gatherv(mine, None, root)
        back = np.zeros(counts[RANK])
        comm.Scatterv(None, back, root)
        assert back.tolist() == mine.tolist()


@pytest.fixture
def spaced():
    """A type of two numbers, 2 apart, of every 4."""
    pairs = D.Create_vector(2, 1, 2)
    made = pairs.Create_resized(0, 32).Commit()
    yield made
    for one in (pairs, made):
        one.Free()


def numbers(rank: int) -> np.ndarray:
    """Return four numbers for each rank, of which a spaced type takes two."""
    return (np.arange(4.0 * SIZE) + 100 * rank).reshape(SIZE, 4)


@on_few
def test_types_with_gaps_are_packed(mpi_ranks, spaced):
    counts, order = [1] * SIZE, [*reversed(range(SIZE))]
    with opened(new_comm()) as comm:
        for _, root in product(range(3), range(SIZE)):
            hits, at_root = comm.cache_info().hits, root == RANK
            full, into = numbers(RANK), np.full((SIZE, 4), -1.0)
            comm.Alltoallv([full, counts, spaced], [into, (counts, order), spaced])
            expected = np.full((SIZE, 4), -1.0)
            for s in range(SIZE):
                expected[order[s], ::2] = numbers(s)[RANK, ::2]
            assert into.tolist() == expected.tolist()

            dense = np.full((SIZE, 2), -1.0)  # the other side may have another type
            comm.Alltoallv([full, (counts, order), spaced], [dense, [2] * SIZE])
            assert dense.tolist() == [numbers(s)[order[RANK], ::2].tolist() for s in range(SIZE)]

            into[:] = -1.0
            comm.Gatherv([full, 1, spaced], [into, counts, spaced] if at_root else None, root)
            if at_root:
                assert into[:, ::2].tolist() == [numbers(s)[0, ::2].tolist() for s in range(SIZE)]
            assert (into[:, 1::2] == -1.0).all()

            one = np.full(4, -1.0)
            comm.Scatterv([full, counts, spaced] if at_root else None, [one, 1, spaced], root)
            assert one.tolist() == [numbers(root)[RANK, 0], -1, numbers(root)[RANK, 2], -1]
            if at_root:  # its own block stays where it is
                into[:] = -1.0
                into[root] = 7.0
            here = MPI.IN_PLACE if at_root else [full, 1, spaced]
            comm.Gatherv(here, [into, counts, spaced] if at_root else None, root)
            assert not at_root or into[root].tolist() == [7.0] * 4
        assert comm.cache_info().hits == hits + 5


@pytest.fixture
def alike():
    """Types, and how many elements of each hold 48 bytes of data."""
    vector = D.Create_vector(2, 1, 2)
    made = [
        (D.Create_contiguous(3), 2), (vector, 3), (vector.Create_resized(0, 40), 3),
        (D.Create_subarray([4, 6], [2, 3], [1, 2]), 1), (D.Create_indexed([1, 1], [3, 0]), 3),
        (D.Create_subarray([6, 4], [3, 2], [2, 1], MPI.ORDER_FORTRAN), 1),
        (D.Create_subarray([4, 3], [2, 3], [1, 0]), 1), (vector.Create_hvector(3, 1, 32), 1),
        (vector.Dup(), 3), (D.Create_hindexed_block(1, [*range(40, -8, -8)]), 1),
        (D.Create_indexed_block(1, [0, 3, 4, 9, 10, 20]), 1), (D.Create_vector(3, 2, 5), 1),
        (MPI.Datatype.Create_struct([1, 1], [8, 0], [D, D]), 3),
        (MPI.Datatype.Create_struct([2, 1], [0, 16], [MPI.INT, D]), 3),
        (D.Create_darray(2, 1, [3, 4], [MPI.DISTRIBUTE_NONE, MPI.DISTRIBUTE_BLOCK],
                         [MPI.DISTRIBUTE_DFLT_DARG] * 2, [1, 2]), 1),
    ]  # fmt: skip
    yield [(D, 6), (MPI.INT, 12), *((kind.Commit(), number) for kind, number in made)]
    for kind, _ in made:
        kind.Free()


class Typed:
    """An array of blocks that have types of their own, with gaps."""

    def __init__(self, random: Random, blocks: list[tuple[MPI.Datatype, int]]) -> None:
        self.blocks, self.listed = blocks, random.random() < 0.5
        spans = [8 * random.randrange(3) + n * t.Get_extent()[1] + 24 for t, n in blocks]
        *self.places, end = accumulate(spans, initial=8)
        self.data = np.arange(end / 8) + 1000 * RANK

    def argument(self) -> list[object]:
        """Return the blocks as a program passes them."""
        types, counts = map(list, zip(*self.blocks, strict=True))
        if self.listed:
            return [self.data, (counts, self.places), types]
        return [self.data, np.array(counts), np.array(self.places), types]

    def received(self, other: "Typed") -> list[float]:
        """Return the data after an exchange with all ranks, by messages."""
        data, requests = self.data.copy(), []
        for k, ((kind, n), at) in enumerate(zip(self.blocks, self.places, strict=True)):
            requests.append(WORLD.Irecv([data[at // 8 :], n, kind], k))
        for k, ((kind, n), at) in enumerate(zip(other.blocks, other.places, strict=True)):
            requests.append(WORLD.Isend([other.data[at // 8 :], n, kind], k))
        MPI.Request.Waitall(requests)
        return data.tolist()


@on_ranks
@pytest.mark.parametrize("levels", NODES.values(), ids=[*NODES])
def test_blocks_have_types_of_their_own(mpi_ranks, levels, alike):
    """Data may leave in one type and arrive in another one."""
    random, shared = Random(RANK), Random(5)
    with opened(new_comm(levels)) as comm:
        for most, form in product((0, 1, 40, 2000), (*FORMS, *FORMS)):
            times = [[shared.randint(0, most) for _ in range(SIZE)] for _ in range(SIZE)]
            drawn = [random.choice(alike) for _ in range(2 * SIZE)]
            sends = [(t, n * times[RANK][k]) for k, (t, n) in enumerate(drawn[:SIZE])]
            takes = [(t, n * times[k][RANK]) for k, (t, n) in enumerate(drawn[SIZE:])]
            given, taken = Typed(random, sends), Typed(random, takes)
            expected = taken.received(given)
            finish(method_of(comm, form, "Alltoallw")(given.argument(), taken.argument()))
            assert taken.data.tolist() == expected, (form, sends, takes)


@on_ranks
def test_blocks_with_types_in_place_and_without_numbers(mpi_ranks, alike):
    with opened(new_comm()) as comm:
        for form, (kind, number) in product(FORMS, alike):
            both = Typed(Random(0), [(kind, number * (1 + (RANK + k) % 2)) for k in range(SIZE)])
            expected = both.received(both)
            finish(method_of(comm, form, "Alltoallw")(MPI.IN_PLACE, both.argument()))
            assert both.data.tolist() == expected, (form, kind.name)
        everyones = np.zeros(SIZE)
        places = [D.Create_hindexed([1], [8 * k]).Commit() for k in range(SIZE)]
        for _ in range(3):
            comm.Alltoallw([np.full(1, RANK + 1.0), [D] * SIZE], [everyones, places])
            assert everyones.tolist() == [*range(1, SIZE + 1)]
        counts = [int(k == RANK) for k in range(SIZE)]  # an empty block may have any type
        kinds = [D if n else MPI.DATATYPE_NULL for n in counts]
        for form in (*FORMS, *FORMS):
            got, given = np.zeros(3), [np.arange(3.0), counts, [8] * SIZE, kinds]
            finish(method_of(comm, form, "Alltoallw")(given, [got, *given[1:]]))
            assert got.tolist() == [0, 1, 0]
        view = np.arange(4.0)[2:]  # blocks may lie anywhere in the array
        comm.Alltoallw([view, counts, [-8] * SIZE, kinds], [got, counts, [0] * SIZE, kinds])
        assert got[0] == 1


@on_few
@pytest.mark.parametrize("levels", [FLAT, APART], ids=["one", "alone"])
def test_blocks_with_addresses(mpi_ranks, levels):
    """Displacements, or those in a type, may be addresses; one side is a run, the other is not."""
    numbers = [0] * SIZE, [1] * SIZE
    with opened(new_comm(levels)) as comm:
        for form, count in product((*FORMS, *FORMS), (3, 5000)):
            given, got = block(RANK, 0, SIZE * count), np.full(2 * SIZE * count, -1.0)
            at, into = (MPI.Get_address(array) for array in (given, got))
            runs = [D.Create_hindexed([count], [at + 8 * count * k]).Commit() for k in range(SIZE)]
            spaced = D.Create_vector(count, 1, 2).Commit()
            places = [into + 16 * count * k for k in range(SIZE)]
            call = method_of(comm, form, "Alltoallw")
            finish(
                call([MPI.BOTTOM, numbers[::-1], runs],
                     [MPI.BOTTOM, (numbers[1], places), [spaced] * SIZE])
            )  # fmt: skip
            wanted = [block(s, 0, SIZE * count)[RANK * count :][:count] for s in range(SIZE)]
            assert got[::2].tolist() == np.concatenate(wanted).tolist()
            assert (got[1::2] == -1).all()
            for kind in (*runs, spaced):
                kind.Free()


def test_data_that_is_one_run_is_found():
    made = [
        (D.Create_subarray([4, 3], [2, 3], [1, 0]), 24),
        (D.Create_subarray([3, 4], [3, 2], [0, 1], MPI.ORDER_FORTRAN), 24),
        (D.Create_contiguous(3).Create_resized(0, 48).Dup(), 0),
        (D.Create_vector(3, 2, 2), 0),
        (D.Create_hindexed([1], [40]), 40),
        (D.Create_indexed([2, 2], [1, 3]), 8),
        (D.Create_subarray([4, 6], [2, 3], [1, 2]), None),
        (D.Create_indexed([1, 1], [1, 0]), None),
        (MPI.Datatype.Create_struct([1, 1], [8, 0], [D, D]), None),
        (MPI.DOUBLE_INT, None),
    ]
    for kind, start in made:
        assert run_start(READER, kind, 1) == start, kind.Get_envelope()
    resized = D.Create_contiguous(3).Create_resized(0, 48)
    assert run_start(READER, resized, 2) is None
    assert run_start(READER, D.Create_contiguous(3), 2) == 0


def drawn(random: Random, depth: int) -> MPI.Datatype:
    """Draw a type, most of which han packs by itself; no data begin before its address."""
    if not depth:
        return random.choice([MPI.CHAR, MPI.SHORT, MPI.INT, D])
    inner, n = drawn(random, depth - 1), random.randint(1, 5)
    lengths = [random.randint(0, 3) for _ in range(n)]
    lower, extent = inner.Get_extent()
    far = max(1, lower + extent) * 4  # blocks of at most three elements
    order = random.sample(range(n), n)
    match random.randrange(6):
        case 0:
            return inner.Create_vector(n, random.randint(1, 3), 4)
        case 1:
            return inner.Create_indexed(lengths, [4 * k for k in order])
        case 2:
            return inner.Create_indexed_block(2, [3 * k for k in order])
        case 3:
            return inner.Create_resized(0, far)
        case 4:
            return inner.Create_subarray([n, 5], [n, 3], [0, 1])
    several = [drawn(random, random.randrange(depth)) for _ in range(n)]
    widths = [sum(one.Get_extent()) for one in several]
    return MPI.Datatype.Create_struct(lengths, [4 * k * max(widths) for k in order], several)


def test_elements_are_packed_as_mpi_packs_them():
    random = Random(23)
    by_han = 0
    for _ in range(600):
        kind = drawn(random, random.randint(1, 4)).Commit()
        elements, size = random.choice([1, 2, 3, 300]), kind.Get_size()
        (first, reach), (_, extent) = kind.Get_true_extent(), kind.Get_extent()
        if not size or first < 0 or extent <= 0:
            continue
        data = np.random.default_rng(3).integers(
            1, 255, elements * extent + first + reach, np.uint8
        )
        packed, wanted = np.zeros((2, elements * size), np.uint8)
        back, expected = np.zeros((2, data.size), np.uint8)
        kind.Pack(data[: elements * extent], wanted, 0, MPI.COMM_SELF)
        kind.Unpack(wanted, 0, expected[: elements * extent], MPI.COMM_SELF)
        pack, unpack = (
            native_packer(READER, kind, elements, array.ctypes.data, packed.size,
                          packed.ctypes.data, packed, array is data)
            for array in (data, back)
        )  # fmt: skip
        kind.Free()  # a grid needs it no more
        try:
            pack()
        except MPI.Exception:  # MPI was to pack it
            continue
        unpack()
        by_han += 1
        assert (packed == wanted).all()
        assert (back == expected).all()
    assert by_han > 200


@on_few
def test_wrong_arguments_of_blocks_with_types(mpi_ranks):
    ones, places, types = [1] * SIZE, [8 * k for k in range(SIZE)], [D] * SIZE
    room, good = np.zeros(SIZE), (ones, places)
    cases = [
        ([room, good, [D]], f"is no list of {SIZE} types, one for each block"),
        ([room, good, D], f"is no list of {SIZE} types"),
        (room, "no buffer of blocks with types of their own"),
        ([room, (ones, [8 * SIZE] * SIZE), types], f"have data in bytes {8 * SIZE} to"),
        ([room, (ones, [-8] * SIZE), types], "have data in bytes -8 to 0 of a buffer"),
        ([room, ([-1] * SIZE, places), types], "-1 is negative"),
        ([room, good, [MPI.DATATYPE_NULL] * SIZE], "DATATYPE_NULL"),
        ([room, good, [None] * SIZE], "None is not a data type"),
        ([room, good, types], "overlap"),
        ([MPI.BOTTOM, types], "MPI.BOTTOM needs counts and displacements"),
    ]
    for wrong, said in cases:
        with opened(new_comm()) as comm, pytest.raises(HanError, match=said):
            comm.Alltoallw(wrong, [room, good, types])


@on_few
def test_repeated_calls_of_any_sizes_are_served_quickly(mpi_ranks):
    with opened(new_comm()) as comm:
        for turn in range(3):
            counts = [turn * 10 + t for t in range(SIZE)]
            mine = block(RANK, 0, counts[RANK])
            comm.Gatherv(mine, [np.zeros(sum(counts)), counts] if RANK == 0 else None)
            comm.Scatterv([np.zeros(sum(counts)), counts] if RANK == 0 else None, mine)
            even, whole = [turn] * SIZE, np.zeros(turn * SIZE)
            comm.Alltoallv([whole, even], [whole.copy(), even])
            back = [turn * t for t in reversed(range(SIZE))]  # the blocks in another order
            comm.Alltoallv([whole, (even, back)], [whole.copy(), (even, back)])
            comm.Alltoallv(MPI.IN_PLACE, [whole, even])
            comm.Alltoallv(whole, whole.copy())
        info = comm.cache_info()
        assert (info.misses, info.hits) == (3, 15)


def wrong(comm: han.Comm, case: str, count: int):
    """Make a call in which the last rank's block has one element more than its peer says."""
    counts = [count] * SIZE
    more = count + (RANK == SIZE - 1)
    if case == "Gatherv":
        return comm.Gatherv(np.zeros(more), [np.zeros(sum(counts)), counts] if not RANK else None)
    if case == "Scatterv":
        return comm.Scatterv([np.zeros(sum(counts)), counts] if not RANK else None, np.zeros(more))
    sends = [more if t == 0 else count for t in range(SIZE)]
    return comm.Alltoallv([np.zeros(sum(sends)), sends], [np.zeros(sum(counts)), counts])


@on_few
@pytest.mark.parametrize("levels", NODES.values(), ids=[*NODES])
@pytest.mark.parametrize("case", ["Gatherv", "Scatterv", "Alltoallv"])
def test_sizes_that_differ_raise_on_the_ranks_that_wait(mpi_ranks, levels, case):
    comm = new_comm(levels)
    error, _ = outcome(lambda: [wrong(comm, case, 4), comm.Barrier()])
    assert isinstance(error, HanError), error
    assert not isinstance(error, ArgumentError)


@on_few
@pytest.mark.parametrize("case", ["Gatherv", "Scatterv", "Alltoallv"])
@pytest.mark.parametrize("count", [1, 3000])
def test_nothing_is_written_beyond_a_buffer(mpi_ranks, case, count):
    """The last rank sends 9000 elements where a few, or many fewer, are expected."""
    comm, large = new_comm(), 9000
    guarded = np.full(SIZE * count + large * SIZE, -1.0)
    into, counts = guarded[: SIZE * count], [count] * SIZE
    odd = RANK == SIZE - 1
    mine = np.zeros(large if odd else count)
    sends = [large if odd and t == 0 else count for t in range(SIZE)]

    def call():
        if case == "Gatherv":
            comm.Gatherv(mine, [into, counts] if not RANK else None)
        elif case == "Scatterv":
            last = [count] * (SIZE - 1) + [large]
            comm.Scatterv([np.zeros(sum(last)), last] if not RANK else None, into[:count])
        else:
            comm.Alltoallv([np.zeros(sum(sends)), sends], [into, counts])
        comm.Barrier()

    error, _ = outcome(call)
    assert isinstance(error, HanError), error
    WORLD.Barrier()
    assert (guarded[into.size :] == -1.0).all()


@on_few
def test_wrong_arguments_name_the_numbers(mpi_ranks):
    counts, four = [2] * SIZE, np.zeros(2 * SIZE)
    bad = {
        "for itself: 24 bytes": lambda c: c.Gatherv(np.zeros(3), [four, counts], RANK),
        "overlap": lambda c: c.Alltoallv([four.copy(), counts], [four, (counts, [0] * SIZE)]),
        "numbers": lambda c: c.Alltoallv([np.zeros(2), [2] * 9], [four, counts]),
        "negative": lambda c: c.Scatterv([np.zeros(2), [-1] * SIZE], np.zeros(2), RANK),
    }
    for text, call in bad.items():
        alone = new_comm()
        error, _ = outcome(lambda call=call, alone=alone: call(alone))
        assert isinstance(error, ArgumentError), (text, error)
        assert text in str(error), error
