"""Small messages in lanes: a lane's part may begin within a small slot."""

from __future__ import annotations

import pytest
from machines import topology_of

from han.tasks.choice import Choice, level_choice
from han.tasks.signature import Signature
from han.tasks.size_classes import class_of
from han.tasks.verify import verify
from han.tuning.parts import plan_of_choice


@pytest.mark.parametrize("nodes", [[0, 0, 1, 1], [0, 1] * 3], ids=str)
def test_lanes_of_small_slots_combine_their_own_part(nodes):
    call = class_of(Signature("allreduce", 16, 8, "sum", "f8"), 128)
    levels = level_choice("sm", "shares", chunk=64), level_choice("sm", "direct")
    topology = topology_of([nodes, [0] * len(nodes)], 1)
    plan = plan_of_choice(topology, call, Choice(levels, composition="lanes"), 1 << 20)
    for nbytes in (8, 72, 128):
        verify([plan.of_size(nbytes)] * 2)
