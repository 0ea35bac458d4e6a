"""Whether links between nodes are long: rank 0 tells by its first messages to another node.

Only a latency far beyond what a scheduler may add counts. One rank measures it, and all ranks use
what it found.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from time import perf_counter

from han.config.environment import CALIBRATE_OFF, calibrate_setting
from han.ranks.measured import THERE_AND_BACK
from han.ranks.meeting import Meeting
from han.tuning.profile import Profile


def long_latency(
    meeting: Meeting, hosts: Sequence[int], step: str, environ: Mapping[str, str] = os.environ
) -> float:
    """Return on rank 0 the microseconds of a message to another host if links are long, else 0.

    `hosts` are numbers of the ranks' hosts. Rank 0 and the first rank of another host take part:
    they have met before each message that counts, so a rank that is late adds nothing. The least
    time counts.
    """
    peer = next((rank for rank, host in enumerate(hosts) if host != hosts[0]), 0)
    if not peer or meeting.rank not in (0, peer):
        return 0.0
    met = []
    for _ in range(1 + THERE_AND_BACK):
        meeting.gather((0, peer), step)
        met.append(perf_counter())
    found = Profile(latency=1e6 * min(after - before for before, after in pairwise(met)) / 2)
    used = not meeting.rank and calibrate_setting(environ) != CALIBRATE_OFF
    return found.latency if used and found.has_long_links else 0.0
