"""Sample sizes and horizons: what the theorems ask for, and what a given model truly needs.

The formulas of the theorems have every absolute constant as a named parameter. The paper leaves
them open; here they default to 1 (or to the number it prints), so the formulas show how
requirements scale, not certificates. Beside them, by Monte Carlo on a given model:

- n_1 (Theorem 3.5): episodes until every state of every context has occurred at time H - 1 and
  the transitions seen there connect the states of every context, in the median of repetitions.
- n_0 (Theorem D.1): short trajectories at which the sampling error of P_{T,H_s} falls below half
  its M-th singular value in every state, so that the M directions stand out of the noise. It is
  necessary for a PSR of rank M, though not for every accuracy.

For the horizon of Theorem 3.4 see `theory.revelation`: the steps after which the belief of an agent
that knows the model has found the context.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import lambertw

from latentmdp._util import arrays, validation
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import simulate
from latentmdp.theory.rank import AnyPolicy, history_matrices, prediction_matrices


def largest_smoothing(delta: float, n_states: int, *, constant: float = 200.0) -> float:
    """The largest alpha with alpha ln(1/alpha) <= delta^2 / (constant S) [kwon2021, Thm. 3.4].

    Of the two solutions of the equation it is the small one, below 1/e.
    """
    _positive(delta=delta, n_states=n_states, constant=constant)
    right = delta**2 / (constant * n_states)
    if right >= 1.0 / math.e:
        return 1.0 / math.e
    return float(np.exp(lambertw(-right, k=-1).real))  # ln alpha e^(ln alpha) = -right


def initialization_error(
    delta: float, n_states: int, *, smoothing: float | None = None, constant: float = 200.0
) -> float:
    """eps_init <= delta^2 / (constant ln(1/alpha)) [kwon2021, Thm. 3.4].

    Parameters
    ----------
    smoothing
        alpha; `largest_smoothing` by default.
    """
    alpha = largest_smoothing(delta, n_states) if smoothing is None else smoothing
    _positive(delta=delta, constant=constant)
    return delta**2 / (constant * _log_inverse(alpha))


def initial_counts(error: float, transition_constant: float) -> float:
    """N_0 = c_T / eps_init^2: visits per (m, s, a) that are worth such a start [Sec. 3.3]."""
    _positive(error=error, transition_constant=transition_constant)
    return transition_constant / error**2


def inference_horizon(
    delta: float,
    n_states: int,
    steps: float,
    *,
    failure_probability: float = 0.05,
    smoothing: float | None = None,
    constant: float = 1.0,
) -> float:
    """H > C delta^-4 ln^2(1/alpha) ln(N/eta) [kwon2021, Thm. 3.4].

    Parameters
    ----------
    steps
        N, the number of actions to be taken in all.
    smoothing
        alpha; `largest_smoothing` by default.
    constant
        C.
    """
    alpha = largest_smoothing(delta, n_states) if smoothing is None else smoothing
    _positive(steps=steps, failure_probability=failure_probability, constant=constant)
    logarithm = math.log(steps / failure_probability)
    return constant * delta**-4 * _log_inverse(alpha) ** 2 * logarithm


def separation_horizon(
    delta: float,
    n_states: int,
    n_contexts: int,
    *,
    target: float = 0.1,
    constant: float = 1.0,
    smoothing_constant: float = 200.0,
) -> float:
    """H > C delta^-4 ln^2(1/alpha) ln(M/eps_p), alpha = delta^2 / (200 S) [kwon2021, Lemma C.1].

    From that horizon on Condition 3 holds for every policy.
    """
    _positive(delta=delta, n_states=n_states, n_contexts=n_contexts, target=target)
    alpha = delta**2 / (smoothing_constant * n_states)
    return constant * delta**-4 * _log_inverse(alpha) ** 2 * math.log(n_contexts / target)


class DecodingHorizons(NamedTuple):
    """Horizons of separated latent MDPs [chen2024]; d is the separation in total variation."""

    unlearnable: float
    """ln(M / eps) / d^2: much below it no number of episodes suffices."""

    learnable: float
    """(10 ln(M S / (eps d)) + C) / d^2: from it on polynomially many do."""

    planned: float
    """2 ln(M / eps) / d^2 + 1: to plan for histories so long, and then for the context that they
    point to, loses at most eps."""


def decoding_horizons(
    delta: float, n_contexts: int, n_states: int, *, accuracy: float = 0.05, constant: float = 0.0
) -> DecodingHorizons:
    """Within which horizons contexts can be decoded, learned and planned for [chen2024].

    Parameters
    ----------
    delta
        Separation in L1 distance, as everywhere here: d = delta / 2 in total variation.
    accuracy
        eps, of a total reward of at most 1.
    constant
        C.
    """
    _positive(delta=delta, n_contexts=n_contexts, n_states=n_states, accuracy=accuracy)
    d, decoded = delta / 2.0, math.log(n_contexts / accuracy)
    learnable = 10.0 * math.log(n_contexts * n_states / (accuracy * d)) + constant
    return DecodingHorizons(decoded / d**2, learnable / d**2, 2.0 * decoded / d**2 + 1.0)


def psr_episodes(
    n_contexts: int,
    n_states: int,
    n_actions: int,
    *,
    sigma_tau: float,
    sigma_h: float,
    end_state_prob: float,
    steps: int,
    error: float,
    length: int = 1,
    failure_probability: float = 0.05,
    constant: float = 1.0,
) -> float:
    """n_0 of Theorem D.1: short trajectories for a PSR with total variation error eps_t.

        C M A^{2l+1} / (p sigma_tau^2 sigma_h^2) t^2 / eps_t^2 (S + A^l / sigma_h^2) ln(S A / eta)

    Parameters
    ----------
    sigma_tau, sigma_h
        The smallest over states (`theory.joint_sigma` for the second: the proof needs joint
        probabilities).
    end_state_prob
        p = min_s P^pi(end state = s).
    steps, error
        t and eps_t.
    """
    _positive(error=error, steps=steps, constant=constant)
    if min(sigma_tau, sigma_h, end_state_prob) <= 0.0:
        return math.inf
    A = n_actions
    accuracy = steps**2 / error**2
    shape = n_contexts * A ** (2 * length + 1) / (end_state_prob * sigma_tau**2 * sigma_h**2)
    rest = n_states + A**length / sigma_h**2
    return constant * shape * accuracy * rest * math.log(n_states * A / failure_probability)


def prediction_accuracy(delta: float, error: float, *, constant: float = 0.25) -> float:
    """eps_c <= min(delta, eps_init) / 4: accuracy of the PSR's predictions [kwon2021, App. D.2]."""
    _positive(delta=delta, error=error, constant=constant)
    return constant * min(delta, error)


