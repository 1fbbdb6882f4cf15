"""Where contexts differ: maps of ||P_m(. | s, a) - P_n(. | s, a)||_1 over states and actions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP
from latentmdp.report.beliefs import context_names
from latentmdp.report.drawing import INK, canvas

__all__ = ["difference_maps", "differences_figure"]


_MOST_PAIRS = 6
_MOST_NUMBERS = 30
_MOST_TICKS = 16
# Half-transparent over the page, this blue reads on light paper and on dark.
_BLUE = (*to_rgb("#2f88cc"), 1.0)


def difference_maps(model: LatentMDP) -> dict[str, Floats]:
    """Distances (S, A) by name: of each pair of contexts, or nearest and farthest pair if many."""
    P = model.observation_probs()
    names = context_names(model)
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


def differences_figure(model: LatentMDP) -> Figure:
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
