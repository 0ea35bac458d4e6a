"""Numbers of this room that were measured, or that bound what a process keeps."""

from __future__ import annotations

from typing import NamedTuple

from han.model.channel_layout import RING_MAX

# Programs and plans. docs/decisions/new-communicators.md and size-classes.md have the costs.
MOST_PROGRAMS = 64 << 20  # bytes of programs of a process; the least recently used are dropped
BESIDE = 4096  # bytes that a program takes besides its operations, about
MOST_KNOWN = 512  # calls of an engine that errors can name
BRIEF = 64 << 10  # bytes up to which a run may hold Python's lock

# Requests of persistent calls: docs/decisions/slots.md.
MOST_KINDS = 256  # kinds of requests that are remembered
MOST_PLANS = 4  # plans that a slot keeps
MOST_IDLE = 64 << 10  # bytes at most, of a plan that a slot keeps: operations and scratch memory
FIRST_SMALL, MOST_SMALL = 2, 128  # small slots made at a time: twice as many each time
MOST_LARGE = 4  # large slots made at a time
EARLY_BATCHES = 2  # batches of slots with as many banks as the communicator
FEW = 16  # slots whose engines stay in the list of active ones while no request uses them
LARGE_SHARE = 8  # so many times the memory of a communicator is for large slots

# Objects: docs/decisions/objects.md.
MOST_PADDED = 2  # objects of different sizes may take so many times their bytes in blocks
FEW_GATHERED = 64  # ranks at most of a communicator whose root receives a message of each


class ObjectLimits(NamedTuple):
    """Bytes up to which a collective of objects takes its first way.

    An object that fits into `gathered` with its head goes to a root in one step. In a reduction one
    of up to `asked` goes there without a question. Ranks without need of them may get objects of
    up to `to_all` together.
    """

    gathered: int
    asked: int
    to_all: int


IN_NODE = ObjectLimits(32 << 10, 64 << 10, 1 << 20)  # as much as any cell for them has room for
BETWEEN_NODES = ObjectLimits((8 << 10) + 256, 12 << 10, 96 << 10)
MOST_LEFT = 8  # calls of objects that a child leaves to mpi4py before it is set up

# New communicators: docs/decisions/new-communicators.md.
MOST_RESTED = 64  # sets of ranks of which a parent keeps parts
MOST_ROOM = 2 * RING_MAX  # bytes of a rank's memory that it keeps, unless one set has more
MOST_DRAFTS = 64  # sets of ranks of which a parent remembers the draft
MOST_ROOTS = 8  # roots of a process: each keeps one of the MPI library's communicators

# The helper: docs/decisions/waiting.md.
HELPER_LOOK = 300e-6  # seconds between two looks at collectives that are under way
PATIENT_LOOK = 3e-3  # the same where ranks outnumber processors: each look delays a rank

# Errors and the end of a program.
ANSWER = 1.0  # seconds that a rank waits for a peer's notice
SETTLE = 0.05  # seconds in which requests that are under way at a normal end may complete
LAST_MESSAGES = 3.0  # seconds in which the last messages of other ranks arrive
MOST_TOLD = 128  # ranks of a communicator that all hear of a normal end

# Calibrations: docs/decisions/calibration.md.
CALIBRATION = 4.7  # seconds after which no further round begins that would end later
ROUNDS = 9  # of a calibration, at most
PACE = 0.1  # seconds between two rounds, at least: what disturbs passes, or is noticed
BATCH = 0.03  # seconds of a probe, about
REST = 0.01  # seconds that a rank sleeps while others measure
CHUNKS = 5  # of small messages in a probe; their median counts
FIRST_TRIES = 3  # of messages of each size, until the sizes are known
WINDOW = 4  # large messages that are under way at a time
MANY = 200  # small messages of a chunk, at most
ROW = 8  # times as many in a row tell what one takes of a processor
SPINS = 100  # tries before a rank yields to others
LEAST_BULK, LARGEST = 1 << 16, 1 << 22  # bytes of large messages
BULK_SECONDS = 0.008  # of a large message
CELL = 1 << 17  # bytes that a rank hands over in shared memory
LINES, HANDS = 200, 5  # cache lines, and how often each is handed over
PATIENT_FIRST, PATIENT = 0.1, 0.01  # seconds until a rank gives a hand-over up
REPEATS = 6  # copies of a probe; their median counts
# Bytes of a copy that leaves a core's caches, of a rank and of all ranks of a node together.
LEAST_MEMORY, MEMORY, OF_NODE = 1 << 21, 1 << 23, 1 << 26
