"""Moments of short windows of episodes [kwon2021, App. D.1].

A window is a history h = (s, a, r)_{1:p} s that ends in state s, one step (a, o) with o = (s', r),
and a test tau = (a, r, s')_{1:q}. With histories drawn by a sampling policy pi and the actions
after them set by intervention,

    (P_{H_s})_j          = P^pi(h_j)
    (P_{T,H_s})_{ij}     = P^pi(h_j) P(tau_i | h_j || do)                   = L_s H_s
    (P_{T,oa,H_s})_{ij}  = P^pi(h_j) P(o, tau_i | h_j || do a, do)          = L_{s'} D_{o,a,s} H_s
    P(T, s_1 = s)_i      = P(s_1 = s) P(tau_i | s_1 = s || do)

Where episodes begin in a state that no history ends in, the empty history takes their place.

Each logged action after the history weighs 1 / pi(a | .), which is A for the uniform policy. Every
window of an episode counts, at all offsets (a history may begin at any time: L_s does not depend
on it), and P_{T,H_s} uses the same windows as P_{T,oa,H_s}: their errors then cancel in the ratio.

Sums are kept, not means, so the moments of two shards add up to the moments of both. Logs that do
not look like the policy's would bias every moment without a sign of it, so each (s, a) is compared
with what the policy would have done.

Of a known latent MDP the same moments are had exactly, in factored form,

    P_{H_s} = H_s^T 1,    P_{T,H_s} = L_s H_s,    P_{T,oa,H_s} = L_{s'} D_{o,a,s} H_s,
    P(T, s_1 = s) = L_s (w nu)(s),

where column m of L_s holds the probabilities of the tests from s in context m, row m of H_s the
joint probability of context m and each history that ends in s (averaged over the times at which a
window may begin), and D is diagonal with entries P_m(o | a, s).
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import coo_array, csr_array

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.validation import require_choice
from latentmdp.errors import TrajectoryError
from latentmdp.logs import Sizes, Trajectories, require_trajectories, sizes_of
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.policies import MarkovPolicy, UniformPolicy

SamplingPolicy = UniformPolicy | MarkovPolicy | None
Length = int | tuple[int, int]

Table = Any  # a dense (rows, columns) array or a scipy csr_array of that shape

DENSE_ENTRIES = 1 << 25
"""Tables with more entries than this (256 MiB) are stored sparse, which is slower to count."""


class Weighed(NamedTuple):
    """Every step of logs, with its importance weight and its place."""

    sizes: Sizes
    number: Integers  # (a Z + z) S + s', one of B = A Z S
    weight: Floats
    state: Integers
    multiplicity: Floats  # of its episode
    place: Integers  # of its state among those of the logs
    before: Integers  # steps of its episode before it
    left: Integers  # and those from it on


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted counts of windows; `a + b` is the moments of both sets of logs.

    Attributes
    ----------
    sizes : (S, A, Z)
    lengths : (p, q)
        Steps of a history and of a test; p = 0 stands for summaries of the whole past.
    histories : (S B^p,)
        Counts of histories, B = A Z S; history j ends in state j % S.
    joint : (S B^p, B^q)
        Weighted counts of history and the test right after it.
    through : (S B^p B, B^q)
        Weighted counts of history, one step, and the test after that.
    firsts, starts, start_through : (S,), (S, B^q), (S B, B^q)
        Counts of first states, of first state and test, of first state, one step and test.
    n_starts, n_windows : int
        How many starts and windows were counted.
    reward_values : (Z,) or None
    """

    sizes: Sizes
    lengths: tuple[int, int]
    histories: Floats
    joint: Table
    through: Table
    firsts: Floats
    starts: Floats
    start_through: Floats
    n_starts: int
    n_windows: int
    reward_values: Floats | None = None

    def begins_only(self, s: int) -> bool:
        """Whether episodes begin in s, but no history ends there."""
        return bool(self.firsts[s] > 0.0 and not self.histories[s :: self.sizes[0]].any())

    def history_probs(self, s: int) -> Floats:
        """P_{H_s}, shape (|H_s|,)."""
        if self.begins_only(s):
            return self.firsts[s : s + 1] / self.n_starts
        return self.histories[s :: self.sizes[0]] / self.n_windows

    def joint_probs(self, s: int) -> Table:
        """P_{T,H_s}, shape (|T|, |H_s|)."""
        if self.begins_only(s):
            return self.start_probs(s)[:, None]
        return self.joint[s :: self.sizes[0]].T / self.n_windows

    def through_probs(self, s: int, step: int) -> Table:
        """P_{T,oa,H_s} for the step numbered (a Z + z) S + s', shape (|T|, |H_s|)."""
        S, base = self.sizes[0], _base(self.sizes)
        if self.begins_only(s):
            return self.start_through[s * base + step][:, None] / self.n_starts
        return self.through[s * base + step :: S * base].T / self.n_windows

    def start_probs(self, s: int) -> Floats:
        """P(T, s_1 = s), shape (|T|,)."""
        return self.starts[s] / self.n_starts

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, Moments):
            return NotImplemented
        for name in ("sizes", "lengths"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"moments with {name} {mine} and {theirs} cannot be added")
        counts = ("histories", "joint", "through", "firsts", "starts", "start_through")
        totals = (*counts, "n_starts", "n_windows")
        sums = {name: getattr(self, name) + getattr(other, name) for name in totals}
        return replace(self, **sums)

    def __repr__(self) -> str:
        S, A, Z = self.sizes
        return (
            f"Moments(states={S}, actions={A}, rewards={Z}, lengths={self.lengths}, "
            f"windows={self.n_windows}, starts={self.n_starts})"
        )


