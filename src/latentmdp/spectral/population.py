"""Population moments of a known latent MDP [kwon2021, App. D.1], in factored form.

    P_{H_s} = H_s^T 1,    P_{T,H_s} = L_s H_s,    P_{T,oa,H_s} = L_{s'} D_{o,a,s} H_s,
    P(T, s_1 = s) = L_s (w nu)(s),

where column m of L_s holds the probabilities of the tests from s in context m, row m of H_s the
joint probability of context m and each history that ends in s (averaged over the times at which a
window may begin), and D is diagonal with entries P_m(o | a, s).
"""

from dataclasses import dataclass

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.logs import Sizes
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.spectral.importance import SamplingPolicy, policy_table
from latentmdp.spectral.moments import window_lengths

__all__ = ["PopulationMoments", "population_moments"]


MAX_ENTRIES = 1 << 26
"""Larger factors than this (512 MiB) are refused."""


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

    def first_probs(self) -> Floats:
        """P(s_1 = s), shape (S,)."""
        return self.start_factor.sum(axis=1)

    def __repr__(self) -> str:
        S, A, Z = self.sizes
        return (
            f"PopulationMoments(contexts={self.start_factor.shape[1]}, states={S}, actions={A}, "
            f"rewards={Z}, lengths={self.lengths})"
        )


def population_moments(
    model: LatentMDP,
    length: int | tuple[int, int] = 1,
    policy: SamplingPolicy = None,
    *,
    offsets: str = "all",
) -> PopulationMoments:
    """Moments that `count_moments` converges to, for episodes of the model's horizon.

    A horizon too short for a window still gives the moments of the first one.
    """
    p, q = window_lengths(length)
    required = require_horizon(model, "the moments of whole episodes")
    S, A, Z = sizes = (model.n_states, model.n_actions, model.n_rewards)
    entries = (S * (A * Z * S) ** p + (A * Z * S) ** q * S) * model.n_contexts
    if entries > MAX_ENTRIES:
        raise ValueError(
            f"length {(p, q)} makes population moments of {entries} entries, more than "
            f"{MAX_ENTRIES}: use a smaller length"
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
