"""Statistical sufficiency of short tests and histories [kwon2021, Conditions 1 and 2].

A test of length l is tau = (a, r, s')_{1:l}, a history of length l is l transitions from the start
of the episode, h = s_1 (a, r, s')_{1:l}, that end in state s. With

    L_s = [P_1(T | s) | ... | P_M(T | s)]             (|T|, M),  tests with their actions forced,
    H_s = [P_1^pi(H_s) | ... | P_M^pi(H_s)]^T          (M, |H_s|),

sigma_tau(s) = sigma_M(L_s) and sigma_h(s) = sigma_M(L_s H_s) / P^pi(end state = s), where sigma_M
is the M-th singular value and P^pi averages over contexts. The conditions ask that both be
positive in every state; a terminal state has no tests and needs none: its values are infinite.
(The paper numbers a history by its states, (s, a, r)_{1:l-1} s; "length 1" in its experiments is
one transition, as here.)

Condition 2 leaves the weights out of H_s, yet App. D.1 needs them: there L_s H_s is the matrix
of *joint* probabilities P^pi(tau, h), so that row m of H_s is w_m P_m^pi(h). `joint_sigma` is the
M-th singular value of that matrix over P^pi(end state = s), the number that enters the proof of
Theorem D.1; with equal weights it is sigma_h / M.
"""

from itertools import combinations
from typing import Any

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP
from latentmdp.policies import HistoryPolicy, Policy, UniformPolicy
from latentmdp.theory.visitation import MAX_ENTRIES, histories, table_entries

AnyPolicy = Policy | HistoryPolicy


def prediction_matrices(model: LatentMDP, length: int = 1) -> Floats:
    """L_s for every state, shape (S, (A S Z)^l, M).

    Tests are ordered by their steps (a, s', r), the first one slowest.
    """
    length = arrays.positive_integer("length", length)
    S, A, Z, M = model.n_states, model.n_actions, model.n_rewards, model.n_contexts
    if table_entries(model, length) > MAX_ENTRIES:
        raise ValueError(f"there are (A S Z)^{length} = {(A * S * Z) ** length} tests: too many")
    steps = model.packed()
    tests = np.ones((S, 1, M))
    for _ in range(length):
        # step (a, s', z) from s, then a shorter test from s'
        tests = np.einsum("sanzm,ntm->sanztm", steps, tests).reshape(S, -1, M)
    return tests


def prediction_separation(model: LatentMDP, length: int = 1) -> float:
    """delta_psr of App. D.2: how far apart two contexts predict the tests of a length.

    The smallest, over states and pairs of contexts, of the L1 distance of their predictions,
    averaged over the A^l sequences of actions. At length 1 it is at least delta of Assumption 1. A
    terminal state has no tests and does not count; with one context it is infinite.
    """
    tests = prediction_matrices(model, length)[~model.terminal]
    pairs = combinations(range(model.n_contexts), 2)
    apart = [np.abs(tests[..., m] - tests[..., n]).sum(axis=1).min() for m, n in pairs]
    return float(min(apart, default=np.inf)) / model.n_actions**length


def history_matrices(
    model: LatentMDP, policy: AnyPolicy | None = None, length: int = 1
) -> list[Floats]:
    """H_s for every state: row m is P_m^pi(h) over the histories that end in s."""
    length = arrays.positive_integer("length", length)
    return histories(model, policy or UniformPolicy(), length)


def end_state_probs(model: LatentMDP, policy: AnyPolicy | None = None, length: int = 1) -> Floats:
    """P^pi(end state = s) of histories of the given length, shape (S,)."""
    return np.array(
        [float(model.weights @ H.sum(axis=1)) for H in history_matrices(model, policy, length)]
    )


def sigma_tau(model: LatentMDP, length: int = 1) -> Floats:
    """sigma_tau of Condition 1 for every state, shape (S,); infinite in terminal states."""
    M = model.n_contexts
    sigma = np.array([_singular(L, M) for L in prediction_matrices(model, length)])
    return np.where(model.terminal, np.inf, sigma)


def sigma_h(model: LatentMDP, policy: AnyPolicy | None = None, length: int = 1) -> Floats:
    """sigma_h of Condition 2 for every state, shape (S,); NaN where no history ends."""
    return _joint_singular(model, policy, length, np.ones(model.n_contexts))


def joint_sigma(model: LatentMDP, policy: AnyPolicy | None = None, length: int = 1) -> Floats:
    """The same with the weights in H_s: sigma_M of the joint probabilities, shape (S,)."""
    return _joint_singular(model, policy, length, model.weights)


def _joint_singular(
    model: LatentMDP, policy: AnyPolicy | None, length: int, scale: Floats
) -> Floats:
    M = model.n_contexts
    sigma = np.full(model.n_states, np.nan)
    tests = prediction_matrices(model, length)
    for s, H in enumerate(history_matrices(model, policy, length)):
        end = float(model.weights @ H.sum(axis=1))
        if end > 0.0:
            # L = Q R has the singular values of R, and so has the product on both sides
            R: Any = np.linalg.qr(tests[s], mode="r")
            of_histories: Any = np.linalg.qr((scale[:, None] * H).T, mode="r")
            sigma[s] = _singular(R @ of_histories.T, M) / end
    return np.where(model.terminal, np.inf, sigma)


def _singular(matrix: Floats, M: int) -> float:
    """The M-th singular value; 0 where there are fewer."""
    values = np.linalg.svd(matrix, compute_uv=False)
    return float(values[M - 1]) if values.size >= M else 0.0
