"""Facts of the ranks of a child are those that its parent knows."""

from han.config.arrange import Facts
from han.ranks.discover import facts_of


def on_node(lowest: int, cpu: int) -> Facts:
    return Facts(lowest, f"host{lowest}", frozenset({cpu}), {})


def test_memory_is_named_by_the_lowest_rank_of_the_child():
    parent = [on_node(0, 0), on_node(1, 1), on_node(0, 2), on_node(1, 3), on_node(4, 4)]
    child = facts_of(parent, [3, 2, 1, 4])
    assert [f.memory for f in child] == [0, 1, 0, 3]
    assert [f.cpus for f in child] == [frozenset({cpu}) for cpu in (3, 2, 1, 4)]
    assert facts_of(parent, range(5)) == parent
