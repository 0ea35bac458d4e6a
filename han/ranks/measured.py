"""Numbers of this room that were measured, or that bound how long a rank waits."""

from __future__ import annotations

# Polling in Python: docs/decisions/waiting.md.
YIELDS = 200  # rounds with a yield; later rounds sleep
NAP = 50e-6  # seconds of a sleep
LOOK = 0.02  # seconds between two checks of the time limit and of notices
SETUP_LEAST = 30.0  # seconds; the least limit of set-up: ranks still import modules

# Clocks: docs/decisions/trace-clock.md.
TRIES = 20  # exchanges of one comparison

# Long links: docs/decisions/calibration.md.
THERE_AND_BACK = 3  # messages of rank 0 to another node and back

# Ranks that are late or have left.
WAIT = 10.0  # seconds that a rank waits for rank 0 at the end
WAIT_FOR_OTHERS = 5.0  # shorter, so that ranks that wait for rank 0 get its answer in time
IN_FLIGHT = 0.1  # seconds in which the last messages of a rank that left arrive
GRACE = 1.0  # seconds in which a rank whose program ended may still make calls, at exit
FLUSH = 1.0  # seconds in which all ranks come to free a communicator that had errors
MOST_EARLY = 256  # communicators whose messages are kept until the communicator is made
