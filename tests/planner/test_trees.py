"""The trees of ``sm``: places of members, order of operands, flags that several ranks write."""

import itertools
from dataclasses import replace
from unittest import mock

import pytest
from machines import topology_of
from plans import built_in, count, programs_of

from han.common.errors import ConfigError
from han.config.arrange import Facts, arrange
from han.config.config import load_config
from han.config.parts import Level, SizeScope
from han.model.program import Code
from han.model.topology import Group, Topology
from han.submodules.parts.cells import RELEASED
from han.submodules.registry import plan_of_choice
from han.submodules.sm.member_cells import MemberCells
from han.submodules.sm.sm import Sm
from han.submodules.sm.trees import NAMES, Tree
from han.tasks.choice import Choice, level_choice
from han.tasks.contract import Question
from han.tasks.lower import lower
from han.tasks.signature import Signature
from han.tasks.verify import Refuted, verify
from han.tuning.built_in.choosing import NodeTraits, choose

MEMORY = 1 << 18
JAIN = Tree("kary", 2, "left", "first", "kary", 3)  # figures 5 to 7: five sockets of four ranks


def places(tree, n, root, sockets):
    groups = [Group(0, tuple(range(n)), tuple(range(n)), root, me) for me in range(n)]
    return [tree.neighbours(group, sockets) for group in groups]


@pytest.mark.parametrize(("shape", "inner"), [*itertools.product(NAMES, NAMES)])
def test_every_tree_reaches_every_member_once(shape, inner):
    options = itertools.product(("left", "right"), ("none", "first", "last"), (2, 3))
    for skew, leaders, radix in options:
        tree = Tree(shape, radix, skew, leaders, inner, 5 - radix)
        for n, width in itertools.product((1, 2, 5, 16, 23), (1, 2, 3)):
            sockets = [r * 7 % width for r in range(n)]
            for root in {0, n // 2, n - 1}:
                found = places(tree, n, root, sockets)
                children = [c for p in found for c in p.children]
                assert sorted(children) == sorted(set(range(n)) - {root})
                assert all(found[c].parent == v for v, p in enumerate(found) for c in p.children)
                reached = {root}
                for _ in range(n):
                    reached |= {c for v in reached for c in found[v].children}
                assert len(reached) == n, "a circle"
                if leaders != "none":
                    crossing = [c for c, p in enumerate(found) if p.parent is not None]
                    crossing = [c for c in crossing if sockets[c] != sockets[found[c].parent]]
                    assert len(crossing) == len(set(sockets)) - 1, "once into each socket"


def test_leaders_first_and_last_as_in_the_paper():
    sockets = [r // 4 for r in range(20)]
    first = places(JAIN, 20, 0, sockets)
    assert first[0].children == (4, 8, 1, 2, 3)
    assert first[4].children == (12, 16, 5, 6, 7)
    last = places(Tree("kary", 2, "left", "last", "kary", 3), 20, 0, sockets)
    assert last[0].children == (1, 2, 3, 4, 8)
    right = places(Tree("kary", 2, "right", "last", "kary", 3), 20, 0, sockets)
    assert right[0].children == (3, 2, 1, 8, 4)
    assert places(Tree("kary", 2, "right", "none", "kary", 2), 8, 0, [0] * 8)[0].children == (2, 1)


def test_reductions_have_their_own_tree():
    gather = level_choice("sm", "kary", radix=3, leaders="last")
    choice = level_choice("sm", "flat", radix=3).where("reduce", gather)
    assert Tree.of(choice.of("bcast")) == Tree("flat", 3, "left", "none", "flat", 3)
    assert Tree.of(choice.of("reduce")) == Tree("kary", 3, "left", "last", "kary", 3)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (level_choice("sm", "flat"), None),
        (level_choice("sm", "flat", leaders="first"), "flat, by sockets does not keep"),
        (level_choice("sm", "flat", skew="right"), "flat, skewed right does not keep"),
        (level_choice("sm", "kary"), "kary does not keep"),
        (level_choice("sm", "knomial"), "only towards rank 0"),
    ],
)
def test_the_tree_of_reductions_says_whether_operands_keep_their_order(choice, said):
    signature = Signature("reduce", 4, 8, "op", "u8", False, False, 1)
    reason = Sm().supports(Question(topology_of([[0] * 4], 0), 0, signature, choice))
    assert (reason is None) if said is None else (reason is not None and said in reason)


