"""Defaults that submodules share, or that a page of docs/decisions measured, which is named."""

from __future__ import annotations

KiB = 1024

# ---- in shared memory ----------------------------------------------------------------------------
CELL_CHUNK = 128 * KiB  # bytes of a cell, also of shares: cells-past-the-caches.md
CELLS = 4  # of a rank's ring, by `sm`: copies in and out overlap (cells-of-blocks.md)
EXCHANGE_CHUNK = 512 * KiB  # bytes of a piece of an allreduce by `exchange`: exchanges.md, Defaults
PAIRS_CELL = 512 * KiB  # most bytes of a cell for a block of own sizes: own-sizes.md
PAIRS_AHEAD = 2  # runs of blocks of own sizes by which two ranks may be apart, before one waits
HALF_CHUNK = 128 * KiB  # the same of a reduce or a broadcast, for which other levels wait
SOLO_CHUNK = 512 * KiB  # bytes of a piece of `solo`
SOLO_BLOCK = 64 * KiB  # bytes that `solo` combines at a time: partial results stay in a near cache
READ_BLOCK = 256 * KiB  # the same with attach: few system calls read operands (attach-sizes.md)
FOLD_BLOCK = 16 * KiB  # bytes combined at a time elsewhere: in the nearest cache (exchanges.md)
TREE_RADIX = 4  # of the trees of `sm`

# ---- in messages ---------------------------------------------------------------------------------
SEGMENT = 32 * KiB  # bytes of a message: below the eager limit of every MPI library over TCP
BUNDLE_SEGMENT = 128 * KiB  # bytes of a message of `bundle`
WINDOW = 8  # messages under way between two ranks: latency of a network is hidden
FEW = 2  # the same of blocks that go to many ranks, which would meet in a queue (own-sizes.md)
