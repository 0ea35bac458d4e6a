"""The reader in C beside the parser in Python: the same address, bytes and type, or both refuse."""

import array
import collections
import ctypes
import gc
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpi4py import MPI
from tensors import BFLOAT16, FLOAT8, GPU, PINNED, OnDevice, Tabled, Tensor

from han import _native
from han.message.buffers import Buffer, parse
from han.message.reader import NUMBERS, READER, REFUSED, facts
from han.message.uneven import Vector

pytestmark = pytest.mark.usefixtures("few_objects")

N = 6
NAMES = (
    "BYTE", "CHAR", "SHORT", "INT", "LONG", "LONG_LONG", "UNSIGNED_CHAR", "UNSIGNED", "FLOAT",
    "DOUBLE", "LONG_DOUBLE", "C_BOOL", "C_FLOAT_COMPLEX", "C_DOUBLE_COMPLEX", "INT8_T", "INT64_T",
    "UINT64_T", "AINT", "WCHAR", "PACKED", "DOUBLE_INT", "TWOINT", "LONG_DOUBLE_INT",
)  # fmt: skip
CODES = ("b", "i", "l", "d", "f8", "i4", "float64", "?", "D", "Zd", "nonsense", "")
OUTSIDE = MPI.DOUBLE.Create_hvector(2, 1, 16).Commit()


class Derived(np.ndarray):
    """A subclass of NumPy's arrays."""


class Listed(list[Any]):
    """A subclass of lists."""


# ---- what the reader need not know --------------------------------------------------------------


def in_own_memory(buffer: Buffer, data: Any) -> bool:
    """Return whether all elements are in the memory of the object itself, not around a view."""
    try:
        memory = np.asarray(getattr(data, "array", data))
    except (TypeError, ValueError):
        return False
    start = memory.__array_interface__["data"][0]
    return not buffer.span or start <= buffer.address <= start + memory.nbytes - buffer.span


def is_usual(spec: Any, buffer: Buffer) -> bool:
    """Return whether the reader must serve an argument that the parser accepts."""
    listed = isinstance(spec, list | tuple)
    data = spec[0] if listed else spec
    if buffer.device or not buffer.dense or data is None or isinstance(data, REFUSED):
        return False
    if isinstance(data, MPI.buffer) and data.obj is not None:
        return False
    typed = listed and isinstance(spec[-1], MPI.Datatype | str)
    if listed and not is_usual_list(spec, spec[1 : len(spec) - typed], typed):
        return False
    if not typed and isinstance(data, np.ndarray) and data.dtype.char not in NUMBERS:
        return False
    return in_own_memory(buffer, data)


def is_usual_list(spec: Any, counts: Any, typed: bool) -> bool:
    """Return whether a list is spelled as usual; `counts` are its items between data and type."""
    if type(spec) not in (list, tuple) or len(counts) > 1 + typed:
        return False
    pairs = [k for k in counts if isinstance(k, list | tuple)]
    return not pairs or (len(counts) == 1 and type(pairs[0]) is tuple)


def parsed(spec: Any, blocks: int) -> Buffer | None:
    try:
        return parse(spec, "buf", blocks)
    except (TypeError, ValueError):
        return None


def check(spec: Any, blocks: int = 1) -> Buffer | None:
    """Compare the reader with the parser, which teaches it; return the parser's result."""
    buffer = parsed(spec, blocks)
    read = READER.read(spec, blocks)
    if buffer is None:
        assert read is None, spec
        return None
    if read is None:
        assert not is_usual(spec, buffer), spec
        return buffer
    nbytes = buffer.count * buffer.size
    kind = facts(buffer.size, buffer.datatype, buffer.name)
    assert read == (buffer.address, nbytes, *kind, buffer.readonly), spec
    return buffer


# ---- spellings ----------------------------------------------------------------------------------


def numbers(code: str) -> np.ndarray[Any, Any]:
    return (np.arange(N) % 2).astype(code)


