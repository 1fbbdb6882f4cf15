"""The policy of a lower bound: its alpha vectors, less those it never follows.

Acting by the label of the best vector earns at least that vector's value, as long as every vector
is the backup of vectors that are still in the set: at the next step the belief finds one at least
as good as the one that the backup counted on. So from the vectors that are best at the start, those
that they go on with are kept, step by step, and the vertices' (each goes on with its own kind).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from latentmdp._kernels.alpha import mark_followers
from latentmdp.model import LatentMDP
from latentmdp.planning.point_based.bounds import Arranged
from latentmdp.planning.point_based.problem import Problem
from latentmdp.policies import AlphaVectorPolicy

__all__ = ["alpha_policy"]


def alpha_policy(
    model: LatentMDP, problem: Problem, arranged: Sequence[Arranged]
) -> AlphaVectorPolicy:
    """The policy that attains the lower bound of `arranged`, one entry per time step."""
    S, M = model.n_states, model.n_contexts
    wanted = _best_at_start(problem, arranged[0])
    vectors, labels, counts = [], [], []
    for t, now in enumerate(arranged):
        kept = wanted | (now.order < S * M)
        states = _states(now)
        vectors.append(now.plans.rows[kept])
        labels.append(now.labels[kept])
        counts.append(np.bincount(states[kept], minlength=S))
        if t + 1 < len(arranged):
            following = arranged[t + 1]
            wanted = np.zeros(following.order.size, np.bool_)
            mark_followers(
                problem.table, following.plans, now.breadth, states,
                np.ascontiguousarray(now.points.beliefs.T), now.labels, kept, wanted,
            )  # fmt: skip
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return AlphaVectorPolicy(np.concatenate(vectors), np.concatenate(labels), offsets, model)


def _states(now: Arranged) -> NDArray[np.int64]:
    """The state of each plan in search order."""
    sizes = np.diff(now.plans.starts[now.plans.groups])
    return np.repeat(np.arange(sizes.size), sizes)


def _best_at_start(problem: Problem, first: Arranged) -> NDArray[np.bool_]:
    wanted = np.zeros(first.order.size, np.bool_)
    starts, groups = first.plans.starts, first.plans.groups
    for s, belief, _ in zip(*problem.roots):
        begin, end = starts[groups[s]], starts[groups[s + 1]]
        wanted[begin + np.argmax(first.plans.rows[begin:end] @ belief)] = True
    return wanted
