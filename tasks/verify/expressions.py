"""Expressions of the verifier: combinations of the ranks' contributions, as numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

SPELLED = 200  # characters of an expression


@dataclass
class Expressions:
    """Numbers of combinations of contributions, equal for equal ones; the first are the leaves."""

    size: int
    pairs: list[tuple[int, ...]] = field(default_factory=list)
    known: dict[tuple[int, int], int] = field(default_factory=dict)
    sums: dict[tuple[int, ...], int] = field(default_factory=dict)  # by operands, sorted
    flat: dict[tuple[int, bool], tuple[int, ...]] = field(default_factory=dict)
    right: dict[tuple[int, bool, int], tuple[int, ...]] = field(default_factory=dict)
    blocks: dict[tuple[int, ...], int] = field(default_factory=dict)  # canonical, by ranks

    def combine(self, a: int, b: int) -> int:
        """Return the number of ``a op b``."""
        number = self.known.setdefault((a, b), self.size + len(self.pairs))
        if number == self.size + len(self.pairs):
            self.pairs.append((a, b))
        return number

    def accumulate(self, a: int, b: int) -> int:
        """Return the number of `a`, maybe a combination in any order, with one more operand."""
        parts = self.pairs[a - self.size] if a >= self.size else ()
        flat = parts if self.sums.get(parts) == a else (a,)
        parts = tuple(sorted((*flat, b)))
        number = self.sums.setdefault(parts, self.size + len(self.pairs))
        if number == self.size + len(self.pairs):
            self.pairs.append(parts)
        return number

    def ranks(self, number: int, ordered: bool) -> tuple[int, ...]:
        """Return the contributions of an expression, in the order of the operands or sorted."""
        if (number, ordered) not in self.flat:
            leaves = self._leaves(number)
            self.flat[number, ordered] = tuple(leaves if ordered else sorted(leaves))
        return self.flat[number, ordered]

    def canonical(self, ranks: tuple[int, ...]) -> int:
        """Return the number of the canonical combination of the contributions of ranks.

        It follows the definition, by halves of blocks, and none of the code that makes programs.
        """
        if ranks not in self.blocks:
            found = self._block(frozenset(ranks), 0, 1 << (self.size - 1).bit_length())
            assert found is not None, "a result has contributions"
            self.blocks[ranks] = found
        return self.blocks[ranks]

    def _block(self, ranks: frozenset[int], first: int, width: int) -> int | None:
        """Return the combination of a block of ranks; None if none of them contributes."""
        if width == 1:
            return first if first in ranks else None
        half = width // 2
        left, right = (self._block(ranks, at, half) for at in (first, first + half))
        if left is None or right is None:
            return right if left is None else left
        return self.combine(left, right)

    def spelled(self, number: int) -> str:
        """Return an expression as text such as ``((0 1) 2)``; of a long one the beginning."""
        found, left = "", [str(number)]
        while left and len(found) < SPELLED:
            text = left.pop()
            one = int(text) if text.isdigit() else -1
            if one < self.size:
                found += text
                continue
            parts = [str(part) for part in self.pairs[one - self.size]]
            spaced = [text for part in parts for text in (" ", part)][1:]
            left += [")", *reversed(spaced), "("]
        return found + (" ..." if left else "")

    def combines(self, number: int, ranks: tuple[int, ...], ordered: bool) -> bool:
        """Return whether an expression combines the contributions of `ranks`, maybe in order.

        Answers are kept by the identity of `ranks`, because many bytes share few expressions.
        """
        key = number, ordered, id(ranks)
        if self.right.get(key) is not ranks and self.ranks(number, ordered) == ranks:
            self.right[key] = ranks
        return self.right.get(key) is ranks

    def _leaves(self, number: int) -> Iterable[int]:
        left = [number]  # a stack in place of recursion, as expressions may be deep
        while left:
            number = left.pop()
            if number < self.size:
                yield number
            else:
                left += reversed(self.pairs[number - self.size])
