"""What is truly needed on a given model, by Monte Carlo, beside the formulas of `sample_size`.

- horizon (Theorem 3.4): see `theory.revelation`, the steps after which the belief of an agent that
  knows the model has found the context.
- n_1 (Theorem 3.5): episodes until every state of every context has occurred at time H - 1 and
  the transitions seen there connect the states of every context, in the median of repetitions.
- n_0 (Theorem D.1): short trajectories at which the sampling error of P_{T,H_s} falls below half
  its M-th singular value in every state, so that the M directions stand out of the noise. It is
  necessary for a PSR of rank M, though not for every accuracy.
"""

from dataclasses import dataclass

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.model import LatentMDP
from latentmdp.policies import HistoryPolicy, Policy, UniformPolicy
from latentmdp.simulation import simulate
from latentmdp.theory.rank import history_matrices, prediction_matrices

__all__ = ["Requirement", "needed_clustering_episodes", "needed_psr_episodes"]


@dataclass(frozen=True)
class Requirement:
    """A Monte Carlo estimate: its value, its standard error and the number of repetitions."""

    value: float
    stderr: float
    repetitions: int


def needed_psr_episodes(
    model: LatentMDP,
    policy: Policy | HistoryPolicy | None = None,
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
    N, actions = 100_000, model.n_actions**length
    weights = model.weights[:, None]
    joint = [
        L @ (weights * H)
        for L, H in zip(prediction_matrices(model, length), history_matrices(model, policy, length))
    ]
    M = model.n_contexts
    sigma = [np.linalg.svd(P, compute_uv=False)[M - 1 : M] for P in joint]
    if any(values.size == 0 or values[0] <= 1e-14 for values in sigma):
        return Requirement(float("inf"), 0.0, 0)
    flat = np.concatenate([P.ravel() for P in joint]) / actions
    flat /= flat.sum()
    bounds = np.cumsum([0, *(P.size for P in joint)])
    needed = np.empty(repetitions)
    for r in range(repetitions):
        sample = generator.multinomial(N, flat) * (actions / N)
        errors = [
            np.linalg.norm(sample[i:j].reshape(P.shape) - P, 2)
            for i, j, P in zip(bounds, bounds[1:], joint)
        ]
        needed[r] = N * max((2.0 * e / s[0]) ** 2 for e, s in zip(errors, sigma))
    return _summary(needed)


def needed_clustering_episodes(
    model: LatentMDP,
    policy: Policy | HistoryPolicy | None = None,
    *,
    repetitions: int = 20,
    most: int = 1_000_000,
    rng: RNGLike = 0,
) -> Requirement:
    """Episodes until all states occur at time H - 1 and its transitions connect them, per context.

    Infinite if `most` episodes do not suffice.
    """
    repetitions = arrays.positive_integer("repetitions", repetitions)
    generator = as_generator(rng)
    needed = np.array(
        [
            _one_clustering(model, policy or UniformPolicy(), most, generator)
            for _ in range(repetitions)
        ]
    )
    return _summary(needed)


def _one_clustering(
    model: LatentMDP, policy: Policy | HistoryPolicy, most: int, generator: np.random.Generator
) -> float:
    M, S = model.n_contexts, model.n_states
    last = max(0, model.horizon - 2)
    seed = np.random.SeedSequence(int(generator.integers(2**63)))
    visited = np.zeros((M, S), dtype=bool)
    groups = np.tile(np.arange(S), (M, 1))
    missing, splits = M * S, M * (S - 1)
    played, block = 0, 256
    while played < most:
        logs = simulate(model, policy, block, seed, first_episode=played)
        assert logs.contexts is not None
        states, _, _ = logs.as_arrays()
        for i, (m, s, n) in enumerate(zip(logs.contexts, states[:, last], states[:, last + 1])):
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