def count_moments(
    logs: Trajectories, length: Length = 1, policy: SamplingPolicy = None, *, offsets: str = "all"
) -> Moments:
    """Count the windows of `logs`.

    Parameters
    ----------
    length
        Steps of histories and of tests: one number for both, or (history, test).
    policy
        The policy that drew the actions: uniform (None), or a Markov policy.
    offsets
        "all": windows that begin at any step; "first": only those at the start of an episode.

    Raises
    ------
    TrajectoryError
        No episode is long enough for a window, or an action is never taken.
    ValueError
        The policy gives probability zero to an action that a test must try.
    """
    require_trajectories("logs", logs)
    lengths = window_lengths(length)
    require_choice("offsets", offsets, ("all", "first"))
    _check_lengths(logs, sum(lengths) + 1)
    _check_size(sizes_of(logs), lengths)
    weighed = weigh_steps(logs, policy)
    tables = _counted(weighed, lengths, offsets == "first")
    return _with_starts(logs, weighed, lengths, tables, int(tables[0].sum()))


def summary_moments(
    logs: Trajectories, test_length: int, policy: SamplingPolicy, summaries: Floats
) -> Moments:
    """Moments in which k numbers that sum to one take the place of indicators of histories.

    Parameters
    ----------
    summaries : (logs.states.size, k)
        For every state of every episode, a summary of all that came before.
    """
    _check_lengths(logs, test_length + 1)
    weighed, lengths = weigh_steps(logs, policy), (0, test_length)
    tables = _counted(weighed, lengths, False, summaries)
    n_windows = logs.multiplicities() @ np.maximum(logs.lengths - test_length, 0)
    return _with_starts(logs, weighed, lengths, tables, int(n_windows))


def window_lengths(length: Length) -> tuple[int, int]:
    """Check `length` and return the steps of histories and of tests."""
    parts = length if isinstance(length, tuple) else (length, length)
    if len(parts) != 2:
        raise ValueError(f"length must be an integer or (history, test), got {length}")
    p, q = (arrays.positive_integer("length", part) for part in parts)
    return p, q


def _base(sizes: Sizes) -> int:
    """A Z S: how many different steps (a, r, s') there are."""
    return sizes[0] * sizes[1] * sizes[2]


def _check_lengths(logs: Trajectories, steps: int) -> None:
    if len(logs) == 0:
        raise TrajectoryError("the logs hold no episodes")
    longest = int(logs.lengths.max())
    if longest < steps:
        raise TrajectoryError(
            f"a history, a step and a test need episodes of at least {steps} actions, the longest "
            f"of {len(logs)} has {longest}"
        )


