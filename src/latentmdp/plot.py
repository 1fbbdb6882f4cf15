"""Pictures of models, plans, runs, fits and sessions: one matplotlib function each.

    ax = lm.plot.bounds(plan)
    ax.figure.savefig("bounds.svg")

Every function takes `ax=`, the axes to draw on, and returns the axes; none writes a file. Without
`ax` a picture has a figure of its own: one that pyplot knows in an interactive session, such as a
notebook, which shows it, and a plain one in a script, where nothing has to be closed.

Contexts, states and actions beyond what a picture can hold are left out, the least important ones
first, and the picture says so. Reports, documents and commands (`--plot`) draw with the same
functions. Their colours differ for colour-blind readers too, and a page replaces them by its own
for light and dark screens (`report/page.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays, names
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.figures import COLOURS, INK, MUTED, band, legend, own_axes
from latentmdp._util.words import plural
from latentmdp.fit import Fit
from latentmdp.metrics import last_tenth, trailing_means
from latentmdp.model import LatentMDP, require_model
from latentmdp.offline import LoggedEstimate, OffPolicyValue, Solved
from latentmdp.online import Run
from latentmdp.planning import Explanation, Plan, action_rule, belief_at, checked_time
from latentmdp.policies import MarkovPolicy, MixturePolicy, Policy, UniformPolicy
from latentmdp.sessions import Session
from latentmdp.simulation import simulate
from latentmdp.theory import telling_outcomes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "agreement",
    "beliefs",
    "bounds",
    "estimates",
    "graph",
    "groups",
    "model_errors",
    "picture",
    "policy",
    "regret",
    "returns",
]

_DASHES = ("--", ":", "-.", (0, (1, 3)))
_TINT = 0.45
"""Opacity of the colour of an action: texts and marks on it stay readable in light and dark."""


# ------------------------------------------------------------------------------ pictures of results


def picture(result: Any, ax: Axes | None = None) -> Axes:
    """The picture that says most about a result: what `--plot` draws.

    Parameters
    ----------
    result
        A plan or plans by name (`bounds`), a run (`returns`), a fit (`groups`), what `solve` found
        (`estimates`), an estimate from logs (`agreement`), a model (`graph`), a session
        (`beliefs`), or an explanation or a policy (`policy`).
    """
    for kind, draw in _PICTURES.items():
        if isinstance(result, kind):
            return draw(result, ax=ax)
    kinds = ", ".join(sorted({one.__name__ for one in _PICTURES}))
    raise TypeError(f"there is no picture of a {type(result).__name__}, only of: {kinds}")


def beliefs(
    session: Session | ArrayLike,
    ax: Axes | None = None,
    *,
    context_names: Sequence[str] | None = None,
    true: int | None = None,
) -> Axes:
    """The belief over time: a bar for each step, divided among the contexts.

    Parameters
    ----------
    session
        A session, or beliefs (T + 1, M) along an episode, as `posterior(..., along=True)` gives.
    context_names
        What the contexts are called; a session knows.
    true
        The true context, where it is known: it is drawn at the bottom, and stronger.
    """
    if isinstance(session, Session):
        context_names = getattr(session.policy, "model", session.model).context_names
        path = session.beliefs
    else:
        path = arrays.as_floats("session", session)
    if path.ndim != 2 or not path.size:
        raise ValueError(f"session must be a Session or beliefs (T + 1, M), got shape {path.shape}")
    axes = own_axes(ax)
    steps, below, most = np.arange(len(path)), np.zeros(len(path)), len(COLOURS)
    largest = np.argsort(-path.max(axis=0), kind="stable")[:most].tolist()
    order = sorted(
        largest if true is None else {true, *largest[: most - 1]}, key=lambda m: m != true
    )
    for rank, m in enumerate(order):
        label = names.label("context", m, context_names) + (" (true)" if m == true else "")
        style: Any = {"color": COLOURS[rank], "alpha": 1.0 if m == true else 0.55, "linewidth": 0}
        axes.bar(steps, path[:, m], 0.86, below, label=label, **style)
        below = below + path[:, m]
    if path.shape[1] > len(order):
        rest = f"{path.shape[1] - len(order)} others"
        axes.bar(steps, np.maximum(1.0 - below, 0.0), 0.86, below, color=MUTED, label=rest)
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="steps taken in the episode", ylabel="probability", ylim=(0.0, 1.0))
    legend(axes, columns=2 if len(order) < 7 else 3)
    return axes


def bounds(plan: Plan | Mapping[str, Plan], ax: Axes | None = None) -> Axes:
    """How the bounds of a plan closed over time: lower solid, upper broken, between them the gap.

    Parameters
    ----------
    plan
        A plan, or several by name. The scale is that of their last bounds, since the first may be
        far away; time is logarithmic where one takes a hundred times as long as another.

    Raises
    ------
    ValueError
        If no plan has a bound.
    """
    plans = plan if isinstance(plan, Mapping) else {"": plan}
    histories = {name: _history(one) for name, one in plans.items()}
    if not any(np.isfinite(history[:, 1:]).any() for history in histories.values()):
        raise ValueError("there is no bound to draw: this planner proves none")
    axes = own_axes(ax)
    for i, (name, history) in enumerate(histories.items()):
        (seconds, lower, upper), colour = history.T, COLOURS[i % len(COLOURS)]
        style: Any = {"where": "post", "marker": ".", "color": colour}
        about = f"{name}: " if name else ""
        axes.step(seconds, upper, linestyle="--", label=f"{about}no policy earns more", **style)
        axes.step(seconds, lower, label=f"{about}this policy earns at least", **style)
        axes.fill_between(seconds, lower, upper, color=colour, alpha=0.15, step="post", linewidth=0)
    every = np.concatenate(list(histories.values()))
    if every[:, 0].max() > 100.0 * every[:, 0].min():
        axes.set_xscale("log")
    last = np.concatenate([history[-1, 1:] for history in histories.values()])
    low, high = float(np.nanmin(last)), float(np.nanmax(last))
    room = 0.6 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set(xlabel="seconds", ylabel="value per episode", ylim=(low - room, high + room))
    legend(axes)
    return axes


def _history(plan: Plan) -> Floats:
    """(seconds, lower, upper) along the work of a planner, (n, 3); NaN for a bound it has not."""
    last = (plan.seconds, plan.lower, plan.upper)
    rows = np.array(plan.history or [last], dtype=np.float64)
    rows[~np.isfinite(rows)] = np.nan
    rows[:, 0] = np.maximum(rows[:, 0], 1e-3)  # where a logarithmic axis begins
    return rows


Runs = Run | Sequence[Run] | Mapping[str, Run | Sequence[Run]]


def returns(
    run: Runs, ax: Axes | None = None, *, references: Mapping[str, float] | None = None
) -> Axes:
    """What was earned over the episodes of a run: each point is the mean of a tenth before it.

    Parameters
    ----------
    run
        A run; several, drawn as their mean with a band of one standard deviation; or such groups
        by name.
    references
        Values to compare with, by name, as horizontal lines.
    """
    axes = own_axes(ax)
    for colour, name, members in _grouped(run):
        episodes = min(one.n_episodes for one in members)
        window = last_tenth(episodes)
        # The first few means are of hardly any episodes: noise that would set the scale.
        # 400 points are about one a pixel, so that a page stays small.
        ends = np.unique(np.linspace(window // 2, episodes - 1, 400).astype(int)) + 1
        curves = np.stack([trailing_means(one.returns, ends, window) for one in members])
        band(axes, ends, curves, colour, name)
    for (name, value), dash in zip((references or {}).items(), _DASHES):
        axes.axhline(value, color=MUTED, linestyle=dash, linewidth=1.4, label=name)
    axes.locator_params(axis="x", nbins=6)
    axes.set(xlabel="episodes played", ylabel="mean return per episode")
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    legend(axes)
    return axes


def model_errors(run: Runs, ax: Axes | None = None) -> Axes:
    """How far the learned model was from the true one, where that was known, over episodes.

    Takes what `returns` takes. Runs whose errors are all unknown are left out.
    """
    axes = own_axes(ax)
    for colour, name, members in _grouped(run):
        points = min((one.error_curve.episodes for one in members), key=len)
        errors = np.stack([one.error_curve.values[: len(points)] for one in members])
        finite = np.isfinite(errors).any(axis=0) & (points > 0)
        if finite.any():
            band(axes, points[finite], errors[:, finite], colour, name, marker=".")
    low, high = axes.dataLim.intervalx
    if 0.0 < 100.0 * low < high < np.inf:
        axes.set_xscale("log")
    axes.set(xlabel="episodes played", ylabel="model error (sum of L1 distances)")
    axes.set_ylim(bottom=0.0)
    legend(axes)
    return axes


def regret(run: Runs, reference: Plan, ax: Axes | None = None) -> Axes:
    """Cumulative regret against a plan of the true model, between its two bounds on the optimum.

    Takes what `returns` takes; `reference` is that of `Run.regret`. A band is what is not known of
    the optimum, from the smallest to the largest of several runs.
    """
    axes = own_axes(ax)
    for colour, name, members in _grouped(run):
        found = [one.regret(reference) for one in members]
        episodes = min(one.n_episodes for one in members)
        at = np.unique(np.linspace(0, episodes - 1, 400).astype(int))
        high = np.stack([one.upper[at] for one in found])
        low = np.stack([(one.upper if one.lower is None else one.lower)[at] for one in found])
        band(axes, at + 1, high, colour, name, spread=(low.min(axis=0), high.max(axis=0)))
    axes.locator_params(axis="x", nbins=6)
    axes.set(xlabel="episodes played", ylabel="cumulative regret, at most")
    legend(axes)
    return axes


def groups(fit: Any, ax: Axes | None = None, *, most: int = 12) -> Axes:
    """How the groups that a fit found differ: the probabilities of what tells them apart best.

    A row is a first state, or what follows a state and an action, with one dot for each context.
    The rows are those where two contexts differ most, one for each state and action.

    Parameters
    ----------
    fit
        A fit, a run, what `solve` found, or a model.
    most
        Rows to draw.
    """
    model: Any = fit if isinstance(fit, LatentMDP) else getattr(fit, "model", None)
    require_model(model)
    rows = telling_outcomes(model, most)
    axes = own_axes(ax, 1.4 + 0.34 * len(rows))
    shares = np.array([probabilities for _, probabilities in rows])  # (rows, M)
    heaviest = np.argsort(-model.weights, kind="stable").tolist()
    for rank, m in enumerate(heaviest):
        style: Any = {"color": MUTED, "s": 16, "zorder": 2}
        if rank < len(COLOURS):
            label = names.label("context", m, model.context_names) + f" ({model.weights[m]:.0%})"
            style = {"color": COLOURS[rank], "label": label, "s": 42, "zorder": 3}
        axes.scatter(shares[:, m], range(len(rows)), alpha=0.85, **style)
    axes.hlines(range(len(rows)), shares.min(axis=1), shares.max(axis=1), color=MUTED, linewidth=1)
    axes.set_yticks(range(len(rows)), [text for text, _ in rows], fontsize=9)
    axes.invert_yaxis()
    others = model.n_contexts - len(COLOURS)
    beside = f" (grey: {plural(others, 'other')})" if others > 0 else ""
    axes.set(xlim=(-0.03, 1.03), xlabel=f"probability in each context{beside}")
    legend(axes)
    return axes


def agreement(estimate: Any, ax: Axes | None = None) -> Axes:
    """How many logged episodes still agree with a policy, step by step: how far the logs reach.

    Parameters
    ----------
    estimate
        An estimate from logs (`off_policy_value`), or what `solve` found.
    """
    from matplotlib.ticker import LogFormatter, MaxNLocator

    sizes = (estimate.logged if isinstance(estimate, Solved) else estimate).effective_size
    axes = own_axes(ax, 2.8)
    axes.plot(range(1, sizes.size + 1), sizes, color=COLOURS[0], marker="o")
    if (sizes > 0.0).any():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="steps of the episode", ylabel="effective episodes")
    return axes


def estimates(solved: Solved, ax: Axes | None = None, *, true: float | None = None) -> Axes:
    """What a policy found in logs will earn, by the model and without it, with intervals.

    Parameters
    ----------
    true
        What it earns in truth, where that is known.
    """
    axes, logged = own_axes(ax, 2.6), solved.logged
    rows: list[tuple[str, float, float, float]] = [("whole episode", *solved.value)]
    if logged.steps:
        first, by_model = f"first {plural(logged.steps, 'step')},\n", solved.model_first_steps
        wide = 2.0 * logged.stderr  # about 95 %, as for the interval beside it
        rows.append((f"{first}by the model", by_model, by_model, by_model))
        rows.append((f"{first}from the logs", logged.mean, logged.mean - wide, logged.mean + wide))
    for i, (_, mean, low, high) in enumerate(rows):
        colour = COLOURS[i % len(COLOURS)]
        axes.errorbar(mean, i, xerr=[[mean - low], [high - mean]], fmt="o", color=colour)
    if true is not None:
        label = "whole episode, in the true model"
        axes.axvline(true, color=INK, linestyle="--", linewidth=1.2, label=label)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.set(ylim=(-0.5, len(rows) - 0.5), xlabel="sum of rewards per episode")
    legend(axes)
    return axes


# ---------------------------------------------------------------- pictures of models and policies


def graph(
    model: LatentMDP,
    policy: Policy | None = None,
    ax: Axes | None = None,
    *,
    most: int = 12,
    episodes: int = 500,
) -> Axes:
    """Which state follows which: arrows as wide as moves are likely, nodes as large as visited.

    Parameters
    ----------
    policy
        What acts; nodes are then states with the action taken there. By default all actions are
        equally likely, and nodes are states.
    most
        Nodes to draw: the most visited ones.
    episodes
        How many are simulated, of 200 steps at most.
    """
    from matplotlib.patches import FancyArrowPatch

    require_model(model)
    chance = UniformPolicy() if policy is None else policy
    logs = simulate(model, chance, episodes, rng=0, horizon=model.duration.within(200))
    node, visits, moves = _visits(logs, model, with_actions=policy is not None)
    shown = np.argsort(-visits, kind="stable")[:most]
    flow = moves[np.ix_(shown, shown)] / np.maximum(moves[shown].sum(axis=1, keepdims=True), 1)
    shares, taken = visits[shown] / visits.sum(), (node[shown] % (model.n_actions + 1)).tolist()
    colours = _action_colours(model, (a for a in taken if a < model.n_actions))
    angles = np.pi / 2 - 2.0 * np.pi * np.arange(shown.size) / max(shown.size, 1)
    positions = np.column_stack([np.cos(angles), np.sin(angles)])
    axes = own_axes(ax, 5.2)
    # A name may be wider than its node, and an arrow pass below it.
    style: Any = {"arrowstyle": "-|>", "mutation_scale": 9, "color": MUTED, "alpha": 0.6}
    style |= {"connectionstyle": "arc3,rad=0.14", "shrinkA": 24, "shrinkB": 24}
    for i, j in zip(*np.nonzero((flow >= 0.05) & ~np.eye(shown.size, dtype=bool))):
        width = 0.5 + 2.5 * float(flow[i, j])
        axes.add_patch(FancyArrowPatch(positions[i], positions[j], linewidth=width, **style))
    for i, (x, y) in enumerate(positions):
        s, a = int(node[shown[i]]) // (model.n_actions + 1), taken[i]
        text = names.label("state", s, model.state_names)
        text += f"\n{_action(model, a)}" if a < model.n_actions else ""
        text += f"\nstays {flow[i, i]:.0%}" if flow[i, i] >= 0.05 else ""
        size = 500 + 4000 * float(shares[i])
        axes.scatter([x], [y], s=size, color=colours.get(a, COLOURS[0]), alpha=_TINT, zorder=3)
        axes.text(x, y, text, ha="center", va="center", fontsize=8.0, color=INK, zorder=4)
    if node.size > shown.size:
        left_out = f"{node.size - shown.size} nodes with {1 - shares.sum():.0%} of visits not drawn"
        axes.set_title(left_out, fontsize=9)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.margins(0.22)
    _action_legend(axes, model, colours)
    return axes


def _visits(logs: Any, model: LatentMDP, with_actions: bool) -> tuple[Integers, Integers, Any]:
    """Nodes s (A + 1) + a, how often each was visited, and moves (n, n) from node to node.

    The action is A where it does not count, and in the last state of an episode.
    """
    A, steps = model.n_actions, logs.actions.size
    begins = logs.offsets + np.arange(len(logs) + 1)  # of the states of each episode
    actions = np.full(logs.states.size, A, dtype=np.int64)
    last = np.zeros(logs.states.size, dtype=bool)
    last[begins[1:] - 1] = True
    if with_actions:
        actions[~last] = logs.actions
    node, at = np.unique(logs.states.astype(np.int64) * (A + 1) + actions, return_inverse=True)
    # The last state counts where it ended the episode: elsewhere its action is not known.
    counted = ~last | model.terminal[logs.states] | ~np.array(with_actions)
    moves = np.zeros((node.size, node.size), dtype=np.int64)
    going = np.flatnonzero(~last)[:steps]
    np.add.at(moves, (at[going], at[going + 1]), 1)
    return node, np.bincount(at[counted], minlength=node.size), moves


def policy(
    plan: Any,
    state: int | str | None = None,
    belief: ArrayLike | Mapping[str, float] | None = None,
    t: int = 0,
    ax: Axes | None = None,
    *,
    most: int = 12,
) -> Axes:
    """Which action a policy takes at which belief: a bar for each context, coloured by action.

    A bar leads from the belief to certainty of its context, the others keeping their proportions:
    where the colour changes, the action does. A policy that looks at time and state only and comes
    without a model is drawn as states by time.

    Parameters
    ----------
    plan
        A plan, a policy, an explanation, a run or what `solve` found. Of a mixture the likeliest
        policy is drawn.
    state
        By its index or name; by default the likeliest first one.
    belief
        Where the bars begin; by default what is believed when an episode begins in the state.
    t
        Time in the episode, from 0.
    most
        Contexts to draw: those with the largest probabilities.
    """
    acting, model = getattr(plan, "policy", plan), getattr(plan, "model", None)
    if isinstance(plan, Explanation):
        state, belief, t = plan.state, plan.belief, plan.t
    if isinstance(acting, MixturePolicy):
        acting = acting.parts[int(np.argmax(acting.weights))]
    model = getattr(acting, "model", None) if model is None else model
    if model is None and isinstance(acting, MarkovPolicy):
        return _schedule(acting, own_axes(ax))
    if model is None:
        raise TypeError(f"a {type(acting).__name__} has neither a model nor a table to draw")
    rule, t = action_rule(acting, model), checked_time(t, model)
    if state is None:
        likely = (model.weights @ model.initial) * ~model.terminal
        state = int(np.argmax(likely))
    s = names.to_index("state", state, model.state_names, model.n_states)
    b = belief_at(model, belief, rule.start(s))
    ways = [] if model.terminal[s] else rule.ways(t, s, b)
    shown = np.sort(np.argsort(-b, kind="stable")[:most]).tolist()
    axes = own_axes(ax, 1.2 + 0.36 * len(shown))
    drawn = [ways[m] if ways else [] for m in shown]
    colours = _action_colours(model, (action for way in drawn for _, action in way))
    for row, (m, way) in enumerate(zip(shown, drawn)):
        for (begin, action), (end, _) in zip(way, [*way[1:], (1.0, 0)]):
            style: Any = {"color": colours[action], "alpha": _TINT, "linewidth": 0}
            axes.barh(row, end - begin, 0.7, begin, **style)
        axes.plot([b[m]] * 2, [row - 0.42, row + 0.42], color=INK, linewidth=1.6)
    contexts = names.labels("context", model.context_names, model.n_contexts)
    axes.set_yticks(range(len(shown)), [contexts[m] for m in shown], fontsize=9.5)
    axes.invert_yaxis()
    more = f" ({model.n_contexts - len(shown)} others left out)" * (model.n_contexts > len(shown))
    over = ", where the episode is over" if model.terminal[s] else ""
    where = names.label("state", s, model.state_names)
    axes.set_title(f"{where}{model.duration.step(t)}{over}", fontsize=9.5)
    axes.set(xlim=(0.0, 1.0), xlabel=f"probability of the context{more}")
    _action_legend(axes, model, colours)
    return axes


def _schedule(acting: MarkovPolicy, axes: Axes, most: int = 16) -> Axes:
    """The actions of a policy that looks at time and state only: a row for each state."""
    from matplotlib.colors import to_rgba

    table: Any = acting.probabilities
    layers: Any = acting.actions if table is None else table.argmax(axis=-1)
    actions = np.asarray(layers).T  # (S, H or 1)
    colours = np.array([to_rgba(colour, _TINT) for colour in COLOURS])
    axes.imshow(colours[actions % len(COLOURS)], aspect="auto", interpolation="none")
    for a in np.unique(actions).tolist()[: len(COLOURS)]:
        axes.scatter([], [], color=COLOURS[a % len(COLOURS)], marker="s", label=f"action {a}")
    axes.set_yticks(range(0, len(actions), -(-len(actions) // most)))
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="time in the episode", ylabel="state")
    legend(axes, columns=3)
    return axes


# --------------------------------------------------------------------------------- what they share


def _grouped(run: Runs) -> Iterator[tuple[str, str, list[Run]]]:
    """A colour, the name and the runs of each group; a group without a name has an empty one."""
    given = run if isinstance(run, Mapping) else {"": run}
    groups = {name: [one] if isinstance(one, Run) else list(one) for name, one in given.items()}
    for name, members in groups.items():
        if not members or not all(isinstance(one, Run) for one in members):
            raise TypeError(f"run must be a Run, several, or groups of them by name; see {name!r}")
    return zip(cycle(COLOURS), groups, groups.values())


def _action(model: LatentMDP, a: int) -> str:
    return names.label("action", a, model.action_names)


def _action_colours(model: LatentMDP, actions: Iterable[int]) -> dict[int, str]:
    """A colour for every action: by its number, or where they are many by the order of meeting."""
    many, met = model.n_actions > len(COLOURS), dict.fromkeys(actions)
    return {a: COLOURS[(i if many else a) % len(COLOURS)] for i, a in enumerate(met)}


def _action_legend(axes: Axes, model: LatentMDP, colours: Mapping[int, str]) -> None:
    from matplotlib.patches import Patch

    shown = sorted(colours.items())
    legend(axes, handles=[Patch(color=c, alpha=_TINT, label=_action(model, a)) for a, c in shown])


_PICTURES: dict[type, Callable[..., Axes]] = {
    Plan: bounds,
    Mapping: bounds,
    Run: returns,
    Fit: groups,
    Solved: estimates,
    LoggedEstimate: agreement,
    OffPolicyValue: agreement,
    LatentMDP: graph,
    Session: beliefs,
    Explanation: policy,
    Policy: policy,
}
"""What `picture` draws of each kind."""
