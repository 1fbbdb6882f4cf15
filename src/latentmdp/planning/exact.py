"""The optimal policy, by dynamic programming over all reachable beliefs.

Layer t holds every (s, b) that some sequence of actions and observations can lead to. Going back,

    alpha_{s,b}(m) = R_m(s, a) + discount sum_{s',r} P_m(s', r | s, a) alpha_{s',b'}(m),

with b' the belief after (s', r) and a the allowed action that maximises sum_m b(m) alpha_{s,b}(m).
A terminal state has no beliefs and is worth 0. The belief depends on how often each likelihood was
met, not on the order, so many histories share one: beliefs that agree to 12 digits are merged,
which changes the value by less than 1e-11 of its range.

Every alpha is at most the value of a plan that goes on with other alphas (what cannot happen under
b counts as the worst policy's value), so acting by the best alpha attains the optimum.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentmdp._util import Flags, Floats, Indices, Integers, arrays
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP, require_horizon, require_model
from latentmdp.outcomes import Outcomes
from latentmdp.planning.base import Plan
from latentmdp.planning.qmdp import PlanningRows, least_values, planning_rows
from latentmdp.policies import AlphaVectorPolicy


class TooManyBeliefsError(LatentMDPError, ValueError):
    """There are more reachable beliefs than allowed."""


class _Layer(NamedTuple):
    """Distinct (s, b) of one time, and where each outcome leads: -1 if it is impossible or ends."""

    states: Integers  # (n,)
    beliefs: Floats  # (n, M)
    children: Indices  # into the next layer, for the outcomes of each (s, b) one after the other


class _Choices(NamedTuple):
    """What there is to plan: the outcomes by state, and the rows of allowed actions by state."""

    table: Outcomes
    outcomes: Integers  # (S + 1,): first outcome of each state
    lengths: Integers  # (R,): outcomes of each allowed row
    rows: PlanningRows

    @classmethod
    def of(cls, model: LatentMDP) -> _Choices:
        """Outcomes that lead to the same state and belief are one."""
        table = model.outcomes.informative()
        lengths = np.diff(table.starts)[model.allowed.ravel()]
        return cls(table, table.starts[:: model.n_actions], lengths, planning_rows(model))

    def chunks(self, states: Integers) -> list[tuple[int, int]]:
        """Intervals of beliefs whose outcomes are 2^22 numbers (32 MiB) at most, or of one belief.

        So NumPy is busy, and the layers take far more memory than an array of successors.
        """
        entries = np.cumsum(np.diff(self.outcomes)[states]) * self.table.distinct.shape[1]
        part = entries // (1 << 22)
        ends = np.append(np.flatnonzero(np.diff(part)) + 1, states.size)
        return list(zip(np.append(0, ends[:-1]).tolist(), ends.tolist()))


@dataclass(frozen=True)
class Exact:
    """The exact planner, for small problems.

    Parameters
    ----------
    max_beliefs
        Refuse models with more reachable beliefs than this. As histories often share beliefs,
        they are counted before a model is refused, which takes seconds.
    """

    max_beliefs: int = 500_000

    def __post_init__(self) -> None:
        arrays.positive_integer("max_beliefs", self.max_beliefs)

    def plan(self, model: LatentMDP) -> Plan:
        """Plan; `lower` equals `upper`. Raises `TooManyBeliefsError` if the model is too large."""
        require_model(model)
        require_horizon(model, "Exact (unlike HSVI)")
        began = time.perf_counter()
        problem = _Choices.of(model)
        layers, chances = _expand(model, problem, self.max_beliefs)
        least = least_values(model)
        vectors, actions = _induce(model, problem, layers, least)
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


def _expand(model: LatentMDP, problem: _Choices, max_beliefs: int) -> tuple[list[_Layer], Floats]:
    """Layers 0..H-1 of distinct beliefs, and the probabilities of the first ones."""
    joint = (model.weights[:, None] * model.initial).T
    chances = np.where(model.terminal, 0.0, joint.sum(axis=1))
    states = np.flatnonzero(chances > 0.0)
    beliefs = arrays.normalised(joint[states])
    layers: list[_Layer] = []
    total = states.size
    for _ in range(model.n_layers - 1):
        arrivals = None
        if total <= max_beliefs:
            arrivals = _step(problem, model.terminal, states, beliefs, max_beliefs - total)
        if arrivals is None:
            raise TooManyBeliefsError(
                f"{model!r} has more than max_beliefs={max_beliefs} reachable beliefs: raise "
                "max_beliefs, or use a planner with bounds such as HSVI"
            )
        layers.append(_Layer(states, beliefs, arrivals[0]))
        _, states, beliefs = arrivals
        total += states.size
    layers.append(_Layer(states, beliefs, np.empty(0, np.int32)))
    return layers, chances[chances > 0.0]


def _step(
    problem: _Choices, terminal: Flags, states: Integers, beliefs: Floats, room: int
) -> tuple[Indices, Integers, Floats] | None:
    """What follows each belief: children, their states and beliefs; None if more than `room`."""
    children, next_states, posteriors = [], [], []
    offset = 0
    for begin, end in problem.chunks(states):
        position, outcome = arrays.segments(problem.outcomes, states[begin:end])
        joint = beliefs[begin:end][position] * problem.table.probs_of(outcome)
        arrived = problem.table.next_state[outcome]
        chance = joint.sum(axis=-1)
        open_ = (chance > 0.0) & ~terminal[arrived]
        posterior, arrived = arrays.normalised(joint[open_]), arrived[open_].astype(np.int64)
        first, inverse = merge_beliefs(arrived, posterior)
        next_states.append(arrived[first])
        posteriors.append(posterior[first])
        child = np.full(outcome.size, -1, np.int64)
        child[open_] = inverse + offset
        children.append(child)
        offset += first.size
        if offset > 2 * room:
            first, _ = merge_beliefs(np.concatenate(next_states), np.concatenate(posteriors))
            if first.size > room:
                return None
    all_states, all_posteriors = np.concatenate(next_states), np.concatenate(posteriors)
    first, inverse = merge_beliefs(all_states, all_posteriors)
    if first.size > room:
        return None
    child = np.concatenate(children)
    child[child >= 0] = inverse[child[child >= 0]]
    return child.astype(np.int32), all_states[first], all_posteriors[first]


def merge_beliefs(states: Integers, beliefs: Floats, digits: int = 12) -> tuple[Integers, Integers]:
    """Index of one member of every group of equal (s, b), and the group of each.

    Twelve digits are coarse enough for rounding along different orders of the same observations.
    """
    keys = np.column_stack([states.astype(np.float64), np.round(beliefs, digits)])
    # A row as one item of bytes is sorted several times as fast as by columns. Adding zero makes
    # -0.0, which differs in its bytes, the same as 0.0.
    rows = np.ascontiguousarray(keys + 0.0).view(f"V{8 * keys.shape[1]}").ravel()
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return first, inverse.ravel()


def _induce(
    model: LatentMDP, problem: _Choices, layers: list[_Layer], least: Floats
) -> tuple[list[Floats], list[Integers]]:
    """Alpha vectors and actions of every layer, from the last to the first."""
    worst = np.zeros((model.n_states, model.n_contexts))  # nothing is earned after the last step
    later = np.zeros((0, model.n_contexts))
    layered = []
    for t in range(model.n_layers - 1, -1, -1):
        discount = model.duration.planning_discount  # of equal actions, the sooner
        later, actions = _back_up(discount, problem, layers[t], later, worst)
        worst = least[t]
        layered.append((later, actions))
    vectors, labels = zip(*layered[::-1])
    return list(vectors), list(labels)


def _back_up(
    discount: float, problem: _Choices, layer: _Layer, later: Floats, least: Floats
) -> tuple[Floats, Integers]:
    """The best action and its alpha vector at every belief of a layer."""
    from scipy.sparse import csr_array

    vectors, actions = np.empty_like(layer.beliefs), np.empty_like(layer.states)
    # Row -1 - s' of what follows stands for an outcome that ends in s' or cannot occur.
    rows = np.concatenate([later, least[::-1]])
    passed = 0
    for begin, end in problem.chunks(layer.states):
        position, row = arrays.segments(problem.rows.steps.first, layer.states[begin:end])
        q = problem.rows.rewards[row]
        if layer.children.size:
            _, outcome = arrays.segments(problem.outcomes, layer.states[begin:end])
            children = layer.children[passed : passed + outcome.size]
            passed += outcome.size
            next_state = problem.table.next_state[outcome]
            follow = rows[np.where(children >= 0, children, -1 - next_state)]
            ends = np.concatenate([[0], np.cumsum(problem.lengths[row])])
            sums = csr_array(
                (np.ones(outcome.size), np.arange(outcome.size), ends), (row.size, outcome.size)
            )
            q = q + discount * (sums @ (problem.table.probs_of(outcome) * follow))
        scores = np.einsum("im,im->i", q, layer.beliefs[begin:end][position])
        order = np.lexsort((np.arange(row.size), -scores, position))
        best = order[np.flatnonzero(np.diff(position[order], prepend=-1))]
        actions[begin:end] = problem.rows.action[row[best]]
        vectors[begin:end] = q[best]
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
        missing = np.setdiff1d(np.flatnonzero(~model.terminal), layer.states)
        states = np.concatenate([layer.states, missing])
        label = np.concatenate([actions[t], model.allowed[missing].argmax(axis=1)])
        values = np.concatenate([vectors[t], least[t, missing]])
        distinct = np.unique(np.column_stack([states, label, values]), axis=0)
        rows.append(distinct[:, 2:])
        labels.append(distinct[:, 1].astype(np.int32))
        counts.append(np.bincount(distinct[:, 0].astype(np.int64), minlength=S))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return AlphaVectorPolicy(np.concatenate(rows), np.concatenate(labels), offsets, model)
