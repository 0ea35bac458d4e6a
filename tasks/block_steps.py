"""The steps of calls by blocks over nodes: kinds of tasks, and the moves of each.

| collective | by leaders (``tree``), or by ``lanes`` | all ranks at once (``flat``) |
| --- | --- | --- |
| allgather | (gather), allgather, allgather | |
| gather | gather, gather | |
| scatter | scatter, scatter | |
| alltoall | alltoall, alltoall, (scatter) | alltoall, alltoall |
| reduce_scatter | reduce_scatter, reduce_scatter, (scatter) | |
| own sizes | alltoall, alltoall, (scatter) | alltoall, alltoall |

The first and the last step are inside nodes, the other one is between them. A step in brackets is
there if a node has more ranks than there are lanes.

Source: Tran et al., section 2 (phases 1 to 3); Träff (alltoall of bundles).
"""

from __future__ import annotations

from collections.abc import Callable

from han.common.kept import kept
from han.model.collectives import ROWS
from han.model.program import Base
from han.tasks.block_memory import BlockMemory
from han.tasks.bundles import Blocks, Moves, Shelf, moves, spreading

Steps = list[tuple[str, bool]]  # the kind of a step's tasks, and whether it is between nodes


class BlockSteps(BlockMemory):
    """The steps of a call, and their moves for each group."""

    @property
    def steps(self) -> Steps:
        """The steps; there are none inside nodes if each has one rank."""
        bundles, collective = self.bundles, self.collective
        between, folds = (collective, True), bundles.folds
        if ROWS[collective].own:
            hands_on = self.handed is not None or (self.parcels is not None and self.parcels.folds)
            found = [("alltoall", False), *[("alltoall", True)] * (len(bundles.nodes) > 1)]
            found += [("scatter", False)] * hands_on
        elif collective == "allgather":
            found = [*[("gather", False)] * folds, between, (collective, False)]
        elif collective == "gather":
            found = [(collective, False), between]
        elif collective == "scatter":
            found = [between, (collective, False)]
        else:
            last = folds and self.composition != "flat"
            found = [(collective, False), between, *[("scatter", False)] * last]
        return [step for step in found if step[1] or bundles.largest > 1]

    def inside(self, kind: str, node: int) -> Moves | None:
        """Return the moves of a step inside a node; None if it has nothing to move there."""
        ranks = self.bundles.nodes[node]
        if len(ranks) == 1 and not (kind == "alltoall" and not self.flat):
            return None
        if ROWS[self.collective].own:
            return self._alltoall_in_node(node)
        return INSIDE[self.collective, kind](self, node)

    def between(self, lane: int) -> Moves:
        """Return the moves of the step between nodes, of a lane; in a flat call of all ranks."""
        if self.flat:
            return self._alltoall_of_all()
        return BETWEEN[self.collective](self, lane)

    # ---- allgather ----------------------------------------------------------------------------

    def _gathered_to_carriers(self, node: int) -> Moves | None:
        bundles, ranks = self.bundles, self.bundles.nodes[node]
        lanes = bundles.lanes
        if len(ranks) <= lanes:
            return None
        return moves(
            lambda m: ranks[m : m + 1] if m >= lanes else (),
            lambda m, to: ranks[m : m + 1] if m >= lanes and m % lanes == to else (),
            lambda m: self.own(ranks[m]),
            lambda m: self.everything,
            lambda m: ranks[m : m + 1] if m < lanes else (),
        )

    def _allgather_between(self, lane: int) -> Moves:
        bundles = self.bundles

        def gathered(node: int) -> bool:
            return len(bundles.nodes[node]) > bundles.lanes

        return spreading(
            lambda n: sorted(bundles.bundle(n, lane)),
            lambda n: self.everything if gathered(n) else self.own(bundles.nodes[n][lane]),
            self.everything,
            lambda n: () if gathered(n) else bundles.nodes[n][lane : lane + 1],
        )

    def _spread_inside(self, node: int) -> Moves:
        bundles = self.bundles
        order = bundles.from_node(node)

        def gives(m: int) -> Blocks:
            if m >= bundles.lanes:
                return ()
            return [rank for n in order for rank in sorted(bundles.bundle(n, m))]

        return spreading(gives, lambda m: self.everything, self.everything)

    # ---- gather, scatter ------------------------------------------------------------------------

    def _leads(self, node: int) -> bool:
        """Whether a node has the root of the call."""
        return self.bundles.root in self.bundles.nodes[node]

    def _gather_inside(self, node: int) -> Moves:
        ranks = self.bundles.nodes[node]
        result = self.everything if self._leads(node) else self.of_node(node)
        return moves(
            lambda m: ranks[m : m + 1] if m else (),
            lambda m, to: ranks[m : m + 1] if m and not to else (),
            lambda m: self.own(ranks[m]),
            lambda m: result,
            lambda m: () if m else ranks[:1],
        )

    def _gather_between(self, lane: int) -> Moves:
        nodes = self.bundles.nodes

        def gives(n: int) -> Blocks:
            return () if self._leads(n) else sorted(nodes[n])

        return moves(
            gives,
            lambda n, to: gives(n) if self._leads(to) else (),
            lambda n: self.own(nodes[n][0]) if len(nodes[n]) == 1 else self.of_node(n),
            lambda n: self.everything,
            lambda n: nodes[n] if self._leads(n) and len(nodes[n]) == 1 else (),
        )

    def _scatter_between(self, lane: int) -> Moves:
        nodes = self.bundles.nodes

        def result(n: int) -> Shelf:
            return self.of_node(n) if len(nodes[n]) > 1 else Shelf(Base.RECV, nodes[n])

        return moves(
            lambda n: range(self.bundles.size) if self._leads(n) else (),
            lambda n, to: sorted(nodes[to]) if self._leads(n) else (),
            lambda n: Shelf(Base.SEND, range(self.bundles.size)),
            result,
            lambda n: nodes[n] if self._leads(n) and len(nodes[n]) == 1 else (),
        )

    def _scatter_inside(self, node: int) -> Moves:
        ranks, size = self.bundles.nodes[node], self.bundles.size
        source = Shelf(Base.SEND, range(size)) if self._leads(node) else self.of_node(node)
        return moves(
            lambda m: () if m else sorted(ranks[1:]),
            lambda m, to: () if m else ranks[to : to + 1],
            lambda m: source,
            lambda m: Shelf(Base.RECV, ranks[m : m + 1]),
            lambda m: () if m else ranks[:1],
        )

    # ---- alltoall -----------------------------------------------------------------------------

    def _number(self, source: int, target: int) -> int:
        """Return the number of the block from one rank to another one."""
        return source * self.bundles.size + target

    def _numbers(self, sources: Blocks, targets: Blocks) -> list[int]:
        """Return the numbers of blocks, those to one rank behind each other."""
        size = self.bundles.size
        return [s * size + t for t in targets for s in sources]

    def _alltoall_inside(self, node: int) -> Moves:
        return self._alltoall_in_node(node) if self.flat else self._alltoall_to_carriers(node)

    def _pair(self, source: int, target: int) -> Blocks:
        """Return the number of the block from one rank to another one, if there is any."""
        there = self.ends is None or self.ends.meet(source, target)
        return (self._number(source, target),) if there else ()

    @kept
    def most_given_inside(self) -> int:
        """The most blocks of own sizes that a rank gives to others of its node."""
        return 1 if self.collective == "gatherv" else self.bundles.largest - 1

    def _alltoall_in_node(self, node: int) -> Moves:
        ranks = self.bundles.nodes[node]

        def given(m: int, to: int) -> Blocks:
            return self._pair(ranks[m], ranks[to])

        return moves(
            lambda m: [b for r in (*ranks[m + 1 :], *ranks[:m]) for b in self._pair(ranks[m], r)],
            given,
            lambda m: self.sent(ranks[m]),
            lambda m: self.received(ranks[m]),
            lambda m: given(m, m),
        )

    def _alltoall_of_all(self) -> Moves:
        ranks, handed = self.bundles.all_ranks, self.handed
        node = [self.bundles.place(r)[0] for r in ranks]

        def given(m: int, to: int) -> Blocks:
            found = self._pair(ranks[m], ranks[to]) if node[m] != node[to] else ()
            comes = not found or handed is None or handed.receives(ranks[m], ranks[to])
            return found if comes else ()

        def keeps(m: int) -> Blocks:
            alone = len(self.bundles.nodes[node[m]]) == 1
            return self._pair(ranks[m], ranks[m]) if alone else ()

        return moves(
            lambda m: [block for to in range(len(ranks)) for block in given(m, to)],
            given,
            lambda m: self.sent(ranks[m]),
            lambda m: self.received(ranks[m]),
            keeps,
        )

    def _carried(self, node: int, lane: int) -> Shelf:
        """Return what a carrier sends: the blocks of its node to all ranks of its lane."""
        sources, nodes = sorted(self.bundles.nodes[node]), self.towards(node)
        blocks = [b for n in nodes for b in self._numbers(sources, self.bundles.bundle(n, lane))]
        return Shelf(Base.SCRATCH, blocks)

    def _brought(self, node: int, lane: int) -> Shelf:
        """Return where a carrier receives: its own receive buffer, or scratch for its bundle."""
        bundle = self.bundles.bundle(node, lane)
        if len(bundle) == 1:
            return self.received(bundle[0])
        nodes = self.bundles.nodes
        blocks = [b for ranks in nodes for b in self._numbers(sorted(ranks), bundle)]
        return Shelf(Base.SCRATCH, blocks, 1)

    def _alltoall_to_carriers(self, node: int) -> Moves:
        bundles, ranks = self.bundles, self.bundles.nodes[node]

        def given(m: int, to: int) -> Blocks:
            if to >= bundles.lanes:
                return ()
            to_nodes = self.towards(node)
            return [
                b for n in to_nodes for b in self._numbers(ranks[m : m + 1], bundles.bundle(n, to))
            ]

        def gives(m: int) -> Blocks:
            return [
                self._number(ranks[m], rank)
                for n in self.towards(node)
                for rank in sorted(bundles.nodes[n])
                if m != bundles.lane(rank)
            ]

        return moves(
            gives,
            given,
            lambda m: self.sent(ranks[m]),
            lambda m: self._carried(node, m),
            lambda m: given(m, m),
        )

    def _alltoall_between(self, lane: int) -> Moves:
        bundles, nodes = self.bundles, self.bundles.nodes

        def given(n: int, to: int) -> Blocks:
            return self._numbers(sorted(nodes[n]), bundles.bundle(to, lane))

        return moves(
            lambda n: self._carried(n, lane).blocks,
            given,
            lambda n: self._carried(n, lane),
            lambda n: self._brought(n, lane),
            lambda n: given(n, n),
        )

    def _alltoall_from_carriers(self, node: int) -> Moves | None:
        return self._from_carriers(node, self._brought, self.received)

    def _from_carriers(
        self, node: int, source: Callable[[int, int], Shelf], received: Callable[[int], Shelf]
    ) -> Moves | None:
        """Return the moves by which carriers hand out what they have brought for their bundles."""
        lanes, ranks = self.bundles.lanes, self.bundles.nodes[node]
        if len(ranks) <= lanes:
            return None

        def given(m: int, to: int) -> Blocks:
            return received(ranks[to]).blocks if to % lanes == m else ()

        return moves(
            lambda m: [b for to in range(len(ranks)) if to != m for b in given(m, to)],
            given,
            lambda m: source(node, m),
            lambda m: received(ranks[m]),
            lambda m: given(m, m),
        )

    # ---- reduce-scatter -----------------------------------------------------------------------

    def _result(self, rank: int) -> Shelf:
        """Return the receive buffer of a rank in a reduce-scatter."""
        return Shelf(Base.RECV, range(rank, rank + 1))

    def _combined(self, node: int, lane: int) -> Shelf:
        """Return what a carrier has of its node, for all ranks of its lane."""
        bundles = self.bundles
        if len(bundles.nodes[node]) == 1:
            return self.operands(range(bundles.size))
        blocks = [r for n in self.towards(node) for r in sorted(bundles.bundle(n, lane))]
        return Shelf(Base.SCRATCH, blocks)

    def _finished(self, node: int, lane: int) -> Shelf:
        """Return where a carrier combines the results of its bundle."""
        bundle = sorted(self.bundles.bundle(node, lane))
        return self._result(bundle[0]) if len(bundle) == 1 else Shelf(Base.SCRATCH, bundle, 1)

    def _combined_inside(self, node: int) -> Moves:
        """Return the moves of operands to carriers; all members show them in one order."""
        bundles = self.bundles
        blocks = [rank for n in self.towards(node) for rank in sorted(bundles.nodes[n])]

        def given(m: int, to: int) -> Blocks:
            return self._combined(node, to).blocks if to < bundles.lanes else ()

        return moves(
            lambda m: blocks,
            given,
            lambda m: self.operands(range(bundles.size)),
            lambda m: self._combined(node, m),
        )

    def _combined_between(self, lane: int) -> Moves:
        bundles = self.bundles
        return moves(
            lambda n: self._combined(n, lane).blocks,
            lambda n, to: sorted(bundles.bundle(to, lane)),
            lambda n: self._combined(n, lane),
            lambda n: self._finished(n, lane),
        )

    def _results_from_carriers(self, node: int) -> Moves | None:
        return self._from_carriers(node, self._finished, self._result)


Inside = Callable[[BlockSteps, int], Moves | None]  # of a node
INSIDE: dict[tuple[str, str], Inside] = {
    ("allgather", "gather"): BlockSteps._gathered_to_carriers,
    ("allgather", "allgather"): BlockSteps._spread_inside,
    ("gather", "gather"): BlockSteps._gather_inside,
    ("scatter", "scatter"): BlockSteps._scatter_inside,
    ("alltoall", "alltoall"): BlockSteps._alltoall_inside,
    ("alltoall", "scatter"): BlockSteps._alltoall_from_carriers,
    ("reduce_scatter", "reduce_scatter"): BlockSteps._combined_inside,
    ("reduce_scatter", "scatter"): BlockSteps._results_from_carriers,
}
BETWEEN: dict[str, Callable[[BlockSteps, int], Moves]] = {  # of a lane
    "allgather": BlockSteps._allgather_between,
    "gather": BlockSteps._gather_between,
    "scatter": BlockSteps._scatter_between,
    "alltoall": BlockSteps._alltoall_between,
    "reduce_scatter": BlockSteps._combined_between,
}