def arrays() -> list[Any]:
    plain = [numbers(code) for code in NUMBERS]
    d = numbers("d")
    fixed = numbers("i")
    fixed.flags.writeable = False
    views = [d[::2], d[1:4], d[::-1], d.reshape(2, 3), d.reshape(2, 3).T, d[:0], d.view(Derived)]
    odd = [
        np.array(3.0),
        np.ma.array(numbers("f")),
        numbers(">i4"),
        numbers("S1"),
        numbers("M8[s]"),
    ]
    record = np.zeros(N, [("x", "i4"), ("y", "f8")])
    return [*plain, *views, *odd, fixed, record, np.array([None]), np.zeros((0, 5))]


def buffers() -> list[Any]:
    d = numbers("d")
    views = [memoryview(numbers(code)) for code in NUMBERS]
    casts = [memoryview(d)[::2], memoryview(d)[2:], memoryview(bytes(8)), memoryview(d).cast("B")]
    kinds = (ctypes.c_double, ctypes.c_int, ctypes.c_char, ctypes.c_bool, ctypes.c_long)
    arrays = [array.array(code, [0] * N) for code in "bBhHiIlLqQfd"]
    gone = memoryview(bytearray(8))
    gone.release()
    return [
        *views, *casts, *arrays, array.array("u", "abc"), bytearray(24), bytes(16), bytearray(),
        *((kind * N)() for kind in kinds), gone, MPI.memory.frombuffer(d),
        MPI.memory.fromaddress(d.ctypes.data, 0),
    ]  # fmt: skip


def tensors() -> list[Any]:
    plain = [Tensor(numbers(code), version) for code in "?bBhHiIqQefdFD" for version in (0, 1)]
    d = numbers("d")
    others = [
        Tensor(numbers("H"), kind=BFLOAT16), Tensor(numbers("B"), kind=FLOAT8),
        Tensor(d, readonly=True), Tensor(d, device=PINNED), Tensor(d, device=GPU),
        Tensor(d[::2]), Tensor(d.reshape(2, 3).T), Tensor(np.array(1.0)), OnDevice(d),
        Tensor(d, 0, knows_versions=True), Tensor(numbers("i"), kind=(9, 32)),
    ]  # fmt: skip
    return plain + others


SCALARS = [np.dtype(code).type(1) for code in NUMBERS]
NOTHING = [None, "text", 3, 2.5, object(), [1.0, 2.0], range(4), MPI.IN_PLACE, MPI.BOTTOM, int]
DATA = [*arrays(), *buffers(), *tensors(), *SCALARS, *NOTHING]
TYPES = [getattr(MPI, name) for name in NAMES]
OTHER_TYPES = [*CODES, OUTSIDE, MPI.DATATYPE_NULL, None, 7]

data = st.integers(0, len(DATA) - 1).map(DATA.__getitem__)  # not all can be hashed
types = st.sampled_from(TYPES) | st.sampled_from(OTHER_TYPES)
amounts = st.sampled_from([
    None, 0, 1, 2, 3, N, N + 1, -1, True, 2**31, 2**61, 2**63, 2**70, 1.5, "2", np.int32(2),
    np.int64(1), np.uint8(3), np.float64(1), np.array([1, 2]), [2], (), (1, 2, 3),
])  # fmt: skip
pairs = st.tuples(amounts, amounts) | st.lists(amounts, min_size=2, max_size=2)
counts = amounts | pairs
listed = st.one_of(
    st.tuples(data),
    st.tuples(data, types),
    st.tuples(data, counts),
    st.tuples(data, counts, types),
    st.tuples(data, counts, amounts, types),
    st.tuples(data, counts, amounts, types, types),
    st.just(()),
)
spellings = data | listed | listed.map(list) | listed.map(Listed)


@settings(max_examples=2000, deadline=None)
@given(spellings, st.integers(1, 4))
@example([None, 0, MPI.INT], 2)
@example([np.zeros(N), (2**62, 2**62), MPI.DOUBLE], 4)
def test_reader_and_parser_agree(spec, blocks):
    check(spec, blocks)


@pytest.mark.parametrize("thing", DATA, ids=lambda thing: type(thing).__name__)
def test_reader_knows_every_usual_object(thing):
    check(thing)
    check([thing])
    for datatype in TYPES:
        check([thing, datatype])
        check((thing, 1, datatype))
        check([thing, (1, 1), datatype])


