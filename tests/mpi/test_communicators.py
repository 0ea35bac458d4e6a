"""Communicators made of a han.Comm: classes, topologies, handles, errors, and what is left over."""

import itertools
import pickle
import time

import numpy as np
import pytest
from _support import (
    FLAT,
    SECONDS,
    TWO_BY_TWO,
    WORLD,
    check_works,
    mapped,
    new_comm,
    opened,
    outcome,
    own_memory,
)
from mpi4py import MPI

import han

SHARED = MPI.COMM_TYPE_SHARED

on_all = pytest.mark.mpi(ranks=[1, 2, 3, 5], timeout=90, unit="s")
usual = pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")


# ---- constructors -------------------------------------------------------------------------------


def ring(comm):
    """Return the neighbours of a rank on a ring."""
    return [(comm.rank - 1) % comm.size], [(comm.rank + 1) % comm.size]


def graph(comm):
    """Return index and edges of a ring."""
    return list(range(1, comm.size + 1)), [(r + 1) % comm.size for r in range(comm.size)]


def waited(made):
    comm, request = made
    request.Wait()
    return comm


def parts(comm, members):
    """Split in two, with a rank that is in neither part where there are three ranks."""
    return comm.Split(MPI.UNDEFINED if comm.rank == 2 else comm.rank % 2, -comm.rank)


CONSTRUCTORS = {
    "Split": parts,
    "Split_type": lambda comm, _: comm.Split_type(MPI.COMM_TYPE_SHARED),
    "Dup": lambda comm, _: comm.Dup(),
    "Dup with hints": lambda comm, _: comm.Dup(MPI.INFO_NULL),
    "Dup_with_info": lambda comm, _: comm.Dup_with_info(MPI.INFO_NULL),
    "Clone": lambda comm, _: comm.Clone(),
    "Idup": lambda comm, _: waited(comm.Idup()),
    "Idup_with_info": lambda comm, _: waited(comm.Idup_with_info(MPI.INFO_NULL)),
    "Create": lambda comm, members: comm.Create(members),
    "Create_group": lambda comm, members: (
        comm.Create_group(members) if members.rank != MPI.UNDEFINED else MPI.Intracomm()
    ),
    "Create_cart": lambda comm, _: comm.Create_cart([comm.size], [True]),
    "Create_cart of some": lambda comm, _: comm.Create_cart([max(1, comm.size - 1)], reorder=True),
    "Create_cart of two dimensions": lambda comm, _: comm.Create_cart(
        np.array(MPI.Compute_dims(comm.size, 2)), [True, False]
    ),
    "Create_graph": lambda comm, _: comm.Create_graph(*graph(comm)),
    "Create_graph of some": lambda comm, _: comm.Create_graph([1], [0]),
    "Create_dist_graph": lambda comm, _: comm.Create_dist_graph([comm.rank], [1], ring(comm)[1]),
    "Create_dist_graph_adjacent": lambda comm, _: comm.Create_dist_graph_adjacent(*ring(comm)),
    "with weights": lambda comm, _: comm.Create_dist_graph_adjacent(*ring(comm), [2], [3]),
}  # fmt: skip


def check_like(made, plain):
    """Check that a communicator of han is of the class that mpi4py's own one is of."""
    name = type(plain).__name__.replace("Intracomm", "Comm")
    assert type(made).__name__ in (name, "Intracomm")
    assert isinstance(made, type(plain))
    assert bool(made) == bool(plain)
    if plain:
        assert isinstance(made, han.Comm)
        assert type(made) is getattr(han, name)
        assert (made.rank, made.size, made.topology) == (plain.rank, plain.size, plain.topology)
        check_works(made)
        assert sum(made.cache_info()[:2]) >= 2


@pytest.mark.mpi(ranks=2, timeout=60, unit="s")
def test_a_call_that_is_mpis_ends_when_another_rank_gives_up():
    """Open MPI takes its messages for those of later communicators: the next test."""
    comm = new_comm(FLAT, wait={"timeout": 20})
    large = MPI.DOUBLE.Create_contiguous(40_000).Commit()  # no element fits into a cell
    send, recv = np.ones(80_000), np.zeros(40_000)
    keep = MPI.Op.Create(lambda a, b, t: None, commute=True)
    if comm.rank:
        comm._han.health.give_up(RuntimeError("enough"))
    expected = han.RevokedError if comm.rank else han.PeerError
    begun = time.monotonic()
    with pytest.raises(expected, match="enough"):
        comm.Reduce_scatter_block([send, 1, large], [recv, 1, large], keep)
    assert time.monotonic() - begun < SECONDS
    comm.Free()
    assert comm == MPI.COMM_NULL