def clustering_episodes(
    n_contexts: int,
    n_states: int,
    n_actions: int,
    *,
    alpha_2: float,
    alpha_3: float,
    constant: float = 1.0,
) -> float:
    """n_1 = C_1 M A ln(M S) / (alpha_2 alpha_3) of Theorem 3.5."""
    if min(alpha_2, alpha_3) <= 0.0:
        return math.inf
    logarithm = math.log(max(2, n_contexts * n_states))
    return constant * n_contexts * n_actions * logarithm / (alpha_2 * alpha_3)


def psr_episodes_for_clustering(
    n_contexts: int,
    n_states: int,
    n_actions: int,
    horizon: int,
    *,
    sigma_tau: float,
    sigma_h: float,
    end_state_prob: float,
    alpha_2: float,
    alpha_3: float,
    accuracy: float,
    steps: float,
    length: int = 1,
    test_length: int = 1,
    failure_probability: float = 0.05,
    log_power: float = 1.0,
    constant: float = 1.0,
) -> float:
    """n_0 of Theorem 3.5 (App. D.2), with ln^q(N/eta) for its poly log.

        C_0 H^2 M^3 / (eps_c^2 alpha_2^2 alpha_3^2) A^{2l+2l'+3} / (p sigma_tau^2 sigma_h^2)
            (S + A^l / sigma_h^2) ln^q(N/eta)

    Parameters
    ----------
    accuracy
        eps_c, see `prediction_accuracy`.
    steps
        N, the actions to be taken in all.
    test_length
        l', the length of the tests that are clustered.
    """
    _positive(accuracy=accuracy, steps=steps, constant=constant)
    if min(sigma_tau, sigma_h, end_state_prob, alpha_2, alpha_3) <= 0.0:
        return math.inf
    A = n_actions
    clusters = horizon**2 * n_contexts**3 / (accuracy * alpha_2 * alpha_3) ** 2
    shape = A ** (2 * length + 2 * test_length + 3) / (end_state_prob * (sigma_tau * sigma_h) ** 2)
    rest = n_states + A**length / sigma_h**2
    logarithm = math.log(steps / failure_probability) ** log_power
    return constant * clusters * shape * rest * logarithm


