"""Pictures of decisions: which action at which belief, and how a policy without an end moves on.

Beliefs over two contexts are a line, over three a triangle, both coloured by the action that the
policy takes; beyond that, bars show the belief, with a mark where growing sure of a context would
change the action. The policy graph shows which (state, vector) follows which.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from latentmdp._util import Floats, Integers, names
from latentmdp.experiments import write_figure
from latentmdp.model import LatentMDP
from latentmdp.planning import (
    Explanation,
    MixtureExplanation,
    action_rule,
    switches,
)
from latentmdp.policies import AlphaVectorPolicy, Memory, MixturePolicy, Policy, PolicyGraph
from latentmdp.report.page import (
    COLOURS,
    CORNERS,
    INK,
    MUTED,
    Picture,
    canvas,
    context_labels,
    legend,
    triangle,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TINT = 0.45
"""Opacity of the colour of an action: texts and marks on it stay readable in light and dark."""


def plot_explanation(
    explanation: Explanation | MixtureExplanation, path: str | os.PathLike[str]
) -> None:
    """Draw an explanation and write it to a file; the suffix chooses the form (.svg, .png, .pdf).

    The beliefs over two contexts are a line and those over three a triangle, coloured by the
    action taken; for more contexts the belief is shown as bars. Of a mixture the bars are the
    probabilities of the policies that may have been drawn.
    """
    if isinstance(explanation, MixtureExplanation):
        write_figure(_mixture_figure(explanation), path)
    else:
        write_figure(explanation_figure(explanation), path)


def explanation_figure(explanation: Explanation) -> Figure:
    """The line, the triangle or the bars of an explanation."""
    model = explanation.model
    if explanation.uses_belief and model.n_contexts in (2, 3):
        figure, (axes,) = canvas(2.6 if model.n_contexts == 2 else 4.2)
        palette, rule = _Palette(model), action_rule(explanation.policy, model)
        vectors, labels = rule.vectors(explanation.t, explanation.state)
        _belief_map(axes, vectors, labels, context_labels(model), palette)
        _mark(axes, explanation, float((vectors @ explanation.belief).max()))
        palette.legend(figure)
        return figure
    return _bars_figure(explanation)


class _Palette:
    """A colour for every action: by its number, or where they are many by the order of meeting."""

    def __init__(self, model: LatentMDP) -> None:
        self._model, self._colours = model, dict[int, str]()

    def colour(self, action: int) -> str:
        index = action if self._model.n_actions <= len(COLOURS) else len(self._colours)
        return self._colours.setdefault(action, COLOURS[index % len(COLOURS)])

    def legend(self, figure: Figure) -> None:
        from matplotlib.patches import Patch

        handles = [
            Patch(
                color=self._colours[action],
                alpha=_TINT,
                label=names.label("action", action, self._model.action_names),
            )
            for action in sorted(self._colours)
        ]
        legend(figure, handles=handles)


def _belief_map(
    axes: Axes, vectors: Floats, labels: Integers, contexts: Sequence[str], palette: _Palette
) -> None:
    """The simplex of two or three contexts, coloured by action."""
    draw = _line if len(contexts) == 2 else _triangle
    draw(axes, vectors, labels, contexts, palette)


def _line(
    axes: Axes, vectors: Floats, labels: Integers, contexts: Sequence[str], palette: _Palette
) -> None:
    """Beliefs from certainty of the first context to certainty of the second."""
    pieces = switches(vectors, labels, np.array([1.0, 0.0]), 1)
    for (x, action), end in zip(pieces, [*(x for x, _ in pieces[1:]), 1.0]):
        axes.axvspan(x, end, color=palette.colour(action), alpha=_TINT, linewidth=0)
        if x > 0.0:
            axes.axvline(x, color=INK, linewidth=0.8)
    grid = np.linspace(0.0, 1.0, 201)
    beliefs = np.column_stack([1.0 - grid, grid])
    axes.plot(grid, (vectors @ beliefs.T).max(axis=0), color=INK, linewidth=1.2)
    axes.set(xlim=(0.0, 1.0), ylabel="value", xlabel=f"probability of {contexts[1]}")


def _triangle(
    axes: Axes, vectors: Floats, labels: Integers, contexts: Sequence[str], palette: _Palette
) -> None:
    for action, corners in action_regions(vectors, labels):
        points = corners @ CORNERS
        axes.fill(*points.T, color=palette.colour(action), alpha=_TINT, linewidth=0)
    triangle(axes, contexts)


def action_regions(
    vectors: Floats, labels: Integers, subdivisions: int = 40, most: int = 250
) -> Iterator[tuple[int, Floats]]:
    """The triangle of three contexts cut by vectors (n, 3): (action, corners of a piece (k, 3)).

    A piece is where one vector is at least as good as all others: the triangle, cut again and again
    by the rival that is better by most. Vectors that are best at no point of a grid with so many
    `subdivisions` of an edge are left out; where more than `most` remain, the grid is made coarser.
    """
    while True:
        best = np.unique(np.argmax(_grid(subdivisions) @ vectors.T, axis=1))
        if best.size <= most or subdivisions <= 8:
            break
        subdivisions //= 2
    # A vector that is worse by rounding only is as good.
    rivals, slack = vectors[best], 1e-12 * float(np.abs(vectors).max(initial=0.0))
    for k in best.tolist():
        piece, normals = np.eye(3), vectors[k] - rivals
        while len(piece) >= 3:
            lowest = (normals @ piece.T).min(axis=1)
            rival = int(np.argmin(lowest))
            if lowest[rival] >= -slack:
                yield int(labels[k]), piece
                break
            piece = _cut(piece, normals[rival])


def _grid(subdivisions: int) -> Floats:
    """All beliefs over three contexts with entries that are multiples of 1 / subdivisions."""
    i, j = np.meshgrid(np.arange(subdivisions + 1), np.arange(subdivisions + 1))
    inside = i + j <= subdivisions
    first, second = i[inside], j[inside]
    return np.column_stack([first, second, subdivisions - first - second]) / subdivisions


def _cut(piece: Floats, normal: Floats) -> Floats:
    """The part of a convex polygon (k, 3) on which the product with `normal` is not negative."""
    height = piece @ normal
    if (height >= 0.0).all():
        return piece
    corners = []
    for i in range(len(piece)):
        j = (i + 1) % len(piece)
        if height[i] >= 0.0:
            corners.append(piece[i])
        if (height[i] >= 0.0) != (height[j] >= 0.0):
            share = height[i] / (height[i] - height[j])
            corners.append(piece[i] + share * (piece[j] - piece[i]))
    return np.array(corners).reshape(-1, 3)


def _mark(axes: Axes, explanation: Explanation, height: float) -> None:
    """The present belief, worth `height`, and the ways to where the action changes."""
    points = [point.belief for point in explanation.turning_points if point.belief is not None]
    if explanation.model.n_contexts == 2:
        axes.scatter([explanation.belief[1]], [height], color=INK, s=45, zorder=4)
        return
    here = explanation.belief @ CORNERS
    for belief in points:
        x, y = np.array([here, belief @ CORNERS]).T
        axes.plot(x, y, color=INK, linewidth=0.9, linestyle=":", zorder=3)
        axes.scatter(x[1:], y[1:], color=INK, s=14, zorder=4)
    axes.scatter(here[:1], here[1:], color=INK, s=60, zorder=4)


def _bars_figure(explanation: Explanation) -> Figure:
    """Belief in each context, and where growing sure of it would change the action."""
    model, contexts = explanation.model, context_labels(explanation.model)
    actions = [explanation.action] * len(contexts)
    palette, figure, axes = _bars(model, explanation.belief, actions, contexts, "of the context")
    for point in explanation.turning_points:
        if point.belief is not None and point.action is not None:
            share, row = point.belief[point.context], point.context
            axes.plot([share] * 2, [row - 0.35, row + 0.35], color=palette.colour(point.action))
            name = names.label("action", point.action, model.action_names)
            right = share > 0.6
            axes.annotate(
                name,
                (share, row),
                xytext=(-4 if right else 4, 0),
                textcoords="offset points",
                ha="right" if right else "left",
                va="center",
                fontsize=8.5,
                color=INK,
            )
    if explanation.action is not None:
        palette.legend(figure)
    return figure


def _mixture_figure(explanation: MixtureExplanation) -> Figure:
    """With which probability each policy is drawn, coloured by what it does here."""
    actions = [part.action for part in explanation.parts]
    policies = [f"policy {row + 1}" for row in range(len(actions))]
    shares, what = explanation.weights, "of being drawn"
    palette, figure, _ = _bars(explanation.model, shares, actions, policies, what)
    if explanation.action is not None:
        palette.legend(figure)
    return figure


def _bars(
    model: LatentMDP, shares: Floats, actions: Sequence[int | None], rows: Sequence[str], what: str
) -> tuple[_Palette, Figure, Axes]:
    """Probabilities as horizontal bars, each in the colour of an action; grey for none."""
    figure, (axes,) = canvas(1.0 + 0.36 * len(rows))
    palette = _Palette(model)
    colours = [MUTED if action is None else palette.colour(action) for action in actions]
    axes.barh(range(len(rows)), shares, color=colours, alpha=_TINT, height=0.7)
    axes.set_yticks(range(len(rows)), rows, fontsize=9.5)
    axes.invert_yaxis()
    axes.set(xlim=(0.0, 1.0), xlabel=f"probability {what}")
    return palette, figure, axes


def policy_map(model: LatentMDP, policy: Policy, t: int = 0, most: int = 6) -> Picture | None:
    """The belief maps of the first states that have several actions, side by side, `most` of them.

    None unless contexts are two or three, or where no belief changes an action.
    """
    if not isinstance(policy, AlphaVectorPolicy) or policy.model.n_contexts not in (2, 3):
        return None
    ways = [np.unique(policy.actions[slice(*policy.group(t, s))]) for s in range(model.n_states)]
    states = [s for s, actions in enumerate(ways) if actions.size > 1][:most]
    if not states:
        return None
    columns = min(2, len(states))
    rows = -(-len(states) // columns)
    row_height = 1.6 if model.n_contexts == 2 else 2.6
    figure, axes = canvas(row_height * rows + 0.6, len(states), columns)
    palette = _Palette(model)
    for panel, s in zip(axes, states):
        group = slice(*policy.group(t, s))
        contexts = context_labels(policy.model)
        labels = policy.actions[group].astype(np.int64)
        _belief_map(panel, policy.vectors[group], labels, contexts, palette)
        panel.set_title(names.label("state", s, model.state_names), fontsize=9.5)
    palette.legend(figure)
    shape = "line" if model.n_contexts == 2 else "triangle"
    return Picture(
        "What the policy does, by state and belief",
        figure,
        f"Every point of a {shape} is a belief, its ends are certainty of one context, and its "
        "colour is the action that the policy takes there"
        f"{model.duration.step(t)}.",
    )


# ----------------------------------------------------------------------------------- policy graphs


@dataclass(frozen=True, eq=False)
class FollowedGraph:
    """Which node follows which while a policy without an end is followed.

    Node i is the vector `vectors[i]` of the state `states[i]`, which takes `actions[i]`; where
    nodes of the same state and action were merged it is the most visited one. `visits` (n,) are
    discounted shares of all steps, `probabilities` (n, n) those of the next node. Rows sum to less
    than one where an episode may end, or nodes were left out.
    """

    model: LatentMDP
    states: Integers
    actions: Integers
    vectors: Integers
    visits: Floats
    probabilities: Floats
    merged: bool


_Layer = dict[tuple[int, int, bytes], tuple[Any, Memory]]
"""What may be reached in a step: by state, node and belief, the mass of each context (M,)."""


def policy_graph(policy: Policy, most: int = 12) -> FollowedGraph:
    """The nodes that a policy without an end visits most, and how they follow each other.

    Episodes are followed from the start over all observations, the likeliest beliefs of each step.
    Vectors are nodes of their own, or merged by state and action where there are more than `most`.
    """
    if isinstance(policy, MixturePolicy):
        raise ValueError("a mixture is several policy graphs: draw each of policy.parts")
    nodes = policy.nodes if isinstance(policy, PolicyGraph) else policy
    if not isinstance(nodes, AlphaVectorPolicy) or nodes.n_layers > 1:
        raise ValueError(
            "a policy graph is drawn of alpha vectors that serve at all times, as planners find "
            "them for models without a horizon"
        )
    visits, moves = np.zeros(nodes.actions.size), dict[tuple[int, int], float]()
    for vector, mass, following in _followed(policy if isinstance(policy, PolicyGraph) else nodes):
        visits[vector] += mass
        for after, share in following:
            moves[vector, after] = moves.get((vector, after), 0.0) + mass * share
    visited = np.argsort(-visits, kind="stable")[: np.count_nonzero(visits)]
    states = np.searchsorted(nodes.offsets, np.arange(visits.size), side="right") - 1
    merged = visited.size > most
    kinds = states * nodes.model.n_actions + nodes.actions if merged else np.arange(visits.size)
    # The first vector of a kind in the order of visits is its most visited one.
    _, first, node = np.unique(kinds[visited], return_index=True, return_inverse=True)
    weight = np.bincount(node, visits[visited])
    numbers = dict(zip(visited.tolist(), node.tolist()))
    flow = np.zeros((weight.size, weight.size))
    for (vector, after), mass in moves.items():
        if after in numbers:
            flow[numbers[vector], numbers[after]] += mass
    heaviest = np.lexsort((first, -weight))[:most]
    vectors = visited[first[heaviest]]
    return FollowedGraph(
        nodes.model,
        states[vectors],
        nodes.actions[vectors].astype(np.int64),
        vectors,
        weight[heaviest] / weight.sum(),
        flow[np.ix_(heaviest, heaviest)] / weight[heaviest, None],
        merged,
    )


def _followed(
    policy: AlphaVectorPolicy | PolicyGraph, steps: int = 60, beliefs: int = 40, digits: int = 6
) -> Iterator[tuple[int, float, list[tuple[int, float]]]]:
    """(vector, discounted mass, [(next vector, probability)]) of what is visited, step by step.

    Of alpha vectors, beliefs that agree to so many `digits` are one, and the likeliest `beliefs` of
    a step are followed, since a picture shows no more; the nodes of a graph are few, and all are.
    """
    model, table, following = policy.model, policy.model.outcomes, policy.interpreter(policy.model)
    graph = isinstance(policy, PolicyGraph)
    most = None if graph else beliefs
    layer: _Layer = {}

    def add(state: int, memory: Memory, masses: Floats) -> None:
        # A node says all about what follows; without nodes, the belief does.
        belief = b"" if graph else np.round(memory.belief, digits).tobytes()
        key = (state, memory.node, belief)
        before, first = layer.get(key, (0.0, memory))
        layer[key] = (before + masses, first)

    for s in np.flatnonzero(~model.terminal & (model.initial.T @ model.weights > 0.0)).tolist():
        add(s, following.start(s), model.weights * model.initial[:, s])
    for _ in range(model.duration.within(steps)):
        heaviest = sorted(layer.items(), key=lambda item: -float(item[1][0].sum()))[:most]
        layer = {}
        for (s, _, _), (masses, memory) in heaviest:
            total, k = float(masses.sum()), following.vector(0, s, memory)
            action = following.draw(0, s, memory, 0.0)
            begin, end = table.starts[s * model.n_actions + action :][:2].tolist()
            then = []
            for o in range(begin, end):
                n, reached = int(table.next_state[o]), masses * table.probs[o]  # (M,) jointly
                if reached.any() and not model.terminal[n]:
                    after = following.observe(memory, s, action, n, int(table.reward[o]))
                    then.append((following.vector(0, n, after), float(reached.sum()) / total))
                    add(n, after, model.discount * reached)
            yield k, total, then


def graph_figure(graph: FollowedGraph) -> Figure:
    """The graph on a circle: nodes by state and action, arrows as wide as they are likely."""
    from matplotlib.patches import FancyArrowPatch

    figure, (axes,) = canvas(5.2)
    n, palette = graph.states.size, _Palette(graph.model)
    angles = np.pi / 2 - 2.0 * np.pi * np.arange(n) / max(n, 1)
    positions = np.column_stack([np.cos(angles), np.sin(angles)])
    for i, j in zip(*np.nonzero(graph.probabilities >= 0.05)):
        share = float(graph.probabilities[i, j])
        if i != j:
            axes.add_patch(
                FancyArrowPatch(
                    positions[i],
                    positions[j],
                    arrowstyle="-|>",
                    connectionstyle="arc3,rad=0.14",
                    shrinkA=24,
                    shrinkB=24,
                    mutation_scale=9,
                    linewidth=0.5 + 2.5 * share,
                    color=MUTED,
                )
            )
    for i, (x, y) in enumerate(positions):
        state = names.label("state", int(graph.states[i]), graph.model.state_names)
        action = names.label("action", int(graph.actions[i]), graph.model.action_names)
        stays = float(graph.probabilities[i, i])
        text = f"{state}\n{action}" + (f"\nstays {stays:.0%}" if stays >= 0.05 else "")
        axes.scatter(
            [x],
            [y],
            s=500 + 4000 * float(graph.visits[i]),
            color=palette.colour(int(graph.actions[i])),
            alpha=_TINT,
            zorder=3,
        )
        axes.text(x, y, text, ha="center", va="center", fontsize=8.0, color=INK, zorder=4)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.margins(0.22)
    palette.legend(figure)
    return figure


def graph_picture(graph: FollowedGraph) -> Picture:
    """The drawn graph with its caption."""
    node = "a state and an action" if graph.merged else "a state and the vector followed there"
    return Picture(
        "The policy as a graph",
        graph_figure(graph),
        f"A node is {node}, as large as it is often visited; an arrow leads to what follows, as "
        "wide as it is likely. Moves less likely than 5 % are not drawn.",
    )


def plot_policy_graph(policy: Policy, path: str | os.PathLike[str]) -> None:
    """Draw which state and vector follows which, of a policy without an end; write it to a file."""
    write_figure(graph_figure(policy_graph(policy)), path)
