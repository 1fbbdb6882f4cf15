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

from latentmdp._kernels import mark_codes, name_codes
from latentmdp._util import Flags, Floats, Indices, Integers
from latentmdp.engines import blocks, run_blocks
from latentmdp.model import LatentMDP
from latentmdp.planning.point_based.bounds import Bounds
from latentmdp.planning.point_based.endless import PlanGraph, mark_reached
from latentmdp.planning.point_based.kernels.endless import follow
from latentmdp.planning.point_based.kernels.plans import StepBounds, best_plans
from latentmdp.planning.point_based.kernels.standing import follow_standing

_NODES_AT_ONCE = 512
"""Nodes whose links one thread writes at a time."""


class Nodes(NamedTuple):
    """Nodes in the order of (t, s), linked after each outcome of the model's table."""

    actions: Integers  # (n,)
    offsets: Integers  # (layers S + 1,)
    followers: Indices | Integers  # -1 where the episode is over
    first: Integers  # (K, S), -1 in terminal states
    stays: Flags | None  # (n,): the optimal policies of the contexts
    vectors: Floats | None  # (n, M): what the nodes earn, where that is known exactly


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
    links = _unmerged(bounds, kept, actions, followers)
    return Nodes(actions, offsets, links, first, None, None)


def _finite_nodes(
    bounds: Bounds, steps: Sequence[StepBounds], states: Integers, chosen: Integers
) -> Nodes:
    model, M = bounds.model, bounds.model.n_contexts
    items = np.zeros(len(steps[0].rows), np.bool_)
    standing = np.zeros(steps[0].standing_labels.shape, np.bool_)
    for row in chosen:
        items[row[row >= 0]] = True
        standing[states[row < 0], -1 - row[row < 0]] = True
    contexts = [int(np.argmax(model.weights))]
    total, layers, links, first, pending = 0, list[_NodeLayer](), list[Indices](), chosen, None
    for t, now in enumerate(steps):
        reached = np.flatnonzero(standing[:, :M].any(axis=0)).tolist()
        contexts += [m for m in reached if m not in contexts]
        layer = _layer(model, now, total, contexts, standing, items)
        total += layer.actions.size
        if pending is None:
            first = np.array([_named(states, row, layer) for row in chosen])
        else:
            links.append(pending.named(bounds, layer))
        layers.append(layer)
        later = steps[t + 1] if t + 1 < len(steps) else None
        pending = _followed(bounds, now, later, layer)
        if later is not None:
            items, standing = pending.marked(bounds, later)
    assert pending is not None
    links.append(pending.named(bounds, None))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([layer.sizes for layer in layers]))])
    return Nodes(
        np.concatenate([layer.actions for layer in layers]),
        offsets,
        np.concatenate(links),
        _first(model, offsets, states, first),
        np.concatenate([layer.stays for layer in layers]),
        np.concatenate([layer.vectors for layer in layers]),
    )


class _NodeLayer(NamedTuple):
    """The nodes of a time step, by state: contexts' policies, other standing plans, items."""

    states: Integers  # (n,)
    plans: Integers  # (n,): the standing plan, or the item
    is_item: Flags  # (n,)
    stays: Flags  # (n,)
    actions: Integers  # (n,)
    vectors: Floats  # (n, M)
    sizes: Integers  # (S,): how many nodes a state has
    standing_nodes: Indices  # (S, F): the nodes of the plans, -1 where there is none
    item_nodes: Indices  # (n',)


