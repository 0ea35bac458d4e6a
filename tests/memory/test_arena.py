"""The memory of shared arrays in one process: allocation, limits, threads, forks."""

import contextvars
import ctypes
import fcntl
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest

from han.comm import shared_arrays
from han.common.errors import ConfigError, SharedMemoryError
from han.memory import arena as arenas
from han.memory.arena import Arena, as_shared, holds, limit, open_arena, process_arena
from han.memory.mapping import ArenaHandle, Mapped
from han.memory.pages import AT_ONCE, POLICY, WHEN_TOUCHED, describe, policy

pytestmark = pytest.mark.usefixtures("few_objects")

MiB = 1 << 20
HUGE = 2 * MiB
SLABS = 6 * (64 << 10)  # one slab of each size may stay for later small arrays


def in_memory(arena: Arena) -> int:
    """Return the bytes of memory that the arena's file has."""
    return os.fstat(arena.fd).st_blocks * 512


def make(arena: Arena, nbytes: int, value: int) -> np.ndarray:
    """Make one array of bytes in the arena, and nothing else."""
    with arena.used():
        array = np.empty(nbytes, np.uint8)
    array[:] = value
    return array


def churn(arena: Arena, seed: int, turns: int = 1500) -> None:
    """Make arrays, fill them, resize them and free them, in random order."""
    draw, living = Random(seed), []
    with arena.used():
        for turn in range(turns):
            if len(living) > 40 or (living and draw.random() < 0.45):
                array, value = living.pop(draw.randrange(len(living)))
                assert (array == value).all(), "somebody else wrote there"
                continue
            size = draw.choice([1, 64, 65, 700, 2048, 2049, 5000, draw.randrange(300_000)])
            array = np.zeros(size, np.uint8)
            assert not array.any(), "zeros, also where something was before"
            if draw.random() < 0.2:
                array[:] = 3
                array.resize(2 * size + 1, refcheck=False)
                assert (array[:size] == 3).all()
                assert not array[size:].any()
            array[:] = value = (seed + turn) % 255 + 1
            living.append((array, value))
    assert all((array == value).all() for array, value in living)


def test_freed_memory_is_used_again_and_returned_to_the_system():
    arena = open_arena(64 * MiB, keep=0)
    churn(arena, 1)
    gc.collect()
    assert arena.usage().taken <= SLABS
    assert in_memory(arena) <= SLABS
    with arena.used():
        whole = np.zeros(60 * MiB, np.uint8)  # holes are joined again
    assert arena.holds(whole.ctypes.data, whole.nbytes)
    assert in_memory(arena) >= whole.nbytes


def test_free_memory_is_kept_up_to_a_bound():
    arena = open_arena(64 * MiB, keep=8 * MiB)
    for nbytes, kept in ((4 * MiB, 4 * MiB), (16 * MiB, 4 * MiB)):
        array = make(arena, nbytes, 1)
        del array
        assert arena.usage().kept == kept
        assert in_memory(arena) == kept
    with arena.used():
        assert not np.zeros(4 * MiB, np.uint8).any(), "what stayed held ones"


def test_many_small_arrays_share_slabs():
    arena = open_arena(64 * MiB)
    with arena.used():
        small = [np.full(12, k) for k in range(10_000)]
    assert arena.usage().taken < 10_000 * 128 + MiB
    assert all(array.ctypes.data % 64 == 0 for array in small)
    assert all((array == k).all() for k, array in enumerate(small))


def test_no_room_is_an_error_with_numbers_and_a_remedy():
    arena = open_arena(4 * MiB)
    half = make(arena, 3 * MiB, 1)
    text = r"shared array of 2MiB: 3MiB of 4MiB are in use .* HAN_ARENA"
    with pytest.raises(MemoryError, match=text):
        make(arena, 2 * MiB, 1)
    with pytest.raises(MemoryError, match=r"^mine$"), arena.used():
        raise MemoryError("mine")
    assert half.all()
    del half
    with arena.used():
        np.empty(4 * MiB, np.uint8)


