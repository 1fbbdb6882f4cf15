"""The probability of each class C of contexts.

With uniform weights it is |K(C)| / M. Where the bounds of `classes` do not settle
which, a likelihood ratio test between the multiples does: it stops when the likeliest leads the
others by 1/p, and by Ville's inequality errs with a probability of at most p. Class number c gets
the share (6 / pi^2) c^-2 of what is allowed. Last, the frequencies of all classes are held against
these multiples (Hoeffding). If they do not fit, or if weights are not uniform, probabilities are
frequencies, with a standard error of at most `accuracy`.
"""

from __future__ import annotations

import copy
import math
import warnings
from typing import NamedTuple

from latentmdp.deterministic.classes import ContradictionError
from latentmdp.deterministic.explorer import BASEL, MAIN_SHARE, Explorer

__all__ = ["ClassWeights", "weigh_classes"]

_EPISODES_AT_A_TIME = 16


class ClassWeights(NamedTuple):
    """The probability of each class, by number, and whether they are exact."""

    masses: list[float]
    exact: bool


def weigh_classes(explorer: Explorer, uniform: bool, accuracy: float) -> ClassWeights:
    """Play on until every class is weighed."""
    search = explorer.search
    if uniform:
        bounds = copy.deepcopy(search.sizes)
        try:
            _identify(explorer)
            return ClassWeights([k / explorer.M for k in search.sizes.low], exact=True)
        except ContradictionError:
            warnings.warn(
                "the observed frequencies are not those of equally likely contexts: probabilities "
                "are estimated; give min_weight",
                stacklevel=3,
            )
            search.sizes = bounds
    _measure(explorer, accuracy)
    pairs = zip(search.hits, search.tried)
    return ClassWeights([hits / max(1, tried) for hits, tried in pairs], exact=False)


def _identify(explorer: Explorer) -> None:
    """Find |K(C)| for each C by testing the multiples of 1/M against each other."""
    search, sizes = explorer.search, explorer.search.sizes
    sizes.close(_whole_classes(explorer))
    while True:
        for c in _classes(explorer):
            if sizes.low[c] < sizes.high[c]:
                best = _likeliest_size(explorer, c)
                if best is not None:
                    sizes.fix(c, best)
        undecided = {c for c in _classes(explorer) if sizes.low[c] < sizes.high[c]}
        search.weigh(undecided)
        if not undecided:
            break
        for _ in range(_EPISODES_AT_A_TIME):
            explorer.play()
    _compare(explorer)


def _compare(explorer: Explorer) -> None:
    """Raise if a frequency is too far from its multiple of 1/M."""
    search = explorer.search
    allowed = (1.0 - 2.0 * MAIN_SHARE) * explorer.failure
    allowance = math.log(2.0 * len(search.sets) / allowed)
    for c in _classes(explorer):
        if search.tried[c]:
            radius = math.sqrt(allowance / (2.0 * search.tried[c]))
            expected = search.sizes.low[c] / explorer.M
            if abs(search.hits[c] / search.tried[c] - expected) > radius:
                raise ContradictionError(c)


def _likeliest_size(explorer: Explorer, c: int) -> int | None:
    """The size that beats the others clearly; None if there is none yet."""
    search, M = explorer.search, explorer.M
    hits, misses = search.hits[c], search.tried[c] - search.hits[c]
    sizes = range(search.sizes.low[c], search.sizes.high[c] + 1)
    scores = sorted((_log_likelihood(hits, misses, k / M), k) for k in sizes)
    needed = math.log(M * BASEL * (c + 1) ** 2 / (MAIN_SHARE * explorer.failure))
    return scores[-1][1] if scores[-1][0] - scores[-2][0] >= needed else None


def _log_likelihood(hits: int, misses: int, p: float) -> float:
    if p == 1.0:
        return 0.0 if misses == 0 else -math.inf
    return hits * math.log(p) + misses * math.log1p(-p)


def _measure(explorer: Explorer, accuracy: float) -> None:
    """Play until every class has been tried often enough for its frequency."""
    search, needed = explorer.search, math.ceil(0.25 / accuracy**2)
    while True:
        scarce = {c for c in _classes(explorer) if search.tried[c] < needed}
        search.weigh(scarce)
        if not scarce:
            return
        for _ in range(_EPISODES_AT_A_TIME):
            explorer.play()


def _classes(explorer: Explorer) -> list[int]:
    return sorted({node.c for node in explorer.search.nodes})


def _whole_classes(explorer: Explorer) -> list[int]:
    """The classes that all contexts belong to."""
    search = explorer.search
    if explorer.random_start or len(explorer.starts) == 1:
        return [search.nodes[n].c for n in search.roots.values()]
    return [search.number(frozenset())]
