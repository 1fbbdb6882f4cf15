"""Total rewards of single contexts: upper bounds on what is earned with neither end nor discount.

Where one can stay for ever without being paid, all states have the same value: they are made one,
with the actions that leave. After that every policy comes to an end, policy iteration with a
discount of 1 converges, and with V of any policy, d = L V - V and h >= 1 + P_a h for all actions a,

    the values are at most  V + max(d, 0) h,

since U = V + max(d, 0) h has L U <= U [hartmanns2020]. Where staying costs, some policies have no
end: backups from 0 fall to the values, and any U with L U <= U <= 0 is a bound as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latentmdp._kernels import bellman
from latentmdp._kernels.bellman import Successors
from latentmdp._util.arrays import Floats, Integers, segments
from latentmdp._util.cycles import end_components
from latentmdp.planning.chains import policy_chain
from latentmdp.planning.limits import Check

_ROUNDING = 1e-15
"""Of a backup, relative to the values."""

_SHRINK = 1e-9
"""How much of its costs a policy is spared to see whether that is a bound."""


def totals_from_above(steps: Successors, rewards: Floats, check: Check | None = None) -> Floats:
    """Upper bounds (S, M) on the total rewards of every context; 0 in terminal states.

    `rewards` (R, M) are those of the rows of `steps`, as `latentmdp._total_reward` allows them.
    """
    bounds = np.zeros((steps.first.size - 1, rewards.shape[1]))
    for m in range(rewards.shape[1]):
        earned = np.ascontiguousarray(rewards[:, m : m + 1])
        paid = np.abs(earned[:, 0]) > 1e-12 * np.abs(earned).max(initial=0.0)
        possible = steps.probs[:, m] > 0.0
        ways = (steps.first, steps.starts, steps.next_state, possible)
        stays = end_components(*ways, ~paid)
        costs = bool((earned[paid] < 0.0).all() and (end_components(*ways).inside & paid).any())
        # Who can stay for nothing never pays; who is paid nowhere stays, or leaves.
        dropped = np.repeat(stays.of_state >= 0, np.diff(steps.first)) if costs else stays.inside
        part, rows, number = _joined(steps, m, stays.of_state, ~dropped)
        best = _least_costs if costs else _proper_from_above
        bounds[:, m] = best(part, earned[rows], check)[number]
    return bounds


def best_backup(steps: Successors, rewards: Floats, later: Floats, q: Floats) -> Floats:
    """max_a q (S, M) from discounted values (S, M) of what follows; fills q (1, R, M) too."""
    ahead = np.stack([later, later])
    bellman.outcome_values(0, len(later), steps, rewards, 1.0, 0, 1, ahead, q)
    return np.asarray(ahead[0])


def _joined(
    steps: Successors, m: int, of_state: Integers, kept: Any
) -> tuple[Successors, Integers, Integers]:
    """Context m alone with components made one state: its rows among all, and each state's number.

    Only rows that are `kept` are in it.
    """
    S = of_state.size
    number = np.unique(np.where(of_state >= 0, S + of_state, np.arange(S)), return_inverse=True)[1]
    state_of = number[np.repeat(np.arange(S), np.diff(steps.first))]
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(state_of[rows], kind="stable")]
    source, entries = segments(steps.starts, rows)
    possible = steps.probs[entries, m] > 0.0
    source, entries = source[possible], entries[possible]
    counts = np.bincount(state_of[rows], minlength=int(number.max()) + 1)
    sizes = (counts, np.bincount(source, minlength=rows.size))
    first, starts = (np.concatenate([[0], np.cumsum(size)]) for size in sizes)
    probs = np.ascontiguousarray(steps.probs[entries, m : m + 1])
    ahead = number[steps.next_state[entries]].astype(np.int32)
    return Successors(first, starts, ahead, probs), rows, number


class _Iteration:
    """Backups and policies of one context."""

    def __init__(self, steps: Successors, rewards: Floats, check: Check | None) -> None:
        self.steps, self.rewards, self.check = steps, rewards, check
        self.S = steps.first.size - 1
        self.rows = np.full((self.S, 1), -1)
        self.q = np.empty((1, len(rewards), 1))

    def backed_up(self, value: Floats, sweeps: int = 1) -> Floats:
        """L applied so many times to values (S, 1)."""
        for _ in range(sweeps):
            value = best_backup(self.steps, self.rewards, value, self.q)
        return value

    def improve(self) -> bool:
        """Take the best row of the last backup where it is better; whether one was."""
        if not self.q.size:  # nothing can be done anywhere
            return False
        best = np.empty_like(self.rows)
        bellman.greedy_rows(self.steps.first, self.q[0], best)
        q, chosen = self.q[0, :, 0], self.rows[:, 0]
        room = 1e-12 * float(np.abs(q).max(initial=0.0))
        better = (best[:, 0] >= 0) & ((chosen < 0) | (q[best[:, 0]] > q[chosen] + room))
        self.rows = np.where(better[:, None], best, self.rows)
        return bool(better.any())

    def solved(self, guess: Floats) -> Floats:
        """The values (S, 1) of the policy at hand."""
        rows = self.rows[:, 0]
        earned = np.where(rows[:, None] < 0, 0.0, self.rewards[rows])
        return policy_chain(self.steps, 1.0, rows, earned, guess=guess, check=self.check)

    def best(self) -> Floats:
        """The values of the best policy, up to the accuracy of a linear solve."""
        value, sweeps = np.zeros((self.S, 1)), 10
        while True:
            value = self.backed_up(value, sweeps)
            if not self.improve():
                return value
            value, sweeps = self.solved(value), 2 * sweeps


def _proper_from_above(steps: Successors, rewards: Floats, check: Check | None) -> Floats:
    """Upper bounds (S,) where every policy comes to an end."""
    iteration = _Iteration(steps, rewards, check)
    value = iteration.best()
    counting = _Iteration(steps, np.ones_like(rewards), check)
    longest = counting.best()
    # h >= P_a h + least for every action.
    alive = np.diff(steps.first) > 0
    fewer = counting.backed_up(longest)[alive] - 1.0
    least = float((longest[alive] - fewer).min(initial=1.0))
    rise = float((iteration.backed_up(value) - value).max(initial=0.0))
    rise += _ROUNDING * float(np.abs(value).max(initial=0.0))
    scale = longest / least if least > 0.0 else np.where(alive[:, None], np.inf, 0.0)
    return np.asarray((value + rise * scale)[:, 0])


def _least_costs(steps: Successors, rewards: Floats, check: Check | None) -> Floats:
    """Upper bounds (S,) of costs, where some policies have no end and pay for ever."""
    iteration, sweeps = _Iteration(steps, rewards, check), 10
    above = np.zeros((iteration.S, 1))
    while True:
        above = iteration.backed_up(above, sweeps)
        iteration.improve()
        below = iteration.solved(above)
        if np.isfinite(below).all():
            spared = (1.0 - _SHRINK) * below
            if (iteration.backed_up(spared) <= spared).all():
                return np.asarray(spared[:, 0])
            if (above - below).max(initial=0.0) <= _SHRINK * np.abs(below).max(initial=0.0):
                return np.asarray(above[:, 0])
        sweeps = min(2 * sweeps, 100_000)