def test_reader_serves_the_spellings_of_the_tutorial():
    a = np.arange(6.0)
    whole, part = (a.ctypes.data, 48), (a.ctypes.data + 8, 16)
    for spec in (a, [a], [a, MPI.DOUBLE], [a, 6], [a, 6, MPI.DOUBLE], [a, None, "d"], (a, "f8")):
        assert check(spec) is not None
        assert READER.read(spec)[:2] == whole
    for spec in ([a, (2, 1), MPI.DOUBLE], (a, (2, 1), "d"), [a, 2, 1, MPI.DOUBLE], (a[1:3],)):
        assert check(spec) is not None
        assert READER.read(spec)[:2] == part


def test_reader_serves_memory_from_an_address():
    d = numbers("d")
    memory = MPI.buffer.fromaddress(d.ctypes.data, d.nbytes)
    for spec in (memory, [memory, N, MPI.DOUBLE], [memory, "d"]):
        assert check(spec) is not None
        assert READER.read(spec) is not None


def test_reader_leaves_rare_spellings_to_the_parser():
    a = np.arange(6.0)
    memory = MPI.buffer.frombuffer(a)
    for spec in (
        memory, [memory, N, MPI.DOUBLE], [a, [2, 1], MPI.DOUBLE],
        Listed([a]), [a, 6, None], [None, 0, MPI.DOUBLE],
    ):  # fmt: skip
        assert check(spec) is not None
        assert READER.read(spec) is None, spec
    for thing in (OnDevice(a), Tensor(a, device=GPU)):
        memory = MPI.buffer.frombuffer(thing)
        assert READER.read([memory, N, MPI.DOUBLE]) is None
        assert READER.read(memory) is None


def test_reader_holds_no_memory():
    a, view, tensor = np.zeros(4), bytearray(8), Tensor(np.zeros(4))
    for thing in (a, view, tensor, np.float64(1), "text", a[::2]):
        for spec in (thing, [thing, MPI.BYTE], [thing, 999, MPI.DOUBLE], [thing, -1]):
            check(spec)
            gc.collect()
            before = sys.getrefcount(thing)
            for _ in range(100):
                READER.read(spec)
            assert sys.getrefcount(thing) == before
    view.extend(bytes(8))  # raises if a buffer were still exported


def test_list_may_change_while_its_tensor_is_read():
    class Rude(Tensor):
        def __dlpack_device__(self):
            spec.clear()
            return super().__dlpack_device__()

    tensor = Rude(np.zeros(4))
    spec = [tensor, MPI.DOUBLE]
    parse([Tensor(np.zeros(4)), MPI.DOUBLE], "buf")
    assert READER.read(spec)[:2] == (tensor.array.ctypes.data, 32)


def test_errors_of_a_producer_are_left_to_the_parser():
    class Broken(Tensor):
        def __dlpack__(self, **how):
            raise RuntimeError("out of order")

    assert READER.read(Broken(np.zeros(4))) is None


# ---- tables of functions of a class -------------------------------------------------------------


def tabled(**members: Any) -> Any:
    """Return a new class of tensors with a table, and with other members than usual."""
    kind = type("Own", (Tabled,), members)
    kind.declare()
    return kind


def asked(tensor: Tensor) -> bool:
    """Read a tensor whose elements are known; return whether its methods were asked."""
    check(Tensor(tensor.array))
    tensor.asked.clear()
    read = READER.read(tensor)
    assert read is not None
    assert read[:2] == (tensor.array.ctypes.data, tensor.array.nbytes)
    del read
    gc.collect()
    assert Tabled.alive == 0
    return bool(tensor.asked)


def test_a_table_of_the_class_saves_the_calls_of_methods():
    for code in ("f4", "f8", "i4", "u2", "?"):
        assert not asked(tabled()(np.ones(4, code)))
    read_only = tabled()(np.ones(4), readonly=True)
    check(read_only)
    assert not asked(read_only)


