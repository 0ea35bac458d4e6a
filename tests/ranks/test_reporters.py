"""Trees of ranks that report together: no rank is lost, none becomes its own ancestor."""

import random

from han.ranks.last_words import TreeNode, parent_of, takes


def joined(size, communicators):
    """Return the parent of each rank (None: the top of a tree) after ranks joined."""
    places = [TreeNode(rank, rank, False, False) for rank in range(size)]
    parents = [None] * size
    for ranks in communicators:
        some = [places[rank] for rank in ranks]
        parent = some[parent_of(some)]
        for place in some:
            if place.rank != parent.rank and takes(place, parent):
                parents[place.rank] = parent.rank
                places[place.rank] = place._replace(tree=parent.tree, has_parent=True)
            places[place.rank] = places[place.rank]._replace(joined=True)
    return parents


def top(parents, rank):
    for _ in range(len(parents)):
        if parents[rank] is None:
            return rank
        rank = parents[rank]
    raise AssertionError(f"rank {rank} is its own ancestor: {parents}")


def test_ranks_that_overlap_are_in_one_tree():
    assert joined(3, [(0, 1), (1, 2)]) == [None, 0, 1]
    assert joined(3, [(1, 2), (0, 1)]) == [1, None, 1]
    assert joined(4, [(0, 1), (2, 3), (2, 1)]) == [None, 0, 1, 2]


def test_ranks_that_do_not_overlap_are_in_trees_of_their_own():
    assert joined(4, [(0, 2), (1, 3)]) == [None, None, 0, 1]


def test_a_communicator_of_all_ranks_makes_one_tree():
    chance = random.Random(7)
    for _ in range(500):
        size = chance.randint(2, 9)
        groups = [
            chance.sample(range(size), chance.randint(1, size)) for _ in range(chance.randint(0, 8))
        ]
        parents = joined(size, groups)
        assert all(top(parents, rank) is not None for rank in range(size))
        parents = joined(size, [*groups, range(size)])
        assert len({top(parents, rank) for rank in range(size)}) == 1
