"""The empirical model of L-UCRL: belief-weighted counts and what they stand for [kwon2021, Alg. 1].

N_m(s' | s, a), N_m(r | s, a) and N_m(s) are added up over episodes, each with weight b-hat(m); the
model That_m, Rhat_m, nuhat_m is their shares. `Counts` is a snapshot of those that are not zero, as
users see it; `EmpiricalModel` holds the counts in the layout of the compiled loop, updated in
place, with everything that acting and planning derive from them. Memory and planning follow what
was seen, except where all (s, a, s') are few.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from latentmdp._util.arrays import (
    Arrays,
    Flags,
    Floats,
    Indices,
    Integers,
    frozen,
    normalised,
    read_only,
)
from latentmdp._util.fields import float_field, integer_field
from latentmdp._util.memory import few_entries, require_memory
from latentmdp._util.results import Result
from latentmdp._util.words import plural
from latentmdp.logs import Trajectories, first_state_counts, occurring_cells
from latentmdp.model import LatentMDP, RewardModel
from latentmdp.online.bonus import AS_PRINTED, BY_VARIANCE, HIDDEN_REWARDS, Widths
from latentmdp.outcomes import Outcomes, product, row_sums
from latentmdp.policies import AlphaVectorPolicy
from latentmdp.worlds import Space

if TYPE_CHECKING:
    from latentmdp.online.kernels_lucrl import Estimate, OptimisticValues


@dataclass(frozen=True, eq=False)
class Counts(Result):
    """Counts of what was seen, as two outcome tables with counts in place of probabilities.

    Attributes
    ----------
    moves
        N_m(s' | s, a); its rewards are all 0.
    payments
        N_m(r | s, a), its next states all 0; for the reward model "transition", N_m(s', r | s, a).
    initial : (M, S)
        N_m(s): how often an episode began in s.
    n_rewards
        Z.
    reward_model
        Whether rewards are counted by (s, a) or by (s, a, s').
    """

    moves: Outcomes
    payments: Outcomes
    initial: Floats
    n_rewards: int
    reward_model: RewardModel

    def __post_init__(self) -> None:
        for array in (*self.moves, *self.payments, self.initial):
            frozen(array)

    @classmethod
    def of_keys(
        cls,
        moves: tuple[Integers, Floats],
        payments: tuple[Integers, Floats],
        initial: Floats,
        dimensions: tuple[int, int, int, int],
        reward_model: RewardModel,
    ) -> Counts:
        """Numbers (n,) of outcomes with their counts (n, M), in any order; equal ones are added.

        A transition has the number (s A + a) S + s'; a reward (s A + a) Z + z or, by next states,
        ((s A + a) S + s') Z + z. `dimensions` are M, S, A and Z.
        """
        _, S, A, Z = dimensions
        moved, after, weights = _added(*moves, S * A, S)
        per_row = S * Z if reward_model == "transition" else Z
        paid, key, earned = _added(*payments, S * A, per_row)
        return cls(
            Outcomes.each(moved, after, np.zeros_like(after), weights),
            Outcomes.each(paid, key // Z, key % Z, earned),
            initial,
            Z,
            reward_model,
        )

    @classmethod
    def of_table(cls, joint: Outcomes, initial: Floats, Z: int, kind: RewardModel) -> Counts:
        """Counts N_m(s', r | s, a) of a table."""
        payments = joint if kind == "transition" else joint.rewards()
        return cls(joint.successors(), payments, initial, Z, kind)

    @classmethod
    def of_arrays(cls, transitions: Floats, rewards: Floats, initial: Floats) -> Counts:
        """Counts (M, S, A, S), (M, S, A, Z) or (M, S, A, S, Z), and (M, S)."""
        M, S, A, _ = transitions.shape
        kind: RewardModel = "transition" if rewards.ndim == 5 else "state-action"
        moves, payments = (
            (np.arange(array[0].size), array.reshape(M, -1).T) for array in (transitions, rewards)
        )
        return cls.of_keys(moves, payments, initial, (M, S, A, rewards.shape[-1]), kind)

    def facts(self) -> dict[str, Any]:
        """How much was counted."""
        visits = float(self.moves.probs.sum())
        return {"contexts": len(self.initial), "visits": visits, "transitions": self.moves.size}

    def __repr__(self) -> str:
        visits, contexts = self.moves.probs.sum(), plural(len(self.initial), "context")
        return f"Counts({visits:.6g} visits, {self.moves.size} transitions, {contexts})"

    def __add__(self, other: Counts) -> Counts:
        moves, payments = (
            (np.concatenate([mine[0], theirs[0]]), np.concatenate([mine[1], theirs[1]]))
            for mine, theirs in zip(self.keyed(), other.keyed())
        )
        initial = self.initial + other.initial
        return Counts.of_keys(moves, payments, initial, self.dimensions, self.reward_model)

    def keyed(self) -> tuple[tuple[Integers, Floats], tuple[Integers, Floats]]:
        """Numbers and counts of transitions and of rewards, as `of_keys` takes them."""
        _, S, _, Z = self.dimensions
        next_states = S if self.reward_model == "transition" else 1
        return (
            (self.moves.keys(S, 1), self.moves.probs),
            (self.payments.keys(next_states, Z), self.payments.probs),
        )

    def fields(self, prefix: str = "") -> Arrays:
        """The arrays by name, which `prefix` goes before."""
        arrays_by_name: Arrays = {f"{prefix}initial": self.initial}
        for name, table in zip(_TABLES, (self.moves, self.payments)):
            arrays_by_name |= zip(
                (f"{prefix}{name}_{column}" for column in _COLUMNS), (*table[:3], table.probs)
            )
        return arrays_by_name

    @classmethod
    def of_fields(
        cls,
        fields: Mapping[str, Any],
        prefix: str,
        dimensions: tuple[int, int, int, int],
        kind: RewardModel,
    ) -> Counts:
        """The counts that `fields` gave, from fields whose names begin with `prefix`.

        Files of version 0.2 have arrays, or one table of (s', r). Raises where they do not fit each
        other, or the `dimensions` M, S, A and Z.
        """
        M, S, A, Z = dimensions
        initial = float_field(fields, f"{prefix}initial", M, S)
        if f"{prefix}transitions" in fields:
            by_pair = (S, Z) if kind == "transition" else (Z,)
            transitions = float_field(fields, f"{prefix}transitions", M, S, A, S)
            rewards = float_field(fields, f"{prefix}rewards", M, S, A, *by_pair)
            return cls.of_arrays(transitions, rewards, initial)
        if f"{prefix}outcome_starts" in fields:
            joint = _table_field(fields, f"{prefix}outcome_", dimensions)
            return cls.of_table(joint, initial, Z, kind)
        moves, payments = (_table_field(fields, f"{prefix}{name}_", dimensions) for name in _TABLES)
        return cls(moves, payments, initial, Z, kind)

    @property
    def dimensions(self) -> tuple[int, int, int, int]:
        """M, S, A and Z."""
        M, S = self.initial.shape
        return M, S, (self.moves.starts.size - 1) // S, self.n_rewards

    @cached_property
    def transitions(self) -> Floats:
        """N_m(s' | s, a), shape (M, S, A, S); refused where it would not fit into memory."""
        M, S, A, _ = self.dimensions
        return self._dense(self.keyed()[0], (M, S, A, S), "the counts of transitions")

    @cached_property
    def rewards(self) -> Floats:
        """N_m(r | s, a), (M, S, A, Z), or N_m(s', r | s, a), (M, S, A, S, Z)."""
        M, S, A, Z = self.dimensions
        shape = (M, S, A, S, Z) if self.reward_model == "transition" else (M, S, A, Z)
        return self._dense(self.keyed()[1], shape, "the counts of rewards")

    def _dense(self, keyed: tuple[Integers, Floats], shape: tuple[int, ...], what: str) -> Floats:
        require_memory(8.0 * math.prod(shape), f"{what} as an array of shape {shape}")
        dense = np.zeros((shape[0], math.prod(shape[1:])))
        dense[:, keyed[0]] = keyed[1].T
        return frozen(dense.reshape(shape))

    @property
    def visits(self) -> Floats:
        """N_m(s, a) before it is clipped at one, shape (M, S, A)."""
        M, S, A, _ = self.dimensions
        return np.ascontiguousarray(row_sums(self.moves, self.moves.probs).T).reshape(M, S, A)

    @property
    def episodes(self) -> Floats:
        """N(m), shape (M,)."""
        return self.initial.sum(axis=-1)

    def joint(self) -> Outcomes:
        """N_m(s', z | s, a), for rewards by (s, a) as if they did not depend on s'."""
        if self.reward_model == "transition":
            return self.payments
        return product(self.moves, _shares(self.payments))

    def table(self) -> Outcomes:
        """Phat_m(s', z | s, a); rows of a context without a visit are all zero."""
        return _shares(self.joint())

    def model(self, space: Space, weights: Floats | None = None) -> LatentMDP:
        """The empirical model; rows without a visit are all zero.

        Weights are the shares N(m) of all episodes, uniform if there are none, unless given.
        """
        if weights is None and self.episodes.sum() > 0.0:
            weights = self.episodes / self.episodes.sum()
        return space.table_model(
            self.table(),
            reward_model=self.reward_model,
            allow_unvisited=True,
            initial=normalised(self.initial),
            weights=weights,
        )

    def optimistic_table(self) -> Outcomes:
        """Phat of Algorithm 1: a row sums to min(1, N_m(s, a))."""
        table = self.table()
        short = np.minimum(1.0, row_sums(self.moves, self.moves.probs))
        return table.having(table.probs * short[table.rows()])

    @classmethod
    def zero(cls, space: Space, reward_model: RewardModel = "state-action") -> Counts:
        """No visits at all."""
        M, S, _, _ = space.dimensions
        nothing = np.zeros(0, np.int64), np.zeros((0, M))
        return cls.of_keys(nothing, nothing, np.zeros((M, S)), space.dimensions, reward_model)

    @classmethod
    def start(
        cls, start: Any, space: Space, prior_count: float, reward_model: RewardModel
    ) -> Counts:
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
    def of_logs(
        cls, logs: Trajectories, shares: Floats, space: Space, reward_model: RewardModel
    ) -> Counts:
        """What episodes showed, each counted in context m with its share (n, M)."""
        sizes = (space.n_states, space.n_actions, space.n_rewards)
        first = first_state_counts(logs, space.n_states, shares)
        steps = ("state", "action", "next_state")
        paid = (*steps, "reward") if reward_model == "transition" else (*steps[:2], "reward")
        moves, payments = (occurring_cells(logs, by, sizes, shares) for by in (steps, paid))
        dimensions = (shares.shape[1], *sizes)
        return cls.of_keys(moves, payments, first, dimensions, reward_model)

    @classmethod
    def of_model(
        cls,
        model: LatentMDP,
        rows: Floats,
        episodes: Floats,
        space: Space,
        reward_model: RewardModel,
    ) -> Counts:
        """A model whose rows count as `rows` (M, S, A) visits, its starts as `episodes` (M,)."""
        table, by_row = model.outcomes, rows.reshape(len(rows), -1).T
        joint = table.having(by_row[table.rows()] * table.probs)
        initial = episodes[:, None] * model.initial
        return cls.of_table(joint, initial, space.n_rewards, reward_model)


_TABLES = ("move", "payment")
_COLUMNS = ("starts", "next_state", "reward", "counts")


def _added(
    keys: Integers, counts: Floats, rows: int, per_row: int
) -> tuple[Integers, Indices, Floats]:
    """Starts of rows, places within them and counts of the outcomes with these keys, rising.

    Equal keys are added up in their order; those without counts are left out.
    """
    counted = counts.any(axis=1)
    order = np.argsort(keys[counted], kind="stable")
    keys, counts = keys[counted][order], counts[counted][order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    sums = np.add.reduceat(counts, first, axis=0) if first.size else counts
    row, column = np.divmod(keys[first], per_row)
    starts = np.searchsorted(row, np.arange(rows + 1)).astype(np.int64)
    return starts, column.astype(np.int32), sums


def _shares(counts: Outcomes) -> Outcomes:
    """Counts as shares of their row's."""
    totals = row_sums(counts, counts.probs)[counts.rows()]
    shares = np.divide(counts.probs, totals, out=np.zeros(totals.shape), where=totals > 0.0)
    return counts.having(shares)


def _table_field(
    fields: Mapping[str, Any], prefix: str, dimensions: tuple[int, int, int, int]
) -> Outcomes:
    """A table of counts from fields whose names begin with `prefix`; raises where it is none."""
    M, S, A, Z = dimensions
    starts = integer_field(fields, f"{prefix}starts", S * A + 1)
    next_state = integer_field(fields, f"{prefix}next_state", None, below=S)
    n = next_state.size
    reward = integer_field(fields, f"{prefix}reward", n, below=Z)
    counts = float_field(fields, f"{prefix}counts", n, M)
    if starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 0).any():
        raise ValueError(f"{prefix}starts must rise from 0 to the number of outcomes, {n}")
    table = Outcomes.each(starts, next_state.astype(np.int32), reward.astype(np.int32), counts)
    if (np.diff(table.keys(S, Z)) <= 0).any() or (counts < 0.0).any():
        raise ValueError(f"{prefix}*: the outcomes of a row must rise, their counts be >= 0")
    return table


def _counts_of_logs(logs: Trajectories, space: Space, reward_model: RewardModel) -> Counts:
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
    return Counts.of_logs(logs, np.eye(space.n_contexts)[logs.contexts], space, reward_model)


def same_contexts(counts: Counts) -> bool:
    """Whether all contexts have the same counts, so that nothing tells them apart."""
    tables = (counts.moves.probs, counts.payments.probs)
    return all(bool((array == array[:, :1]).all()) for array in tables)


@dataclass
class EmpiricalModel:
    """Counts, what is derived from them, and the optimistic values; updated in place.

    Attributes
    ----------
    space
        Sizes, with the number of contexts the learner assumes.
    estimate, optimistic
        What compiled steps read and write.
    """

    space: Space
    estimate: Estimate
    optimistic: OptimisticValues

    @classmethod
    def begin(
        cls,
        space: Space,
        counts: Counts,
        widths: Widths = Widths(),  # noqa: B008
        smoothing: float = 0.0,
        growth: float = 0.0,
        weights: Floats | None = None,
        learn_weights: bool = True,
        retry: bool = True,
    ) -> EmpiricalModel:
        """The state before the first episode; without `widths` there is no bonus."""
        from latentmdp._kernels.bellman import GROUP, padded_states
        from latentmdp.online.kernels_lucrl import KNOWN, LEARNED, REWARD, TERMS, UNIFORM, Estimate

        M, S, A, Z = space.dimensions
        H, W = space.required_horizon(), padded_states(S)
        by_next = Z if counts.reward_model == "transition" else 0
        keys = padded_states(W + max(1, S * (by_next > 0)) * Z)
        dense = few_entries(float(A * W) * keys)
        cells = A * W * keys if dense else 0
        cell_counts, columns = np.zeros((M, cells)), np.zeros((M, TERMS, A * W))
        forbidden = _forbidden(space, W)
        # No maximum takes an action that is not allowed; finite, since zero times it must be zero.
        columns[:, REWARD, forbidden] = -1e100
        estimate = Estimate(
            sizes=(S, A, Z),
            dense=dense,
            by_next=by_next,
            start=KNOWN if weights is not None else LEARNED if learn_weights else UNIFORM,
            smoothing=float(smoothing),
            reward_values=space.reward_array,
            heads=np.full(A * W, -1),
            links=np.zeros((0, 3), np.int64),
            counts=cell_counts,
            # The same memory, as the dense backup reads it: what is counted needs no copy.
            groups=cell_counts.reshape(M, -1, GROUP, A * W),
            used=np.array([cells]),
            initial_counts=np.zeros((S, M)),
            columns=columns,
            prior=np.full(M, 1.0 / M) if weights is None else weights.copy(),
            initial=np.full((S, M), 1.0 / S),
            likelihood=np.empty((1, M)),
            visited=np.empty(H, np.int64),
            seen=np.zeros(A * W, np.bool_),
            tried=forbidden,
            places=np.empty((2, H), np.int64),
        )
        optimistic = _optimistic_values(space, widths, growth, W, retry)
        empirical = cls(space, estimate, optimistic)
        empirical.set_counts(counts)
        return empirical

    @property
    def _width(self) -> int:
        """W."""
        return self.estimate.seen.size // self.space.n_actions

    def counts(self) -> Counts:
        """A copy of the counts."""
        e, (_, S, A, Z), W = self.estimate, self.space.dimensions, self._width
        column, key = self._cells()
        a, s = np.divmod(column, W)
        row, weights = s * A + a, e.counts[:, : column.size].T
        per_row = S * Z if e.by_next else Z
        moved = (s < S) & (key < S)  # the rest is padding, as below
        paid = (s < S) & (key >= W) & (key < W + per_row)
        return Counts.of_keys(
            (row[moved] * S + key[moved], weights[moved]),
            (row[paid] * per_row + key[paid] - W, weights[paid]),
            np.ascontiguousarray(e.initial_counts.T),
            self.space.dimensions,
            "transition" if e.by_next else "state-action",
        )

    def set_counts(self, counts: Counts) -> None:
        """Replace the counts and derive everything from them again."""
        (moves, moved), (payments, paid) = counts.keyed()
        _, S, A, Z = self.space.dimensions
        W = self._width
        row, key = np.divmod(moves, S)
        reward_row, reward_key = np.divmod(payments, S * Z if self.estimate.by_next else Z)
        row, key = np.append(row, reward_row), np.append(key, W + reward_key)
        self._set_cells(row % A * W + row // A, key, np.concatenate([moved, paid]))
        self._refresh({"initial_counts": counts.initial.T})

    def add_counts(self, counts: Counts) -> None:
        """Add counts, and derive everything again."""
        self.set_counts(self.counts() + counts)

    def arrays(self) -> Arrays:
        """What a run needs to go on, of the counts: the cells as they grow, and their sums."""
        from latentmdp.online.kernels_lucrl import SUMS

        e, used = self.estimate, int(self.estimate.used[0])
        return {
            "links": e.links[:used],
            "counts": e.counts[:, :used],
            "initial_counts": e.initial_counts,
            "columns": e.columns[:, :SUMS],
        }

    def restore(self, saved: Arrays) -> None:
        """Go back to where `arrays` was taken; the bits of the sums follow from their history."""
        from latentmdp.online.kernels_lucrl import SUMS

        columns, keys, _ = saved["links"].T
        if self.estimate.dense:
            columns, keys = self._cells()
        self._set_cells(columns, keys, saved["counts"].T)
        sums = np.array(self.estimate.columns)
        sums[:, :SUMS] = saved["columns"]
        self._refresh({"initial_counts": saved["initial_counts"], "columns": sums})

    def _set_cells(self, columns: Integers, keys: Integers, counts: Floats) -> None:
        """Replace the cells by these in their order, with counts (n, M)."""
        from latentmdp.online.kernels_lucrl import add_cells

        e = self.estimate
        # In place: `groups` and whoever holds the estimate see the same arrays.
        e.heads[...], e.counts[...] = -1, 0.0
        e.used[0] = e.counts.shape[1] if e.dense else 0
        self._make_room(len(keys))
        if e.dense:
            for m, added in enumerate(counts.T):
                np.add.at(e.counts[m], keys * e.seen.size + columns, added)
            return
        parts = (np.ascontiguousarray(part) for part in (columns, keys, counts))
        add_cells(self.estimate, *parts)

    def _refresh(self, sums: Arrays) -> None:
        """Derive everything from the counts again; `sums` that are given are taken as they are."""
        from latentmdp.online.kernels_lucrl import EARNED, SQUARES, SUPPORT, VISITS, refresh

        e, (column, key) = self.estimate, self._cells()
        n, W = e.seen.size, self._width
        reward = np.where(key < W, 0.0, e.reward_values[(key - W) % e.sizes[2]])
        for m, counts in enumerate(e.counts[:, : column.size]):
            moved = np.where(key < W, counts, 0.0)
            e.columns[m, VISITS] = np.bincount(column, moved, n)
            e.columns[m, SUPPORT] = np.bincount(column, moved > 0.0, n)
            e.columns[m, EARNED] = np.bincount(column, counts * reward, n)
            e.columns[m, SQUARES] = np.bincount(column, counts * reward * reward, n)
        for name, array in sums.items():
            getattr(e, name)[...] = array
        refresh(e, self.optimistic)

    def _cells(self) -> tuple[Integers, Integers]:
        """The columns and the keys of all cells."""
        e, k = self.estimate, np.arange(self.estimate.used[0])
        key, column = np.divmod(k, e.seen.size)
        return (column, key) if e.dense else (e.links[k, 0], e.links[k, 1])

    def make_room(self) -> None:
        """Have room for the cells of one more episode."""
        self._make_room(self.estimate.places.size)

    def _make_room(self, more: int) -> None:
        """Have room for so many more cells; a list of them grows by doubling."""
        e = self.estimate
        needed, (M, capacity) = int(e.used[0]) + more, e.counts.shape
        # Only lists grow: dense counts have every cell, and `groups` shares their memory.
        if not e.dense and needed > capacity:
            added = max(2 * capacity, needed) - capacity
            self.estimate = e._replace(
                links=np.concatenate([e.links, np.zeros((added, 3), np.int64)]),
                counts=np.concatenate([e.counts, np.zeros((M, added))], axis=1),
            )

    def bonus(self) -> Floats:
        """The bonus of the last plan, shape (M, S, A)."""
        from latentmdp.online.kernels_lucrl import BONUS

        M, S, A, _ = self.space.dimensions
        bonus = self.estimate.columns[:, BONUS].reshape(M, A, -1)[..., :S].swapaxes(1, 2)
        return np.where(self.space.allowed_actions(), bonus, 0.0)

    def weights(self) -> Floats:
        """The weights that beliefs start from."""
        return self.estimate.prior / self.estimate.prior.sum()

    def acting_model(self, counts: Counts | None = None) -> LatentMDP:
        """The empirical model, of the `counts` as they are, with the filter's own w and nu."""
        model = (counts or self.counts()).model(self.space, self.weights())
        return model.replace(initial=np.ascontiguousarray(self.estimate.initial.T))

    def outcome(self) -> tuple[AlphaVectorPolicy, float]:
        """The Q-MDP policy of the last plan, with the filter it acts by, and its informed bound."""
        from latentmdp._kernels.bellman import informed_value

        counts, values, weights = self.counts(), self.optimistic.values.copy(), self.weights()
        initial, bonus = self._optimistic_start(counts)
        start = (read_only(part) for part in (weights, initial))
        value = float(informed_value(values, *start) + weights @ bonus)
        model = self.acting_model(counts)
        smoothing = self.estimate.smoothing
        return AlphaVectorPolicy.from_values(values, model, smoothing, dense=True), value

    def optimistic_model(self, counts: Counts) -> LatentMDP:
        """The empirical model of some counts with hidden rewards [kwon2021, Prop. 3.2].

        Rows are N_m(s' | s, a) / max(1, N_m(s, a)) as in Algorithm 1: a row with less than one
        visit sums to less than one, and the bonus makes up for what is missing. The bonus is the
        last one that was set (`replan`), and weights are those that the learner's filter
        starts from.
        """
        initial, initial_bonus = self._optimistic_start(counts)
        return LatentMDP._trusted(
            counts.model(self.space, self.weights()),
            outcomes=counts.optimistic_table().frozen(),
            initial=initial,
            bonus=self.bonus(),
            initial_bonus=initial_bonus,
        )

    def _optimistic_start(self, counts: Counts) -> tuple[Floats, Floats]:
        """nu-hat of Algorithm 1, (M, S), and R^hid_init, (M,)."""
        episodes = np.maximum(1.0, counts.episodes)
        widths = self.optimistic.widths
        missing, radius = np.maximum(0.0, 1.0 - counts.episodes), widths.initial / episodes
        bonus = widths.reach * np.minimum(1.0, missing + np.sqrt(radius))
        return counts.initial / episodes[:, None], bonus

    def replan(self) -> None:
        """Plan by Q-MDP in every context whose counts changed, if that is due.

        It sets the bonus of that plan, the same at all times, too: U_m of the adaptive one is the
        largest informed value in the optimistic model; one by variance changes with t, and the
        largest over all t is set, with which any planner's values are at least those of Q-MDP here.
        """
        from latentmdp.online.kernels_lucrl import replan

        # As it is, not compiled: it runs rarely, and the loops of L-UCRL have it within them.
        # Hidden rewards are the same at all times, and set to the bit.
        varies = self.optimistic.widths.kind != HIDDEN_REWARDS
        replan.py_func(self.estimate, self.optimistic, varies)  # type: ignore[no-untyped-call]

    def require_plan(self) -> None:
        """Make a plan due that knows all that was counted, however little it is."""
        self.optimistic.stale[self.optimistic.changes > 0.0] = True
        self.optimistic.due[0] = True

    def distances(self, truth: LatentMDP) -> Floats:
        """sum_{s,a} ||P_n - Phat_m||_1 for every pair of contexts, (M, M)."""
        from latentmdp.online.kernels_lucrl import distances

        cost = np.empty((truth.n_contexts, self.space.n_contexts))
        table = truth.outcomes
        distances(self.estimate, *table[:3], table.probs, cost)
        return np.maximum(cost, 0.0)


def _forbidden(space: Space, W: int) -> Flags:
    """Which columns (A W,) are of actions that are not allowed in a state with others."""
    flags = np.zeros(space.n_actions * W, np.bool_)
    flags[_columns(~space.allowed_actions() & ~space.terminal[:, None], W)] = True
    return flags


def _columns(pairs: Flags, W: int) -> Integers:
    """The columns of pairs (S, A)."""
    states, actions = np.nonzero(pairs)
    return np.asarray(actions * W + states)


def _optimistic_values(
    space: Space, widths: Widths, growth: float, W: int, retry: bool
) -> OptimisticValues:
    """The state before the first plan; columns of actions that are not allowed stay as here."""
    from latentmdp.online.kernels_lucrl import OptimisticValues

    M, _, A, _ = space.dimensions
    H = space.required_horizon()
    allowed = space.allowed_actions()
    caps = np.full(H, widths.reach + widths.lowest if widths.kind == AS_PRINTED else 1e100)
    if widths.kind == BY_VARIANCE:
        caps = space.highest_returns
    return OptimisticValues(
        widths=widths,
        growth=float(growth),
        least_change=1e-6,  # far below what a belief says of an episode, far above its rounding
        discount=float(space.discount),
        planning_discount=space.duration.planning_discount,
        retry=retry,
        pairs=_columns(allowed, W),
        terminal=space.terminal,
        caps=caps,
        values=np.zeros((M, H, A, W)),
        met=np.zeros((M, W), np.bool_),
        spread=np.full(M, widths.reach),
        changes=np.zeros(M),
        stale=np.ones(M, np.bool_),
        due=np.ones(1, np.bool_),
    )