# ---- flags of children --------------------------------------------------------------------------


def bcasts(nbytes: int, **parameters):
    """Plan ten broadcasts from changing roots, in which parents write their children's flags."""
    topology = topology_of([[0] * 5], 0)
    choice = Choice((level_choice("sm", "kary", read_parent_flag=False, radix=2, **parameters),))
    return [
        plan_of_choice(topology, Signature("bcast", nbytes, root=r % 5), choice, MEMORY)
        for r in range(10)
    ]


@pytest.mark.parametrize(("nbytes", "inline"), [(8, True), (3000, True), (3000, False)])
def test_parents_post_once_for_each_child(nbytes, inline):
    plans = bcasts(nbytes, inline=inline)
    assert verify(plans).events
    assert sum(count(program, Code.POST) for program in programs_of(plans[0])) == 4


def test_flags_that_parents_of_several_runs_write_must_not_be_the_same():
    """A slow parent could post a lower value after the parent of the next run has posted."""
    with (
        mock.patch.object(MemberCells, "own_flag", lambda self, m: self.flag(m, RELEASED)),
        pytest.raises(Refuted, match="may fall"),
    ):
        verify(bcasts(40_000))


def test_trailing_synchronisation_waits_for_readers_at_the_end():
    def plan(**parameters):
        choice = Choice((level_choice("sm", "flat", **parameters),))
        return plan_of_choice(topology_of([[0] * 4], 0), Signature("bcast", 64), choice, MEMORY)

    def waits(one):
        return count(lower(one, 0), Code.WAIT)

    assert (waits(plan()), waits(plan(trailing=True))) == (0, 3)


# ---- sockets ------------------------------------------------------------------------------------


def facts(*sockets: str) -> list[Facts]:
    return [
        Facts(0, "host", frozenset([r]), {"socket": frozenset(s.split())})
        for r, s in enumerate(sockets)
    ]


def test_sockets_are_told_by_processors_or_given():
    levels = (Level(name="node", scope="all"),)
    assert arrange(levels, facts("0", "1", "0", "1")).sockets == (0, 1, 0, 1)
    assert arrange(levels, facts("0 1", "0 1")).sockets == (0, 0), "not bound: anywhere"
    assert arrange(levels, facts(*"0000"), SizeScope(size=3)).sockets == (0, 0, 0, 1)
    nodes = (Level(name="node", scope=SizeScope(size=3)), Level(name="net", scope="all"))
    assert arrange(nodes, facts(*"00000"), SizeScope(size=2)).sockets == (0, 0, 1, 2, 2)


def test_a_topology_tells_its_sockets():
    topology = topology_of([[0] * 4], 0)
    assert topology.sockets == (0,) * 4
    assert "socket" not in repr(topology)
    more = Topology(("node",), ("s",), ((0,) * 4,), (0,) * 4, sockets=(7, 7, 3, 3))
    assert more.sockets == (0, 0, 1, 1)
    assert repr(more).endswith("node; 2 sockets>")


def test_built_in_reductions_stay_within_sockets():
    one = topology_of([[0] * 16], 0)
    two = replace(one, sockets=tuple(r // 8 for r in range(16)))
    for nbytes, radix in ((256, None), (512, 3), (8192, 2)):
        signature = Signature("reduce", nbytes // 8, 8, "sum", "float64", True, True)
        tree = Tree.of(choose(signature, two, NodeTraits()).levels[0].of("reduce"))
        usual = Tree.of(choose(signature, one, NodeTraits()).levels[0].of("reduce"))
        binary = nbytes >= 512
        assert usual.shape == ("kary" if binary else "knomial")
        assert usual.radix == (2 if binary else 4)
        assert (usual.skew, usual.leaders) == ("left", "none")
        wanted = usual if radix is None else Tree("kary", radix, "right", "last", "kary", radix)
        assert tree == wanted
        assert verify([built_in(two, signature)] * 3).events


@pytest.mark.parametrize("scope", ["all", "shared_memory", {"regex": "a"}])
def test_what_cannot_be_a_socket_is_told(scope):
    with pytest.raises(ConfigError, match=r"sockets = .*: expected l3, numa, socket or \{size: k"):
        load_config({"sockets": scope})
    assert load_config({"sockets": {"size": 2}}).sockets == SizeScope(size=2)
