"""The hidden contexts: where they differ, and how the belief finds the true one.

The belief b(m) along an episode is that of a filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from latentmdp import plot
from latentmdp._util import (
    COLOURS,
    Floats,
    Integers,
    Worded,
    band,
    legend,
)
from latentmdp.belief import posterior
from latentmdp.fit import Fit
from latentmdp.logs import Logs
from latentmdp.model import LatentMDP
from latentmdp.policies import HistoryPolicy, Policy
from latentmdp.report.page import Picture, context_labels, drawn
from latentmdp.simulation import simulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def assignment(fit: Fit, logs: Logs) -> dict[str, Any]:
    """Facts of p(m | individual) after a fit to these logs: how surely individuals belong to one.

    An individual counts once, whatever its segments, and as often as its multiplicity says. The
    mean probability of the likeliest context is the expected accuracy of the labels.
    """
    first, counts = [], []
    for batch in logs.batches():
        part = batch.read()
        first.append(batch.start + part.beginnings())
        counts.append(part.multiplicities()[part.beginnings()])
    likely = fit.responsibilities[np.concatenate(first)]
    weights, top = np.concatenate(counts).astype(np.float64), likely.max(axis=1)
    sure = float(np.average(top >= 0.95, weights=weights))
    right = float(np.average(top, weights=weights))
    return {
        "share_sure": Worded(
            sure, f"{sure:.1%} of episodes belong to one context with 0.95 or more"
        ),
        "expected_accuracy": Worded(right, f"{right:.1%} of the labels"),
        "expected_episodes": weights @ likely,
    }


def belief_picture(
    world: LatentMDP, policy: Policy | HistoryPolicy, believed: LatentMDP, seed: int = 0
) -> Picture:
    """The belief along a typical episode of the world, seen through a filter on `believed`.

    Of 101 episodes it is the one with the median belief in the true context, averaged over steps.
    """
    along, true_contexts = _beliefs(world, policy, believed, 101, seed)
    speed = np.take_along_axis(along, true_contexts[:, None, None], axis=2).mean(axis=(1, 2))
    typical = int(np.argsort(speed, kind="stable")[len(speed) // 2])
    path, true = along[typical], int(true_contexts[typical])
    called = context_labels(world if world.n_contexts == believed.n_contexts else believed)
    return drawn(
        "Belief along one episode",
        "The median of 101 episodes by how fast the truth shows. Each bar divides one unit of "
        "probability among the contexts; the strong colour at the bottom is the true one, "
        f"{called[true]}, which the agent is never told. It ends at {path[-1, true]:.2f}, from "
        f"{path[0, true]:.2f} before the first step.",
        lambda axes: plot.beliefs(path, axes, context_names=called, true=true),
    )


def groups_picture(model: LatentMDP, what: str) -> Picture:
    """What tells contexts apart."""
    return drawn(
        "How the contexts differ",
        "A row is where an episode begins, or what follows a state and an action; its dots are the "
        "probabilities in each context. The rows are those where two contexts are furthest apart: "
        f"acting there tells them apart. From {what}.",
        lambda axes: plot.groups(model, axes),
        1.4 + 0.34 * min(12, model.n_states * model.n_actions + 1),
    )


def _beliefs(
    world: LatentMDP, policy: Policy | HistoryPolicy, believed: LatentMDP, episodes: int, seed: int
) -> tuple[Floats, Integers]:
    """Beliefs (N, H + 1, M) of a filter on `believed`, and the true contexts (N,) in its labels."""
    logs = simulate(world, policy, episodes, rng=seed)
    # The filter's alpha: an outcome that a learned model calls impossible must not end the belief,
    # and no bar of a picture may move.
    smoothing = min(1e-4, 0.1 / (believed.n_states * believed.n_rewards))
    along = posterior(believed, logs.without_contexts(), smoothing, along=True)
    standing_for = linear_sum_assignment(world.distances(believed))[1]
    true = np.asarray(standing_for, dtype=np.int64)[np.asarray(logs.contexts)]
    # An episode that ended keeps its last belief.
    last = np.minimum(np.arange(logs.longest + 1), logs.lengths[:, None])
    return along[(logs.offsets[:-1] + np.arange(episodes))[:, None] + last], true


def growth(
    world: LatentMDP,
    policy: Policy | HistoryPolicy,
    believed: LatentMDP,
    episodes: int = 2_000,
    seed: int = 0,
) -> Floats:
    """Belief in the true context after 0, 1, ..., H steps of many episodes, (N, H + 1).

    The standard error of the mean of so many `episodes` is about 0.01.
    """
    along, true = _beliefs(world, policy, believed, episodes, seed)
    return np.asarray(np.take_along_axis(along, true[:, None, None], axis=2)[..., 0])


def draw_growth(axes: Axes, curves: dict[str, Floats]) -> None:
    """Mean belief in the true context along an episode, with the middle 80% of episodes."""
    for i, (name, values) in enumerate(curves.items()):
        spread = tuple(np.quantile(values, (0.1, 0.9), axis=0))
        band(axes, np.arange(values.shape[1]), values, COLOURS[i], name, spread=spread)
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="steps taken in the episode", ylabel="belief in the true context")
    axes.set_ylim(0.0, 1.02)
    legend(axes, columns=1)
