"""Operations on the contexts of `LatentMDP`s: choose, average and compare them.

`subset` and `mixture` return the arguments of `LatentMDP.replace` that change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from latentmdp._util.arrays import Floats

if TYPE_CHECKING:
    from latentmdp.model import LatentMDP

__all__ = ["distances", "mixture", "require_same_space", "subset"]


def subset(model: LatentMDP, contexts: Iterable[int]) -> dict[str, Any]:
    """Some contexts, in the order given, weights renormalised."""
    index = np.asarray(list(contexts))
    M = model.n_contexts
    if index.size == 0:
        raise ValueError("contexts must name at least one context")
    if index.ndim != 1 or index.dtype.kind not in "iu":
        raise TypeError(f"contexts must be integers, got {index.tolist()}")
    if index.min() < -M or index.max() >= M:
        raise ValueError(f"contexts must lie in [0, {M}), got {index.tolist()}")
    if np.unique(index % M).size < index.size:
        raise ValueError(f"contexts must be distinct, got {index.tolist()}")
    weights = model.weights[index]
    total = float(weights.sum())
    if total == 0.0:
        raise ValueError(f"contexts {index.tolist()} have total weight zero")
    names = model.context_names
    return {
        "transitions": model.transitions[index],
        "rewards": model.reward_probs[index],
        "initial": model.initial[index],
        "weights": weights if index.size == M else weights / total,
        "bonus": None if model.bonus is None else model.bonus[index],
        "initial_bonus": None if model.initial_bonus is None else model.initial_bonus[index],
        "context_names": None if names is None else [names[i] for i in index],
    }


def mixture(model: LatentMDP) -> dict[str, Any]:
    """One context: T, R and nu averaged over contexts by their weights."""
    w = model.weights
    rewards = np.einsum("m,m...->...", w, model.reward_probs)
    if model.rewards_depend_on_next_state:
        rewards = np.einsum("m,msanz->sanz", w, model.observation_probs())
    bonus, first = model.bonus, model.initial_bonus
    return {
        "transitions": _averaged(np.einsum("m,msan->san", w, model.transitions))[None],
        "rewards": _averaged(rewards)[None],
        "initial": _averaged(w @ model.initial)[None],
        "weights": [1.0],
        "bonus": None if bonus is None else np.einsum("m,msa->sa", w, bonus)[None],
        "initial_bonus": None if first is None else [float(w @ first)],
        "context_names": None,
    }


def _averaged(rows: Floats) -> Floats:
    """Scale each row of a weighted sum of distributions to sum to one, unless it is all zero."""
    sums = rows.sum(axis=-1, keepdims=True)
    return np.divide(rows, sums, out=np.zeros_like(rows), where=sums > 0.0)


def distances(first: LatentMDP, second: LatentMDP) -> Floats:
    """sum_{s,a} ||P_m - P'_n||_1 for every pair of contexts (m of the first, n of the second)."""
    require_same_space(first, second)
    mine, theirs = first.observation_probs(), second.observation_probs()
    cost = np.empty((first.n_contexts, second.n_contexts))
    for m in range(first.n_contexts):
        cost[m] = np.abs(mine[m] - theirs).sum(axis=(1, 2, 3, 4))
    return cost


def require_same_space(first: LatentMDP, second: LatentMDP) -> None:
    """Raise unless both models share states, actions and reward values."""
    for name in ("n_states", "n_actions"):
        if getattr(first, name) != getattr(second, name):
            raise ValueError(
                f"the models differ in {name}: {getattr(first, name)} and {getattr(second, name)}"
            )
    if not np.array_equal(first.reward_values, second.reward_values):
        raise ValueError(
            "the models differ in reward_values: "
            f"{first.reward_values.tolist()} and {second.reward_values.tolist()}"
        )
