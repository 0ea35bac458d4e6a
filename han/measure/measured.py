"""Measured numbers of ``han tune``: docs/decisions/strategies.md tells what measured them."""

from __future__ import annotations

# ---- windows -------------------------------------------------------------------------------------

LEAST_WINDOW = 30e-6  # seconds of a window: between two observations ranks write down their times
ROOM = 1.5  # the width of a window, as a multiple of an observation
CROWDED_ROOM = 300e-6  # seconds of a window beyond an observation, of ranks on fewer processors
WIDER, WIDEST = 2.0, 4.0  # how much wider windows become after late ranks, at most
# Seconds from the agreement on a series to its first moment: at first and after late ranks, and
# where ranks are in time.
LEAD, SHORT_LEAD = 300e-6, 50e-6
# Seconds before this moment, at most those of a window: then links and buffers are at rest.
REST = 5e-3
LATE, LATE_SHARE = 3e-6, 0.05  # seconds, and share of an observation, that a rank may be late
NAP = 200e-6  # a rank that waits for longer lets others run
LONG_CALL = 10e-3  # seconds of calls that say nothing about how busy the ranks are
SLEEP = 1e-3  # where ranks are busy, one that waits for longer sleeps, as others need the processor
PARTS_OF_ROW = 4  # of calls in a row: the mean of each is an observation
# Series; ranks are busy if fewer of the recent ones had a calm observation.
RECENT_SERIES, FEW_CALM = 32, 4
# Of a series of observations, which a visit of a call has.
VISIT, BUSY_VISIT = 1e-3, 10e-3  # seconds of a series of observations, about; on busy ranks
# Observations in a series; on busy ranks.
FEWEST_OBSERVED, MOST_OBSERVED, BUSY_MOST_OBSERVED = 3, 15, 12
# Of calls in a row: a rank has a processor for milliseconds, and longer rows cost little more than
# the barrier before them.
ROW, MOST_IN_ROW, MOST_TRACED = 20e-3, 400, 32
# Times the visit before: a visit of busy ranks beyond has a second series. Both count: if slow
# visits were dropped, candidates whose times vary would gain.
DOUBTED = 2.0
SINGLE = 50e-3  # seconds: longer calls are observed once in a series

# ---- the lab -------------------------------------------------------------------------------------

CONNECTED = 200e-3  # seconds that a first run may spend on making connections
# Seconds: the first run of a longer call tells about how long it takes; on busy ranks.
CLEAR, BUSY_CLEAR = 2e-3, 10e-3
TRIES = 5  # series, if nearly all observations of the earlier ones were disturbed
DOUBTS = 3  # such visits of a choice that are not counted
SETTLED, SETTLING = 0.8, 5  # of the last series: the next one is as quick; series at most
KEPT_CALLS = 32  # prepared calls, the last used ones
# Shares of the time for a call after which its tasks, then its candidates, are not measured more.
TASK_SHARE, RACE_SHARE = 0.5, 0.75
FIRST_SHARE = 0.6  # the same, after which no further candidate is measured
TIMED, TIMED_IN_ROW = 3, 16  # calls of which the quickest, or the mean, tells a short call's time
ROWS_OF_COST, ROWS_OF_FIRST = 3, 5  # series of calls in a row that tell a cost; several costs
READ_CLOCKS = 16  # series between two comparisons of clocks

# ---- equal programs ------------------------------------------------------------------------------

# Bytes of the message that is compared once for all sizes.
COARSE, COARSE_SEGMENT = 512 * 1024, 128 * 1024
OFTEN = 16  # programs between two looks at the time
EXACT = 64 * 1024  # bytes up to which messages are compared once more

# ---- confirmations -------------------------------------------------------------------------------

LOOKS = (12, 24, 48)  # pairs after which the comparison may end
# Deviations of the normal distribution: 99 %, as it may end after each of several looks.
LOOK_DEVIATIONS = 2.58
AS_FAST = 1.01  # times the time of the choice: as fast

# ---- the tuner -----------------------------------------------------------------------------------

KEPT_CANDIDATES = 5  # candidates that a point holds
FINAL = 2  # candidates that are measured in turns with the built-in choice and the library
DUEL = 12  # turns of that at most: the best one is confirmed in calls back to back
LEAST_SECONDS = 0.05  # for an input, however little of the budget is left

# ---- time of inputs ------------------------------------------------------------------------------

# Powers of the size with which the time of an input is taken to grow beyond the known sizes: at
# least as a root, as a small call does not tell what its bytes cost; at most as the bytes.
LEAST_POWER, MOST_POWER = 0.5, 1.0