def test_methods_decide_where_a_table_does_not_tell_everything():
    assert asked(tabled()(np.ones(4, "c8")))  # may be conjugated
    assert asked(tabled(requires_grad=True)(np.ones(4)))
    plain = tabled()
    assert not asked(plain(np.ones(4)))
    assert asked(type("Inherits", (plain,), {})(np.ones(4)))  # may override the methods

    class Foreign(Tabled):
        """A class whose table is no table."""

        __dlpack_c_exchange_api__ = 7

    assert asked(Foreign(np.ones(4)))


def test_gradients_that_the_methods_refuse_are_refused():
    class Refusing(Tabled):
        requires_grad = True

        def __dlpack__(self, **how):
            raise BufferError("needs gradients")

    Refusing.declare()
    assert READER.read(Refusing(np.ones(4))) is None
    assert Tabled.alive == 0


def test_a_tensor_is_given_back_while_an_exception_is_on_its_way():
    """The function that takes it back runs Python, and the exception arrives."""
    tensor = tabled()(np.ones(4))
    assert not asked(tensor)

    class Broken:
        """An array-like of which nothing can be read."""

        @property
        def __dlpack__(self) -> None:
            raise ZeroDivisionError

    wrong: list[Any] = [tensor, Broken()]
    assert READER.read(wrong) is None
    gc.collect()
    assert Tabled.alive == 0


def test_versions_of_tables():
    old, new = type("Old", (Tabled,), {}), type("New", (Tabled,), {})
    new.declare(2, old.declare())
    assert not asked(new(np.ones(4)))
    new.declare(2)
    assert not asked(old(np.ones(4)))  # han looks at a class again if it saw another one
    assert asked(new(np.ones(4)))


def test_what_a_table_shows_may_be_of_a_device_damaged_or_nothing():
    kind = tabled()

    def of_another_version(shown: Any) -> None:
        shown.major = 2

    def with_gaps(shown: Any) -> None:
        shown.tensor.strides[0] = 2

    def without_sense(shown: Any) -> None:
        shown.tensor.shape[0] = -1

    def not_at_all(shown: Any) -> None:
        raise ValueError

    assert READER.read(kind(np.ones(4), device=GPU)) is None
    for damage in (with_gaps, without_sense):
        assert READER.read(kind(np.ones(4), damage=damage)) is None
    for damage in (of_another_version, not_at_all):
        tensor = kind(np.ones(4))
        tensor.damage = lambda shown, t=tensor, d=damage: None if t.asked else d(shown)
        assert asked(tensor)
    assert Tabled.alive == 0


# ---- buffers of blocks --------------------------------------------------------------------------

SIZE = 3
KINDS_OF_COUNTS = (
    list, tuple, range, collections.deque, Listed, lambda numbers: memoryview(bytes(numbers)),
    lambda numbers: array.array("i", numbers), lambda numbers: (ctypes.c_short * 3)(*numbers[:3]),
    *(np.dtype(code) for code in ("i4", "i8", "u4", "u8", "i2", ">i8", "f8", "?", "O")),
)  # fmt: skip


def read_vector(spec: Any) -> Any:
    """Read a buffer of blocks: what it is, and the blocks' counts and places; None if refused."""
    found = _native.read_vector(READER, spec, SIZE)
    return found and (found[0], tuple(np.frombuffer(found[1], np.uint64).tolist()))


def check_vector(spec: Any) -> Vector | None:
    """Compare the reader with the parser for a buffer of blocks; return the parser's result."""
    try:
        vector = Vector.of(spec, "buf", SIZE)
    except (TypeError, ValueError):
        vector = None
    read = read_vector(spec)
    if vector is None:
        assert read is None, spec
        return None
    buffer = vector.buffer
    if read is None:
        return vector
    kind = facts(buffer.size, buffer.datatype, buffer.name)
    nbytes = buffer.count * buffer.size
    assert buffer.dense, spec
    assert read[0] == (buffer.address, nbytes, *kind, buffer.readonly), spec
    assert read[1] == (*vector.counts, *vector.starts), spec
    return vector


def in_kind(numbers: list[int], kind: Any) -> Any:
    if kind is range:
        return range(*numbers[:2])
    return np.array(numbers, kind) if isinstance(kind, np.dtype) else kind(numbers)