def _layer(
    model: LatentMDP,
    now: StepBounds,
    total: int,
    contexts: list[int],
    standing: Flags,
    items: Flags,
) -> _NodeLayer:
    """The nodes of the wanted plans and, in every state, of the contexts, which keep their places.

    Nodes are numbered from `total` on.
    """
    alive, own = np.flatnonzero(~model.terminal), len(contexts)
    standing[:, : model.n_contexts] = False
    standing[model.terminal] = False
    places, plans = np.nonzero(standing)
    of_item = np.repeat(np.arange(model.n_states), np.diff(now.starts[now.groups]))
    kept = np.flatnonzero(items & ~model.terminal[of_item])
    states = np.concatenate([np.repeat(alive, own), places, of_item[kept]])
    plans = np.concatenate([np.tile(contexts, alive.size), plans, kept])
    kinds = np.repeat([0, 1, 2], [own * alive.size, places.size, kept.size])
    order = np.argsort(states, kind="stable")
    states, plans, kinds = states[order], plans[order], kinds[order]
    is_item = kinds == 2
    stand, numbers = np.flatnonzero(~is_item), np.arange(total, total + states.size)
    standing_nodes = np.full(standing.shape, -1, np.int32)
    standing_nodes[states[stand], plans[stand]] = numbers[stand]
    item_nodes = np.full(items.size, -1, np.int32)
    item_nodes[plans[is_item]] = numbers[is_item]
    actions, vectors = np.empty(states.size, np.int64), np.empty((states.size, model.n_contexts))
    actions[is_item], vectors[is_item] = now.labels[plans[is_item]], now.rows[plans[is_item]]
    actions[stand] = now.standing_labels[states[stand], plans[stand]]
    vectors[stand] = now.standing[states[stand], :, plans[stand]]
    sizes = np.bincount(states, minlength=model.n_states)
    return _NodeLayer(
        states, plans, is_item, kinds == 0, actions, vectors, sizes, standing_nodes, item_nodes
    )


def _named(at: Integers, codes: Integers, layer: _NodeLayer) -> Integers:
    """The nodes of states `at` that a search calls `codes`."""
    found = layer.standing_nodes[at, np.maximum(-1 - codes, 0)].astype(np.int64)
    found[codes >= 0] = layer.item_nodes[codes[codes >= 0]]
    return found


class _Followed(NamedTuple):
    """What nodes that do not stay go on with, after the outcomes of the merged table."""

    rows: Integers  # (n,): of the table, for each node
    begins: Integers  # (n,): where its codes begin
    codes: Indices  # plans of the next step, as `search` numbers them

    def marked(self, bounds: Bounds, later: StepBounds) -> tuple[Flags, Flags]:
        """The items and the standing plans of the next step that are gone on with."""
        items = np.zeros(len(later.rows), np.bool_)
        standing = np.zeros(later.standing_labels.shape, np.bool_)
        run_blocks(
            mark_codes, blocks(self.rows.size, _NODES_AT_ONCE), bounds.threads, None, bounds.table,
            self.rows, self.begins, self.codes, items, standing,
        )  # fmt: skip
        return items, standing

    def named(self, bounds: Bounds, layer: _NodeLayer | None) -> Indices:
        """The nodes of a layer that follow the outcomes of the model's table; -1 without one."""
        table = bounds.model.outcomes
        counts = np.diff(table.starts)[self.rows]
        starts = np.concatenate([[0], np.cumsum(counts)])
        out = np.full(starts[-1], -1, np.int32)
        if layer is None:
            return out
        run_blocks(
            name_codes, blocks(self.rows.size, _NODES_AT_ONCE), bounds.threads, None, table,
            bounds.table, bounds.places, self.rows, self.begins, self.codes, layer.item_nodes,
            layer.standing_nodes, starts, out,
        )  # fmt: skip
        return out


def _followed(
    bounds: Bounds, now: StepBounds, later: StepBounds | None, layer: _NodeLayer
) -> _Followed:
    """What the nodes of a layer that do not stay go on with; nothing in the last one."""
    table, A = bounds.table, bounds.model.n_actions
    linked = np.flatnonzero(~layer.stays)
    states, plans, labels = layer.states[linked], layer.plans[linked], layer.actions[linked]
    rows = states * A + labels
    ends = np.cumsum(np.diff(table.starts)[rows])
    begins = np.concatenate([[0], ends])
    if later is None:
        return _Followed(rows, begins[:-1], np.empty(0, np.int32))
    codes, is_item = np.empty(begins[-1], np.int32), layer.is_item[linked]
    kept, stand = np.flatnonzero(is_item), np.flatnonzero(~is_item)
    beliefs = np.ascontiguousarray(now.beliefs.T[plans[kept]])
    of_items = (states[kept], beliefs, labels[kept], begins[kept])
    of_standing = (plans[stand], rows[stand], begins[stand])
    run_blocks(
        follow, bounds.spans(kept.size), bounds.threads, None, table, A, later, now.breadth,
        *of_items, codes,
    )  # fmt: skip
    run_blocks(
        follow_standing, bounds.spans(stand.size), bounds.threads, None, table, now.lattice,
        later.ruler, later.standing, *of_standing, codes,
    )  # fmt: skip
    return _Followed(rows, begins[:-1], codes)


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
