"""The hidden contexts in pictures: where they differ, and how the belief finds the true one.

Two contexts differ at (s, a) by ||P_m(. | s, a) - P_n(. | s, a)||_1, the L1 distance of next state
and reward, at most 2. The belief b(m) along an episode is that of a filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from latentmdp._util import Floats, Integers, Result, Worded, names
from latentmdp.belief import posterior
from latentmdp.fit import Fit
from latentmdp.logs import Logs
from latentmdp.model import LatentMDP
from latentmdp.policies import HistoryPolicy, Policy
from latentmdp.report.page import (
    COLOURS,
    CORNERS,
    INK,
    Picture,
    canvas,
    context_labels,
    legend,
    triangle,
)
from latentmdp.simulation import simulate
from latentmdp.theory import context_distances

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Difference(NamedTuple):
    """A state and action at which two contexts differ: ||P_m - P_n||_1 of what follows."""

    state: int
    action: int
    contexts: tuple[int, int]
    distance: float

    def where(self, model: LatentMDP) -> str:
        """The state and the action, by their names in the model."""
        state = names.called("state", self.state, model.state_names)
        return f"{state}, {names.called('action', self.action, model.action_names)}"


def largest_differences(model: LatentMDP, count: int = 5) -> list[Difference]:
    """The state-action pairs that separate some two contexts most, farthest first."""
    farthest = np.zeros((model.n_states, model.n_actions))
    who = np.zeros((*farthest.shape, 2), dtype=np.int64)
    for m, n, distance in context_distances(model):
        better = distance > farthest
        farthest[better] = distance[better]
        who[better] = m, n
    order = np.argsort(-farthest, axis=None, kind="stable")[:count]
    return [
        Difference(int(s), int(a), (int(who[s, a, 0]), int(who[s, a, 1])), float(farthest[s, a]))
        for s, a in zip(*np.unravel_index(order, farthest.shape))
        if farthest[s, a] > 0.0
    ]


def difference_maps(model: LatentMDP) -> dict[str, Floats]:
    """Distances (S, A) by name: of each pair of contexts, or nearest and farthest pair if many."""
    labels, pairs = context_labels(model), context_distances(model)
    if len(pairs) <= 6:  # two rows of three still read on a phone
        return {f"{labels[m]} / {labels[n]}": distances for m, n, distances in pairs}
    every = np.stack([distances for _, _, distances in pairs])
    return {"nearest pair": every.min(axis=0), "farthest pair": every.max(axis=0)}


def _differences_figure(model: LatentMDP) -> Figure:
    """The maps side by side, from 0 (clear) to 2 (full colour)."""
    from matplotlib.colors import to_rgba

    maps = difference_maps(model)
    columns = min(3, len(maps))
    rows = -(-len(maps) // columns)
    height = min(8.0, rows * max(2.0, 0.75 + 0.24 * min(model.n_states, 24)))
    figure, axes = canvas(height, len(maps), columns)
    S, A, slant = model.n_states, model.n_actions, 0 if model.action_names is None else 60
    positions, labels = _ticks(S, model.state_names)
    for k, (panel, (name, distances)) in enumerate(zip(axes, maps.items())):
        # Half-transparent over the page, this blue reads on light paper and on dark.
        colours = np.tile(to_rgba("#2f88cc"), (S, A, 1))
        colours[..., 3] = np.clip(distances / 2.0, 0.0, 1.0)
        panel.imshow(colours, aspect="auto", interpolation="none")
        if S * A <= 30:  # numbers of 8.5 points fit into the cells
            for (s, a), value in np.ndenumerate(distances):
                panel.text(a, s, f"{value:.1f}", ha="center", va="center", fontsize=8.5, color=INK)
        panel.set_xticks(*_ticks(A, model.action_names), rotation=slant, fontsize=9)
        outer = k % columns == 0
        panel.set_yticks(positions, labels if outer else [""] * len(labels), fontsize=9)
        panel.set(xlabel="action", ylabel="state" if outer else "")
        panel.set_title(name.replace(" / ", "\nvs "), fontsize=9.5)
    return figure


def _ticks(size: int, names: tuple[str, ...] | None) -> tuple[list[int], list[str]]:
    positions = list(range(0, size, -(-size // 16)))  # more names would run into each other
    return positions, [str(i) if names is None else names[i] for i in positions]


def difference_picture(model: LatentMDP, what: str) -> Picture:
    """Maps of the distances between contexts."""
    return Picture(
        "Where the contexts differ",
        _differences_figure(model),
        "L1 distance between two contexts in the distribution of next state and reward, for each "
        "state (row) and action (column): clear means the same (0), full colour means nothing in "
        f"common (2). Strong cells are where acting tells contexts apart. From {what}.",
    )


@dataclass(frozen=True, eq=False)
class Assignment(Result):
    """How surely episodes belong to their most likely context, and how many to each (M,).

    `share_sure` of them have one with a probability of at least 0.95; the mean probability of the
    most likely one is the `expected_accuracy` of the labels.
    """

    share_sure: float
    expected_accuracy: float
    expected_episodes: Floats

    def facts(self) -> dict[str, Any]:
        """The numbers, and what the shares are of."""
        sure = f"{self.share_sure:.1%} of episodes belong to one context with 0.95 or more"
        return {
            **super().facts(),
            "share_sure": Worded(self.share_sure, sure),
            "expected_accuracy": Worded(
                self.expected_accuracy, f"{self.expected_accuracy:.1%} of the labels"
            ),
        }


def assignment(fit: Fit, logs: Logs) -> Assignment:
    """Summary of p(m | individual) after a fit to these logs.

    An individual counts once, whatever its segments, and as often as its multiplicity says.
    """
    first, counts = [], []
    for batch in logs.batches():
        part = batch.read()
        first.append(batch.start + part.beginnings())
        counts.append(part.multiplicities()[part.beginnings()])
    likely = fit.responsibilities[np.concatenate(first)]
    weights, top = np.concatenate(counts).astype(np.float64), likely.max(axis=1)
    return Assignment(
        float(np.average(top >= 0.95, weights=weights)),
        float(np.average(top, weights=weights)),
        weights @ likely,
    )


class BeliefPath(NamedTuple):
    """Beliefs (T + 1, M) along one episode, which context was the true one, and their names."""

    beliefs: Floats
    true: int
    names: list[str]

    def label(self, m: int) -> str:
        """The name of a context, and whether it is the true one."""
        return f"{self.names[m]} (true)" if m == self.true else self.names[m]


def belief_pictures(
    world: LatentMDP, policy: Policy | HistoryPolicy, believed: LatentMDP, seed: int = 0
) -> list[Picture]:
    """Bars, and a path in the triangle for three contexts, over one episode."""
    episode = _typical_path(world, policy, believed, seed)
    true, belief = episode.names[episode.true], episode.beliefs[:, episode.true]
    pictures = [
        Picture(
            "Belief along one episode",
            _bars_figure(episode),
            "The median of 101 episodes by how fast the truth shows. Each bar divides one unit "
            "of probability among the contexts; the strong colour at the bottom is the true one, "
            f"{true}, which the agent is never told. It ends at {belief[-1]:.2f}, from "
            f"{belief[0]:.2f} before the first step.",
        )
    ]
    if believed.n_contexts == 3:
        pictures.append(
            Picture(
                "The same belief in the triangle",
                _simplex_figure(episode),
                "A corner means certainty of one context, the centre ignorance. The dots are the "
                f"steps of the episode; they should walk to the corner of {true}.",
            )
        )
    return pictures


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


def _typical_path(
    world: LatentMDP,
    policy: Policy | HistoryPolicy,
    believed: LatentMDP,
    seed: int,
    episodes: int = 101,
) -> BeliefPath:
    """A typical episode of the world, seen through a filter on a model with as many contexts.

    Of these episodes it is the one with the median belief in the true context, averaged over steps.
    """
    along, true = _beliefs(world, policy, believed, episodes, seed)
    speed = np.take_along_axis(along, true[:, None, None], axis=2).mean(axis=(1, 2))
    typical = int(np.argsort(speed, kind="stable")[episodes // 2])
    called = context_labels(world if world.n_contexts == believed.n_contexts else believed)
    return BeliefPath(along[typical], int(true[typical]), called)


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


def _bars_figure(episode: BeliefPath) -> Figure:
    """One bar per step, divided among the contexts by their probabilities."""
    figure, (axes,) = canvas()
    steps, contexts = np.arange(len(episode.beliefs)), range(len(episode.names))
    below = np.zeros(len(steps))
    for rank, m in enumerate(sorted(contexts, key=lambda m: m != episode.true)):
        share = episode.beliefs[:, m]
        fade, colour = 1.0 if m == episode.true else 0.45, COLOURS[rank % len(COLOURS)]
        label = episode.label(m)
        axes.bar(steps, share, bottom=below, width=0.86, color=colour, alpha=fade, label=label)
        below = below + share
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="steps taken in the episode", ylabel="probability", ylim=(0.0, 1.0))
    legend(figure, columns=2 if len(contexts) < 7 else 3)
    return figure


def _simplex_figure(episode: BeliefPath) -> Figure:
    """The path of a belief over three contexts, from the prior to the end of the episode."""
    figure, (axes,) = canvas(4.0)
    triangle(axes, [episode.label(m) for m in range(3)], strong=episode.true)
    path = episode.beliefs @ CORNERS
    axes.plot(*path.T, color=COLOURS[0], linewidth=1.0, alpha=0.6)
    axes.scatter(path[:, 0], path[:, 1], color=COLOURS[0], s=14, zorder=3)
    ends = ((0, COLOURS[1], "before the first"), (-1, COLOURS[2], "after the last"))
    for step, colour, name in ends:
        x, y = path[step]
        axes.scatter(x, y, color=colour, s=60, zorder=4, label=f"{name} step")
    legend(figure)
    return figure


def growth_figure(curves: dict[str, Floats]) -> Figure:
    """Mean belief in the true context along an episode, with the middle 80% of episodes."""
    figure, (axes,) = canvas()
    for i, (name, values) in enumerate(curves.items()):
        steps = np.arange(values.shape[1])
        low, high = np.quantile(values, (0.1, 0.9), axis=0)
        dash = "--" if i else "-"
        axes.plot(steps, values.mean(axis=0), color=COLOURS[i], linestyle=dash, label=name)
        axes.fill_between(steps, low, high, color=COLOURS[i], alpha=0.15, linewidth=0)
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="steps taken in the episode", ylabel="belief in the true context")
    axes.set_ylim(0.0, 1.02)
    legend(figure, columns=1)
    return figure