@on_all
def test_every_constructor_returns_what_mpi4py_returns_and_han_serves_it(mpi_ranks):
    plain = WORLD.Dup()
    members = plain.group.Incl([*range(1, plain.size), 0][: max(1, plain.size - 1)])
    for levels, every in ((FLAT, 1), (TWO_BY_TWO, 4)):
        with opened(new_comm(levels)) as comm:
            for make in [*CONSTRUCTORS.values()][::every]:
                theirs, made = make(plain, members), make(comm, members)
                check_like(made, theirs)
                if theirs:
                    assert made._han.parts.config == comm._han.parts.config
                    theirs.Free()
                    made.Free()
                assert made == MPI.COMM_NULL
            check_works(comm)
    plain.Free()


OF_TOPOLOGIES = ("Create_cart", "Create_graph", "Create_dist_graph", "Create_dist_graph_adjacent")


@on_all
def test_what_is_made_of_a_topology_is_of_mpi4pys_class(mpi_ranks):
    plain, comm = WORLD.Dup(), new_comm()
    for name in OF_TOPOLOGIES:
        theirs, made = CONSTRUCTORS[name](plain, None), CONSTRUCTORS[name](comm, None)
        for key in (
            CONSTRUCTORS if name == "Create_cart" else ("Dup", "Idup", "Split", "Create_cart")
        ):
            make = CONSTRUCTORS[key]
            inner, ours = make(theirs, plain.group), make(made, plain.group)
            check_like(ours, inner)
            if inner:
                inner.Free()
                ours.Free()
        theirs.Free()
        check_works(made)
        made.Free()
    comm.Free()
    plain.Free()


@on_all
def test_methods_of_topologies_work(mpi_ranks):
    plain, comm = WORLD.Dup(), new_comm()
    dims = MPI.Compute_dims(comm.size, 2)
    theirs, grid = plain.Create_cart(dims, [True, False]), comm.Create_cart(dims, [True, False])
    assert (grid.dims, grid.coords, grid.topo) == (theirs.dims, theirs.coords, theirs.topo)
    assert [grid.Shift(d, 1) for d in (0, 1)] == [theirs.Shift(d, 1) for d in (0, 1)]
    assert [grid.Get_coords(r) for r in range(comm.size)] == [
        theirs.Get_coords(r) for r in range(comm.size)
    ]
    for remain in itertools.product((True, False), repeat=2):
        inner, ours = theirs.Sub(remain), grid.Sub(remain)
        check_like(ours, inner)
        if inner:
            assert ours.dims == inner.dims
            inner.Free()
            ours.Free()
    got, wanted = np.full(4, -1), np.full(4, -1)
    grid.Neighbor_allgather(np.array([grid.rank]), got)
    theirs.Neighbor_allgather(np.array([theirs.rank]), wanted)
    np.testing.assert_array_equal(got, wanted)
    assert grid.neighbor_allgather(grid.rank) == theirs.neighbor_allgather(theirs.rank)
    around = comm.Create_dist_graph_adjacent(*ring(comm))
    assert around.Get_dist_neighbors()[:2] == ring(comm)
    assert around.neighbor_alltoall([comm.rank]) == ring(comm)[0]
    circle = comm.Create_graph(*graph(comm))
    assert circle.neighbors == ring(comm)[1]
    for each in (theirs, grid, around, circle, plain, comm):
        each.Free()


