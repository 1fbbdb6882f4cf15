"""The hidden contexts in pictures: where they differ, and how the belief finds the true one.

Two contexts differ at (s, a) by ||P_m(. | s, a) - P_n(. | s, a)||_1, the L1 distance of next state
and reward, at most 2. The belief b(m) along an episode is that of a filter.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from latentmdp._util.arrays import Floats, Integers
from latentmdp.belief import posterior
from latentmdp.model import LatentMDP
from latentmdp.policies import HistoryPolicy, Policy
from latentmdp.report.page import COLOURS, INK, MUTED, Picture, canvas, legend
from latentmdp.simulation import simulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
    if model.context_names is not None:
        return list(model.context_names)
    return [f"context {m}" for m in range(model.n_contexts)]


class Difference(NamedTuple):
    """A state and action at which two contexts differ: ||P_m - P_n||_1 of what follows."""

    state: int
    action: int
    contexts: tuple[int, int]
    distance: float


def largest_differences(model: LatentMDP, count: int = 5) -> list[Difference]:
    """The state-action pairs that separate some two contexts most, farthest first."""
    M, S, A = model.n_contexts, model.n_states, model.n_actions
    P = model.observation_probs().reshape(M, S * A, -1)
    farthest = np.zeros(S * A)
    who = np.zeros((S * A, 2), dtype=np.int64)
    for m in range(M):
        for n in range(m + 1, M):
            distance = np.abs(P[m] - P[n]).sum(axis=1)
            better = distance > farthest
            farthest[better] = distance[better]
            who[better] = m, n
    order = np.argsort(-farthest, kind="stable")[:count]
    return [
        Difference(int(k) // A, int(k) % A, (int(who[k, 0]), int(who[k, 1])), float(farthest[k]))
        for k in order
        if farthest[k] > 0.0
    ]


def difference_maps(model: LatentMDP) -> dict[str, Floats]:
    """Distances (S, A) by name: of each pair of contexts, or nearest and farthest pair if many."""
    P = model.observation_probs()
    names = _names(model)
    pairs = list(combinations(range(model.n_contexts), 2))
    if len(pairs) <= _MOST_PAIRS:
        return {
            f"{names[m]} / {names[n]}": np.abs(P[m] - P[n]).sum(axis=(-2, -1)) for m, n in pairs
        }
    nearest = np.full((model.n_states, model.n_actions), np.inf)
    farthest = np.zeros_like(nearest)
    for m, n in pairs:
        distance = np.abs(P[m] - P[n]).sum(axis=(-2, -1))
        np.minimum(nearest, distance, out=nearest)
        np.maximum(farthest, distance, out=farthest)
    return {"nearest pair": nearest, "farthest pair": farthest}


def _differences_figure(model: LatentMDP) -> Figure:
    """The maps side by side, from 0 (clear) to 2 (full colour)."""
    maps = difference_maps(model)
    columns = min(3, len(maps))
    rows = -(-len(maps) // columns)
    height = min(8.0, rows * max(2.0, 0.75 + 0.24 * min(model.n_states, 24)))
    figure, axes = canvas(height, rows, columns)
    for k, (panel, (name, distances)) in enumerate(zip(axes, maps.items())):
        _draw(panel, distances, model, first_column=k % columns == 0)
        panel.set_title(name.replace(" / ", "\nvs "), fontsize=9.5)
    for panel in axes[len(maps) :]:
        panel.set_axis_off()
    return figure


def _draw(axes: Axes, distances: Floats, model: LatentMDP, first_column: bool) -> None:
    colours = np.broadcast_to(_BLUE, (*distances.shape, 4)).copy()
    colours[..., 3] = np.clip(distances / 2.0, 0.0, 1.0)
    axes.imshow(colours, aspect="auto", interpolation="none")
    S, A = distances.shape
    if S * A <= _MOST_NUMBERS:
        for (s, a), value in np.ndenumerate(distances):
            axes.text(a, s, f"{value:.1f}", ha="center", va="center", fontsize=8.5, color=INK)
    _ticks(axes, "x", A, model.action_names)
    _ticks(axes, "y", S, model.state_names if first_column else None, shown=first_column)
    axes.set_xlabel("action")
    if first_column:
        axes.set_ylabel("state")


def _ticks(
    axes: Axes, which: str, size: int, names: tuple[str, ...] | None, shown: bool = True
) -> None:
    every = -(-size // _MOST_TICKS)
    places = list(range(0, size, every))
    labels = [(names[i] if names is not None else str(i)) if shown else "" for i in places]
    set_ticks = axes.set_xticks if which == "x" else axes.set_yticks
    slanted = which == "x" and names is not None
    set_ticks(places, labels, rotation=60 if slanted else 0, fontsize=9)


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
    """How surely episodes belong to their most likely context.

    Attributes
    ----------
    share_sure
        Share of episodes whose most likely context has a probability of at least 0.95.
    expected_accuracy
        Mean probability of the most likely context.
    sizes
        Expected number of episodes in each context.
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
    """Beliefs (T + 1, M) along one episode, and which context was the true one."""

    beliefs: Floats
    true: int