def test_memory_that_the_system_refuses_is_an_error_and_no_signal():
    """A file that cannot grow stands for a full file system: what was reserved is given back."""
    fd = os.memfd_create("full", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 6 * MiB)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    arena = Arena(arenas._native.arena_open(fd, 64 * MiB, 0), fd)
    kept = make(arena, 2 * MiB, 1)
    with pytest.raises(MemoryError, match=r"16MiB: .*not permitted.*2MiB are in use"), arena.used():
        np.empty(16 * MiB, np.uint8)
    assert in_memory(arena) == kept.nbytes
    assert make(arena, 4 * MiB, 1).all()
    assert kept.all()


def test_threads_allocate_separate_memory():
    arena = open_arena(256 * MiB, keep=2 * MiB)
    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(churn, arena, seed, 400) for seed in range(6)]:
            future.result()
    gc.collect()
    assert arena.usage().taken <= SLABS


def test_a_forked_child_leaves_the_parents_memory_alone():
    arena = open_arena(16 * MiB, keep=0)
    with arena.used():
        large, small = np.full(MiB, 7, np.uint8), np.full(100, 7, np.uint8)
        before, held = arena.usage(), in_memory(arena)
        child = os.fork()
        if not child:
            try:
                own = [np.ones(size, np.uint8) for size in (10, 3000, MiB)]
                outside = not any(arena.holds(a.ctypes.data, a.nbytes) for a in own)
                small.resize(5000, refcheck=False)
                kept = (small[:100] == 7).all()
                del large, own
                os._exit(0 if outside and kept else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (arena.usage(), in_memory(arena)) == (before, held)
    assert (large == 7).all()
    assert (small == 7).all()


def test_writes_of_a_forked_child_do_not_damage_the_parent():
    arena = open_arena(16 * MiB)
    old = [make(arena, 100, 7) for _ in range(10)]
    go, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.read(go, 1)
            for array in old:
                array[:] = 0xEE
            os._exit(0)
        finally:
            os._exit(2)
    old.clear()  # freed in the parent, still mapped by the child
    os.write(told, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(go)
    os.close(told)
    new = [make(arena, 100, value) for value in range(20)]
    assert all(arena.holds(a.ctypes.data, 100) for a in new)
    assert [int(a.max()) for a in new] == list(range(20))


def test_the_file_is_closed_with_the_last_array():
    arena = open_arena(16 * MiB)
    with arena.used():
        array = np.arange(1000)
    fd = arena.fd
    name = os.readlink(f"/proc/self/fd/{fd}")
    del arena
    gc.collect()
    assert os.readlink(f"/proc/self/fd/{fd}") == name
    assert (array == np.arange(1000)).all()
    del array
    gc.collect()
    with pytest.raises(OSError, match="No such file"):
        os.readlink(f"/proc/self/fd/{fd}")


def shared(array: np.ndarray) -> bool:
    return holds(array.ctypes.data, array.nbytes)


def test_existing_code_makes_shared_arrays_in_one_context():
    found = {}

    def elsewhere(name: str) -> None:
        found[name] = shared(np.ones(1000))

    with shared_arrays():
        x = np.linspace(0, 1, 1000)
        with shared_arrays():
            y = x * 2 + np.sin(x)
        arrays = [x, y, np.stack([x, y]), x.copy(), np.zeros((3, 4)), np.array([1, 2, 3])]
        copy = contextvars.copy_context()
        for name, target in (("thread", elsewhere), ("context", lambda n: copy.run(elsewhere, n))):
            thread = threading.Thread(target=target, args=(name,))
            thread.start()
            thread.join()
    assert all(map(shared, arrays))
    assert found == {"thread": False, "context": True}
    assert not shared(np.ones(1000))
    assert not shared(np.zeros(0))
    np.testing.assert_array_equal(y, x * 2 + np.sin(x))
    with pytest.raises(RuntimeError, match="inside"), shared_arrays():
        raise RuntimeError("inside")
    assert not shared(np.ones(1000))


def test_an_array_is_shared_once():
    plain = np.arange(24.0).reshape(4, 6)
    first = as_shared(plain)
    assert shared(first)
    np.testing.assert_array_equal(first, plain)
    assert as_shared(first) is first
    assert as_shared(first, "f4").dtype == "f4"
    columns = as_shared(first[:, ::2])
    assert columns.flags.c_contiguous
    assert shared(columns)
    assert shared(as_shared([1, 2, 3]))
    turned = as_shared(np.zeros((2, 3, 4)).transpose(1, 0, 2))  # dense, but neither C nor F order
    assert turned.flags.c_contiguous
    assert as_shared(turned) is turned
    assert as_shared(np.asfortranarray(plain)).flags.f_contiguous


def test_a_limit_is_checked(monkeypatch):
    assert limit({}) >= 1 << 28
    assert limit({"HAN_ARENA": "64MiB"}) == 64 * MiB
    for text, found in (("much", "'much' is not a size"), ("1kB", "1MiB to"), ("999999GiB", "in")):
        with pytest.raises(ConfigError, match=f"HAN_ARENA: .*{found}"):
            limit({"HAN_ARENA": text})
    monkeypatch.setattr(arenas, "_made", [])
    monkeypatch.setenv("HAN_ARENA", "2MiB")
    assert process_arena().usage().size == 2 * MiB
    with pytest.raises(MemoryError, match="of 2MiB are in use"), shared_arrays():
        np.empty(4 * MiB, np.uint8)


def test_without_memfd_the_file_is_in_the_folder_of_shared_memory(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.delenv("HAN_SHM_DIR", raising=False)
    arena = open_arena(16 * MiB)
    assert arena.kind == "/dev/shm"
    assert "(deleted)" in os.readlink(f"/proc/self/fd/{arena.fd}")
    churn(arena, 1, 200)
    monkeypatch.setenv("HAN_SHM_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(SharedMemoryError, match=r"arena of 1MiB .* No such file"):
        open_arena(MiB)


def kib_of(address: int, what: str) -> int:
    """Return a field of /proc/self/smaps, in KiB, of the mapping that contains an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first:
            start, stop = (int(text, 16) for text in first.split("-"))
            inside = start <= address < stop
        elif inside and first == f"{what}:":
            return int(rest[0])
    raise AssertionError(f"nothing is mapped at {address:#x}")


@pytest.mark.parametrize("touch", [False, True])
def test_large_arrays_begin_at_huge_pages(touch):
    fd = os.memfd_create("huge", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 64 * MiB)
    arena = Arena(arenas._native.arena_open(fd, 64 * MiB, 0, touch), fd)
    small = make(arena, 5000, 1)
    large = [make(arena, nbytes, k) for k, nbytes in enumerate((5 * MiB, 2 * MiB, 3 * MiB + 5))]
    assert all(array.ctypes.data % HUGE == 0 for array in large)
    between = [make(arena, MiB, 7) for _ in range(2)]  # the gaps between them are used
    assert max(array.ctypes.data for array in between) < large[-1].ctypes.data
    assert all((array == k).all() for k, array in enumerate(large))
    with arena.used():
        rest = np.empty(50 * MiB + MiB // 2, np.uint8)  # no huge page boundary has so much after it
    assert rest.ctypes.data % HUGE
    del small, large, between, rest
    gc.collect()
    if policy() not in AT_ONCE:  # these policies fill holes with huge pages
        assert in_memory(arena) <= SLABS
    churn(arena, 3, 200)


def test_large_arrays_get_huge_pages():
    arena = open_arena(64 * MiB)
    large = make(arena, 5 * MiB, 1)
    peer = Mapped(ArenaHandle.of(arena))  # as another rank maps it
    there = peer.address + large.ctypes.data - arena.usage().base
    seen = np.frombuffer((ctypes.c_uint8 * large.nbytes).from_address(there), np.uint8)
    assert (seen == 1).all()
    assert there % HUGE == 0
    found = policy()
    if found not in (*AT_ONCE, WHEN_TOUCHED):
        pytest.skip(f"arrays are in {describe('memfd', found)}")
    assert kib_of(large.ctypes.data, "ShmemPmdMapped") >= 4 * MiB // 1024
    assert kib_of(there, "ShmemPmdMapped") >= 4 * MiB // 1024


def test_pages_are_described_with_a_remedy():
    assert describe("memfd", "advise").startswith("huge ones for arrays of ")
    assert describe("memfd", "never").endswith(f"(as root: echo advise > {POLICY})")
    assert "kernel" in describe("memfd", "")
    assert "/dev/shm is mounted" in describe("/dev/shm", "never")