@on_all
def test_a_wrapped_communicator_keeps_its_kind(mpi_ranks):
    plain = WORLD.Dup()
    for name in OF_TOPOLOGIES:
        theirs = CONSTRUCTORS[name](plain, None)
        comm = han.Comm(theirs)
        check_like(comm, theirs)
        again = type(comm)(theirs)
        assert type(again) is type(comm)
        assert type(han.Topocomm(theirs)) is han.Topocomm
        assert again.cache_info() == comm.cache_info()
        with pytest.raises(TypeError, match="expecting a"):
            (han.Graphcomm if name == "Create_cart" else han.Cartcomm)(theirs)
        comm.Free()
    for kind in (han.Comm, han.Topocomm, han.Cartcomm, han.Graphcomm, han.Distgraphcomm):
        for null in (None, MPI.COMM_NULL, MPI.Intracomm(), MPI.Cartcomm()):
            assert kind(null) == MPI.COMM_NULL
            assert not kind(null)
    assert type(han.Comm(MPI.Comm(plain))) is han.Comm
    grid = plain.Create_cart([plain.size])
    around = grid.Create_dist_graph_adjacent(*ring(grid))
    assert type(han.Comm(MPI.Comm(grid))) is han.Cartcomm
    assert type(han.Comm(around)) is han.Distgraphcomm
    for each in (around, grid):
        han.Comm(each).Free()
    with pytest.raises(TypeError, match="expecting a topology"):
        han.Topocomm(plain)
    for wrong in (7, "MPI.COMM_WORLD", plain.group):
        with pytest.raises(han.ArgumentTypeError, match=r"takes an MPI\.Intracomm"):
            han.Comm(wrong)
    han.Comm(plain).Free()


def test_a_subclass_of_a_program_keeps_its_class_in_duplicates_only(mpi_ranks):
    class Mine(han.Comm):
        def __new__(cls, comm=None):
            self = super().__new__(cls, comm)
            self.noted = True
            return self

    comm = Mine(WORLD.Dup())
    for make in (comm.Dup, comm.Clone, lambda: waited(comm.Idup())):
        with opened(make()) as made:
            assert type(made) is Mine
            assert made.noted
            check_works(made)
    for make in (comm.Split, lambda: comm.Create(comm.group)):
        with opened(make()) as made:
            assert type(made) is han.Comm
    comm.Free()


# ---- intercommunicators -------------------------------------------------------------------------


@pytest.mark.mpi(ranks=[2, 3, 5], timeout=60, unit="s")
def test_intercommunicators_are_mpis_and_merge_to_a_han_comm(mpi_ranks):
    comm = new_comm(TWO_BY_TWO)
    half = comm.Split(comm.rank % 2)
    inter = half.Create_intercomm(0, comm, 1 - comm.rank % 2, 7)
    assert type(inter) is han.Intercomm
    assert isinstance(inter, MPI.Intercomm)
    assert inter.Get_remote_size() == comm.size - half.size
    others = np.empty(inter.remote_size, int)
    inter.Allgather(np.array([comm.rank]), others)
    assert set(others) == {r for r in range(comm.size) if r % 2 != comm.rank % 2}
    assert sorted(inter.allgather(comm.rank)) == sorted(others)
    for make in (inter.Dup, inter.Clone, lambda: waited(inter.Idup()), inter.Split):
        made = make()
        assert type(made) is han.Intercomm
        whole = made.Merge(comm.rank % 2 == 1)
        assert type(whole) is han.Comm
        assert whole.size == comm.size
        check_works(whole)
        assert whole._han.parts.config == comm._han.parts.config
        whole.Free()
        made.Free()
    assert type(han.Comm.fromhandle(inter.handle)) is han.Intercomm
    with pytest.raises(han.ArgumentTypeError, match="Intercomm"):
        han.Comm(inter)
    with pytest.raises(TypeError):
        han.Intercomm(comm)
    assert han.Intercomm() == MPI.COMM_NULL
    for each in (inter, half, comm):
        each.Free()


# ---- handles, pickles, constants ----------------------------------------------------------------


def test_a_handle_gives_the_communicator_of_han(mpi_ranks):
    comm = new_comm()
    kinds = (comm.Dup(), comm.Create_cart([comm.size]), comm.Create_dist_graph_adjacent([], []))
    for made in kinds:
        for again in (
            han.Comm.fromhandle(made.handle), han.Comm.f2py(made.py2f()),
            type(made).fromint(made.toint()),
        ):  # fmt: skip
            assert (type(again), again == made) == (type(made), True)
            assert again.cache_info() == made.cache_info()
            check_works(again)
        made.Free()
    plain = WORLD.Dup()
    late = han.Comm.fromhandle(plain.handle)  # has no State yet
    assert "not used yet" in repr(late)
    check_works(late)
    assert MPI.Intracomm(late).Compare(comm) == MPI.CONGRUENT == comm.Compare(late)
    assert han.Comm.fromhandle(MPI.COMM_NULL.handle) == MPI.COMM_NULL
    assert han.Comm.Get_parent() == MPI.COMM_NULL
    for each in (late, comm):
        each.Free()


