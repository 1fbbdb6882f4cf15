"""How good an estimate, a clustering or a run is.

Context labels carry no meaning, so every comparison is up to the best relabelling, found exactly by
linear assignment.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.special import stdtrit

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp.model import LatentMDP

__all__ = [
    "Interval",
    "adjusted_rand_index",
    "clustering_accuracy",
    "last_tenth",
    "mean_return",
    "model_error",
    "regret",
    "trailing_means",
]


def model_error(true: LatentMDP, estimate: LatentMDP, *, per_cell: bool = False) -> float:
    """Model error of [kwon2021, Sec. 5.1].

        min over relabellings sigma of  sum_{m,s,a} || (P_m - Phat_sigma(m)) (s', r | s, a) ||_1

    Parameters
    ----------
    per_cell
        Divide by M times the number of allowed (s, a): the mean L1 distance of one row, in [0, 2].
    """
    for name, model in (("true", true), ("estimate", estimate)):
        arrays.require_instance(name, model, LatentMDP)
    if true.n_contexts != estimate.n_contexts:
        raise ValueError(
            f"the models differ in n_contexts: {true.n_contexts} and {estimate.n_contexts}"
        )
    cost = true.distances(estimate)
    error = float(cost[linear_sum_assignment(cost)].sum())
    cells = true.n_contexts * int(true.allowed.sum())
    return error / cells if per_cell else error


def clustering_accuracy(contexts: ArrayLike, labels: ArrayLike) -> float:
    """Share of episodes whose label is right under the best matching of labels to contexts."""
    table = _contingency(contexts, labels)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def adjusted_rand_index(
    contexts: ArrayLike, labels: ArrayLike, counts: ArrayLike | None = None
) -> float:
    """Agreement of two groupings [hubert1985]: 1 if they are the same, 0 on average by chance.

    Of all pairs of episodes, those that both groupings put together, less what is expected of
    groups of these sizes, over the most that there could be beyond that. An episode is counted as
    often as `counts` says.
    """
    table = _contingency(contexts, labels, counts)
    together, rows, columns, pairs = (
        float((n * (n - 1.0)).sum()) / 2.0
        for n in (table, table.sum(axis=1), table.sum(axis=0), table.sum())
    )
    expected = rows * columns / max(pairs, 1.0)
    most = (rows + columns) / 2.0
    # Both are one group, or both are single episodes: the same grouping.
    return 1.0 if most == expected else (together - expected) / (most - expected)


def _contingency(contexts: ArrayLike, labels: ArrayLike, counts: ArrayLike | None = None) -> Floats:
    """How often each context goes with each label."""
    truth = arrays.as_integers("contexts", contexts, np.int64)
    groups = arrays.as_integers("labels", labels, np.int64)
    if truth.shape != groups.shape:
        raise ValueError(
            f"contexts and labels must be equally long, got shapes {truth.shape} and {groups.shape}"
        )
    if truth.size == 0:
        raise ValueError("contexts and labels must not be empty")
    table = np.zeros((int(truth.max()) + 1, int(groups.max()) + 1))
    np.add.at(table, (truth, groups), 1.0 if counts is None else np.asarray(counts))
    return table


def regret(
    returns: ArrayLike, optimal: float, guarantee: tuple[float, float] | None = None
) -> Floats:
    """Cumulative regret of [kwon2021, eq. (2)]: sum_k (rho1 V* - rho2) - V_k.

    Parameters
    ----------
    returns : (K,)
        Value, or realised return, of each episode.
    optimal
        V*, or a bound on it.
    guarantee
        (rho1, rho2) of the planning oracle; (1, 0) by default.
    """
    rho1, rho2 = guarantee if guarantee is not None else (1.0, 0.0)
    values = np.asarray(returns, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"returns must be one-dimensional, got shape {values.shape}")
    return np.cumsum(rho1 * optimal - rho2 - values)


def last_tenth(episodes: int) -> int:
    """How many episodes "the return at the end" averages: the last tenth, and one at least."""
    return max(1, episodes // 10)


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval."""

    mean: float
    low: float
    high: float

    def within(self, low: float, high: float) -> Interval:
        """The same, no lower and no higher than what is possible."""
        return Interval(*(min(max(end, low), high) for end in self))

    def of_alike(self, episodes: int, returns: Floats, confidence: float) -> Interval:
        """The same, unless it has no width: what was always alike is not certain for that reason.

        It is then that of `mean_return`, of so many `episodes` that all earned its mean, where
        others earned these `returns`; NaN is left out.
        """
        if self.low < self.high or episodes < 1:
            return self
        alike = np.full(episodes, self.mean)
        return mean_return(alike, returns[~np.isnan(returns)], confidence) or self

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


def mean_return(
    own: ArrayLike, every: ArrayLike | None = None, confidence: float = 0.95
) -> Interval | None:
    """What a policy earns, from the returns of its own episodes; None without any.

    Returns that do not vary, or have not shown a rare loss yet, must not pass for certain. So the
    interval is Student's, over the returns and two more at each end of their range; for returns
    that are 0 or 1 that is the interval of [agresti1998].

    Parameters
    ----------
    own
        The returns of the policy.
    every
        Returns of other policies in the same world, whose range counts too.
    """
    returns = np.asarray(own, dtype=np.float64)
    if returns.size == 0:
        return None
    observed = np.append(returns, np.asarray([] if every is None else every, dtype=np.float64))
    # With two at each end, a 95 % interval for a share holds its promise from a handful of
    # episodes on.
    ends = np.repeat([observed.min(), observed.max()], 2)
    added = np.concatenate([returns, ends])
    width = float(stdtrit(returns.size, 0.5 + confidence / 2.0) * added.std() / added.size**0.5)
    centre = float(added.mean())
    mean = float(returns.mean())
    return Interval(mean, min(mean, centre - width), max(mean, centre + width))


def trailing_means(returns: Floats, ends: Integers, windows: Integers | int) -> Floats:
    """Means of the last `windows` returns (of all there are, at first) after `ends` episodes."""
    sums = np.concatenate([[0.0], np.cumsum(returns)])
    begins = np.maximum(0, ends - windows)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins))
