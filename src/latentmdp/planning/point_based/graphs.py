"""Policy graphs from the plans of a point-based search.

Every plan is an action and, for each outcome, the plan to go on with, so its vector is exactly what
it earns in each context when these links are followed. Acting by the best vector at every belief
earns at least as much on average, but perhaps less in some context; a graph earns what it says in
all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from latentmdp._kernels.endless import follow
from latentmdp._kernels.plans import StepBounds, best_plans
from latentmdp._kernels.standing import follow_standing
from latentmdp._util.arrays import Floats, Integers
from latentmdp.model import LatentMDP
from latentmdp.planning.point_based.bounds import Bounds
from latentmdp.planning.point_based.endless import PlanGraph, mark_reached

__all__ = ["Nodes", "first_beliefs", "graph_seconds", "nodes_of", "plans_at", "snapshot"]

_LINK_SECONDS = 2e-7
"""To find a link, to put it into the graph, and to evaluate it."""


class Nodes(NamedTuple):
    """Nodes in the order of (t, s), linked after each outcome of the model's table."""

    actions: Integers  # (n,)
    offsets: Integers  # (layers S + 1,)
    followers: Integers  # -1 where the episode is over
    first: Integers  # (K, S), -1 in terminal states


def first_beliefs(model: LatentMDP, weights: Floats) -> tuple[Integers, Floats]:
    """The states (n,) in which an episode may begin, and the belief there under these weights.

    A state that the weights exclude has the belief of equal ones: a policy must begin somehow.
    """
    states = np.flatnonzero((model.initial > 0.0).any(axis=0))
    joint = (weights[:, None] * model.initial)[:, states]
    excluded = joint.sum(axis=0) <= 0.0
    joint[:, excluded] = model.initial[:, states[excluded]]
    return states, (joint / joint.sum(axis=0)).T.copy()


def snapshot(bounds: Bounds) -> Any:
    """The plans as they are now: the `PlanGraph` without an end, else the `StepBounds` by time."""
    return getattr(bounds, "graph", None) or bounds.steps


def graph_seconds(bounds: Bounds, plans: Any) -> float:
    """About how long the graph of a snapshot takes: its plans, and each context's by (t, s)."""
    if isinstance(plans, PlanGraph):
        nodes = plans.states.size
    else:
        model = bounds.model
        nodes = sum(len(now.rows) for now in plans)
        nodes += len(plans) * model.n_states * model.n_contexts
    outcomes = bounds.model.outcomes
    return _LINK_SECONDS * nodes * outcomes.size / max(1, outcomes.starts.size - 1)


def plans_at(plans: Any, states: Integers, beliefs: Floats) -> tuple[Integers, Floats]:
    """The best plans of a snapshot at beliefs of the start, and their vectors (n, M)."""
    if isinstance(plans, PlanGraph):
        first = np.searchsorted(plans.states, states)
        last = np.searchsorted(plans.states, states, side="right")
        places = [
            i + int(np.argmax(plans.values[i:j] @ belief))
            for i, j, belief in zip(first, last, beliefs)
        ]
        return np.array(places), plans.values[places]
    now, best = plans[0], np.empty(states.size, np.int64)
    best_plans(now, states, beliefs, np.empty(states.size), best)
    vectors = [
        now.rows[j] if j >= 0 else now.standing[s, :, -1 - j]
        for s, j in zip(states.tolist(), best.tolist())
    ]
    return best, np.array(vectors)


def nodes_of(bounds: Bounds, plans: Any, states: Integers, chosen: Integers) -> Nodes:
    """The graph of what the chosen plans (K, n) at first states (n,) lead to.

    Where nothing leads, there is the optimal policy of the likeliest context.
    """
    if isinstance(plans, PlanGraph):
        return _endless_nodes(bounds, plans, states, chosen)
    return _finite_nodes(bounds, plans, states, chosen)


def _endless_nodes(bounds: Bounds, graph: PlanGraph, states: Integers, chosen: Integers) -> Nodes:
    model = bounds.model
    wanted = np.zeros(graph.states.size, np.bool_)
    mark_reached(graph, np.unique(chosen), wanted)
    missing = np.bincount(graph.states[wanted], minlength=model.n_states) == 0
    likeliest = np.flatnonzero(graph.vertex == int(np.argmax(model.weights)))
    mark_reached(graph, likeliest[missing[graph.states[likeliest]]], wanted)
    wanted &= ~model.terminal[graph.states]
    number = np.where(wanted, np.cumsum(wanted) - 1, -1)
    kept, actions = graph.states[wanted], graph.labels[wanted]
    counts = np.diff(graph.offsets)
    followers = number[graph.followers[np.repeat(wanted, counts)]]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(kept, minlength=model.n_states))])
    first = _first(model, offsets, states, number[chosen])
    return Nodes(actions, offsets, _unmerged(bounds, kept, actions, followers), first)


