"""The pictures of the documents, each drawn from a computation.

python docs/tools/pictures.py docs/pictures [NAME...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latentmdp import plot
from latentmdp._util.arrays import Floats, Indices
from latentmdp._util.figures import COLOURS, INK, MUTED, canvas, legend
from latentmdp._util.storage import atomic_write
from latentmdp.belief import posterior
from latentmdp.deterministic import Exploration, explore
from latentmdp.instances import make
from latentmdp.metrics import trailing_means
from latentmdp.model import LatentMDP
from latentmdp.online import learn
from latentmdp.planning import HSVI, evaluate
from latentmdp.policies import Policy, UniformPolicy
from latentmdp.simulation import simulate
from latentmdp.theory import connectivity, inference_horizon, revelation

sys.path.append(str(Path(__file__).parent))

from svg import standalone_svg

__all__ = ["PICTURES", "write_pictures"]

BLUE, ORANGE, RED, GREY = COLOURS[0], COLOURS[1], COLOURS[6], MUTED
DELTAS = (0.2, 0.4, 0.8, 1.6)


def _canvas(width: float = 5.5, height: float = 3.6) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _separated(delta: float, horizon: int) -> LatentMDP:
    sizes = {"contexts": 3, "states": 7, "horizon": horizon}
    return make("separated", 0, delta=delta, rewards="shared", **sizes)


def pump() -> LatentMDP:
    """The pump of docs/how-to/costs_to_risk.md: sound, with a worn bearing, or corroded."""
    transitions = np.zeros((3, 3, 3, 3))  # states fine, leaking, broken; run, service, overhaul
    for m, (wear, mends) in enumerate(((0.05, 0.9), (0.3, 0.8), (0.3, 0.1))):
        transitions[m, 0, :2, :2] = [[1 - wear, wear], [1 - wear / 2, wear / 2]]
        transitions[m, 1, 0] = [0.0, 0.7, 0.3]
        transitions[m, 1, 1:, :2] = [[mends, 1 - mends], [0.95, 0.05]]
        transitions[m, 2, 2, 0] = 1.0
    return LatentMDP.from_amounts(
        transitions,
        np.array([[0.0, -1.0, 0.0], [-2.0, -3.0, -8.0], [0.0, 0.0, -25.0]]),
        horizon=24,
        initial=0,
        weights=[0.6, 0.3, 0.1],
        allowed=[[True, True, False], [True, True, True], [False, False, True]],
        state_names=["fine", "leaking", "broken"],
        action_names=["run", "service", "overhaul"],
        context_names=["sound", "worn bearing", "corroded"],
    )


def purpose_figure(months: int = 11, context: int = 2) -> Figure:
    """A pump that is corroded, month by month: what is seen, what is believed, what is done."""
    model = pump()
    policy = HSVI(gap=0.001).plan(model).policy
    states, actions, beliefs = _telling_episode(model, policy, months, context)
    figure, axes = canvas(3.6)
    below = np.zeros(months)
    for m, colour in zip(range(3), (COLOURS[2], COLOURS[1], COLOURS[0])):
        share, name = beliefs[:, m], (model.context_names or ())[m]
        fade = 0.9 if m == context else 0.45
        axes.bar(range(months), share, bottom=below, color=colour, alpha=fade, width=0.86)
        axes.bar(0, 0, color=colour, alpha=fade, label=name + " (the truth)" * (m == context))
        below = below + share
    for t in range(months):
        state, action = (model.state_names or ())[states[t]], (model.action_names or ())[actions[t]]
        bold = "bold" if action == "overhaul" else "normal"
        axes.text(t, 1.03, state, rotation=60, fontsize=8.5, ha="left", va="bottom")
        axes.text(t, -0.04, action, rotation=60, fontsize=8.5, ha="right", va="top", weight=bold)
    axes.set(ylabel="belief that it is", ylim=(0.0, 1.0), xticks=[])
    axes.text(-0.9, 1.12, "seen:", fontsize=9, ha="right", weight="bold")
    axes.text(-0.9, -0.14, "done:", fontsize=9, ha="right", va="top", weight="bold")
    legend(axes, columns=3)
    return figure


def _telling_episode(
    model: LatentMDP, policy: Policy, months: int, context: int
) -> tuple[Indices, Indices, Floats]:
    """The first simulated episode of a context in which the belief changes the decision."""
    logs = simulate(model, policy, 2_000, rng=0)
    beliefs = posterior(model, logs, along=True).reshape(len(logs), -1, model.n_contexts)
    for episode in np.flatnonzero(logs.contexts == context):
        begin = logs.offsets[episode]
        actions = logs.actions[begin : begin + months]
        states = logs.states[begin + episode : begin + episode + months]
        leaks = actions[states == 1]
        if (states < 2).all() and {1, 2} <= set(leaks.tolist()) and leaks.size >= 5:
            return states, actions, beliefs[episode, :months]
    raise AssertionError("no episode of the pump changes its mind")


def learning_figure(episodes: int = 600, seeds: int = 3) -> Figure:
    """Return over episodes of `learn`, from nothing, beside certified bounds of the best policy."""
    model = make("separated", 0, contexts=3, states=6, actions=2, horizon=20, delta=0.6)
    best = HSVI(gap=0.01, time_limit=30.0).plan(model)
    assert best.lower is not None
    assert best.upper is not None
    random = evaluate(model, UniformPolicy()).mean
    figure, axes = canvas(3.2)
    window = episodes // 10
    runs = [learn(model, 3, episodes, rng=seed).returns for seed in range(seeds)]
    ends = np.arange(window // 2, episodes, 5) + 1
    curves = np.stack([trailing_means(returns, ends, window) for returns in runs])
    axes.axhspan(best.lower, best.upper, color=COLOURS[2], alpha=0.6, label="the best, proved")
    axes.axhline(random, color=MUTED, linestyle="--", label="random actions")
    axes.plot(ends, curves.mean(axis=0), color=BLUE, label=f"learned, {seeds} runs")
    axes.fill_between(ends, curves.min(axis=0), curves.max(axis=0), color=BLUE, alpha=0.2)
    axes.set(xlabel="episodes played, contexts never shown", ylabel="mean return")
    legend(axes, columns=3)
    return figure


def bounds_closing_figure(seconds: float = 10.0) -> Figure:
    """The bounds of HSVI closing on a random latent MDP of (M, S, A, H) = (5, 10, 3, 20)."""
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.ones(10), (5, 10, 3))
    means = np.where(rng.random((5, 10, 3)) < 0.2, rng.random((5, 10, 3)), 0.0)
    model = LatentMDP(transitions, means, initial=0, horizon=20)
    plan = HSVI(gap=0.0, time_limit=seconds).plan(model)
    time, lower, upper = zip(*plan.history)
    figure, axes = canvas(3.2)
    axes.step(time, upper, where="post", color=ORANGE, label="no policy earns more than")
    axes.step(time, lower, where="post", color=BLUE, label="the policy earns at least")
    axes.fill_between(time, lower, upper, step="post", color=GREY, alpha=0.2, linewidth=0)
    visible = (0.93 * lower[-1], 1.02 * upper[0])  # the first lower bound is far below
    axes.set(xscale="log", xlabel="seconds", ylabel="value per episode", ylim=visible)
    axes.set_xlim(left=0.02)
    axes.annotate(
        f"{plan.gap:.2%} left",
        (time[-1], 0.5 * (lower[-1] + upper[-1])),
        xytext=(-8, -28),
        textcoords="offset points",
        ha="right",
    )
    legend(axes)
    return figure


def belief_figure() -> Figure:
    """Mean belief in the true context along an episode, for several separations."""
    figure, axes = _canvas()
    for shade, delta in zip((0.25, 0.5, 0.75, 1.0), DELTAS):
        model = _separated(delta, 60)
        logs = simulate(model, UniformPolicy(), 2000, rng=0)
        beliefs = posterior(model, logs, along=True).reshape(len(logs), -1, 3)
        true = beliefs[np.arange(len(logs)), :, logs.contexts].mean(axis=0)
        axes.plot(true, color=BLUE, alpha=shade, label=f"delta = {delta}")
    axes.set(xlabel="step within the episode", ylabel="mean belief in the true context")
    axes.set(title="The further apart the contexts, the sooner one shows", ylim=(0.0, 1.0))
    axes.legend(frameon=False)
    return figure


def external_view_figure(contexts: int = 5, actions: int = 3) -> Figure:
    """Share of episodes afloat after each stage, by wrong sequences and by the right one."""
    model = make("lower-bound", 0, contexts=contexts, actions=actions)
    right = [int(np.argmax(model.transitions[0, t, :, t + 1])) for t in range(contexts - 1)]
    right.append(int(np.argmax(model.mean_rewards()[0, contexts - 1])))
    wrong = np.random.default_rng(0).integers(actions, size=(30, contexts)).tolist()
    figure, axes = _canvas()
    for k, sequence in enumerate(w for w in wrong if w != right):
        label = "wrong sequences, on top of each other" if k == 0 else None
        axes.plot(_afloat(model, sequence), color=GREY, linewidth=4, alpha=0.3, label=label)
    axes.plot(_afloat(model, right), "--", color=BLUE, label="the right one, until its reward")
    axes.set_xticks(range(contexts), ["start", *(f"stage {t}" for t in range(1, contexts))])
    axes.set(ylabel="share of episodes still afloat", ylim=(0.0, 1.05))
    axes.set_title(f"What one sees from outside, M = {contexts}")
    axes.legend(frameon=False)
    return figure


def _afloat(model: LatentMDP, sequence: list[int]) -> list[float]:
    states, shares = [0] * model.n_contexts, [1.0]
    for a in sequence[:-1]:
        states = [int(np.argmax(model.transitions[m, s, a])) for m, s in enumerate(states)]
        shares.append(float(np.mean([s != model.n_states - 1 for s in states])))
    return shares


def action_tree_figure(actions: int = 3, depth: int = 2) -> Figure:
    """One big state of the amplified instance: a tree of states that makes A^depth actions."""
    model = make("lower-bound", 0, contexts=2, actions=actions, variant="amplified", depth=depth)
    figure, axes = _canvas(5.5, 3.0)
    levels = [(level, i) for level in range(depth) for i in range(actions**level)]
    positions = {n: ((i + 0.5) / actions**level, -level) for n, (level, i) in enumerate(levels)}
    leaf = 0
    for s, (x, y) in positions.items():
        for a in range(actions):
            next_state = int(np.argmax(model.transitions[0, s, a]))
            if next_state in positions and next_state > s:
                target = positions[next_state]
            else:
                target = ((leaf + 0.5) / actions**depth, -depth)
                leaf += 1
                axes.text(target[0], -depth - 0.12, str(leaf), ha="center", va="top", fontsize=8)
            axes.plot((x, target[0]), (y, target[1]), color=GREY, linewidth=1, zorder=1)
        axes.scatter(x, y, s=180, color=BLUE, zorder=2)
    axes.set_title(
        f"{len(positions)} states with {actions} actions act like one with {actions**depth}"
    )
    axes.set_ylim(-depth - 0.5, 0.4)
    axes.set_axis_off()
    return figure


def graph_figure() -> Figure:
    """The graph that Algorithm 5 finds on a small deterministic LMDP."""
    model = make("deterministic", 3, contexts=3, states=4, actions=2, horizon=3, variation=0.4)
    exploration = explore(model, 3, rng=0)
    figure, axes = _canvas(6.5, 4.2)
    positions = _layers(exploration)
    for edge in exploration.graph.edges:
        (x, y), (u, v) = positions[edge.source], positions[edge.target]
        if u > x:
            axes.plot((x, u), (y, v), color=GREY, linewidth=0.4 + 1.6 * edge.probability, zorder=1)
    for n, node in enumerate(exploration.graph.nodes):
        colour = (BLUE, ORANGE, RED)[min(2, len(node.observations))]
        axes.scatter(*positions[n], s=150, color=colour, alpha=0.45, zorder=2)
        axes.text(*positions[n], str(node.state), ha="center", va="center", color=INK, fontsize=8)
    for size, colour in enumerate((BLUE, ORANGE, RED)):
        axes.scatter([], [], color=colour, alpha=0.45, label=f"{size} distinguishing observations")
    axes.set(
        xlabel="level (steps from the start)", xticks=range(exploration.horizon + 1), yticks=[]
    )
    axes.set_title(f"Nodes (C, s) found in {exploration.episodes} episodes; numbers are states")
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return figure


def _layers(exploration: Exploration) -> dict[int, tuple[float, float]]:
    levels: dict[int, list[int]] = {}
    for n, node in enumerate(exploration.graph.nodes):
        levels.setdefault(node.level, []).append(n)
    return {
        n: (float(level), (i + 0.5) / len(members))
        for level, members in levels.items()
        for i, n in enumerate(members)
    }


def connectivity_figure() -> Figure:
    """The graph G_m of Assumption 4 for one context: edges of at least alpha_3 connect it."""
    model = make("separated", 1, contexts=3, states=8, actions=2, delta=0.8)
    alpha = float(connectivity(model)[0])
    strongest = model.transitions[0].max(axis=1)
    edges = np.maximum(strongest, strongest.T)
    figure, axes = _canvas(5.0, 5.0)
    angles = np.linspace(0.0, 2.0 * np.pi, len(edges), endpoint=False)
    x, y = np.cos(angles), np.sin(angles)
    for s in range(len(edges)):
        for n in range(s):
            strong = edges[s, n] >= alpha
            colour, fade = (BLUE, 1.0) if strong else (GREY, 0.3)
            width = 4.0 * edges[s, n]
            ends = x[[s, n]], y[[s, n]]
            axes.plot(*ends, color=colour, linewidth=width, alpha=fade, zorder=1)
    axes.scatter(x, y, s=220, color="black", zorder=2)
    for s, position in enumerate(zip(x, y)):
        axes.text(*position, str(s), ha="center", va="center", color="white", fontsize=9)
    axes.set_axis_off()
    axes.set_title(f"Edges of at least alpha_3 = {alpha:.2f} connect G_m")
    return figure


def theory_figure() -> Figure:
    """The horizon that Theorem 3.4 asks for, and the one that is needed, over delta."""
    figure, axes = _canvas()
    required = [inference_horizon(delta, 7, 1e6) for delta in DELTAS]
    measured = [revelation(_separated(delta, 30), episodes=1000, rng=0) for delta in DELTAS]
    half, _, nearly_all = zip(*(each.quantiles for each in measured))
    axes.plot(DELTAS, required, "o-", color=GREY, label="Theorem 3.4 with C = 1")
    axes.plot(DELTAS, nearly_all, "o-", color=ORANGE, label="0.99 posterior in 99% of episodes")
    axes.plot(DELTAS, half, "o-", color=BLUE, label="0.99 posterior in half of them")
    axes.set(xscale="log", yscale="log", xlabel="separation delta", ylabel="steps")
    axes.set_xticks(DELTAS, [str(delta) for delta in DELTAS])
    axes.set_xticks([], minor=True)
    axes.set_title("How long an episode must be to reveal its context")
    axes.legend(frameon=False)
    return figure


def gallery_figure(name: str, kind: str) -> Figure:
    """A picture of the gallery: an instance by its name, drawn by a function of `lm.plot`."""
    model = make(name)
    if kind == "groups":
        return plot.groups(model).figure
    plan = HSVI(gap=0.02, time_limit=30.0).plan(model)
    if kind == "policy":
        return plot.policy(plan).figure
    return plot.graph(model, plan.policy).figure


GALLERY = {
    "graph": ("treatment", "visitor", "wait-hub", "river-swim", "rock-sample", "cue"),
    "policy": ("treatment", "wait-hub"),
    "groups": ("visitor",),
}

PICTURES: dict[str, Callable[[], Figure]] = {
    **{
        f"gallery-{name}-{kind}": partial(gallery_figure, name, kind)
        for kind, names in GALLERY.items()
        for name in names
    },
    "purpose": purpose_figure,
    "learning": learning_figure,
    "bounds": bounds_closing_figure,
    "belief": belief_figure,
    "external_view": external_view_figure,
    "action_tree": action_tree_figure,
    "graph": graph_figure,
    "connectivity": connectivity_figure,
    "theory": theory_figure,
}
"""Name of the file to the function that draws it."""


def write_pictures(folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Draw these pictures, or every one, into a folder, as SVG for light and dark pages."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {folder / f"{name}.svg": PICTURES[name] for name in names or PICTURES}
    for path, draw in paths.items():
        with atomic_write(path) as stream:
            stream.write(standalone_svg(draw(), path.stem).encode())
    return list(paths)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")
    for path in write_pictures(target, sys.argv[2:]):
        print(path)