@dataclass(frozen=True)
class Requirement:
    """A Monte Carlo estimate: its value, its standard error and the number of repetitions."""

    value: float
    stderr: float
    repetitions: int


def needed_psr_episodes(
    model: LatentMDP,
    policy: AnyPolicy | None = None,
    length: int = 1,
    *,
    repetitions: int = 20,
    rng: RNGLike = 0,
) -> Requirement:
    """Short trajectories until ||Phat_{T,H_s} - P_{T,H_s}||_2 < sigma_M / 2 in every state.

    The error falls like the inverse root of the number of trajectories; its size is measured on
    multinomial samples of 100,000 of them. Tests have uniformly random actions, as in App. D.1.
    """
    generator = as_generator(rng)
    repetitions = arrays.positive_integer("repetitions", repetitions)
    N, actions, M = 100_000, model.n_actions**length, model.n_contexts
    factors = zip(prediction_matrices(model, length), history_matrices(model, policy, length))
    joint = [L @ (model.weights[:, None] * H) for L, H in factors]
    sigma = [np.linalg.svd(P, compute_uv=False)[M - 1 : M] for P in joint]
    if any(values.size == 0 or values[0] <= 1e-14 for values in sigma):
        return Requirement(float("inf"), 0.0, 0)
    flat = np.concatenate([P.ravel() for P in joint]) / actions
    flat /= flat.sum()
    bounds = np.cumsum([P.size for P in joint])[:-1]
    needed = np.empty(repetitions)
    for r in range(repetitions):
        sample = generator.multinomial(N, flat) * (actions / N)
        samples = zip(np.split(sample, bounds), joint)
        errors = [np.linalg.norm(part.reshape(P.shape) - P, 2) for part, P in samples]
        needed[r] = N * max((2.0 * e / s[0]) ** 2 for e, s in zip(errors, sigma))
    return _summary(needed)


def needed_clustering_episodes(
    model: LatentMDP,
    policy: AnyPolicy | None = None,
    *,
    repetitions: int = 20,
    most: int = 1_000_000,
    rng: RNGLike = 0,
) -> Requirement:
    """Episodes until all states occur at time H - 1 and its transitions connect them, per context.

    Infinite if `most` episodes do not suffice.
    """
    repetitions = arrays.positive_integer("repetitions", repetitions)
    generator, followed = as_generator(rng), policy or UniformPolicy()
    each = [_one_clustering(model, followed, most, generator) for _ in range(repetitions)]
    return _summary(np.array(each))


def _one_clustering(
    model: LatentMDP, policy: AnyPolicy, most: int, generator: np.random.Generator
) -> float:
    M, S = model.n_contexts, model.n_states
    last = max(0, require_horizon(model, "the number of episodes needed") - 2)
    seed = np.random.SeedSequence(int(generator.integers(2**63)))
    visited = np.zeros((M, S), dtype=bool)
    groups = np.tile(np.arange(S), (M, 1))
    missing, splits = M * int((~model.terminal).sum()), M * (S - 1)
    played, block = 0, 256
    while played < most:
        logs = simulate(model, policy, block, seed, first_episode=played)
        assert logs.contexts is not None
        here = np.flatnonzero(logs.lengths > last)
        index = (logs.offsets[:-1] + np.arange(len(logs)) + last)[here]
        moves = zip(here, logs.contexts[here], logs.states[index], logs.states[index + 1])
        for i, m, s, n in moves:
            missing -= not visited[m, s]
            visited[m, s] = True
            if groups[m, s] != groups[m, n]:
                groups[m][groups[m] == groups[m, n]] = groups[m, s]
                splits -= 1
            if missing == 0 and splits == 0:
                return float(played + i + 1)
        played, block = played + block, min(2 * block, 1 << 14)
    return float("inf")


def _summary(values: Floats) -> Requirement:
    finite = np.isfinite(values).all() and values.size > 1
    # the standard error of a median is about 1.25 times that of the mean
    stderr = 1.25 * values.std(ddof=1) / np.sqrt(values.size) if finite else float("inf")
    return Requirement(float(np.median(values)), float(stderr), values.size)


def _log_inverse(alpha: float) -> float:
    validation.require_inside("smoothing", alpha)
    return -math.log(alpha)


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"{name} must be positive and finite, got {value}")
