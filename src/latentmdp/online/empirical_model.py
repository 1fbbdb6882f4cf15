"""The empirical model of L-UCRL: belief-weighted counts and what they stand for [kwon2021, Alg. 1].

N_m(s' | s, a), N_m(r | s, a) and N_m(s) are added up over episodes, each with weight b-hat(m); the
model That_m, Rhat_m, nuhat_m is their shares. `Counts` is a snapshot, context first, as users see
it; `EmpiricalModel` holds the counts in the layout of the compiled loop, updated in place, with
everything that acting and planning derive from them.

Where arrays over all (s, a, s') would be large, the counts are those of the outcomes seen:
`OutcomeCounts`, an outcome table whose entries N_m(s', z | s, a) give all the others. Memory and
planning then follow what was seen. `Counts.zero` and `Counts.start` decide, for a whole run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from latentmdp._util.arrays import Arrays, Flags, Floats, Integers, frozen, normalised
from latentmdp._util.fields import float_field, integer_field
from latentmdp._util.memory import few_entries
from latentmdp._util.results import Result
from latentmdp.logs import Trajectories, cell_counts, first_state_counts, occurring_cells
from latentmdp.model import LatentMDP, RewardModel
from latentmdp.online.bonus import Widths
from latentmdp.outcomes import (
    Outcomes,
    dense_joint,
    dense_transitions,
    outcomes_from_entries,
    product,
    row_sums,
)
from latentmdp.policies import AlphaVectorPolicy
from latentmdp.worlds import Space

if TYPE_CHECKING:
    from latentmdp._kernels.empirical import Estimate
    from latentmdp._kernels.optimism import OptimisticValues

__all__ = [
    "AnyCounts",
    "Counts",
    "EmpiricalModel",
    "OutcomeCounts",
    "counts_from_arrays",
    "same_contexts",
]


@dataclass(frozen=True, eq=False)
class Counts(Result):
    """Counts, context first.

    Attributes
    ----------
    transitions : (M, S, A, S)
        N_m(s' | s, a).
    rewards : (M, S, A, Z) or (M, S, A, S, Z)
        N_m(r | s, a), or N_m(s', r | s, a) for the reward model "transition".
    initial : (M, S)
        N_m(s): how often an episode began in s.
    """

    transitions: Floats
    rewards: Floats
    initial: Floats

    def __post_init__(self) -> None:
        for array in self.arrays().values():
            frozen(array)

    def facts(self) -> dict[str, Any]:
        """How much was counted."""
        return {"contexts": len(self.initial), "visits": float(self.visits.sum())}

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(np.add, self.arrays().values(), other.arrays().values()))

    def arrays(self, prefix: str = "") -> Arrays:
        """The arrays by name, which `prefix` goes before."""
        return {f"{prefix}{field.name}": getattr(self, field.name) for field in fields(self)}

    @property
    def visits(self) -> Floats:
        """N_m(s, a) before it is clipped at one, shape (M, S, A)."""
        # Added in the order of the compiled loop, so that both give the same bits.
        return np.cumsum(self.transitions, axis=-1)[..., -1]

    @property
    def episodes(self) -> Floats:
        """N(m), shape (M,)."""
        return self.initial.sum(axis=-1)

    @property
    def reward_model(self) -> RewardModel:
        """Whether rewards are counted by (s, a) or by (s, a, s')."""
        return "transition" if self.rewards.ndim == 5 else "state-action"

    def model(self, space: Space, weights: Floats | None = None) -> LatentMDP:
        """The empirical model; rows without a visit are all zero.

        Weights are the shares N(m) of all episodes, uniform if there are none, unless given.
        """
        if weights is None and self.episodes.sum() > 0.0:
            weights = self.episodes / self.episodes.sum()
        T, R, nu = map(normalised, self.arrays().values())
        return space.model_of(
            T,
            R,
            initial=nu,
            weights=weights,
            allowed=space.allowed_actions(),
            allow_unvisited=True,
        )

    def optimistic_rows(self) -> dict[str, Floats]:
        """That and Rhat of Algorithm 1, N_m(s' | s, a) / max(1, N_m(s, a)), as a model has them."""
        share = 1.0 / np.maximum(1.0, self.visits)[..., None]
        rewards = normalised(self.rewards)
        if self.reward_model == "state-action":
            rewards = self.rewards * share
        return {"transitions": self.transitions * share, "reward_probs": rewards}

    @classmethod
    def zero(cls, space: Space, reward_model: RewardModel) -> AnyCounts:
        """No visits at all."""
        M, S, A, Z = space.dimensions
        if not _keeps_arrays(space, reward_model):
            nothing = np.zeros(0, np.int64)
            return OutcomeCounts.of(
                nothing, np.zeros((0, M)), np.zeros((M, S)), space, reward_model
            )
        rewards = (M, S, A, S, Z) if reward_model == "transition" else (M, S, A, Z)
        return cls(np.zeros((M, S, A, S)), np.zeros(rewards), np.zeros((M, S)))

    @classmethod
    def start(
        cls, start: Any, space: Space, prior_count: float, reward_model: RewardModel
    ) -> AnyCounts:
        """What a learner begins with.

        `start` is None, a model (or a `Fit` that holds one) whose every row counts as
        `prior_count` visits, or logs with contexts.
        """
        if start is None:
            return cls.zero(space, reward_model)
        if isinstance(start, Trajectories):
            return _counts_of_logs(start, space, reward_model)
        model = start if isinstance(start, LatentMDP) else getattr(start, "model", None)
        if not isinstance(model, LatentMDP):
            raise TypeError(
                "start must be None, a LatentMDP, a Fit or Trajectories with contexts, got "
                f"{type(start).__name__}"
            )
        space.require_fit("start", model)
        M, S, A, _ = space.dimensions
        rows, episodes = np.full((M, S, A), prior_count), np.full(M, prior_count)
        return cls.of_model(model, rows, episodes, space, reward_model)

    @classmethod
    def of_model(
        cls,
        model: LatentMDP,
        rows: Floats,
        episodes: Floats,
        space: Space,
        reward_model: RewardModel,
    ) -> AnyCounts:
        """A model whose rows count as `rows` (M, S, A) visits, its starts as `episodes` (M,)."""
        initial = episodes[:, None] * model.initial
        if not _keeps_arrays(space, reward_model):
            table, by_row = model.outcomes, rows.reshape(len(rows), -1).T
            keys = table.keys(space.n_states, space.n_rewards)
            counts = by_row[table.rows()] * table.probs
            return OutcomeCounts.of(keys, counts, initial, space, reward_model)
        joint = model.observation_probs()
        by_pair = reward_model == "state-action"
        rewards = joint.sum(axis=3) if by_pair else joint
        weights = rows[..., None] if by_pair else rows[..., None, None]
        return cls(rows[..., None] * model.transitions, weights * rewards, initial)


@dataclass(frozen=True, eq=False)
class OutcomeCounts(Result):
    """Counts of the outcomes seen, for models whose arrays would be large.

    Attributes
    ----------
    outcomes
        An outcome table with N_m(s', z | s, a) in place of probabilities.
    initial : (M, S)
        N_m(s): how often an episode began in s.
    n_rewards
        Z.
    reward_model
        Whether rewards are taken to depend on (s, a) or on (s, a, s').
    """

    outcomes: Outcomes
    initial: Floats
    n_rewards: int
    reward_model: RewardModel

    def __post_init__(self) -> None:
        for array in (*self.outcomes, self.initial):
            frozen(array)

    @classmethod
    def of(
        cls,
        keys: Integers,
        counts: Floats,
        initial: Floats,
        space: Space,
        reward_model: RewardModel,
    ) -> OutcomeCounts:
        """Counts (n, M) of outcomes numbered as `Outcomes.keys` does; equal ones are added."""
        M, S, A, Z = space.dimensions
        rows, rest = np.divmod(np.repeat(keys, M), S * Z)
        contexts = np.tile(np.arange(M), keys.size)
        parts = (rows, rest // Z, rest % Z, contexts, counts.ravel())
        return cls(outcomes_from_entries(*parts, (M, S, A, Z)), initial, Z, reward_model)

    def facts(self) -> dict[str, Any]:
        """How much was counted."""
        visits = float(self.outcomes.probs.sum())
        return {"contexts": len(self.initial), "visits": visits, "outcomes": self.outcomes.size}

    def __add__(self, other: OutcomeCounts) -> OutcomeCounts:
        M, S, _, Z = self.dimensions
        mine, theirs = self.outcomes, other.outcomes
        keys = np.concatenate([mine.keys(S, Z), theirs.keys(S, Z)])
        rows, rest = np.divmod(np.repeat(keys, M), S * Z)
        counts = np.concatenate([mine.probs, theirs.probs]).ravel()
        contexts = np.tile(np.arange(M), keys.size)
        table = outcomes_from_entries(rows, rest // Z, rest % Z, contexts, counts, self.dimensions)
        return replace(self, outcomes=table, initial=self.initial + other.initial)

    def arrays(self, prefix: str = "") -> Arrays:
        """The arrays by name, which `prefix` goes before."""
        names = ("starts", "next_state", "reward", "counts")
        found: Arrays = {f"{prefix}initial": self.initial}
        found |= zip((f"{prefix}outcome_{name}" for name in names), self.outcomes)
        return found

    @property
    def dimensions(self) -> tuple[int, int, int, int]:
        """M, S, A and Z."""
        M, S = self.initial.shape
        return M, S, (self.outcomes.starts.size - 1) // S, self.n_rewards

    @cached_property
    def transitions(self) -> Floats:
        """N_m(s' | s, a), shape (M, S, A, S); refused where it would not fit into memory."""
        return frozen(dense_transitions(self.outcomes, self.dimensions))

    @cached_property
    def rewards(self) -> Floats:
        """Counts of rewards as `Counts` has them; refused where they would not fit."""
        joint = np.moveaxis(dense_joint(self.outcomes, self.dimensions), -1, 0)
        by_pair = self.reward_model == "state-action"
        return frozen(np.ascontiguousarray(joint.sum(axis=3) if by_pair else joint))

    @property
    def visits(self) -> Floats:
        """N_m(s, a) before it is clipped at one, shape (M, S, A)."""
        M, S, A, _ = self.dimensions
        return np.ascontiguousarray(row_sums(self.outcomes, self.outcomes.probs).T).reshape(M, S, A)

    @property
    def episodes(self) -> Floats:
        """N(m), shape (M,)."""
        return self.initial.sum(axis=-1)

    def table(self) -> Outcomes:
        """Phat_m(s', z | s, a); rows of a context without a visit are all zero."""
        if self.reward_model == "transition":
            return _shares(self.outcomes)
        return product(_shares(self.outcomes.successors()), _shares(self.outcomes.rewards()))

    def model(self, space: Space, weights: Floats | None = None) -> LatentMDP:
        """The empirical model; rows without a visit are all zero.

        Weights are the shares N(m) of all episodes, uniform if there are none, unless given.
        """
        if weights is None and self.episodes.sum() > 0.0:
            weights = self.episodes / self.episodes.sum()
        return LatentMDP.from_outcomes(
            *self.table(),
            n_states=space.n_states,
            horizon=space.horizon,
            discount=space.discount,
            reward_values=space.reward_array,
            allowed=space.allowed_actions(),
            reward_model=self.reward_model,
            initial=normalised(self.initial),
            weights=weights,
            allow_unvisited=True,
        )

    def optimistic_rows(self) -> dict[str, Any]:
        """Phat of Algorithm 1: a row with less than one visit sums to less than one."""
        table = self.table()
        short = np.minimum(1.0, row_sums(self.outcomes, self.outcomes.probs))
        return {"outcomes": table._replace(probs=table.probs * short[table.rows()])}


AnyCounts = Counts | OutcomeCounts


def _shares(counts: Outcomes) -> Outcomes:
    """Counts as shares of their row's."""
    totals = row_sums(counts, counts.probs)[counts.rows()]
    shares = np.divide(counts.probs, totals, out=np.zeros_like(counts.probs), where=totals > 0.0)
    return counts._replace(probs=shares)


def _keeps_arrays(space: Space, reward_model: RewardModel) -> bool:
    """Whether counts are arrays over all transitions, rather than a table of those seen."""
    _, S, A, Z = space.dimensions
    return few_entries(float(S) * A * S * (Z if reward_model == "transition" else 1))


def _counts_of_logs(logs: Trajectories, space: Space, reward_model: RewardModel) -> AnyCounts:
    if logs.contexts is None:
        raise ValueError("start: the logs must know their contexts")
    if logs.contexts.size and int(logs.contexts.max()) >= space.n_contexts:
        worst = int(np.argmax(logs.contexts))
        raise ValueError(
            f"start: episode {worst} has context {logs.contexts[worst]}, the world only "
            f"{space.n_contexts} contexts"
        )
    for name in ("n_states", "n_actions", "n_rewards"):
        if getattr(logs, name) > getattr(space, name):
            raise ValueError(
                f"start has {name}={getattr(logs, name)}, the world {getattr(space, name)}"
            )
    sizes = (space.n_states, space.n_actions, space.n_rewards)
    shares = np.eye(space.n_contexts)[logs.contexts]
    first = first_state_counts(logs, space.n_states, shares)
    steps = ("state", "action", "next_state")
    if not _keeps_arrays(space, reward_model):
        cells, counts = occurring_cells(logs, (*steps, "reward"), sizes, shares)
        return OutcomeCounts.of(cells, counts, first, space, reward_model)
    by = steps if reward_model == "transition" else steps[:2]
    return Counts(
        cell_counts(logs, steps, sizes, shares),
        cell_counts(logs, (*by, "reward"), sizes, shares),
        first,
    )


def counts_from_arrays(
    found: Mapping[str, Any],
    prefix: str,
    dimensions: tuple[int, int, int, int],
    reward_model: RewardModel,
) -> AnyCounts:
    """The counts that `arrays` gave, from fields whose names begin with `prefix`.

    Raises where they do not fit each other, or the `dimensions` M, S, A and Z.
    """
    M, S, A, Z = dimensions
    initial = float_field(found, f"{prefix}initial", M, S)
    if f"{prefix}outcome_starts" not in found:
        outcomes = (S, Z) if reward_model == "transition" else (Z,)
        return Counts(
            float_field(found, f"{prefix}transitions", M, S, A, S),
            float_field(found, f"{prefix}rewards", M, S, A, *outcomes),
            initial,
        )
    starts = integer_field(found, f"{prefix}outcome_starts", S * A + 1)
    next_state = integer_field(found, f"{prefix}outcome_next_state", None, below=S)
    n = next_state.size
    reward = integer_field(found, f"{prefix}outcome_reward", n, below=Z)
    counts = float_field(found, f"{prefix}outcome_counts", n, M)
    if starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 0).any():
        raise ValueError(f"{prefix}outcome_starts must rise from 0 to the number of outcomes, {n}")
    table = Outcomes(starts, next_state.astype(np.int32), reward.astype(np.int32), counts)
    if (np.diff(table.keys(S, Z)) <= 0).any() or (counts < 0.0).any():
        raise ValueError(
            f"{prefix}outcome_*: the outcomes of a row must rise, their counts be >= 0"
        )
    return OutcomeCounts(table, initial, Z, reward_model)


def same_contexts(counts: AnyCounts) -> bool:
    """Whether all contexts have the same counts, so that nothing tells them apart."""
    if isinstance(counts, OutcomeCounts):
        return bool((counts.outcomes.probs == counts.outcomes.probs[:, :1]).all())
    return all(bool((a == a[:1]).all()) for a in (counts.transitions, counts.rewards))


@dataclass
class EmpiricalModel:
    """Counts, what is derived from them, and the optimistic values; updated in place.

    Attributes
    ----------
    space
        Sizes, with the number of contexts the learner assumes.
    estimate, optimistic
        What compiled steps read and write.
    widths
        Of the bonus.
    """

    space: Space
    estimate: Estimate
    optimistic: OptimisticValues
    widths: Widths

    @classmethod
    def begin(
        cls,
        space: Space,
        counts: AnyCounts,
        widths: Widths | None,
        smoothing: float,
        growth: float,
        weights: Floats | None,
        learn_weights: bool,
    ) -> EmpiricalModel:
        """The state before the first episode; without `widths` there is no bonus."""
        from latentmdp._kernels.bellman import padded_states
        from latentmdp._kernels.empirical import KNOWN, LEARNED, UNIFORM, Cells, Estimate
        from latentmdp._kernels.optimism import (
            AS_PRINTED,
            BY_VARIANCE,
            FORBIDDEN,
            HIDDEN_REWARDS,
            OptimisticValues,
        )

        widths = Widths(0.0, 0.0, 0.0, 0.0, False) if widths is None else widths
        M, S, A, Z = space.dimensions
        n = A * padded_states(S)
        start = KNOWN if weights is not None else LEARNED if learn_weights else UNIFORM
        table, by_transition = (
            isinstance(counts, OutcomeCounts),
            counts.reward_model == "transition",
        )
        rows = 0 if table else S * A
        cells = Cells(
            heads=np.full(S * A, -1),
            cells=np.zeros((0, 4), np.int64),
            counts=np.zeros((0, M)),
            used=np.zeros(1, np.int64),
            places=np.zeros(space.required_horizon(), np.int64),
        )
        estimate = Estimate(
            sizes=(S, A, Z),
            transition_rewards=by_transition,
            start=start,
            reward_values=space.reward_array,
            smoothing=float(smoothing),
            table=cells if table else None,
            transition_counts=np.zeros((rows, S, M)),
            reward_counts=np.zeros((rows * S if by_transition else rows, Z, M)),
            initial_counts=np.zeros((S, M)),
            visits=np.zeros((S * A, M)),
            scale=np.empty((S * A, M)),
            scratch=np.empty((3, M)),
            rows=np.empty(S * A, np.int64),
            seen=np.zeros(S * A, np.bool_),
            prior=np.full(M, 1.0 / M) if weights is None else weights.copy(),
            initial=np.full((S, M), 1.0 / S),
            transitions=np.zeros((M, 0 if table else S, n)),
            means=np.zeros((M, n)),
            variances=np.zeros((M, n)),
        )
        allowed = space.allowed_actions()
        terminal: Flags = np.logical_not(allowed.any(axis=1))
        missing = np.flatnonzero(~allowed)
        kind, variance, caps = HIDDEN_REWARDS, [0.0] * 4, space.highest_returns
        if widths.variance is not None:
            *variance, printed = widths.variance
            kind = AS_PRINTED if printed else BY_VARIANCE
            if printed:
                caps = np.full_like(caps, widths.reach + widths.lowest)
        optimistic = OptimisticValues(
            kind=kind,
            reach=float(widths.reach),
            width=float(widths.row),
            lowest=float(widths.lowest),
            adaptive=widths.adaptive,
            deviation=float(variance[0]),
            remainder=float(variance[1]),
            reward_deviation=float(variance[2]),
            reward_remainder=float(variance[3]),
            growth=float(growth),
            discount=float(space.discount),
            values=np.zeros((M, space.required_horizon(), n)),
            caps=caps,
            bonus=np.zeros((M, n)),
            rewards=np.zeros((M, n)),
            slopes=np.zeros((M, n)),
            shares=np.zeros((M, n)),
            unseen=np.zeros((M, n)),
            inverse=np.ones((M, n)),
            outside=np.full((M, n // A), np.inf),
            missing=missing,
            penalty=np.where(terminal[missing // A], 0.0, FORBIDDEN),
            terminal=terminal,
            ends=np.flatnonzero(terminal),
            spread=np.full(M, float(widths.reach)),
            planned_visits=np.zeros((S * A, M)),
            changes=np.zeros(M),
            stale=np.ones(M, np.bool_),
            due=np.ones(1, np.bool_),
        )
        empirical = cls(space, estimate, optimistic, widths)
        empirical.set_counts(counts)
        return empirical

    def counts(self) -> AnyCounts:
        """A copy of the counts, context first."""
        M, S, A, Z = self.space.dimensions
        e = self.estimate
        if seen := self.cells():
            initial = _unpacked(e.initial_counts, (S, M))
            kind: RewardModel = "transition" if e.transition_rewards else "state-action"
            rows, n, z = seen["cells"].T
            keys = (rows * S + n) * Z + z
            return OutcomeCounts.of(keys, seen["cell_counts"], initial, self.space, kind)
        shape = (S, A, S, Z, M) if e.transition_rewards else (S, A, Z, M)
        packed = (e.transition_counts, e.reward_counts, e.initial_counts)
        return Counts(*map(_unpacked, packed, ((S, A, S, M), shape, (S, M))))

    def cells(self) -> Arrays:
        """Of a table: s A + a, s' and z of its cells in the order they were seen, and their counts.

        Nothing where counts are arrays.
        """
        table = self.estimate.table
        if table is None:
            return {}
        n = int(table.used[0])
        return {"cells": table.cells[:n, :3], "cell_counts": table.counts[:n]}

    def set_counts(self, counts: AnyCounts) -> None:
        """Replace the counts and derive everything from them again."""
        e = self.estimate
        e.initial_counts[...] = counts.initial.T
        if isinstance(counts, OutcomeCounts):
            table = counts.outcomes
            cells = np.column_stack([table.rows(), table.next_state, table.reward])
            self.set_cells(cells, table.probs)
            return
        for own, given in zip((e.transition_counts, e.reward_counts), counts.arrays().values()):
            own[...] = _packed(given, own.shape)
        self.refresh()

    def add_counts(self, counts: AnyCounts) -> None:
        """Add counts of the same form, and derive everything again."""
        own: Any = self.counts()
        self.set_counts(own + counts)

    def set_cells(self, cells: Integers, counts: Floats) -> None:
        """Replace the counts of a table by those of `cells` in their order, derive the rest."""
        from latentmdp._kernels.empirical import write_cells

        self._room_for(len(cells))
        rows, n, z = np.ascontiguousarray(cells.T, np.int64)
        write_cells(self.estimate.table, rows, n, z, np.ascontiguousarray(counts))
        self.refresh()

    def refresh(self) -> None:
        """Derive everything from the counts again."""
        from latentmdp._kernels.empirical import refresh
        from latentmdp._kernels.optimism import weigh

        refresh(self.estimate)
        if self.widths.variance is not None:
            weigh(self.estimate, self.optimistic)

    def make_room(self) -> None:
        """Let a table have room for the cells of one more episode; it grows by doubling."""
        if self.estimate.table is not None:
            self._room_for(int(self.estimate.table.used[0]))

    def _room_for(self, cells: int) -> None:
        """Room in the table for so many cells and those of one more episode."""
        table = self.estimate.table
        assert table is not None
        needed, (capacity, M) = cells + table.places.size, table.counts.shape
        if needed > capacity:
            more = max(2 * capacity, needed) - capacity
            grown = table._replace(
                cells=np.concatenate([table.cells, np.zeros((more, 4), np.int64)]),
                counts=np.concatenate([table.counts, np.zeros((more, M))]),
            )
            self.estimate = self.estimate._replace(table=grown)

    def model(self, weights: Floats | None = None) -> LatentMDP:
        """The empirical model."""
        return self.counts().model(self.space, weights)

    def bonus(self) -> Floats:
        """The bonus of the last plan, shape (M, S, A)."""
        M, S, A, _ = self.space.dimensions
        return np.ascontiguousarray(self.optimistic.bonus.reshape(M, A, -1)[..., :S].swapaxes(1, 2))

    def weights(self) -> Floats:
        """The weights that beliefs start from."""
        return self.estimate.prior / self.estimate.prior.sum()

    def acting_model(self) -> LatentMDP:
        """The empirical model with the start of the acting filter: its w and nu."""
        model = self.model(self.weights())
        return model.replace(initial=np.ascontiguousarray(self.estimate.initial.T))

    def policy(self) -> AlphaVectorPolicy:
        """The Q-MDP policy of the last plan, with the filter it acts by."""
        from latentmdp._kernels.bellman import padded_states

        M, S, A, _ = self.space.dimensions
        values = self.optimistic.values.copy().reshape(M, -1, A, padded_states(S))
        smoothing = self.estimate.smoothing
        return AlphaVectorPolicy.from_values(values, self.acting_model(), smoothing, dense=True)

    def optimistic_model(self, counts: AnyCounts) -> LatentMDP:
        """The empirical model of some counts with hidden rewards [kwon2021, Prop. 3.2].

        Rows are N_m(s' | s, a) / max(1, N_m(s, a)) as in Algorithm 1: a row with less than one
        visit sums to less than one, and the bonus makes up for what is missing. The bonus is the
        last one that was set (`raise_bonus`), and weights are those that the learner's filter
        starts from.
        """
        widths = self.widths
        missing = np.maximum(0.0, 1.0 - counts.episodes)
        radius = np.sqrt(widths.initial / np.maximum(1.0, counts.episodes))
        empirical = counts.model(self.space, self.weights())
        return LatentMDP._trusted(
            empirical,
            **counts.optimistic_rows(),
            initial=counts.initial / np.maximum(1.0, counts.episodes)[:, None],
            bonus=self.bonus(),
            initial_bonus=widths.reach * np.minimum(1.0, missing + radius),
        )

    def raise_bonus(self) -> None:
        """Plan by Q-MDP if that is due, and set the bonus of that plan, the same at all times.

        Both kinds of bonus need the values: U_m of the adaptive one is the largest informed value
        in the optimistic model; one by variance changes with t, and the largest over all t is set,
        with which any planner's values are at least those of Q-MDP here.
        """
        from latentmdp._kernels.optimism import largest_bonus

        self.replan()
        if self.widths.variance is not None:
            largest_bonus(self.estimate, self.optimistic)

    def replan(self) -> None:
        """Plan by Q-MDP in every context whose counts changed, if that is due."""
        from latentmdp._kernels.optimism import replan_values

        replan_values(self.estimate, self.optimistic)

    def require_plan(self) -> None:
        """Make a plan due that knows all that was counted, however little it is."""
        self.optimistic.stale[self.optimistic.changes > 0.0] = True
        self.optimistic.due[0] = True

    def informed_value(self) -> float:
        """The informed bound of the last Q-MDP plan in the optimistic model."""
        from latentmdp._kernels.bellman import informed_value, padded_states

        M, S, A, _ = self.space.dimensions
        model = self.optimistic_model(self.counts())
        assert model.initial_bonus is not None
        values = self.optimistic.values.reshape(M, -1, A, padded_states(S))
        value = informed_value(values, model.weights, model.initial)
        return float(value + model.weights @ model.initial_bonus)

    def distances(self, truth: LatentMDP) -> Floats:
        """sum_{s,a} ||P_n - Phat_m||_1 for every pair of contexts, (M, M)."""
        from latentmdp._kernels.empirical import distances

        if self.estimate.table is not None:
            return truth.distances(self.model())
        M = self.space.n_contexts
        cost = np.empty((M, M))
        distances(self.estimate, truth.packed().reshape(-1, M), cost)
        return cost


def _packed(array: Floats, shape: tuple[int, ...]) -> Floats:
    return np.array(np.moveaxis(array, 0, -1), order="C").reshape(shape)


def _unpacked(array: Floats, shape: tuple[int, ...]) -> Floats:
    return np.array(np.moveaxis(array.reshape(shape), -1, 0), order="C")