def test_predefined_communicators_can_be_pickled_and_others_cannot(mpi_ranks, monkeypatch, comm):
    plain, world = MPI.COMM_WORLD, han.Comm(MPI.COMM_WORLD)
    for name in ("", "COMM_WORLD"):
        if name:  # as in a program that runs unchanged on han
            monkeypatch.setattr(MPI, name, world)
        again = pickle.loads(pickle.dumps(world))
        assert (type(again), again == plain) == (han.Comm, True)
        assert (again is world) == bool(name)
        check_works(again)
        for each in (plain, MPI.Intracomm(world)):
            again = pickle.loads(pickle.dumps(each))
            assert (type(again), again == plain) == (MPI.Intracomm, True)
        for each in world.allgather(world):
            check_works(each)
    for kind in (han.Comm, han.Topocomm, han.Cartcomm, han.Intercomm):
        again = pickle.loads(pickle.dumps(kind()))
        assert (type(again), again == MPI.COMM_NULL) == (kind, True)
    with pytest.raises(ValueError, match="cannot be pickled"):
        pickle.dumps(comm)


def test_a_communicator_of_a_group_alone_is_of_han(mpi_ranks):
    """MPI makes it from the group without a parent, so it inherits nothing."""
    group = WORLD.Get_group()
    try:
        made = han.Comm.Create_from_group(group, "org.han.test")
    except (NotImplementedError, MPI.Exception) as refused:
        with pytest.raises(type(refused)):
            MPI.Intracomm.Create_from_group(group, "org.han.test")
    else:
        assert type(made) is han.Comm
        assert made.Compare(WORLD) == MPI.CONGRUENT
        check_works(made)
        made.Free()
    group.Free()


def test_free_in_lower_case_is_mpi4pys(mpi_ranks):
    for plain in (MPI.COMM_WORLD, MPI.COMM_SELF):
        comm = han.Comm(plain)
        copy = type(comm)(comm)
        for _ in range(3):
            comm.free()
            copy.free()
            assert comm
            assert not copy
        check_works(comm)
    made = comm.Create_cart([1])
    for _ in range(3):
        made.free()
        assert not made
    with pytest.raises(MPI.Exception):
        made.Free()


def test_methods_that_take_a_communicator_take_one_of_han(mpi_ranks, tmp_path, comm):
    grid = comm.Create_cart([comm.size])
    for each in (comm, grid):
        mode = MPI.MODE_CREATE | MPI.MODE_RDWR
        MPI.File.Open(each, WORLD.bcast(str(tmp_path / "f")), mode).Close()
        memory = np.zeros(comm.size, int)
        win = MPI.Win.Create(memory, 8, comm=each)
        win.Fence()
        win.Put(np.array([each.rank]), 0, each.rank)
        win.Fence()
        win.Free()
        assert each.rank != 0 or list(memory) == list(range(comm.size))
        assert MPI.Intracomm(each) == each
        keyval = MPI.Comm.Create_keyval()
        each.Set_attr(keyval, "mine")
        assert each.Get_attr(keyval) == "mine"
        each.Delete_attr(keyval)
        each.name = "mine"
        assert MPI.Intracomm(each).name == "mine"
        assert not each.Is_inter()
    grid.Free()


# ---- errors -------------------------------------------------------------------------------------


def outside(comm):
    """Return arguments with ranks that the communicator has not."""
    return [comm.size], [-7]


