"""Q-MDP [littman1995; kwon2021, Sec. 5.1]: act as if the context were revealed after this step.

    Q_{t,m}(s, a) = R_m(s, a) + R^hid_m(s, a)
                    + discount sum_s' T_m(s' | s, a) max_a' Q_{t+1,m}(s', a')
    pi(t, s, b)   = argmax_a sum_m b(m) Q_{t,m}(s, a)

with maxima over allowed actions, and 0 in a terminal state. Of actions of equal value the one that
earns sooner is taken, then the one with the lowest number (`Duration.planning_discount`). Its
informed bound
sum_m w_m (R^hid_init(m) + sum_s nu_m(s) max_a Q_{1,m}(s, a)) is what an agent that knows the
context could earn, so it is at least V*. Where there is no end, Q_m is the fixed point, bounded
from above (`latentmdp.planning.endless`).

Backups have a dense form, for models whose transitions are mostly possible, and one over the
possible next states of the allowed (s, a) only, see `latentmdp._kernels.bellman`; `_is_dense`
decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from latentmdp._kernels import bellman
from latentmdp._kernels.bellman import Successors
from latentmdp._util.arrays import Floats, Indices, Integers
from latentmdp._util.memory import ALWAYS_FITS, free_memory, memory_text, require_memory
from latentmdp.engines import blocks, run_blocks, thread_count
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.base import Plan
from latentmdp.planning.endless import best_from_above, policies_from_below
from latentmdp.planning.limits import Check, LimitReached
from latentmdp.planning.totals import best_backup
from latentmdp.policies import AlphaVectorPolicy

_DENSE_SHARE = 0.25
"""Of possible next states, above which the dense form is faster: an entry of it costs a tenth as
much in the caches of a core, two thirds beyond them."""

_BLOCK_WORK = 1e6
"""Multiplications of a block of states, some milliseconds: what is worth a thread, and the time
between two looks at the clock."""

_MOST_REMEMBERED = 1 << 23
"""Probabilities (64 MiB) of rows that a model remembers, and of a table in the dense form."""


@dataclass(frozen=True)
class QMDP:
    """The Q-MDP planner.

    Parameters
    ----------
    smoothing
        alpha of the filter of the policy it returns.
    threads
        How many share the work where there are many outcomes; None for all cores. Results do not
        depend on it.
    """

    smoothing: float = 0.0
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            thread_count(self.threads)

    def plan(self, model: LatentMDP) -> Plan:
        """Plan by backward induction in each context; `upper` is the informed bound.

        Where there is no end, by policy iteration in each context: the vectors of the policy are
        upper bounds on the values, to 1e-10 of the largest.
        """
        require_model(model)
        start = time.perf_counter()
        if _is_dense(model):
            dense = _dense_values(model, model.duration.planning_discount)
            policy = AlphaVectorPolicy.from_values(dense, model, self.smoothing, dense=True)
            first = _interleaved(model, dense[:, :1])
        else:
            rows = planning_rows(model)
            discount = model.duration.planning_discount
            values = _row_values(model, rows, discount, threads=self.threads)
            # Without an end and a discount, a plan that prefers the sooner earns a little less.
            total = values[:1]
            if model.duration.is_total:
                total = _row_values(model, rows, 1.0, threads=self.threads)
            first = _by_action(model, rows, total)
            policy = AlphaVectorPolicy.from_values(values, model, self.smoothing)
        how = "backward induction" if model.horizon is not None else "policy iteration"
        return Plan(
            policy=policy,
            upper=float(model.weights @ context_values(model, first)),
            seconds=time.perf_counter() - start,
            message=f"{how} in each context",
        )


def context_values(model: LatentMDP, q: Floats | None = None) -> Floats:
    """V*_m of every context alone, (M,): what could be earned if the context were known.

    `q` are the model's `q_values`, if they are there already.
    """
    best = best_of(model, (q_values(model) if q is None else q)[0])
    first = model.initial_vectors.nonzero()
    earned = (model.initial_vectors.of(first) * best[first]).sum(axis=0)
    return earned if model.initial_bonus is None else earned + model.initial_bonus


def q_values(
    model: LatentMDP,
    check: Check | None = None,
    threads: int | None = None,
    discount: float | None = None,
) -> Floats:
    """Q_{t,m}(s, a) of every context, shape (H, S, A, M); 0 where an action is not allowed.

    So a maximum over actions must be taken over `model.allowed`, as `best_actions` does. Where
    there is no end the shape is (1, S, A, M), and these are upper bounds on Q_m, within 1e-10 of
    the largest value unless rounding, 1e-15 / (1 - discount) of it, forbids. `check` is called
    now and then. If it raises `LimitReached`, the values that are not there yet are replaced by
    upper bounds: what the rest of the episode earns at most, and the largest reward for every
    further step. `threads` share the work where there are many outcomes. `discount` is the model's
    by default.
    """
    discount = model.discount if discount is None else discount
    if _is_dense(model):
        return _interleaved(model, _dense_values(model, discount, check))
    rows = planning_rows(model)
    return _by_action(model, rows, _row_values(model, rows, discount, check, threads))


def best_of(model: LatentMDP, values: Floats) -> Floats:
    """Maxima (..., S, M) of values (..., S, A, M) over allowed actions; 0 in terminal states."""
    if model.all_allowed:
        return np.asarray(values.max(axis=-2))
    best = np.where(model.allowed[:, :, None], values, -np.inf).max(axis=-2)
    return np.where(model.terminal[:, None], 0.0, best)


def policy_values(
    model: LatentMDP, actions: Integers | Indices, check: Check | None = None
) -> Floats:
    """What K policies earn in every context from (t, s) on, shape (H, S, K, M).

    `actions` is (H, S, K), or (1, S, K) for the same rule at all times: the action of policy k,
    ignored in terminal states, which are worth 0. Where there is no end the shape is
    (1, S, K, M), and these are lower bounds, as close as `q_values`. `check` may raise.
    """
    rows = planning_rows(model)
    S, K, M = model.n_states, actions.shape[2], model.n_contexts
    if model.horizon is None:
        followed = rows.of_actions(actions)[0]
        lower = policies_from_below(*rows.problem, model.discount, followed, M, check)
        return lower[None]
    _require_room(model, S * K, f"the values of {K} policies")
    values = np.empty((model.horizon, S, K, M))
    work = 0.0 if check is None else K * rows.steps.probs.size / model.n_actions
    for first, last in reversed(layer_blocks(model.horizon, work)):
        if check is not None:
            check()
        block = actions if len(actions) == 1 else actions[first:last]
        followed = rows.of_actions(block)
        bellman.policy_values(*rows.problem, followed, model.discount, first, last, values)
    return values


class PlanningRows(NamedTuple):
    """The allowed (s, a) of a model, one row each, with what may follow them."""

    steps: Successors
    rewards: Floats  # (R, M): mean rewards and bonus
    action: Indices  # (R,)
    number: Integers  # (S, A): the row of an action, -1 where it is not allowed

    @property
    def problem(self) -> tuple[Successors, Floats]:
        """What kernels read."""
        return self.steps, self.rewards

    def of_actions(self, actions: Integers | Indices) -> Integers:
        """The rows of actions (L, S, K); -1 in terminal states. Refuses forbidden actions."""
        rows = self.number[np.arange(len(self.number))[None, :, None], actions]
        terminal = np.diff(self.steps.first) == 0
        wrong = (rows < 0) & ~terminal[None, :, None]
        if wrong.any():
            t, s, k = np.argwhere(wrong)[0]
            raise ValueError(f"action {actions[t, s, k]} is not allowed in state {s}")
        return np.ascontiguousarray(rows)


def planning_rows(model: LatentMDP) -> PlanningRows:
    """The rows of a model, from its table or, where it has dense arrays, from these.

    The model remembers them if they are not large, as it does its dense form.
    """
    rows: PlanningRows | None = model.__dict__.get("_planning_rows")
    if rows is None:
        rows = _rows_of(model)
        if rows.steps.probs.size <= _MOST_REMEMBERED:
            model.__dict__["_planning_rows"] = rows
    return rows


def _rows_of(model: LatentMDP) -> PlanningRows:
    M, S, A, _ = model.dimensions
    table = model.successors()
    require_memory(
        8.0 * M * (table.size + 2 * S * A), f"planning over {table.size:,} possible steps"
    )
    allowed = np.flatnonzero(model.allowed)
    number = np.full(S * A, -1)
    number[allowed] = np.arange(allowed.size)
    first = np.concatenate([[0], np.cumsum(model.allowed.sum(axis=1))])
    starts = np.append(table.starts[allowed], table.size)
    steps = Successors(first, starts, table.next_state, np.ascontiguousarray(table.probs))
    if model.is_table:
        rewards = model.row_rewards().of(allowed)
    else:
        rewards = np.ascontiguousarray(model.planning_rewards().reshape(M, S * A)[:, allowed].T)
    action = (allowed % A).astype(np.int32)
    return PlanningRows(steps, rewards, action, number.reshape(S, A))


def best_actions(model: LatentMDP, values: Floats, check: Check | None = None) -> Integers:
    """The best allowed actions (L, S, M) by `q_values` (L, S, A, M); 0 in terminal states.

    Of actions that are equal up to rounding the one that earns sooner is taken, then the one with
    the lowest number. `check` is that of `q_values`: of ties any may be broken where it raises.
    """
    allowed = np.where(model.allowed[:, :, None], values, -np.inf)
    best = allowed.max(axis=-2, keepdims=True)
    rounding = 1e-12 * np.abs(values).max(initial=0.0)
    tied = (allowed >= best - rounding) & model.allowed[:, :, None]
    decided = model.horizon is None and not model.duration.is_total  # by the discount itself
    if decided or (tied.sum(axis=-2) <= 1).all():
        return np.asarray(allowed.argmax(axis=-2))
    sooner = q_values(model, check, discount=model.duration.planning_discount)
    return np.asarray(np.where(tied, sooner, -np.inf).argmax(axis=-2))


def _is_dense(model: LatentMDP) -> bool:
    """Whether the dense form is the faster one: the one place where that is decided."""
    if model.horizon is None or not model.all_allowed:
        return False
    is_dense: bool | None = model.__dict__.get("_is_dense")
    if is_dense is None:
        M, S, A, _ = model.dimensions
        if model.is_table:
            share, fits = model.outcomes.size / (S * A * S), M * S * A * S <= _MOST_REMEMBERED
        else:
            share, fits = float(model.transitions[0].astype(bool).mean()), True
        is_dense = model.__dict__["_is_dense"] = share > _DENSE_SHARE and fits
    return is_dense


def _dense_values(model: LatentMDP, discount: float, check: Check | None = None) -> Floats:
    """Q-values (M, H, A, W), see `latentmdp._kernels.bellman`."""
    transitions, rewards = model.dense_form
    M, S, A, _ = model.dimensions
    _require_room(model, S * A, "the Q-values")
    values = np.empty((M, model.n_layers, A, bellman.padded_states(S)))

    def fill(first: int, last: int) -> None:
        bellman.dense_values(transitions, rewards, discount, first, last, values)

    _fill_layers(values.swapaxes(0, 1), transitions.size, fill, check, rewards)
    return values


def _interleaved(model: LatentMDP, dense: Floats) -> Floats:
    """Values (M, H, A, W) of the dense form as (H, S, A, M)."""
    return np.ascontiguousarray(dense[..., : model.n_states].transpose(1, 3, 2, 0))


def _row_values(
    model: LatentMDP,
    rows: PlanningRows,
    discount: float,
    check: Check | None = None,
    threads: int | None = None,
) -> Floats:
    """Q-values of the allowed actions, (H, R, M), or upper bounds (1, R, M) without an end."""
    S, M, (steps, rewards) = model.n_states, model.n_contexts, rows.problem
    _require_room(model, len(rewards), "the Q-values")
    values = np.empty((model.n_layers, *rewards.shape))
    if model.horizon is None:
        above = best_from_above(steps, rewards, discount, M, check)
        best_backup(steps, rewards, discount * above, values)
        return values
    ahead, layer = np.zeros((2, S, M)), steps.probs.size
    # States are cut where as many outcomes lie between: blocks depend on nothing but the model.
    shares = np.linspace(0, steps.starts[-1], max(1, int(layer / _BLOCK_WORK)) + 1)
    cuts = np.searchsorted(steps.starts[steps.first], shares).tolist()
    cuts[-1] = S
    spans = list(pairwise(cuts))

    def fill(first: int, last: int) -> None:
        # A layer is done before the one before it begins, so several blocks mean layer by layer.
        times = [(first, last)] if len(spans) == 1 else [(t, t + 1) for t in range(first, last)]
        for layers in reversed(times):
            common = (steps, rewards, discount, *layers, ahead, values)
            run_blocks(bellman.outcome_values, spans, threads, None, *common)

    _fill_layers(values, layer, fill, check, rewards)
    return values


def _fill_layers(
    values: Floats,
    work: int,
    fill: Callable[[int, int], None],
    check: Check | None,
    rewards: Floats,
) -> None:
    """Call fill(first, last) for blocks of layers of values (H, ...), from the last on.

    `work` is the number of multiplications of a layer. If `check` raises `LimitReached`, each
    earlier layer is that after it plus what one more step earns at most of the `rewards`.
    """
    last = len(values)
    try:
        # Without a clock, all layers at once: the probabilities of a context stay in the cache.
        for block in reversed(layer_blocks(last, 0.0 if check is None else work)):
            if check is not None:
                check()
            fill(*block)
            last = block[0]
    except LimitReached:
        further = max(float(rewards.max(initial=0.0)), 0.0)  # nothing, if all rewards are costs
        for t in range(last - 1, -1, -1):
            values[t] = further + (values[t + 1] if t + 1 < len(values) else 0.0)


def layer_blocks(layers: int, work: float) -> list[tuple[int, int]]:
    """Cut range(layers), of so many multiplications each, where the clock may be looked at."""
    return blocks(layers, max(1, int(_BLOCK_WORK / max(1.0, work))))


def _by_action(model: LatentMDP, rows: PlanningRows, values: Floats) -> Floats:
    """Values (L, R, M) of rows as (L, S, A, M), 0 where an action is not allowed."""
    M, S, A, _ = model.dimensions
    if model.all_allowed:
        return values.reshape(-1, S, A, M)
    spread = np.zeros((len(values), S * A, M))
    spread[:, model.allowed.ravel()] = values
    return spread.reshape(-1, S, A, M)


def _require_room(model: LatentMDP, rows: int, what: str) -> None:
    """Refuse values (H, rows, M) that would not fit, saying which horizon would."""
    layer = 8.0 * rows * model.n_contexts
    if 2.0 * model.n_layers * layer <= ALWAYS_FITS:
        return
    longest = int(free_memory() / (2.0 * layer)) if layer else 0
    require_memory(
        2.0 * model.n_layers * layer,
        f"{what}, {memory_text(model.n_layers * layer)} and as much for the policy,",
        f"a horizon of {longest} would fit" if longest else "a smaller model would fit",
    )
