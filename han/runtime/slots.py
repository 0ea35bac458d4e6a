"""Slots of persistent requests. All ranks use the same slot for the same request.

A slot is an engine with channels of its own, so that several requests may be active at once and
start in any order. Slots are made several at a time, which is collective, and kept until the
communicator is freed. A request takes a slot that all ranks have left. Where one channel holds all
ranks, rank 0 chooses the slot and publishes its choice on a board (``native/engine/board.h``), so
that no message is needed. Elsewhere one exchange tells which slots all ranks have left.

Small slots serve messages that need no cells. Large ones have the rings of a communicator. Their
number is limited: beyond it, small slots serve all messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np

from han import _native
from han.common.errors import SharedMemoryError
from han.memory.channel import Channel
from han.memory.shared import SharedMemory
from han.model.channel_layout import LENT_BANKS, PAGE, SMALL_BANKS
from han.ranks.health import Health
from han.ranks.meeting import Patience, Words
from han.runtime.engines import Engines
from han.runtime.measured import (
    EARLY_BATCHES,
    FEW,
    FIRST_SMALL,
    LARGE_SHARE,
    MOST_LARGE,
    MOST_PLANS,
    MOST_SMALL,
)
from han.runtime.native_plans import Prepared
from han.runtime.reports import differs
from han.tasks.outline import geometries
from han.tasks.signature import ON_DEVICE as DEVICE

LEADER = 0
MOST_SLOTS = 4096
# What the leader publishes in place of a slot's number: its call is left to the MPI library, with a
# buffer in memory of a device or without; all ranks make slots, and take the first of them; no more
# slots can be made.
ON_DEVICE, LEFT, MAKE_SMALL, MAKE_LARGE, FULL = range(MOST_SLOTS, MOST_SLOTS + 5)
WORD = 8  # bytes
NOTES = 5 * PAGE  # bytes of a rank's part of the board (native/engine/board.h: han_notes)


class Need(IntEnum):
    """What a call needs: a slot, small or large, or nothing, as the MPI library carries it out."""

    SMALL = MAKE_SMALL
    LARGE = MAKE_LARGE
    LEFT = LEFT
    ON_DEVICE = ON_DEVICE


@dataclass(eq=False)
class Slot:
    """An engine and its channels, with `memory` bytes for cells.

    `plans` are those of earlier requests in this slot, which later ones may use again.
    """

    number: int
    memory: int
    engine: _native.Engine
    channels: list[Channel]
    plans: dict[object, Prepared] = field(default_factory=dict)
    latest: object = None  # what the slot kept last

    def keep(self, kind: object, prepared: Prepared) -> None:
        """Keep a plan that is in use, and not more than MOST_PLANS in all."""
        self.plans.pop(kind, None)
        self.plans[kind] = prepared  # the last one: the one used last
        self.latest = kind
        if len(self.plans) > MOST_PLANS:
            del self.plans[next(iter(self.plans))]


class Lease:
    """The use of a slot by a request: the slot is left with the last reference to this."""

    __slots__ = ("_slot", "_slots")
    _few = FEW  # names of the module may be gone when the interpreter ends

    def __init__(self, slots: Slots, slot: Slot) -> None:
        self._slots, self._slot = slots, slot
        slots.leased.add(slot.number)

    def __del__(self) -> None:
        if self._slot.number >= self._few:
            self._slot.engine.rest()
        self._slots.leave(self._slot.number)


class Slots:
    """The slots of one communicator. `memory` are the bytes for cells of a large slot."""

    def __init__(self, health: Health, engines: Engines, shared: SharedMemory, memory: int) -> None:
        self._health, self._engines, self._shared = health, engines, shared
        self._memory = memory
        self.together = shared.topology.whole is not None  # one channel holds all ranks
        self._every: list[Slot] = []
        self._large = 0  # a bit for each large slot
        self._batches = [0, 0]  # how often small and large slots were made
        self._free = 0  # a bit for each slot that this rank has left; for the leader, all ranks
        self._left: list[int] = []  # slots that this rank has left since it last looked
        self.leased: set[int] = set()  # slots whose requests on this rank are alive
        self._board: _native.Board | None = None
        self._board_channels: list[Channel] = []

    @cached_property
    def _most_large(self) -> int:
        layouts = geometries(self._shared.topology, self._memory)
        cells = sum(each.ranks * each.ring for each in layouts if each is not None) or 1
        return max(1, LARGE_SHARE * self._memory // cells)  # cells: of a large slot

    def __len__(self) -> int:
        return len(self._every)

    def close(self) -> None:
        """Forget all slots, whose engines have stopped, and close the channels of the board."""
        self._board = None  # it holds the memory
        for channel in self._board_channels:
            channel.close()
        self._board_channels = []
        self._every.clear()

    # ---- where one channel holds all ranks --------------------------------------------------

    def publish(self, call: int, number: int, story: Callable[[], str], need: Need) -> Slot | None:
        """Return the slot of the next request, after the leader has chosen it.

        There is none if the call is left to the MPI library. `call` identifies the call: a rank
        whose call differs from the leader's raises MismatchError. `number` is that of the call in
        notices, `story` tells what this rank is in.
        """
        board = self._board or self._opened(story())
        step = self._lead if self._health.rank == LEADER else self._follow
        choice = step(board, call, need, story)
        if choice is not None and choice < MOST_SLOTS:
            return self._every[choice]

        def choose() -> int:
            nonlocal choice
            patience = Patience()
            while choice is None:
                self._pause(patience, number, story)
                choice = step(board, call, need, story)
            chosen, choice = choice, None
            return chosen

        return self._chosen(choose, story)

    def _lead(
        self, board: _native.Board, call: int, need: Need, story: Callable[[], str]
    ) -> int | None:
        """Publish a slot that all ranks have left, or what to make; None if that must wait.

        If there is no such slot, all ranks must have come to this request, as they would have to in
        order to make slots: they may have left some meanwhile.
        """
        large, choice = need is Need.LARGE, int(need)
        if choice >= MAKE_SMALL:
            self._reclaim(board)
            if not self._fit(self._free, large):
                if not board.gathered():
                    return None
                self._reclaim(board)
            choice = self._pick(self._free, large)
        if not board.publish(choice, call):
            return None
        if choice < MOST_SLOTS:
            self._free &= ~(1 << choice)
        return choice

    def _follow(
        self, board: _native.Board, call: int, need: Need, story: Callable[[], str]
    ) -> int | None:
        """Return what the leader has published for this call; None if it did not yet."""
        found = board.read()
        if found is None:
            return None
        choice, theirs = found
        if theirs != call:
            shown = f"its buffer is {DEVICE}" if choice == ON_DEVICE else ""
            raise differs(self._health, LEADER, story(), shown)
        return choice

    def _reclaim(self, board: _native.Board) -> None:
        """Note which slots all ranks have left."""
        while (left := board.reclaim()) >= 0:
            self._free |= 1 << left

    def _pause(self, patience: Patience, number: int, story: Callable[[], str]) -> None:
        """Let collectives progress; now and then check for errors and the time limit."""
        health = self._health
        _native.progress()
        if patience.pause():
            health.look(story())
            health.expect_call(number, story())
            health.meeting.check_limit(story(), patience.waited)

    def _opened(self, story: str) -> _native.Board:
        """Make the board and the first slots; collective. The board is in the cells of one more."""
        sets = self._shared.more_channels(0, FIRST_SMALL + 1, story, NOTES, SMALL_BANKS)
        self._add(sets[1:], large=False)
        self._board_channels = sets[0]
        channel = sets[0][self._shared.whole_channel]
        layout, ranks = channel.geometry, channel.ranks
        notes, spins = channel.memory[layout.cells :], self._engines.waiting.spins
        self._board = _native.Board(notes, NOTES, len(ranks), channel.me, spins)
        return self._board

    # ---- elsewhere --------------------------------------------------------------------------

    def free_words(self) -> Words:
        """Return which slots this rank has left, as bits."""
        while self._left:
            self._free |= 1 << self._left.pop()
        words = -(-len(self._every) // (8 * WORD))
        return np.frombuffer(self._free.to_bytes(words * WORD, "little"), np.uint64)

    def take(self, free: Words, need: Need, story: Callable[[], str]) -> Slot | None:
        """Return the slot of the next request, as `publish` does.

        `free` are the slots that all ranks have left. `story` tells what this rank is in.
        """
        if need in (Need.LEFT, Need.ON_DEVICE):
            return None
        left = int.from_bytes(free.tobytes(), "little")
        slot = self._chosen(lambda: self._pick(left, need is Need.LARGE), story)
        if slot is not None:
            self._free &= ~(1 << slot.number)
        return slot

    # ---- both -------------------------------------------------------------------------------

    def leave(self, number: int) -> None:
        """Leave the slot of a request that was freed or dropped."""
        self.leased.discard(number)
        if self._health.failed is not None:
            return
        if self._board is not None:
            self._board.leave(number)
        else:
            self._left.append(number)  # the garbage collector may call this at any time

    def _fit(self, free: int, large: bool) -> int:
        """Return those of some slots that are large, or small."""
        return free & self._large if large else free & ~self._large

    def _pick(self, free: int, large: bool) -> int:
        """Choose one of these slots, or what to make; the same on all ranks for the same slots."""
        fit = self._fit(free, large)
        if not fit and large and not self._more(large):
            fit, large = self._fit(free, False), False
        if fit:
            return (fit & -fit).bit_length() - 1
        return FULL if not self._more(large) else MAKE_LARGE if large else MAKE_SMALL

    def _more(self, large: bool) -> int:
        """Return how many slots are made next; 0: no more are made."""
        made = self._batches[large]
        if not large:
            return min(FIRST_SMALL << made, MOST_SMALL, MOST_SLOTS - len(self._every))
        room = min(self._most_large - self._large.bit_count(), MOST_SLOTS - len(self._every))
        return min(1 << made // 2, MOST_LARGE, room)

    def _chosen(self, choose: Callable[[], int], story: Callable[[], str]) -> Slot | None:
        """Return the slot that is chosen. If no large one can be made, choose among small ones."""
        choice = choose()
        try:
            return self._slot(choice, story)
        except SharedMemoryError:  # on all ranks
            if choice != MAKE_LARGE:
                raise
            self._most_large = self._large.bit_count()
        return self._slot(choose(), story)

    def _slot(self, choice: int, story: Callable[[], str]) -> Slot | None:
        """Return the chosen slot; make slots if it is to be made (collective)."""
        if choice < MOST_SLOTS:
            return self._every[choice]
        if choice in (LEFT, ON_DEVICE):
            return None
        if choice == FULL:
            raise SharedMemoryError(
                f"no room for another persistent request: {len(self._every)} are alive; free some"
            )
        large, first = choice == MAKE_LARGE, len(self._every)
        memory = self._memory if large else 0
        banks = SMALL_BANKS if self._batches[large] < EARLY_BATCHES else LENT_BANKS
        sets = self._shared.more_channels(memory, self._more(large), story(), banks=banks)
        self._add(sets, large)
        self._free &= ~(1 << first)
        return self._every[first]

    def _add(self, sets: list[list[Channel]], large: bool) -> None:
        """Make an engine for each set of channels."""
        self._batches[large] += 1
        for channels in sets:
            number = len(self._every)
            engine = self._engines.make(channels)
            self._every.append(Slot(number, self._memory if large else 0, engine, channels))
            self._free |= 1 << number
            self._large |= large << number
