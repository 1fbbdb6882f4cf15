"""What is believed about the hidden context along an episode."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from latentmdp._util.arrays import Floats
from latentmdp.belief import posterior
from latentmdp.model import LatentMDP
from latentmdp.policies import Policy
from latentmdp.report.drawing import COLOURS, INK, MUTED, canvas, legend
from latentmdp.simulation import simulate

__all__ = ["Episode", "bars_figure", "context_names", "growth", "growth_figure", "play_episode"]
__all__ += ["simplex_figure"]


_SMOOTHING = 1e-4
_CHOICE = 101
_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])


class Episode(NamedTuple):
    """Beliefs (T + 1, M) along one episode, and which context was the true one."""

    beliefs: Floats
    true: int


def context_names(model: LatentMDP) -> list[str]:
    """The names of the contexts, or their numbers."""
    if model.context_names is not None:
        return list(model.context_names)
    return [f"context {m}" for m in range(model.n_contexts)]


def _smoothing(model: LatentMDP) -> float:
    return min(_SMOOTHING, 0.1 / (model.n_states * model.n_rewards))


def _matching(world: LatentMDP, believed: LatentMDP) -> NDArray[np.int64]:
    """Which context of `believed` stands for each of the world's."""
    return np.asarray(linear_sum_assignment(world.distances(believed))[1], dtype=np.int64)


def _beliefs(
    world: LatentMDP, policy: Policy, believed: LatentMDP, episodes: int, seed: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Beliefs (N, H + 1, M) of a filter on `believed`, and the true contexts in its labels."""
    logs = simulate(world, policy, episodes, rng=seed)
    along = posterior(believed, logs.without_contexts(), _smoothing(believed), along=True)
    true = _matching(world, believed)[np.asarray(logs.contexts)]
    return along.reshape(episodes, -1, believed.n_contexts), true


def play_episode(world: LatentMDP, policy: Policy, believed: LatentMDP, seed: int) -> Episode:
    """A typical episode of the world, seen through a filter on a model with as many contexts.

    Of 101 episodes it is the one with the median belief in the true context, averaged over steps.
    """
    along, true = _beliefs(world, policy, believed, _CHOICE, seed)
    speed = np.take_along_axis(along, true[:, None, None], axis=2).mean(axis=(1, 2))
    typical = int(np.argsort(speed, kind="stable")[_CHOICE // 2])
    return Episode(along[typical], int(true[typical]))


def growth(
    world: LatentMDP, policy: Policy, believed: LatentMDP, episodes: int, seed: int
) -> Floats:
    """Belief in the true context after 0, 1, ..., H steps of many episodes, (N, H + 1)."""
    along, true = _beliefs(world, policy, believed, episodes, seed)
    return np.asarray(np.take_along_axis(along, true[:, None, None], axis=2)[..., 0])


def bars_figure(episode: Episode, names: list[str]) -> Figure:
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


def simplex_figure(episode: Episode, names: list[str]) -> Figure:
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
