"""Choices that give the same programs: levels are compared one by one, not in combinations."""

import pytest
from machines import topology_of
from mpi4py import MPI
from plans import rules_of

from han.measure.measured import COARSE
from han.measure.tune.distinct import Distinct, digest_of
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.lower import lower
from han.tuning.search.heuristics import prune
from han.tuning.search.limits import Limits
from han.tuning.search.space import space_of

LIMITS = Limits(submodules=("sm", "adapt"), segments=(128 << 10,), schedules=("dataflow",))
NODES = topology_of([[0, 0, 1, 1, 2, 2], [0] * 6], -1)
RULES = rules_of(NODES)


@pytest.mark.parametrize("collective", ["bcast", "reduce", "allreduce"])
def test_what_is_left_has_each_program_once_and_few_are_made(collective):
    made = []

    def make(signature, choice):
        """Make the program of a rank that leads a node, and is not the root."""
        if RULES.objection(signature, choice) is not None:
            return None
        made.append(choice)
        return lower(plan_of_choice(NODES, signature, choice, 1 << 24), 2)

    signature = call_signature(collective, COARSE)
    candidates = prune(space_of(RULES, signature, LIMITS), signature, NODES).candidates
    distinct = Distinct(MPI.COMM_SELF, make, lambda: False)
    kept = distinct.of(signature, candidates)
    few = len(made)
    programs = {choice: digest_of(make(signature, choice)) for choice in candidates}
    assert len(kept) < len(candidates)
    assert {programs[choice] for choice in kept} == set(programs.values())
    if collective == "allreduce":
        assert 3 * few < len(candidates)
    made.clear()
    assert distinct.of(signature, candidates[::-1])
    assert not made, "what is known is not made again"
