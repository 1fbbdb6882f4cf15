"""The outcome table: what can follow each (s, a), with its probability in every context.

Row s A + a lists the outcomes (s', z) that are possible in some context, in rising order of
(s', z), where z is the index of a reward: outcomes starts[row] .. starts[row + 1] - 1, each with
the probabilities P_m(s', z | s, a) of all contexts side by side. They are often the same for
thousands of outcomes (a check of one rock from one distance), so distinct vectors are kept once,
and outcomes point to them. So a table costs what it contains:

* a sparse problem has as many outcomes as successors;
* a reward that is a fixed amount adds none, however many distinct amounts there are;
* a forbidden action has an empty row, and a terminal state has empty rows only.

The tables here are built from dense arrays, from sparse matrices and from lists of single entries,
and turned back into dense arrays where those fit into memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentmdp import _kernels
from latentmdp._util import names
from latentmdp._util.arrays import (
    ROW_TOLERANCE,
    Flags,
    Floats,
    Indices,
    Integers,
    first_index,
    frozen,
    normalised,
    read_only,
    segments,
)
from latentmdp._util.memory import require_memory

__all__ = [
    "ContextVectors",
    "Outcomes",
    "RunInBlocks",
    "at_once",
    "check_outcomes",
    "dense_joint",
    "dense_rewards",
    "dense_transitions",
    "distinct_amounts",
    "numbered",
    "outcomes_from_arrays",
    "outcomes_from_entries",
    "outcomes_from_matrices",
    "product",
    "row_sums",
    "row_totals",
    "with_rewards",
]


class Outcomes(NamedTuple):
    """An outcome table of S A rows and n outcomes."""

    starts: Integers  # (S A + 1,): first outcome of each row
    next_state: Indices  # (n,): s'
    reward: Indices  # (n,): z, an index into the reward values
    distinct: Floats  # (P, M): the vectors P_m(s', z | s, a) that outcomes have
    pattern: Indices  # (n,): which of them each outcome has

    @classmethod
    def each(
        cls, starts: Integers, next_state: Indices, reward: Indices, probs: Floats
    ) -> Outcomes:
        """The table in which every outcome has a vector of its own, `probs` is (n, M)."""
        return cls(starts, next_state, reward, probs, np.arange(len(probs), dtype=np.int32))

    @property
    def probs(self) -> Floats:
        """P_m(s', z | s, a) of all outcomes, (n, M)."""
        P, M = self.distinct.shape
        if self.size == P and np.array_equal(self.pattern, np.arange(P)):
            return self.distinct
        require_memory(8.0 * self.size * M, f"{self.size:,} outcomes in {M:,} contexts")
        return self.probs_of(slice(None))

    def probs_of(self, outcomes: Integers | slice) -> Floats:
        """P_m(s', z | s, a) of some outcomes, (k, M)."""
        return np.asarray(self.distinct[self.pattern[outcomes]])

    def having(self, probs: Floats) -> Outcomes:
        """The table with other probabilities (n, M) of its outcomes."""
        return Outcomes.each(self.starts, self.next_state, self.reward, probs)

    def shared(self) -> Outcomes:
        """The same table, equal vectors kept once, in the order of the first outcomes with them."""
        number, first = _equal(self.distinct)
        used, begins = numbered(np.arange(self.size + 1), number[self.pattern])
        kept = first[number[self.pattern[begins]]]
        every = np.array_equal(kept, np.arange(len(self.distinct)))
        distinct = self.distinct if every else self.distinct[kept]
        return self._replace(distinct=distinct, pattern=used.astype(np.int32))

    @property
    def size(self) -> int:
        """The number of outcomes."""
        return self.next_state.size

    def rows(self) -> Integers:
        """The row s A + a of every outcome, (n,)."""
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))

    def keys(self, n_states: int, n_rewards: int) -> Integers:
        """The number ((s A + a) S + s') Z + z of every outcome, rising."""
        return (self.rows() * n_states + self.next_state) * n_rewards + self.reward

    def find(self, keys: Integers, n_states: int, n_rewards: int) -> Integers:
        """The outcomes with these numbers, as `keys` counts them; -1 where there is none."""
        listed = self.keys(n_states, n_rewards)
        if listed.size == 0:
            return np.full(keys.shape, -1)
        position = np.minimum(np.searchsorted(listed, keys), listed.size - 1)
        return np.where(listed[position] == keys, position, -1)

    def where(self, entries: Flags) -> Outcomes:
        """The table of some of the outcomes: those with a flag among `entries` (n,)."""
        if entries.all():
            return self
        starts = np.concatenate([[0], np.cumsum(entries)])[self.starts]
        return Outcomes(
            *(starts, self.next_state[entries], self.reward[entries]),
            *(self.distinct, self.pattern[entries]),
        )

    def of_rows(self, rows: Integers) -> Outcomes:
        """The table of some rows, one after another."""
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[rows])])
        _, entries = segments(self.starts, rows)
        parts = (self.next_state[entries], self.reward[entries])
        return Outcomes(starts, *parts, self.distinct, self.pattern[entries])

    def select(self, contexts: Integers) -> Outcomes:
        """The table of some contexts; what is impossible in all of them is left out."""
        return self.weighted(np.eye(self.distinct.shape[1])[:, contexts])

    def weighted(self, weights: Floats) -> Outcomes:
        """The table of mixtures of the contexts: `weights` is (M, M')."""
        return _possible(self._replace(distinct=np.ascontiguousarray(self.distinct @ weights)))

    def successors(self) -> Outcomes:
        """The table without rewards: one outcome for each next state, T_m(s' | s, a)."""
        if not self.reward.any():
            return self
        rows = self.rows()
        first = np.ones(self.size, np.bool_)
        first[1:] = (rows[1:] != rows[:-1]) | (self.next_state[1:] != self.next_state[:-1])
        if first.all():
            return self._replace(reward=np.zeros(self.size, np.int32))
        heads = np.flatnonzero(first)
        starts, unused = _starts(rows[heads], self.starts.size - 1), np.zeros(heads.size, np.int32)
        summed = self._summed(np.append(heads, self.size), self.pattern)
        return Outcomes(starts, self.next_state[heads], unused, *summed)

    def _summed(self, starts: Integers, pattern: Indices) -> tuple[Floats, Indices]:
        """Sums of the vectors pattern[starts[i] : starts[i + 1]], equal runs being summed once."""
        number, first = numbered(starts, pattern)
        position, entries = segments(starts, first)
        heads = np.flatnonzero(np.diff(position, prepend=-1))
        vectors = self.distinct[pattern[entries]]
        sums = np.add.reduceat(vectors, heads, axis=0) if heads.size else vectors
        return sums, number.astype(np.int32)

    def rewards(self) -> Outcomes:
        """The table without next states: one outcome for each reward, R_m(z | s, a)."""
        Z = int(self.reward.max(initial=0)) + 1
        distinct, member = np.unique(self.rows() * Z + self.reward, return_inverse=True)
        sums = [np.bincount(member.ravel(), column, distinct.size) for column in self.probs.T]
        probs = np.column_stack(sums).astype(np.float64)  # bincount of nothing counts integers
        unused, z = np.zeros(distinct.size, np.int32), (distinct % Z).astype(np.int32)
        return Outcomes.each(_starts(distinct // Z, self.starts.size - 1), unused, z, probs)

    def lists_like(self, other: Outcomes) -> bool:
        """Whether the other table has the same outcomes, whatever their probabilities."""
        columns = self._fields[:3]
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in columns)

    def frozen(self) -> Outcomes:
        """The table itself, read-only from now on."""
        for array in self:
            frozen(np.asarray(array))
        return self

    def informative(self, run: RunInBlocks | None = None) -> Outcomes:
        """The table with outcomes merged that lead to the same state and the same belief.

        Rewards that say nothing about the context are such outcomes: their probabilities are
        proportional to each other. A planner needs to tell only these tables' outcomes apart.
        `run` is as for `outcomes_from_arrays`.
        """
        return self.merged(run)[0]

    def merged(self, run: RunInBlocks | None = None) -> tuple[Outcomes, Integers]:
        """The `informative` table, and where in it each outcome of this one is found, (n,)."""
        leader, rows = np.empty(self.size, np.int64), self.starts.size - 1

        # Shares of contexts that differ by no more than 1e-12 are the same up to rounding.
        of_rows = (self.starts, self.next_state, self.pattern, self.distinct, 1e-12, leader)
        (run or at_once)(_kernels.tables.leaders, rows, *of_rows)
        first = leader == np.arange(self.size)
        if first.all():
            return self, leader
        leaders, position = np.flatnonzero(first), np.cumsum(first) - 1
        followed = np.argsort(leader, kind="stable")
        runs = _starts(position[leader[followed]], leaders.size)
        starts = np.concatenate([[0], np.cumsum(first)])[self.starts]
        summed = self._summed(runs, self.pattern[followed])
        table = Outcomes(starts, self.next_state[leaders], self.reward[leaders], *summed)
        return table.frozen(), position[leader]


class ContextVectors(NamedTuple):
    """A number of every row and context, by the vectors that occur.

    Rows are (s, a), and the numbers what they earn; or states, and how likely an episode begins
    there.
    """

    distinct: Floats  # (Q, M)
    pattern: Integers  # (rows,): which of them each row has

    @classmethod
    def each(cls, dense: Floats) -> ContextVectors:
        """Every row of an array (M, ...) with a vector of its own; alike contexts are kept once."""
        flat = dense.reshape(len(dense), -1)
        if flat.strides[0] == 0:
            values, pattern = np.unique(flat[0], return_inverse=True)
            distinct = np.broadcast_to(values[:, None], (values.size, len(flat)))
            return cls(distinct, pattern.ravel())
        rows = np.ascontiguousarray(flat.T)
        return cls(rows, np.arange(len(rows)))

    @property
    def is_shared(self) -> bool:
        """Whether all contexts have the same numbers."""
        return bool((self.distinct == self.distinct[:, :1]).all())

    def dense(self) -> Floats:
        """The numbers as an array (M, rows); refused where it would not fit into memory.

        Where all contexts are alike it is a view of one row.
        """
        rows, M = self.pattern.size, self.distinct.shape[1]
        if self.is_shared:
            return np.broadcast_to(self.distinct[self.pattern, 0], (M, rows))
        require_memory(8.0 * rows * M, f"numbers of {rows:,} rows in {M:,} contexts")
        return np.take(self.distinct.T, self.pattern, axis=1)

    def of(self, rows: Integers | int) -> Floats:
        """The vectors of some rows, (k, M), or of one, (M,)."""
        return np.asarray(self.distinct[self.pattern[rows]])

    def where(self, rows: Flags) -> ContextVectors:
        """The vectors of the rows with a flag, and zero for all others."""
        if rows[self.nonzero()].all():
            return self
        distinct = np.append(self.distinct, np.zeros((1, self.distinct.shape[1])), axis=0)
        return ContextVectors(distinct, np.where(rows, self.pattern, len(self.distinct)))

    def nonzero(self) -> Integers:
        """The rows that have a number other than 0."""
        return np.flatnonzero((self.distinct != 0.0).any(axis=1, keepdims=True)[self.pattern])

    def select(self, contexts: Integers) -> ContextVectors:
        """The vectors of some contexts."""
        return ContextVectors(self.distinct[:, contexts], self.pattern)

    def frozen(self) -> ContextVectors:
        """The vectors themselves, read-only from now on."""
        for array in self:
            frozen(array)
        return self

    def plus(self, other: ContextVectors) -> ContextVectors:
        """The sums of both."""
        codes = self.pattern * len(other.distinct) + other.pattern
        _, first, pattern = np.unique(codes, return_index=True, return_inverse=True)
        parts = (part.distinct[part.pattern[first]] for part in (self, other))
        return ContextVectors(np.add(*parts), pattern.ravel())

    def shared(self) -> ContextVectors:
        """The same numbers, equal vectors kept once."""
        number, first = _equal(self.distinct)
        return ContextVectors(self.distinct[first], number[self.pattern])


RunInBlocks = Callable[..., None]
"""Called with (kernel, total, *arguments): calls kernel(start, stop, *arguments) for blocks that
make up range(total), see `latentmdp.engines.threads`."""


def at_once(kernel: Callable[..., None], total: int, *arguments: Any) -> None:
    """All of range(total) in one block."""
    kernel(0, total, *arguments)


def numbered(starts: Integers, values: Any) -> tuple[Integers, Integers]:
    """Numbers of the runs values[starts[i] : starts[i + 1]], equal ones alike, and their firsts.

    `values` are integers; numbers are those of the runs in the order in which new ones come.
    """
    runs = starts.size - 1
    slots, number = np.full(1 << (2 * runs).bit_length(), -1, np.int32), np.empty(runs, np.int64)
    first = np.empty(runs, np.int64)
    values = values.view(np.int64) if values.itemsize == 8 else values  # one kernel for both
    runs_of = (read_only(starts), read_only(values))
    count = _kernels.tables.number_runs(*runs_of, slots, number, first)
    return number, first[:count]


def _equal(vectors: Floats) -> tuple[Integers, Integers]:
    """Numbers of vectors (n, M), equal ones alike, in the order they come, and their firsts."""
    values = np.ascontiguousarray(vectors).view(np.uint64).reshape(-1)
    return numbered(np.arange(len(vectors) + 1) * vectors.shape[1], values)


def outcomes_from_arrays(
    transitions: Floats, reward_probs: Floats, run: RunInBlocks | None = None
) -> Outcomes:
    """The table of dense T (M, S, A, S) and R (M, S, A, Z) or (M, S, A, S, Z).

    `run` does the work block by block, by default all at once.
    """
    M, S, A, _ = transitions.shape
    T = read_only(transitions.reshape(M, S * A, S))
    R = read_only(reward_probs.reshape(M, S * A, -1, reward_probs.shape[-1]))
    counts, run = np.empty(S * A, np.int64), run or at_once
    table = _room(np.zeros(S * A, np.int64), M)
    run(_kernels.tables.list_outcomes, S * A, T, R, counts, *table[:4])
    table = _room(counts, M)
    run(_kernels.tables.list_outcomes, S * A, T, R, counts, *table[:4])
    return table


def _room(counts: Integers, M: int) -> Outcomes:
    """A table with so many outcomes in each row, to be filled."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    n = int(starts[-1])
    return Outcomes.each(starts, np.empty(n, np.int32), np.empty(n, np.int32), np.empty((n, M)))


def outcomes_from_entries(
    row: Integers,
    next_state: Integers,
    reward: Integers,
    context: Integers,
    probability: Floats,
    sizes: tuple[int, int, int, int],
) -> Outcomes:
    """The table of single entries P_m(s', z | row), equal ones added; `sizes` is (M, S, A, Z)."""
    M, S, A, Z = sizes
    keys = (row.astype(np.int64) * S + next_state) * Z + reward
    distinct, inverse = np.unique(keys, return_inverse=True)
    require_memory(8.0 * distinct.size * M, f"an outcome table of {distinct.size:,} outcomes")
    cells = inverse.ravel() * M + context
    flat: Floats = np.bincount(cells, probability, distinct.size * M).astype(np.float64, copy=False)
    pair, z = np.divmod(distinct, Z)
    rows, n = np.divmod(pair, S)
    columns = (n.astype(np.int32), z.astype(np.int32), flat.reshape(distinct.size, M))
    return _possible(Outcomes.each(_starts(rows, S * A), *columns))


def outcomes_from_matrices(matrices: Sequence[Sequence[Any]], allowed: Flags) -> Outcomes:
    """The table, without rewards, of sparse matrices T_m(s' | s, a) given as `[m][a]`, each (S, S).

    Rows that are not `allowed` (S, A) are left out; all others must be distributions.
    """
    import scipy.sparse as sp

    M, A = len(matrices), len(matrices[0])
    S = matrices[0][0].shape[0]
    entries: list[tuple[Any, ...]] = []
    for m, by_action in enumerate(matrices):
        if len(by_action) != A:
            raise ValueError(
                f"transitions[{m}] has {len(by_action)} actions, transitions[0] has {A}"
            )
        for a, argument in enumerate(by_action):
            is_sparse: bool = sp.issparse(argument)
            if not is_sparse or argument.shape != (S, S):
                what = f"shape {argument.shape}" if is_sparse else type(argument).__name__
                raise ValueError(
                    f"transitions[{m}][{a}] must be a sparse matrix of shape {(S, S)}, got {what}"
                )
            matrix = sp.coo_array(argument)
            matrix.sum_duplicates()
            states, successors = (np.asarray(index, np.int64) for index in matrix.coords)
            context = np.full(states.size, m)
            entries.append((context, states * A + a, successors, matrix.data.astype(np.float64)))
    context, row, successor, values = (np.concatenate(part) for part in zip(*entries))
    for i in np.flatnonzero(~((values >= 0.0) & (values <= 1.0 + ROW_TOLERANCE)))[:1]:
        s, a = divmod(int(row[i]), A)
        raise ValueError(
            f"transitions[{context[i]}][{a}][{s}, {successor[i]}] is {values[i]:.12g}: "
            "probabilities lie in [0, 1]"
        )
    possible = allowed.ravel()[row]
    context, row, values = context[possible], row[possible], values[possible]
    listed = np.broadcast_to(allowed.ravel(), (M, S * A))
    totals = row_totals(
        context, row, values, listed, A, hint="; allowed= says which actions a state does not have"
    )
    zero = np.zeros(row.size, np.int64)
    chances = values / totals[context, row]
    return outcomes_from_entries(row, successor[possible], zero, context, chances, (M, S, A, 1))


def row_totals(
    context: Integers, row: Integers, probability: Floats, listed: Flags, n_actions: int,
    labels: Sequence[tuple[str, ...] | None] = (None, None, None), hint: str = "",
) -> Floats:  # fmt: skip
    """The sum of each row in each context, (M, S A); within rounding exactly 1.

    Raises unless those that are `listed` (M, S A) sum to 1, naming the first by its labels.
    """
    M, rows = listed.shape
    sums = np.bincount(context * rows + row, probability, M * rows).reshape(M, rows)
    off = np.where(listed, np.abs(sums - 1.0), 0.0)
    wrong = off > ROW_TOLERANCE
    if wrong.any():
        m, r = first_index(wrong)
        indices = (m, *divmod(r, n_actions))
        where = ", ".join(map(names.called, ("context", "state", "action"), indices, labels))
        raise ValueError(
            f"the probabilities of {where} sum to {sums[m, r]:.12g}, off by "
            f"{sums[m, r] - 1.0:+.3g}; must sum to 1 within {ROW_TOLERANCE:g} "
            f"({int(wrong.sum())} of {int(listed.sum())} rows are wrong{hint})"
        )
    return np.where(listed & (off <= 1e-15 * max(4, rows // n_actions)), 1.0, sums)


def with_rewards(table: Outcomes, reward_probs: Floats) -> Outcomes:
    """A table without rewards times R_m(z | s, a), dense of shape (S A, Z, M)."""
    row, z = np.nonzero((reward_probs != 0.0).any(axis=-1))
    starts = _starts(row, len(reward_probs))
    unused = np.zeros(row.size, np.int32)
    return product(table, Outcomes.each(starts, unused, z.astype(np.int32), reward_probs[row, z]))


def product(successors: Outcomes, rewards: Outcomes) -> Outcomes:
    """A table without rewards times one without next states: R_m(z | s, a) of every row."""
    of_successor = successors.rows()
    source, reward = segments(rewards.starts, of_successor)
    starts = _starts(of_successor[source], successors.starts.size - 1)
    probs = successors.probs_of(source) * rewards.probs_of(reward)
    followed = (successors.next_state[source], rewards.reward[reward])
    return _possible(Outcomes.each(starts, *followed, probs))


def distinct_amounts(amounts: Floats) -> tuple[Floats, Integers]:
    """The distinct values among amounts, rising, and the index of each amount among them.

    Amounts that differ by rounding only are one value: otherwise the last digit of what is paid
    would tell the contexts apart.
    """
    values, index = np.unique(amounts + 0.0, return_inverse=True)
    if values.size < 2:
        return values, index.ravel()
    size = np.abs(values)
    room = 1e-12 * np.maximum(size[1:], size[:-1]) + 4.0 * np.finfo(np.float64).eps * size.max()
    new = np.append(True, np.diff(values) > room)
    return values[new], (np.cumsum(new) - 1)[index.ravel()]


def dense_transitions(outcomes: Outcomes, sizes: tuple[int, int, int, int]) -> Floats:
    """T as an array (M, S, A, S); refused where it would not fit into memory."""
    M, S, A, _ = sizes
    table = outcomes.successors()
    cells = table.rows() * S + table.next_state
    T = _dense("transitions", table, cells, (S, A, S, M))
    return np.ascontiguousarray(np.moveaxis(T, -1, 0))


def dense_joint(outcomes: Outcomes, sizes: tuple[int, int, int, int]) -> Floats:
    """P_m(s', z | s, a) as an array (S, A, S, Z, M); refused where it would not fit."""
    M, S, A, Z = sizes
    return _dense("P(s', z | s, a)", outcomes, outcomes.keys(S, Z), (S, A, S, Z, M))


def dense_rewards(outcomes: Outcomes, sizes: tuple[int, int, int, int]) -> Floats:
    """R_m(z | s, a) as an array (M, S, A, Z); refused where it would not fit into memory."""
    M, S, A, Z = sizes
    table = outcomes.rewards()
    R = _dense("reward_probs", table, table.rows() * Z + table.reward, (S, A, Z, M))
    return normalised(np.ascontiguousarray(np.moveaxis(R, -1, 0)))


def _dense(what: str, table: Outcomes, cells: Integers, shape: tuple[int, ...]) -> Floats:
    """The probabilities of a table at some cells of an array whose last axis are the contexts."""
    require_memory(
        8.0 * math.prod(shape),
        f"{what} as a dense array of {' x '.join(map(str, shape))}",
        f"model.outcomes holds the same in {table.size:,} outcomes",
    )
    dense = np.zeros(shape)
    dense.reshape(-1, shape[-1])[cells] = table.probs
    return dense


def row_sums(outcomes: Outcomes, entries: Floats, shares: Floats | None = None) -> Floats:
    """Sums of entries (n, k), times `shares` (n,), over the outcomes of each row, (S A, k)."""
    import scipy.sparse as sp

    n, rows = outcomes.size, outcomes.starts.size - 1
    shares = np.ones(n) if shares is None else shares
    gather = sp.csr_array((shares, np.arange(n), outcomes.starts), shape=(rows, n))
    return np.asarray(gather @ entries)


def _starts(rows: NDArray[np.integer[Any]], n_rows: int) -> Integers:
    """First position of each row among sorted row numbers, and their number at the end."""
    return np.searchsorted(rows, np.arange(n_rows + 1)).astype(np.int64)


def _possible(outcomes: Outcomes) -> Outcomes:
    """The table without the outcomes that are impossible in every context."""
    return outcomes.where(np.asarray(outcomes.distinct.any(axis=1))[outcomes.pattern])


_CHECKED_AT_ONCE = 1 << 20
"""Probabilities that are looked at together: checks of large tables stay in the cache, and need no
memory beside the table."""


def check_outcomes(
    outcomes: Outcomes, n_states: int, allowed: Flags | None, n_rewards: int, optional: bool
) -> None:
    """Raise unless the arrays are a table whose rows are distributions, naming the culprit.

    `allowed` (S, A) says which rows must not be empty; by default those that are not. With
    `optional` a context may have no probability at all in a row.
    """
    starts, next_state, reward, probs, pattern = outcomes
    n = next_state.size
    fits = reward.shape == pattern.shape == (n,) and probs.ndim == 2
    if not fits or probs.shape[1] == 0:
        raise ValueError(
            "next_state, reward and probs must describe the same outcomes, got shapes "
            f"{next_state.shape}, {reward.shape} and {probs.shape}"
        )
    if starts.size < 2 or starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 0).any():
        raise ValueError(f"starts must rise from 0 to the number of outcomes, {n}")
    rows_wanted = None if allowed is None else allowed.size
    if (starts.size - 1) % n_states or rows_wanted not in (None, starts.size - 1):
        raise ValueError(f"starts must have S A + 1 entries with S = {n_states}, got {starts.size}")
    for name, values, limit in (
        ("next_state", next_state, n_states),
        ("reward", reward, n_rewards),
        ("pattern", pattern, len(probs)),
    ):
        if n and not 0 <= int(values.min()) <= int(values.max()) < limit:
            raise ValueError(f"{name} must lie in [0, {limit})")
    keys = outcomes.keys(n_states, n_rewards)
    if (np.diff(keys) <= 0).any():
        i = int(np.argmax(np.diff(keys) <= 0)) + 1
        raise ValueError(f"outcome {i}: the outcomes of a row must rise by (next_state, reward)")
    forbidden = np.diff(starts) == 0 if allowed is None else ~allowed.ravel()
    # Rows with the same vectors have the same sums: one of them is looked at.
    alike = 2 * numbered(starts, pattern)[0] + forbidden
    rows = np.sort(np.unique(alike, return_index=True)[1])
    block = np.cumsum(np.diff(starts)[rows]) * probs.shape[1] // _CHECKED_AT_ONCE
    for part in np.split(rows, np.flatnonzero(np.diff(block)) + 1):
        _check_distributions(outcomes, part, n_states, forbidden, optional)


def _check_distributions(
    outcomes: Outcomes, rows: Integers, n_states: int, forbidden: Flags, optional: bool
) -> None:
    """Raise unless some rows of a table are distributions, or `forbidden` (S A,) and empty."""
    _, entries = segments(outcomes.starts, rows)
    probs = outcomes.distinct[outcomes.pattern[entries]]
    wrong = ~np.isfinite(probs) | (probs < 0.0) | (probs > 1.0 + ROW_TOLERANCE)
    if wrong.any():
        i, m = first_index(wrong)
        raise ValueError(
            f"probs[{entries[i]}, {m}] is {probs[i, m]:.12g}: probabilities lie in [0, 1]"
        )
    sums, closed = row_sums(outcomes.of_rows(rows), probs), forbidden[rows, None]
    empty = sums == 0.0
    off = np.where(empty, ~(closed | optional), closed | (np.abs(sums - 1.0) > ROW_TOLERANCE))
    if off.any():
        i, m = first_index(off)
        s, a = divmod(int(rows[i]), forbidden.size // n_states)
        why = "but the action is not allowed" if closed[i, 0] else "must sum to 1"
        raise ValueError(
            f"the row of context {m}, state {s}, action {a} sums to {sums[i, m]:.12g}, {why}"
        )
