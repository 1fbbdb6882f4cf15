"""The optimal policy, by dynamic programming over all reachable beliefs.

Layer t holds every (s, b) that some sequence of actions and observations can lead to. Going back,

    alpha_{s,b}(m) = R_m(s, a) + discount sum_{s',r} P_m(s', r | s, a) alpha_{s',b'}(m),

with b' the belief after (s', r) and a the action that maximises sum_m b(m) alpha_{s,b}(m). The
belief depends on how often each likelihood was met, not on the order, so many histories share one:
beliefs that agree to 12 digits are merged, which changes the value by less than 1e-11 of its range.

Every alpha is at most the value of a plan that goes on with other alphas (what cannot happen under
b counts as the worst policy's value), so acting by the best alpha attains the optimum.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Indices, Integers
from latentmdp.engines.threads import blocks
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.base import Plan
from latentmdp.planning.qmdp import least_values
from latentmdp.policies import AlphaVectorPolicy

__all__ = ["Exact", "TooManyBeliefsError", "belief_count"]

_DIGITS = 12
"""Coarse enough for rounding along different orders of the same observations to merge."""

_CHUNK_ENTRIES = 1 << 22
"""Numbers (32 MiB) in one array of successors: NumPy is busy, and the layers take far more."""


class TooManyBeliefsError(LatentMDPError, ValueError):
    """There are more reachable beliefs than allowed."""


class _Layer(NamedTuple):
    """Distinct (s, b) of one time, and where each observation leads: -1 if it is impossible."""

    states: Integers  # (n,)
    beliefs: Floats  # (n, M)
    children: Indices  # (n, A, S, Z) into the next layer


@dataclass(frozen=True)
class Exact:
    """The exact planner, for small problems.

    Parameters
    ----------
    max_beliefs
        Refuse models with more reachable beliefs than this. `belief_count` says beforehand how many
        there are at most; as histories often share beliefs, models beyond that bound are counted
        before they are refused, which takes seconds.
    """

    max_beliefs: int = 500_000

    def __post_init__(self) -> None:
        arrays.positive_integer("max_beliefs", self.max_beliefs)

    def plan(self, model: LatentMDP) -> Plan:
        """Plan; `lower` equals `upper`. Raises `TooManyBeliefsError` if the model is too large."""
        require_model(model)
        began = time.perf_counter()
        layers, chances = _expand(model, self.max_beliefs)
        least = least_values(model)
        vectors, actions = _induce(model, layers, least)
        first = np.einsum("nm,nm->n", layers[0].beliefs, vectors[0])
        value = float(chances @ first) + model.initial_value()
        n_beliefs = sum(layer.states.size for layer in layers)
        seconds = time.perf_counter() - began
        return Plan(
            policy=_policy(model, layers, vectors, actions, least),
            lower=value,
            upper=value,
            n_iter=n_beliefs,
            seconds=seconds,
            history=((seconds, value, value),),
            guarantee=(1.0, 0.0),
            message=f"dynamic programming over {n_beliefs} reachable beliefs",
        )


def belief_count(model: LatentMDP) -> int:
    """A bound on the number of reachable beliefs, computed without visiting them.

    Observations whose likelihoods (P_m(s', r | s, a))_m agree up to a factor lead to the same
    belief, so from one belief at s there are at most as many at s' as there are such classes; and
    after t steps, no more than first beliefs times multisets of t classes.
    """
    table = model.packed()
    kinds, classes = _classes(table)
    S = model.n_states
    moves = np.array(
        [[np.unique(c[c >= 0]).size for c in classes[s].swapaxes(0, 1)] for s in range(S)], object
    )
    start = (model.weights[:, None] * model.initial).T
    first, _ = _classes(start)
    beliefs = (start > 0.0).any(axis=1).astype(object)
    total = 0
    for t in range(model.horizon):
        most = first * math.comb(t + kinds - 1, t)
        beliefs = np.array([min(int(n), most) for n in beliefs], object)
        total += int(beliefs.sum())
        beliefs = beliefs @ moves
    return total


def _classes(likelihoods: Floats) -> tuple[int, Integers]:
    """How many classes of likelihoods (..., M) there are, and the class of each; -1 if all zero."""
    possible = (likelihoods > 0.0).any(axis=-1)
    rows = likelihoods[possible]
    rows = np.round(rows / rows.sum(axis=1, keepdims=True), _DIGITS)
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    classes = np.full(possible.shape, -1)
    classes[possible] = inverse.ravel()
    return max(1, len(distinct)), classes


def _expand(model: LatentMDP, max_beliefs: int) -> tuple[list[_Layer], Floats]:
    """Layers 0..H-1 of distinct beliefs, and the probabilities of the first ones."""
    joint = (model.weights[:, None] * model.initial).T
    chances = joint.sum(axis=1)
    states = np.flatnonzero(chances > 0.0)
    beliefs = joint[states] / chances[states, None]
    layers: list[_Layer] = []
    total = states.size
    for _ in range(model.horizon - 1):
        arrivals = _step(model, states, beliefs, max_beliefs - total)
        if arrivals is None:
            most = belief_count(model)
            shown = f"{most:,}" if most < 10**12 else f"{most:.1e}"
            raise TooManyBeliefsError(
                f"{model!r} has more than max_beliefs={max_beliefs} reachable beliefs, perhaps up "
                f"to {shown}: raise max_beliefs, or use a planner with bounds such as HSVI"
            )
        layers.append(_Layer(states, beliefs, arrivals[0]))
        _, states, beliefs = arrivals
        total += states.size
    layers.append(_Layer(states, beliefs, np.empty((states.size, 0, 0, 0), np.int32)))
    return layers, chances[chances > 0.0]


def _step(
    model: LatentMDP, states: Integers, beliefs: Floats, room: int
) -> tuple[Indices, Integers, Floats] | None:
    """What follows each belief: children, their states and beliefs; None if more than `room`."""
    table = model.packed()
    S, A, _, Z, _ = table.shape
    children = np.full((states.size, A, S, Z), -1, np.int32)
    found_states, found_beliefs, places = [], [], []
    offset = 0
    for chunk in _chunks(states.size, table):
        joint = beliefs[chunk, None, None, None, :] * table[states[chunk]]
        place = np.nonzero(joint.sum(axis=-1) > 0.0)
        rows = joint[place]
        first, inverse = _merge(place[2], rows / rows.sum(axis=1, keepdims=True))
        found_states.append(place[2][first])
        found_beliefs.append(rows[first] / rows[first].sum(axis=1, keepdims=True))
        places.append(((place[0] + chunk.start, *place[1:]), inverse + offset))
        offset += first.size
        if offset > 2 * room:
            first, _ = _merge(np.concatenate(found_states), np.concatenate(found_beliefs))
            if first.size > room:
                return None
    arrived, posterior = np.concatenate(found_states), np.concatenate(found_beliefs)
    first, inverse = _merge(arrived, posterior)
    for place, index in places:
        children[place] = inverse[index]
    return (children, arrived[first], posterior[first]) if first.size <= room else None


def _chunks(n: int, table: Floats) -> list[slice]:
    """Slices of n beliefs whose successors fit into `_CHUNK_ENTRIES`; an empty one if n is 0."""
    return [slice(*ends) for ends in blocks(max(n, 1), max(1, _CHUNK_ENTRIES // table[0].size))]


def _merge(states: Integers, beliefs: Floats) -> tuple[Integers, Integers]:
    """Index of one member of every group of equal (s, b), and the group of each."""
    keys = np.column_stack([states.astype(np.float64), np.round(beliefs, _DIGITS)])
    rows = np.ascontiguousarray(keys + 0.0).view(f"V{8 * keys.shape[1]}").ravel()
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return first, inverse.ravel()


def _induce(
    model: LatentMDP, layers: list[_Layer], least: Floats
) -> tuple[list[Floats], list[Integers]]:
    """Alpha vectors and actions of every layer, from the last to the first."""
    worst = np.zeros((model.n_states, model.n_contexts))  # nothing is earned after the last step
    later = np.zeros((0, model.n_contexts))
    found = []
    for t in range(model.horizon - 1, -1, -1):
        later, actions = _back_up(model, layers[t], later, worst)
        worst = least[t]
        found.append((later, actions))
    vectors, labels = zip(*found[::-1])
    return list(vectors), list(labels)


def _back_up(
    model: LatentMDP, layer: _Layer, later: Floats, least: Floats
) -> tuple[Floats, Integers]:
    """The best action and its alpha vector at every belief of a layer."""
    table, rewards = model.packed(), np.moveaxis(model.planning_rewards(), 0, -1)
    vectors, actions = np.empty_like(layer.beliefs), np.empty_like(layer.states)
    # Row -1 - s' of what follows stands for an observation that leads to s' and cannot occur.
    rows = np.concatenate([later, least[::-1]])
    impossible = (-1 - np.arange(model.n_states))[:, None]
    for chunk in _chunks(layer.states.size, table):
        q = rewards[layer.states[chunk]]
        if layer.children.shape[1]:
            children = layer.children[chunk]
            index = np.where(children >= 0, children, impossible)
            follow = np.einsum("ianzm,ianzm->iam", table[layer.states[chunk]], rows[index])
            q = q + model.discount * follow
        best = np.einsum("iam,im->ia", q, layer.beliefs[chunk]).argmax(axis=1)
        actions[chunk] = best
        vectors[chunk] = q[np.arange(best.size), best]
    return vectors, actions


def _policy(
    model: LatentMDP,
    layers: list[_Layer],
    vectors: list[Floats],
    actions: list[Integers],
    least: Floats,
) -> AlphaVectorPolicy:
    """All distinct vectors by (t, s); a state that is never reached gets the worst policy's."""
    S = model.n_states
    rows, labels, counts = [], [], []
    for t, layer in enumerate(layers):
        missing = np.setdiff1d(np.arange(S), layer.states)
        states = np.concatenate([layer.states, missing])
        label = np.concatenate([actions[t], np.zeros(missing.size, np.int64)])
        values = np.concatenate([vectors[t], least[t, missing]])
        distinct = np.unique(np.column_stack([states, label, values]), axis=0)
        rows.append(distinct[:, 2:])
        labels.append(distinct[:, 1].astype(np.int32))
        counts.append(np.bincount(distinct[:, 0].astype(np.int64), minlength=S))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return AlphaVectorPolicy(np.concatenate(rows), np.concatenate(labels), offsets, model)
