"""Plans of given and of built-in choices, their programs, the operations in these, and proofs."""

from han.model.opcodes import Code
from han.model.program import Program
from han.model.topology import Topology
from han.submodules.registry import plan_of_choice
from han.tasks.choice import Choice
from han.tasks.compositions import TREE
from han.tasks.lower import lower
from han.tasks.plan import Plan
from han.tasks.signature import Signature
from han.tasks.verify import verify
from han.tuning.built_in.choosing import NodeTraits, choose
from han.tuning.rules import RuleTable

MEMORY = 1 << 20  # bytes of a rank's shared memory


def rules_of(topology: Topology) -> RuleTable:
    """Return the built-in rules of a machine with nothing special about it."""
    return RuleTable(None, topology, NodeTraits())


def objection(topology: Topology, signature: Signature, choice: Choice) -> str | None:
    """Return the reason why a choice cannot serve a call."""
    return rules_of(topology).objection(signature, choice)


def planned(topology: Topology, signature: Signature, choice: Choice, memory: int = MEMORY) -> Plan:
    """Return the plan of a choice, which must be able to serve the call."""
    assert objection(topology, signature, choice) is None
    return plan_of_choice(topology, signature, choice, memory)


def built_in(
    topology: Topology, signature: Signature, name: str = TREE, memory: int = MEMORY
) -> Plan:
    """Return the plan of the built-in choice of a composition."""
    choice = choose(signature, topology, NodeTraits(), name)
    return plan_of_choice(topology, signature, choice, memory)


def programs_of(plan: Plan) -> list[Program]:
    """Return the programs of all ranks."""
    return [lower(plan, rank) for rank in range(plan.topology.size)]


def count(program: Program, code: Code) -> int:
    """Return how many operations of a kind a program has."""
    return int((program.code["code"] == code).sum())


def sent(program: Program) -> int:
    """Return the bytes that a program sends in messages."""
    return int(program.code["n"][program.code["code"] == Code.ISEND].sum())


def prove(plan: Plan, times: int = 2) -> None:
    """Prove so many runs of a plan, with two buffers and in place."""
    for in_place in (False, True):
        verify([plan] * times, in_place=in_place)