def _check_size(sizes: Sizes, lengths: tuple[int, int]) -> None:
    base = _base(sizes)
    rows, columns = sizes[0] * base ** (lengths[0] + 1), base ** lengths[1]  # of `through`
    if max(rows, columns) > 1 << 28:  # row pointers alone would take gigabytes
        raise ValueError(
            f"length {lengths} over {sizes[0]} states, {sizes[1]} actions and {sizes[2]} rewards "
            f"makes {rows} histories with a step, more than {1 << 28}: use a smaller length"
        )


def _with_starts(
    logs: Trajectories,
    weighed: Weighed,
    lengths: tuple[int, int],
    windows: tuple[Floats, Table, Table],
    n_windows: int,
) -> Moments:
    """The moments with these counts of windows; the starts of episodes are counted here.

    The first window of an episode has an empty history; one too short for it does not count.
    """
    starts = _counted(weighed, (0, lengths[1]), first_only=True)
    counts = (int(starts[0].sum()), n_windows)
    return Moments(weighed.sizes, lengths, *windows, *starts, *counts, logs.reward_values)


def _counted(
    weighed: Weighed, lengths: tuple[int, int], first_only: bool, summaries: Floats | None = None
) -> tuple[Floats, Table, Table]:
    """Histories, joint and through; the last two are sparse where they would be large.

    With p = 0 the history may be the whole past, summarised by k numbers: number j at state s
    takes the place of a history and is numbered j S + s. Summaries, and the starts of episodes,
    have dense tables. Sums run over episodes, then times.
    """
    (p, q), base = lengths, _base(weighed.sizes)
    inside = weighed.left > p + q
    first = np.flatnonzero(inside & (weighed.before == 0) if first_only else inside)
    history, _ = _continued(weighed, weighed.state[first], first, p)
    middle, nothing = first + p, np.zeros(first.size, np.int64)
    near, near_weight = _continued(weighed, nothing, middle, q)
    far, far_weight = _continued(weighed, nothing, middle + 1, q)
    far_weight *= weighed.weight[middle]  # of the step in between, which is in both
    counts = weighed.multiplicity[first, None]
    if summaries is not None:
        counts = counts * summaries[weighed.place[first]]
    k = counts.shape[1]
    n, columns = k * weighed.sizes[0] * base**p, base**q
    history = np.add.outer(np.arange(k) * (n // k), history)
    through = history * base + weighed.number[middle]

    def table(row: Integers, column: Integers, weight: Floats, n_rows: int) -> Table:
        values = (counts.T * weight).ravel()
        places = (row.ravel(), np.tile(column, k))
        if n * base * columns > DENSE_ENTRIES and p > 0:
            return csr_array(coo_array((values, places), shape=(n_rows, columns)))
        flat = places[0] * columns + places[1]
        return np.bincount(flat, values, n_rows * columns).reshape(n_rows, columns)

    totals = np.asarray(np.bincount(history.ravel(), counts.T.ravel(), n), np.float64)
    return totals, table(history, near, near_weight, n), table(through, far, far_weight, n * base)


def _continued(
    weighed: Weighed, code: Integers, first: Integers, length: int
) -> tuple[Integers, Floats]:
    """Codes continued by the `length` steps from each first one on, and their importance weights.

    Steps are digits to the base B; weights are products in the order of the steps.
    """
    weight = np.ones(first.size)
    for j in range(length):
        code = code * _base(weighed.sizes) + weighed.number[first + j]
        weight *= weighed.weight[first + j]
    return code, weight


# -------------------------------------------------------------------- importance weights


def policy_table(policy: SamplingPolicy, S: int, A: int, horizon: int) -> Floats:
    """pi_t(a | s), shape (layers, S, A), every entry positive."""
    if policy is None or isinstance(policy, UniformPolicy):
        return np.full((1, S, A), 1.0 / A)
    if not isinstance(policy, MarkovPolicy):
        raise TypeError(
            "policy must be None (uniform), a UniformPolicy or a MarkovPolicy, got "
            f"{type(policy).__name__}"
        )
    if policy.actions is not None:
        raise ValueError(
            "policy is deterministic, so most tests are never tried: give action probabilities, "
            "all of them positive"
        )
    table = policy.probabilities
    assert table is not None
    if table.shape[1:] != (S, A):
        raise ValueError(f"policy has (states, actions) {table.shape[1:]}, the data {(S, A)}")
    if 1 < len(table) < horizon:
        raise ValueError(f"policy covers {len(table)} steps, the episodes have up to {horizon}")
    if (table <= 0.0).any():
        t, s, a = arrays.first_index(table <= 0.0)
        raise ValueError(
            f"policy never takes action {a} in state {s} at time {t}: tests that begin with it "
            "cannot be weighed; every probability must be positive"
        )
    return table


def weigh_steps(logs: Trajectories, policy: SamplingPolicy) -> Weighed:
    """Number and weigh every logged step, after a check that the logs look like the policy's."""
    logs.require_complete("counting windows")
    sizes = sizes_of(logs)
    table = policy_table(policy, sizes[0], sizes[1], int(logs.lengths.max(initial=1)))
    (S, A, Z), (episode, state, action, reward, next_state) = sizes, logs.steps()
    begin, end = logs.offsets[episode], logs.offsets[episode + 1]
    step = np.arange(logs.n_steps)
    cell = (np.minimum(step - begin, len(table) - 1) * S + state) * A + action
    count = logs.multiplicities()[episode].astype(np.float64)
    visits = np.asarray(np.bincount(cell, count, table.size), np.float64)
    _require_likely(visits.reshape(table.shape), table)
    number = (action.astype(np.int64) * Z + reward) * S + next_state
    where = (step + episode, step - begin, end - step)
    weight = (1.0 / table).ravel()[cell]
    return Weighed(sizes, number, weight, state.astype(np.int64), count, *where)


def _require_likely(visits: Floats, table: Floats) -> None:
    """Refuse logs without an action the policy would have taken; warn of other differences."""
    totals = visits.sum(axis=2, keepdims=True)
    expected, spread = ((totals * part).sum(axis=0) for part in (table, table * (1.0 - table)))
    visits = visits.sum(axis=0)
    missing = (visits == 0.0) & (expected > 30.0)  # by chance: e^-30
    if missing.any():
        s, a = arrays.first_index(missing)
        raise TrajectoryError(
            f"the logs never take action {a} in state {s}, where the sampling policy would have "
            f"taken it about {expected[s, a]:.0f} times: pass the policy that drew the actions"
        )
    surprise = np.abs(visits - expected) / np.sqrt(spread + 1.0)
    if (surprise > 7.0).any():  # standard errors: by chance 1e-12 a cell
        s, a = arrays.first_index(surprise == surprise.max())
        warnings.warn(
            f"the logs do not look like the sampling policy's: action {a} in state {s} was taken "
            f"{visits[s, a]:.0f} times, expected {expected[s, a]:.0f} "
            f"({surprise[s, a]:.0f} standard errors); the moments are biased unless `policy` is "
            "what drew the actions",
            stacklevel=5,
        )


# -------------------------------------------------------------------- of a known model


@dataclass(frozen=True, eq=False)
class PopulationMoments:
    """Exact moments, with the interface of `Moments`.

    Attributes
    ----------
    sizes, lengths
        As in `Moments`.
    history_factor : (S B^p, M)
        P^pi(m, h), B = A Z S; history j ends in state j % S.
    test_factor : (S, B^q, M)
        P_m(tau | s).
    step_factor : (S, B, M)
        P_m(x | s) for a step x = (a Z + z) S + s'.
    start_factor : (S, M)
        w_m nu_m(s).
    reward_values : (Z,)
    """

    sizes: Sizes
    lengths: tuple[int, int]
    history_factor: Floats
    test_factor: Floats
    step_factor: Floats
    start_factor: Floats
    reward_values: Floats

    def begins_only(self, s: int) -> bool:
        """Whether episodes begin in s, but no history ends there."""
        return bool(
            self.start_factor[s].any() and not self.history_factor[s :: self.sizes[0]].any()
        )

    def _past(self, s: int) -> Floats:
        """H_s^T, shape (|H_s|, M)."""
        if self.begins_only(s):
            return self.start_factor[s : s + 1]
        return self.history_factor[s :: self.sizes[0]]

    def history_probs(self, s: int) -> Floats:
        """P_{H_s}, shape (|H_s|,)."""
        return self._past(s).sum(axis=1)

    def joint_probs(self, s: int) -> Floats:
        """P_{T,H_s}, shape (|T|, |H_s|)."""
        return self.test_factor[s] @ self._past(s).T

    def through_probs(self, s: int, step: int) -> Floats:
        """P_{T,oa,H_s} for the step numbered (a Z + z) S + s', shape (|T|, |H_s|)."""
        tests = self.test_factor[step % self.sizes[0]] * self.step_factor[s, step]
        return tests @ self._past(s).T

    def start_probs(self, s: int) -> Floats:
        """P(T, s_1 = s), shape (|T|,)."""
        return self.test_factor[s] @ self.start_factor[s]

    def __repr__(self) -> str:
        S, A, Z = self.sizes
        return (
            f"PopulationMoments(contexts={self.start_factor.shape[1]}, states={S}, actions={A}, "
            f"rewards={Z}, lengths={self.lengths})"
        )


def population_moments(
    model: LatentMDP, length: Length = 1, policy: SamplingPolicy = None, *, offsets: str = "all"
) -> PopulationMoments:
    """Moments that `count_moments` converges to, for episodes of the model's horizon.

    A horizon too short for a window still gives the moments of the first one.
    """
    p, q = window_lengths(length)
    required = require_horizon(model, "the moments of whole episodes")
    S, A, Z = sizes = (model.n_states, model.n_actions, model.n_rewards)
    entries = (S * (A * Z * S) ** p + (A * Z * S) ** q * S) * model.n_contexts
    if entries > 1 << 26:  # 512 MiB
        raise ValueError(
            f"length {(p, q)} makes population moments of {entries} entries, more than "
            f"{1 << 26}: use a smaller length"
        )
    n_offsets = 1 if offsets == "first" else max(1, required - p - q)
    steps = model.packed().transpose(0, 1, 3, 2, 4).reshape(S, A * Z * S, -1)
    table = policy_table(policy, S, A, n_offsets + p)
    start = model.initial.T * model.weights
    tests = np.ones((S, 1, model.n_contexts))
    for _ in range(q):
        tests = _prepend(steps, tests)
    before, histories = start, np.zeros((S * (A * Z * S) ** p, model.n_contexts))
    for t in range(n_offsets):  # `before` is P^pi(m, s_t = s), shape (S, M)
        histories += _histories(before, steps, table, t, p)
        moved = before[:, None, :] * _acted(steps, table, t)
        before = moved.reshape(S, A * Z, S, -1).sum(axis=(0, 1))
    histories /= n_offsets
    return PopulationMoments(sizes, (p, q), histories, tests, steps, start, model.reward_values)


def _prepend(steps: Floats, tests: Floats) -> Floats:
    """Tests one step longer: P(x, tau | s) = P(x | s) P(tau | s'(x)), shape (S, B T, M)."""
    S, base, M = steps.shape
    rest = tests[np.arange(base) % S]
    return (steps[:, :, None, :] * rest[None]).reshape(S, -1, M)


def _acted(steps: Floats, table: Floats, t: int) -> Floats:
    """pi_t(a | s) P_m(x | s), shape (S, B, M)."""
    row = table[t if len(table) > 1 else 0]
    return steps * np.repeat(row, steps.shape[1] // row.shape[1], axis=1)[:, :, None]


def _histories(before: Floats, steps: Floats, table: Floats, t: int, length: int) -> Floats:
    """P^pi(m, h) of histories that begin at time t, shape (S B^length, M)."""
    S, _, M = steps.shape
    histories = before
    for j in range(length):
        ends = np.arange(len(histories)) % S
        histories = (histories[:, None, :] * _acted(steps, table, t + j)[ends]).reshape(-1, M)
    return histories