numbers_of = st.lists(st.integers(0, 3), min_size=SIZE - 1, max_size=SIZE + 1)
in_kinds = st.builds(in_kind, numbers_of, st.sampled_from(KINDS_OF_COUNTS))
ODD: list[Any] = [
    [1, -1, 2], [2**63, 2**63, 0], [2**64, 0, 0], [1, None, 1], [1.0, 1, 1], [True, np.uint8(2), 0],
    np.array([[1, 1, 1]]), [1, np.array([1]), 1], {0: 1, 1: 1, 2: 1},
    np.ma.array([1, 1, 1], mask=[0, 1, 0]),
    np.array(2), np.array([2, -1, 1]), np.arange(6)[::2], ["1", "1", "1"],
    memoryview(np.array([[1, 1, 1]])), memoryview(bytearray(3)).cast("c"),
]  # fmt: skip
odd = st.integers(0, len(ODD) - 1).map(ODD.__getitem__)  # not all can be hashed
every_count = amounts | in_kinds | odd
every_pair = st.tuples(every_count, every_count)
vectors = st.one_of(
    data,
    st.tuples(data),
    st.tuples(data, types),
    st.tuples(data, every_count | every_pair),
    st.tuples(data, every_count | every_pair, types),
    st.tuples(data, every_count, every_count, types),
    st.tuples(data, every_count, every_count, types, types),
)


@settings(max_examples=2000, deadline=None)
@given(vectors | vectors.map(lambda spec: list(spec) if isinstance(spec, tuple) else spec))
@example([np.zeros(N), [2**63, 2**63, 1], MPI.DOUBLE])
@example([np.zeros(N), ([1, 2, 3], [0, 1, 3]), "d"])
@example([np.zeros(N), ([1, 2, 3], [3, 1, 0]), "d"])
def test_reader_and_parser_agree_on_blocks(spec):
    check_vector(spec)


def test_reader_serves_blocks_in_usual_spellings():
    a = np.arange(9.0)
    for counts in ([1, 2, 3], np.array([1, 2, 3]), np.array([1, 2, 3], "i4"), [1, np.int64(2), 3]):
        for starts in ([0, 2, 6], np.array([0, 2, 6]), (0, 2, 6), np.array([0, 9, 2, 9, 6])[::2]):
            for spec in (
                [a, (counts, starts)],
                [a, (counts, starts), "d"],
                (a, counts, starts, "d"),
            ):
                check_vector(spec)
                assert read_vector(spec)[1] == (1, 2, 3, 0, 2, 6), spec
        for spec in ([a, counts], [a, (counts, None)], [a, counts, MPI.DOUBLE]):
            check_vector(spec)
            assert read_vector(spec)[1] == (1, 2, 3, 0, 1, 3), spec
    assert read_vector([a, ([1, 0, 3], [0, 9, 1])])[1][:3] == (1, 0, 3)


def test_reader_leaves_other_blocks_to_the_parser():
    a = np.arange(6.0)
    for spec in (
        [a, ([1, 2, 3], [5, 3, 0])], [a, ([1, 1, 1], 2)], [a, (None, [0, 2, 4])], [a, (1, 2, 3)],
        [a, [1, 2, 4]], [a, [1, 2]], [a, np.array([1, 2, 3], "f8")], [a, [1, 1, 1], OUTSIDE],
        a, [a], [a, "d"], [a, 2], [a, (2, 2)], [a, 2, 2, "d"], [a, (2, 2, 2)],
        [a, array.array("d", [2, 2, 2])], [a, ([2, 2, 2], [0, 1, 4])],
    ):  # fmt: skip
        check_vector(spec)
        assert read_vector(spec) is None, spec


def test_reader_of_blocks_holds_no_memory():
    a, counts = np.zeros(6), [1, 2, 3]
    for spec in ([a, counts], [a, counts, "d"], (a, (counts, [0, 1, 3])), [a, [1, 2, 900]]):
        before = sys.getrefcount(a), sys.getrefcount(counts)
        for _ in range(100):
            read_vector(spec)
        assert (sys.getrefcount(a), sys.getrefcount(counts)) == before
