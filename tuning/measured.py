"""Measured numbers of tuning: thresholds and shares that choose what is tried, and what decides.

docs/decisions/trials.md tells what measured those of trials, docs/tables.md those of tuned tables,
docs/decisions/strategies.md all others.
"""

from __future__ import annotations

import math

KiB = 1024

# ---- trials --------------------------------------------------------------------------------------

TRIAL_SHARE = 100  # trials may cost a hundredth of the time of all runs
PROBE = 4  # runs of the other plan in the first trial (native/engine/judge.h)
MOST_BEFORE_TRIAL = 1 << 20  # runs before it, at most
LEAST_BURST, MOST_BURST = 8, 64  # runs of a burst between two meetings
BURST_BYTES = 1 << 20  # bytes of a burst
UNKNOWN_RATIO = 2.0  # how many times as long the rival takes if nothing was measured

# ---- tuned tables --------------------------------------------------------------------------------

# A choice replaces the built-in one if it takes at most this share of its time: docs/tables.md.
GAIN = 0.97
REACH_INSIDE = 8  # largest ratio of a size to the nearest measured one, between measured sizes
REACH_BEYOND = 2  # the same for sizes below or above all measured ones

# ---- calibrations --------------------------------------------------------------------------------

FEWEST_ROUNDS = 3  # fewer have no spread
DISTURBED = 1.5  # spread of the rounds beyond which other programs took part
SLOW = 1.5  # times the usual value: a node is another one, or its link is slow
FARTHEST = 4.0  # times that values differ: the nearest machine beyond says nothing about this one
LONG_LINK = 5000.0  # us of a message from which on links are long; docs/decisions/calibration.md

# ---- costs of stages -----------------------------------------------------------------------------

REACH = 16  # largest ratio of two segments between which costs follow a log scale, or beyond them
WIDE = 512  # the same for a straight line, a constant and a part that grows with the segment
LARGE = 64 << 10  # bytes from which on a cost grows with the segment, beyond those measured

# ---- predictions and winners ---------------------------------------------------------------------

FIRST_MARGIN = math.inf  # the margin of predictions while nothing is known about their errors
LEAST_MARGIN, MOST_MARGIN = 1.05, 2.0  # of margins
# Predictions from which a margin follows; the last ones count.
FEWEST_ERRORS, RECENT_ERRORS = 8, 200
DEVIATIONS = 2.0  # deviations, as a prediction and the best one may both be wrong
APART = 64  # the largest ratio of two sizes between which their winners are measured first
NEAR = 1.03  # times the least time: such a choice wins too
FEWEST_RACED, MOST_RACED = 3, 12  # candidates with predictions that are measured
PATIENCE = 3.0  # times the best prediction: no more costs are measured of a family beyond
SURE = 1.5  # the same of calls on one level, whose costs are from whole calls
LONG_CALL = 20e-3  # seconds of a call whose cost is not doubted, as other programs change it little

# ---- heuristics ----------------------------------------------------------------------------------

SINGLE_COPY = 16 * KiB  # bytes below which attaching costs more than a second copy
MOST_SEGMENTS = 64  # of a message that are worth while
# Members of a chain for each piece of a message. Calls in a row fill a chain too: each member
# passes on a message once, where the root of a tree sends it several times.
IN_CHAIN = 8

# ---- races in turns ------------------------------------------------------------------------------

BLOCK = 5  # candidates between two visits of the reference
FAR = 1.5  # times the best one: a candidate drops out if no observation of its first visit is below
COLD = 2.0  # times a later one that a first run takes at most
AGREE = 1.05  # times a later one: first runs above do not count
GUARD = 2  # turns before intervals count: the deviation is known from differences of turns
LEAST_TURNS = 3  # before a race ends
LONGEST = 60  # turns of a comparison from which nothing drops out
CLOSE = 0.03  # the race ends once no other candidate can be faster than the best one by more
