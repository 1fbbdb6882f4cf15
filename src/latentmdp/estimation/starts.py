"""Where EM starts: pair moments, chance, a model, or given responsibilities."""

from __future__ import annotations

import numpy as np

from latentmdp.estimation.likelihood import MixtureLikelihood, Parameters
from latentmdp.estimation.pairs import MAX_CELLS, PairMoments, context_points

__all__ = ["own_starts", "pair_starts", "random_start"]


def own_starts(
    likelihood: MixtureLikelihood, number: int, rng: np.random.Generator
) -> list[Parameters]:
    """`number` starts: up to half of them from pair moments, the others at random."""
    found = pair_starts(likelihood, (number + 1) // 2, rng)
    return found + [random_start(likelihood, rng) for _ in range(number - len(found))]


def pair_starts(
    likelihood: MixtureLikelihood, most: int, rng: np.random.Generator
) -> list[Parameters]:
    """The distinct solutions of the mixture in R^(M-1), best first.

    There are none with too many cells, nor with fewer cells than directions.
    """
    episodes, M = likelihood.episodes, likelihood.structure.n_contexts
    if not M - 1 <= episodes.cells.size <= MAX_CELLS:
        return []
    moments = PairMoments(episodes)
    F = moments.factor(M - 1)
    found = context_points(episodes, F, rng)
    _, distinct = np.unique(np.round(-found.log_likelihood, 1), return_index=True)
    return [
        likelihood.tilted(moments.factors(F, found.points[k]), found.weights[k])
        for k in distinct[:most]
    ]


def random_start(likelihood: MixtureLikelihood, rng: np.random.Generator) -> Parameters:
    """The pooled model, every cell's probability multiplied by a random share in each context."""
    M = likelihood.structure.n_contexts
    return likelihood.tilted(M * rng.dirichlet(np.ones(M), size=likelihood.episodes.cells.size))