def belief_pictures(
    world: LatentMDP, policy: Policy | HistoryPolicy, believed: LatentMDP, seed: int = 0
) -> list[Picture]:
    """Bars, and a path in the triangle for three contexts, over one episode."""
    episode = _typical_path(world, policy, believed, seed)
    names = _names(world if world.n_contexts == believed.n_contexts else believed)
    true = names[episode.true]
    pictures = [
        Picture(
            "Belief along one episode",
            _bars_figure(episode, names),
            "The median of 101 episodes by how fast the truth shows. Each bar divides one unit "
            "of probability among the contexts; the strong colour at the bottom is the true one, "
            f"{true}, which the agent is never told. It ends at "
            f"{episode.beliefs[-1, episode.true]:.2f}, from {episode.beliefs[0, episode.true]:.2f}"
            " before the first step.",
        )
    ]
    if believed.n_contexts == 3:
        pictures.append(
            Picture(
                "The same belief in the triangle",
                _simplex_figure(episode, names),
                "A corner means certainty of one context, the centre ignorance. The dots are the "
                f"steps of the episode; they should walk to the corner of {true}.",
            )
        )
    return pictures


def _smoothing(model: LatentMDP) -> float:
    return min(_SMOOTHING, 0.1 / (model.n_states * model.n_rewards))


def _matching(world: LatentMDP, believed: LatentMDP) -> Integers:
    """Which context of `believed` stands for each of the world's."""
    return np.asarray(linear_sum_assignment(world.distances(believed))[1], dtype=np.int64)


def _beliefs(
    world: LatentMDP,
    policy: Policy | HistoryPolicy,
    believed: LatentMDP,
    episodes: int,
    seed: int,
) -> tuple[Floats, Integers]:
    """Beliefs (N, H + 1, M) of a filter on `believed`, and the true contexts in its labels."""
    logs = simulate(world, policy, episodes, rng=seed)
    along = posterior(believed, logs.without_contexts(), _smoothing(believed), along=True)
    true = _matching(world, believed)[np.asarray(logs.contexts)]
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
    return BeliefPath(along[typical], int(true[typical]))


def growth(
    world: LatentMDP,
    policy: Policy | HistoryPolicy,
    believed: LatentMDP,
    episodes: int,
    seed: int,
) -> Floats:
    """Belief in the true context after 0, 1, ..., H steps of many episodes, (N, H + 1)."""
    along, true = _beliefs(world, policy, believed, episodes, seed)
    return np.asarray(np.take_along_axis(along, true[:, None, None], axis=2)[..., 0])


def _bars_figure(episode: BeliefPath, names: list[str]) -> Figure:
    """One bar per step, divided among the contexts by their probabilities."""
    figure, (axes,) = canvas()
    steps = np.arange(len(episode.beliefs))
    order = [episode.true, *(m for m in range(len(names)) if m != episode.true)]
    below = np.zeros(len(steps))
    for rank, m in enumerate(order):
        share = episode.beliefs[:, m]
        label = f"{names[m]} (true)" if m == episode.true else names[m]
        fade = 1.0 if m == episode.true else 0.45
        colour = COLOURS[rank % len(COLOURS)]
        axes.bar(steps, share, bottom=below, width=0.86, color=colour, alpha=fade, label=label)
        below = below + share
    axes.set_xlabel("steps taken in the episode")
    axes.set_ylabel("probability")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylim(0.0, 1.0)
    legend(figure, columns=2 if len(names) < 7 else 3)
    return figure


def _simplex_figure(episode: BeliefPath, names: list[str]) -> Figure:
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
        name = f"{names[m]} (true)" if m == episode.true else names[m]
        above = y > 0.0
        axes.annotate(
            name,
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
    axes.set_xlabel("steps taken in the episode")
    axes.set_ylabel("belief in the true context")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylim(0.0, 1.02)
    legend(figure, columns=1)
    return figure