ODD = [
    ("Split", lambda c: ("red",), lambda c: (0,), TypeError),
    ("Split", lambda c: (-5,), lambda c: (0,), han.ArgumentError),
    ("Split", lambda c: (1 << 40,), lambda c: (0,), OverflowError),
    ("Split_type", lambda c: (SHARED, 0, 3), lambda c: (SHARED,), TypeError),
    ("Dup", lambda c: ("hints",), lambda c: (), TypeError),
    ("Create", lambda c: ([0],), lambda c: (c.group,), TypeError),
    ("Create", lambda c: (MPI.GROUP_NULL,), lambda c: (c.group,), MPI.Exception),
    ("Create_cart", lambda c: (c.size,), lambda c: ([c.size],), TypeError),
    ("Create_cart", lambda c: ([1.5],), lambda c: ([c.size],), TypeError),
    ("Create_cart", lambda c: ([c.size], [True, True]), lambda c: ([c.size],), ValueError),
    ("Create_graph", lambda c: (None, []), graph, TypeError),
    ("Create_dist_graph_adjacent", outside, ring, han.ArgumentError),
    ("Create_dist_graph_adjacent", lambda c: (*ring(c), [1, 2]), ring, ValueError),
    ("Create_dist_graph", lambda c: ([0], [2], [0]), lambda c: ([], [], []), ValueError),
    ("Create_dist_graph", lambda c: ([0], [-1], []), lambda c: ([], [], []), han.ArgumentError),
    ("Create_intercomm", lambda c: (c.size, c, 0), lambda c: (0, c, 0), han.ArgumentError),
    ("Create_intercomm", lambda c: (0, None, 0), lambda c: (0, c, 0), TypeError),
]  # fmt: skip


def test_wrong_arguments_on_one_rank_are_an_error_on_all(mpi_ranks, comm):
    for name, wrong, right, kind in ODD:
        for odd in (0, comm.size - 1):
            given = (wrong if comm.rank == odd else right)(comm)
            error, _ = outcome(lambda name=name, given=given: getattr(comm, name)(*given))
            if comm.rank == odd:
                assert isinstance(error, kind), (name, error)
            else:
                assert type(error) is han.PeerError, (name, error)
                assert f"rank {odd} raised" in str(error)
                assert name in str(error)
        check_works(comm)
        if name != "Create_intercomm":  # needs two groups
            error, _ = outcome(lambda name=name, wrong=wrong: getattr(comm, name)(*wrong(comm)))
            assert isinstance(error, kind), (name, error)
    grid = comm.Create_cart([comm.size])
    error, _ = outcome(lambda: grid.Sub([True] * (1 + (grid.rank == 0))))
    assert type(error) is (han.PeerError if grid.rank else ValueError)
    grid.Free()


DIFFERENT = [
    ("Create_cart", lambda c: ([1 + c.rank],), r"rank 0 passes \(\[1\].*rank 1 passes \(\[2\]"),
    ("Create_cart", lambda c: ([c.size], [not c.rank]), "True.*False"),
    ("Create_graph", lambda c: ([1], [0], bool(c.rank)), "False.*True"),
    ("Create_intercomm", lambda c: (min(c.rank, 1), c, 0), "passes"),
]


def test_arguments_that_differ_between_ranks_are_an_error_on_all(mpi_ranks, comm):
    for name, given, text in DIFFERENT:
        with pytest.raises(han.MismatchError, match=text):
            getattr(comm, name)(*given(comm))
        check_works(comm)
    grid = comm.Create_cart([comm.size])
    with pytest.raises(han.MismatchError, match="Sub"):
        grid.Sub([grid.rank == 0])
    grid.Free()


def test_what_mpi_refuses_on_all_ranks_leaves_the_communicator_usable(mpi_ranks, comm):
    with pytest.raises(MPI.Exception):
        comm.Create_cart([comm.size + 1])
    check_works(comm)


def test_a_freed_communicator_makes_none(mpi_ranks):
    comm = new_comm()
    grid = comm.Create_cart([comm.size])
    grid.Free()
    comm.Free()
    for call in (comm.Split, comm.Dup, comm.Idup, lambda: comm.Create_cart([1]), grid.Dup):
        with pytest.raises(han.RevokedError, match="COMM_NULL"):
            call()


# ---- what is left over --------------------------------------------------------------------------


def test_every_way_to_end_a_communicator_releases_its_memory(mpi_ranks, monkeypatch):
    with own_memory(monkeypatch) as place:
        comm = new_comm()
        check_works(comm)
        before = mapped(place)
        for name in OF_TOPOLOGIES:
            for end in ("Free", "free", "Disconnect"):
                made = CONSTRUCTORS[name](comm, None)
                check_works(made)
                request = made.Iallreduce(np.ones(1000), np.empty(1000))
                getattr(made, end)()
                assert made == MPI.COMM_NULL
                assert request.Test()
                del request, made
        assert mapped(place) <= before
        comm.Disconnect()
        WORLD.Barrier()
        assert not list(place.iterdir())
