"""Objects as bytes: what comes back is what pickle gives back, and arrays need no pickle."""

import copyreg
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from mpi4py import MPI
from processes import python

import han.object_moves  # tells _native of MPI.pickle
from han import _native

assert han.object_moves
NUMBERS = "?bBhHiIlLefdgFDG"
MAGIC = b"\0han"


class Derived(np.ndarray[Any, Any]):
    """A subclass of NumPy's arrays."""


class Number(np.float64):
    """A subclass of NumPy's numbers."""


def back(obj: Any) -> Any:
    return _native.decode(_native.encode(obj))


def check(obj: Any, quick: bool) -> None:
    """Compare with what pickle gives back; `quick`: it is not to be used."""
    data = _native.encode(obj)
    assert data.startswith(MAGIC) == quick, obj
    got = _native.decode(bytearray(data))  # from any buffer
    wanted = pickle.loads(pickle.dumps(obj, 5))
    assert type(got) is type(wanted)
    assert pickle.dumps(got) == pickle.dumps(wanted), obj
    if isinstance(wanted, np.ndarray):
        assert got.dtype == wanted.dtype
        for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE", "ALIGNED"):
            assert got.flags[flag] == wanted.flags[flag]


@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from("CF"))
def test_arrays_of_numbers(data, code, order):
    shape = data.draw(arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4))
    array = np.arange(np.prod(shape), dtype="f8").astype(code).reshape(shape).copy(order)
    check(array, quick=True)


def test_scalars_of_numbers():
    for code in NUMBERS:
        kind = np.dtype(code).type
        for value in (0, 1):
            check(kind(value), quick=True)
    check(np.float64("nan"), quick=True)
    check(np.complex128(1 - 2j), quick=True)


def test_what_is_no_plain_array_of_numbers_is_pickled():
    read_only = np.arange(3)
    read_only.flags.writeable = False
    with_metadata = np.zeros(3, np.dtype("f8", metadata={"unit": "m"}))
    for obj in (
        None, 1, 2.5, "text", [np.arange(3)], {"a": np.float32(1)}, read_only, with_metadata,
        np.arange(9)[::2], np.zeros((4, 4))[:, :2], np.arange(3).astype(">i4"), np.array(["a"]),
        np.array([None, 1]), np.zeros(2, "i4,f8"), np.array(["2026-01-01"], "M8[D]"),
        np.datetime64("2026-01-01"), np.str_("a"), np.bytes_(b"a"),
        np.ma.masked_array([1, 2], [0, 1]),
        np.arange(3).view(Derived), Number(3), np.float64, np.dtype("f8"),
        np.longlong(3), np.zeros(3, np.ulonglong),  # which become 64-bit integers
    ):  # fmt: skip
        check(obj, quick=False)


def test_arrays_are_copies_that_own_their_memory():
    array = np.arange(5.0)
    got = back(array)
    got[0] = 7
    assert array[0] == 0
    assert got.flags.owndata
    assert back(got[1:]).base is None


def test_no_bytes_stand_for_none():
    assert _native.decode(b"") is None
    assert _native.decode(np.empty(0, np.uint8)) is None


def test_functions_of_the_program_get_all_objects():
    try:
        MPI.pickle.__init__(lambda obj: repr(obj).encode(), lambda data: bytes(data).decode())
        assert back(np.arange(3)) == "array([0, 1, 2])"
        assert back(np.float64(2)) == repr(np.float64(2))
        MPI.pickle.__init__(pickle.dumps, lambda data: "read")
        assert back(np.arange(3)) == "read"
        MPI.pickle.__init__(lambda obj: bytearray(b"12"), len)
        assert _native.encode(1) == b"12"
        assert type(_native.encode(1)) is bytes
    finally:
        MPI.pickle.__init__()
    check(np.arange(3), quick=True)


def test_functions_of_copyreg_are_asked():
    for obj in (np.arange(3), np.float32(2)):
        copyreg.pickle(type(obj), lambda one: (str, ("reduced",)))
        try:
            assert back(obj) == "reduced"
        finally:
            del copyreg.dispatch_table[type(obj)]
        check(obj, quick=True)


def test_a_rank_with_functions_of_its_own_reads_arrays_of_others():
    data = _native.encode(np.arange(3))
    try:
        MPI.pickle.__init__(pickle.dumps, lambda data: "read")
        assert _native.decode(data).tolist() == [0, 1, 2]
    finally:
        MPI.pickle.__init__()


def test_nothing_is_pickled_before_mpi4py_is_known():
    program = "import numpy as np; from han import _native; _native.encode(np.zeros(3))"
    done = python("-c", program)
    assert done.returncode == 1
    assert "RuntimeError: learn_pickle was not called" in done.stderr


def test_damaged_arrays_are_refused():
    good = _native.encode(np.arange(6, dtype="i4").reshape(2, 3))
    number, dimensions = 4, 5  # bytes of the head
    length = 8
    wrong = [good[:-1], good + b"x", good[:length], good[: length + 3]]
    for place, values in (
        (number, (17, 20, 22, 24, 100, 200, 255)),
        (dimensions, (0, 1, 3, 33, 128, 254, 255)),
    ):
        wrong += [good[:place] + bytes([value]) + good[place + 1 :] for value in values]
    lengths = (size.to_bytes(8, "little", signed=True) for size in (-1, 2**62, -(2**63)))
    wrong += [good[:length] + size + good[length + 8 :] for size in lengths]
    for data in wrong:
        with pytest.raises(ValueError, match="an encoded array is damaged"):
            _native.decode(data)
    for data in (MAGIC, MAGIC + b"\1\0\0"):  # no head: left to pickle
        with pytest.raises(pickle.UnpicklingError):
            _native.decode(data)


def test_wrong_arguments():
    for call in (lambda: _native.decode(1), lambda: _native.learn_pickle(1)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(AttributeError):
        _native.encode(lambda: 1)
