"""How many contexts are behind a set C of distinguishing observations.

Let K(C) be the contexts that agree with C. If action a in state s, given C, was seen to have
outcomes o_1, ..., o_k with k > 1, it splits K(C) into disjoint non-empty parts, so that

    |K(C)| >= sum_i |K(C + o_i)|    and    |K(C + o_i)| <= |K(C)| - sum_{j != i} |K(C + o_j)|.

`ClassSizes` keeps the best lower and upper bounds that follow. They hold with certainty in any
deterministic latent MDP with at most M contexts, so a contradiction is evidence against it.
"""

from collections.abc import Iterable, Sequence

__all__ = ["ClassSizes", "ContradictionError"]


class ContradictionError(Exception):
    """The bounds of the class with this number exclude each other."""

    def __init__(self, c: int) -> None:
        super().__init__(c)
        self.c = c


class ClassSizes:
    """Bounds low <= |K(C)| <= high for every set C, by its number.

    Parameters
    ----------
    n_contexts
        M, the bound of any class whose superclass is not known.
    """

    def __init__(self, n_contexts: int) -> None:
        self.n_contexts = n_contexts
        self.low: list[int] = []
        self.high: list[int] = []
        self.changed: set[int] = set()  # classes whose bounds moved since somebody last looked
        self._splits: list[dict[object, Sequence[int]]] = []
        self._above: list[list[int]] = []
        self._complete = False

    def add(self) -> int:
        """A new class; its number."""
        self.low.append(1)
        self.high.append(self.n_contexts)
        self._splits.append({})
        self._above.append([])
        return len(self.low) - 1

    def split(self, c: int, by: object, parts: Sequence[int]) -> None:
        """Record that `by` splits class c into disjoint parts (a longer list replaces a shorter).

        Raises
        ------
        ContradictionError
            If no deterministic latent MDP with M contexts can show this.
        """
        for part in parts:
            if c not in self._above[part]:
                self._above[part].append(c)
        self._splits[c][by] = tuple(parts)
        self._propagate([c])

    def fix(self, c: int, size: int) -> None:
        """Record that class c has exactly this size."""
        self.low[c] = max(self.low[c], size)
        self.high[c] = min(self.high[c], size)
        self._propagate([c, *self._above[c]])

    def close(self, roots: Iterable[int]) -> None:
        """Turn the bounds into equations: all splits are complete, each root has M contexts."""
        self._complete = True
        for c in roots:
            self.low[c] = self.n_contexts
        self._propagate(list(range(len(self.low))))

    def _propagate(self, waiting: list[int]) -> None:
        while waiting:
            c = waiting.pop()
            before = (self.low[c], self.high[c])
            for parts in self._splits[c].values():
                waiting += self._tighten(c, parts)
            if self.low[c] > self.high[c]:
                raise ContradictionError(c)
            if (self.low[c], self.high[c]) != before:
                self.changed.add(c)
                waiting += [c, *self._above[c]]

    def _tighten(self, c: int, parts: Sequence[int]) -> list[int]:
        """Apply one split; the parts whose bounds changed."""
        low, high = self.low, self.high
        total_low = sum(low[p] for p in parts)
        total_high = sum(high[p] for p in parts)
        low[c] = max(low[c], total_low)
        if self._complete:
            high[c] = min(high[c], total_high)
        changed = []
        for p in parts:
            top = min(high[p], high[c] - (total_low - low[p]))
            bottom = max(low[p], low[c] - (total_high - high[p])) if self._complete else low[p]
            if (bottom, top) != (low[p], high[p]):
                low[p], high[p] = bottom, top
                changed.append(p)
                self.changed.add(p)
                if bottom > top:
                    raise ContradictionError(p)
        return changed