def _finite_nodes(
    bounds: Bounds, steps: Sequence[StepBounds], states: Integers, chosen: Integers
) -> Nodes:
    model = bounds.model
    S, likeliest = model.n_states, int(np.argmax(model.weights))
    items = np.zeros(len(steps[0].rows), np.bool_)
    standing = np.zeros(steps[0].standing_labels.shape, np.bool_)
    for row in chosen:
        items[row[row >= 0]] = True
        standing[states[row < 0], -1 - row[row < 0]] = True
    total, sizes, actions, linked = 0, [], [], []
    pending, first = (states, chosen[0]), chosen
    for t, now in enumerate(steps):
        standing[:, likeliest] = True
        standing[model.terminal] = False
        places, plans = np.nonzero(standing)
        of_item = np.repeat(np.arange(S), np.diff(now.starts[now.groups]))
        items &= ~model.terminal[of_item]
        kept = np.flatnonzero(items)
        own = np.concatenate([places, of_item[kept]])
        order = np.argsort(own, kind="stable")
        number = np.empty(own.size, np.int64)
        number[order] = total + np.arange(own.size)
        of_standing, of_items = np.full(standing.shape, -1), np.full(items.size, -1)
        of_standing[places, plans], of_items[kept] = number[: plans.size], number[plans.size :]
        if t == 0:
            first = np.array([_named(states, row, of_standing, of_items) for row in chosen])
        else:
            linked.append(_named(*pending, of_standing, of_items))
        labels = np.concatenate([now.standing_labels[places, plans], now.labels[kept]])
        actions.append(labels[order])
        sizes.append(np.bincount(own, minlength=S))
        total += own.size
        if t + 1 < len(steps):
            later = steps[t + 1]
            pending = _followed(bounds, now, later, places, plans, of_item[kept], kept, order)
            items = np.zeros(len(later.rows), np.bool_)
            standing = np.zeros(later.standing_labels.shape, np.bool_)
            at, codes = pending
            items[codes[codes >= 0]] = True
            standing[at[codes < 0], -1 - codes[codes < 0]] = True
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    node_actions = np.concatenate(actions).astype(np.int64)
    node_states = np.repeat(np.arange(offsets.size - 1) % S, np.diff(offsets))
    rows = node_states * model.n_actions + node_actions
    ends = int(np.diff(bounds.table.starts)[rows[offsets[-1 - S] :]].sum())
    followers = np.concatenate([*linked, np.full(ends, -1)])
    followers = _unmerged(bounds, node_states, node_actions, followers)
    return Nodes(node_actions, offsets, followers, _first(model, offsets, states, first))


def _named(at: Integers, codes: Integers, of_standing: Integers, of_items: Integers) -> Integers:
    """Numbers of the nodes of states `at` that a search calls `codes`."""
    found = of_standing[at, np.maximum(-1 - codes, 0)]
    found[codes >= 0] = of_items[codes[codes >= 0]]
    return found


def _followed(
    bounds: Bounds,
    now: StepBounds,
    later: StepBounds,
    places: Integers,
    plans: Integers,
    item_states: Integers,
    kept: Integers,
    order: Integers,
) -> tuple[Integers, Integers]:
    """Next states and plans after every outcome of the standing plans and items kept, in order."""
    table, A = bounds.table, bounds.model.n_actions
    counts = np.diff(table.starts)
    labels = now.standing_labels[places, plans].astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts[places * A + labels])])
    standing = np.empty(offsets[-1], np.int64)
    follow_standing(table, A, now.lattice, later.standing, places, plans, labels, offsets, standing)
    own = now.labels[kept]
    item_offsets = np.concatenate([[0], np.cumsum(counts[item_states * A + own])])
    found = np.empty(item_offsets[-1], np.int64)
    beliefs = np.ascontiguousarray(now.beliefs.T[kept])
    follow(
        table, A, later, now.breadth, item_states, beliefs, own, item_offsets, 0, kept.size, found
    )
    states = np.concatenate([places, item_states])
    rows = (states * A + np.concatenate([labels, own]))[order]
    begins = np.concatenate([offsets[:-1], offsets[-1] + item_offsets[:-1]])[order]
    codes = np.concatenate([standing, found])[_ranges(begins, counts[rows])]
    return table.next_state[_ranges(table.starts[rows], counts[rows])].astype(np.int64), codes


def _unmerged(bounds: Bounds, states: Integers, actions: Integers, followers: Integers) -> Integers:
    """Followers after each outcome of the model's table, from those after merged outcomes."""
    rows = states * bounds.model.n_actions + actions
    begins, counts = bounds.table.starts[rows], np.diff(bounds.table.starts)[rows]
    table = bounds.model.outcomes
    if table.size == bounds.table.size:
        return followers
    own = np.diff(table.starts)[rows]
    shift = np.concatenate([[0], np.cumsum(counts)])[:-1] - begins
    merged = bounds.places[_ranges(table.starts[rows], own)]
    return followers[merged + np.repeat(shift, own)]


def _first(model: LatentMDP, offsets: Integers, states: Integers, chosen: Integers) -> Integers:
    """First nodes (K, S): those chosen and, where no episode begins, any node of the state."""
    first = np.tile(offsets[: model.n_states], (len(chosen), 1))
    first[:, states] = chosen
    first[:, model.terminal] = -1
    return first


def _ranges(begins: Integers, counts: Integers) -> Integers:
    """begins[0], begins[0] + 1, ..., then those of begins[1], and so on: counts[i] of each."""
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(begins, counts) + within
