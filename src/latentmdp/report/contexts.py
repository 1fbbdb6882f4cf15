"""The hidden contexts in pictures: where they differ, and how the belief finds the true one.

Two contexts differ at (s, a) by ||P_m(. | s, a) - P_n(. | s, a)||_1, the L1 distance of next state
and reward, at most 2. The belief b(m) along an episode is that of a filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from latentmdp._util.arrays import Floats, Integers
from latentmdp.belief import posterior
from latentmdp.model import LatentMDP
from latentmdp.outcomes import row_sums
from latentmdp.policies import HistoryPolicy, Policy
from latentmdp.report.page import COLOURS, INK, MUTED, Picture, canvas, legend
from latentmdp.simulation import simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Assignment",
    "Difference",
    "assignment",
    "belief_pictures",
    "difference_maps",
    "difference_picture",
    "growth",
    "growth_figure",
    "largest_differences",
]

_MOST_PAIRS = 6
"""Pairs of contexts that get a map each: two rows of three still read on a phone."""
_MOST_NUMBERS = 30
"""Cells of a map in which numbers of 8.5 points fit."""
_MOST_TICKS = 16
"""Names along an axis that do not run into each other."""
# Half-transparent over the page, this blue reads on light paper and on dark.
_BLUE = (0x2F / 255, 0x88 / 255, 0xCC / 255, 1.0)

_SMOOTHING = 1e-4
"""The filter's alpha, so that an outcome which a learned model calls impossible does not end the
belief; small enough that no bar of a picture moves."""
_CHOICE = 101
"""Episodes of which the typical one is the median: odd, and cheap to play."""
_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])


def _names(model: LatentMDP) -> list[str]:
    """The names of the contexts, or their numbers."""
    return list(model.context_names or (f"context {m}" for m in range(model.n_contexts)))


class Difference(NamedTuple):
    """A state and action at which two contexts differ: ||P_m - P_n||_1 of what follows."""

    state: int
    action: int
    contexts: tuple[int, int]
    distance: float


def largest_differences(model: LatentMDP, count: int = 5) -> list[Difference]:
    """The state-action pairs that separate some two contexts most, farthest first."""
    farthest = np.zeros((model.n_states, model.n_actions))
    who = np.zeros((*farthest.shape, 2), dtype=np.int64)
    for m, n, distance in _distances(model):
        better = distance > farthest
        farthest[better] = distance[better]
        who[better] = m, n
    order = np.argsort(-farthest, axis=None, kind="stable")[:count]
    return [
        Difference(int(s), int(a), (int(who[s, a, 0]), int(who[s, a, 1])), float(farthest[s, a]))
        for s, a in zip(*np.unravel_index(order, farthest.shape))
        if farthest[s, a] > 0.0
    ]


def _distances(model: LatentMDP) -> Iterator[tuple[int, int, Floats]]:
    """Every two contexts with their distances (S, A)."""
    if model.is_table:
        table = model.outcomes
        for m, n in combinations(range(model.n_contexts), 2):
            apart = np.abs(table.probs[:, m] - table.probs[:, n])
            yield m, n, row_sums(table, apart[:, None]).reshape(model.allowed.shape)
        return
    P = model.observation_probs().reshape(model.n_contexts, model.n_states, model.n_actions, -1)
    for m, n in combinations(range(model.n_contexts), 2):
        yield m, n, np.abs(P[m] - P[n]).sum(axis=-1)


def difference_maps(model: LatentMDP) -> dict[str, Floats]:
    """Distances (S, A) by name: of each pair of contexts, or nearest and farthest pair if many."""
    names = _names(model)
    pairs = list(_distances(model))
    if len(pairs) <= _MOST_PAIRS:
        return {f"{names[m]} / {names[n]}": distances for m, n, distances in pairs}
    every = np.stack([distances for _, _, distances in pairs])
    return {"nearest pair": every.min(axis=0), "farthest pair": every.max(axis=0)}


def _differences_figure(model: LatentMDP) -> Figure:
    """The maps side by side, from 0 (clear) to 2 (full colour)."""
    maps = difference_maps(model)
    columns = min(3, len(maps))
    rows = -(-len(maps) // columns)
    height = min(8.0, rows * max(2.0, 0.75 + 0.24 * min(model.n_states, 24)))
    figure, axes = canvas(height, rows, columns)
    S, A, slant = model.n_states, model.n_actions, 0 if model.action_names is None else 60
    places, labels = _ticks(S, model.state_names)
    for k, (panel, (name, distances)) in enumerate(zip(axes, maps.items())):
        colours = np.broadcast_to(_BLUE, (S, A, 4)).copy()
        colours[..., 3] = np.clip(distances / 2.0, 0.0, 1.0)
        panel.imshow(colours, aspect="auto", interpolation="none")
        if S * A <= _MOST_NUMBERS:
            for (s, a), value in np.ndenumerate(distances):
                panel.text(a, s, f"{value:.1f}", ha="center", va="center", fontsize=8.5, color=INK)
        panel.set_xticks(*_ticks(A, model.action_names), rotation=slant, fontsize=9)
        panel.set_yticks(places, labels if k % columns == 0 else [""] * len(places), fontsize=9)
        panel.set(xlabel="action", ylabel="state" if k % columns == 0 else "")
        panel.set_title(name.replace(" / ", "\nvs "), fontsize=9.5)
    for panel in axes[len(maps) :]:
        panel.set_axis_off()
    return figure


def _ticks(size: int, names: tuple[str, ...] | None) -> tuple[list[int], list[str]]:
    places = list(range(0, size, -(-size // _MOST_TICKS)))
    return places, [str(i) if names is None else names[i] for i in places]


def difference_picture(model: LatentMDP, what: str) -> Picture:
    """Maps of the distances between contexts."""
    return Picture(
        "Where the contexts differ",
        _differences_figure(model),
        "L1 distance between two contexts in the distribution of next state and reward, for each "
        "state (row) and action (column): clear means the same (0), full colour means nothing in "
        f"common (2). Strong cells are where acting tells contexts apart. From {what}.",
    )


class Assignment(NamedTuple):
    """How surely episodes belong to their most likely context, and how many to each (M,).

    `share_sure` of them have one with a probability of at least 0.95; the mean probability of the
    most likely one is the `expected_accuracy` of the labels.
    """

    share_sure: float
    expected_accuracy: float
    sizes: Floats


def assignment(responsibilities: Floats, counts: Integers | None = None) -> Assignment:
    """Summary of p(m | episode), shape (N, M), episodes counted with their multiplicities."""
    weights = np.ones(len(responsibilities)) if counts is None else counts.astype(np.float64)
    top = responsibilities.max(axis=1)
    return Assignment(
        float(np.average(top >= 0.95, weights=weights)),
        float(np.average(top, weights=weights)),
        weights @ responsibilities,
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
    """Beliefs (N, H + 1, M) of a filter on `believed`, and the true contexts in its labels."""
    logs = simulate(world, policy, episodes, rng=seed)
    smoothing = min(_SMOOTHING, 0.1 / (believed.n_states * believed.n_rewards))
    along = posterior(believed, logs.without_contexts(), smoothing, along=True)
    standing_for = linear_sum_assignment(world.distances(believed))[1]
    true = np.asarray(standing_for, dtype=np.int64)[np.asarray(logs.contexts)]
    return along.reshape(episodes, -1, believed.n_contexts), true


def _typical_path(
    world: LatentMDP, policy: Policy | HistoryPolicy, believed: LatentMDP, seed: int
) -> BeliefPath:
    """A typical episode of the world, seen through a filter on a model with as many contexts.

    Of 101 episodes it is the one with the median belief in the true context, averaged over steps.
    """
    along, true = _beliefs(world, policy, believed, _CHOICE, seed)
    speed = np.take_along_axis(along, true[:, None, None], axis=2).mean(axis=(1, 2))
    typical = int(np.argsort(speed, kind="stable")[_CHOICE // 2])
    names = _names(world if world.n_contexts == believed.n_contexts else believed)
    return BeliefPath(along[typical], int(true[typical]), names)


def growth(
    world: LatentMDP, policy: Policy | HistoryPolicy, believed: LatentMDP, episodes: int, seed: int
) -> Floats:
    """Belief in the true context after 0, 1, ..., H steps of many episodes, (N, H + 1)."""
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
    axes.plot(*_CORNERS[[0, 1, 2, 0]].T, color=MUTED, linewidth=1.0)
    path = episode.beliefs @ _CORNERS
    axes.plot(*path.T, color=COLOURS[0], linewidth=1.0, alpha=0.6)
    axes.scatter(path[:, 0], path[:, 1], color=COLOURS[0], s=14, zorder=3)
    ends = ((0, COLOURS[1], "before the first"), (-1, COLOURS[2], "after the last"))
    for step, colour, name in ends:
        x, y = path[step]
        axes.scatter(x, y, color=colour, s=60, zorder=4, label=f"{name} step")
    for m, (x, y) in enumerate(_CORNERS):
        above = y > 0.0
        axes.annotate(
            episode.label(m),
            (x, y),
            xytext=(0, 6 if above else -6),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            color=INK,
            fontweight="bold" if m == episode.true else "normal",
        )
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.margins(0.16)
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
