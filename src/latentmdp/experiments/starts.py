"""What a learner may know before it acts, good and poor [kwon2021, Sec. 5.1]."""

import numpy as np

from latentmdp._util.random import RNGLike, as_generator
from latentmdp.model import LatentMDP
from latentmdp.trajectories import Trajectories

__all__ = ["labelled_samples", "unrelated_model"]


def labelled_samples(model: LatentMDP, per_row: int, rng: RNGLike) -> Trajectories:
    """A good start: `per_row` samples of every (m, s, a), as one-step episodes with contexts."""
    generator = as_generator(rng)
    M, S, A, Z = model.n_contexts, model.n_states, model.n_actions, model.n_rewards
    m, s, a, _ = (i.ravel() for i in np.indices((M, S, A, per_row)))
    outcomes = model.observation_probs().reshape(M, S, A, S * Z)
    cumulative = np.cumsum(outcomes, axis=-1)[m, s, a]
    uniform = generator.random(m.size) * cumulative[:, -1]
    outcome = (uniform[:, None] >= cumulative).sum(axis=1)
    return Trajectories.from_arrays(
        np.stack([s, outcome // Z], axis=1),
        a[:, None],
        (outcome % Z)[:, None],
        contexts=m,
        n_states=S,
        n_actions=A,
        reward_values=model.reward_values,
    )


def unrelated_model(model: LatentMDP, rng: RNGLike) -> LatentMDP:
    """A poor start: a model of the same sizes that knows nothing of the true one.

    Every row of transitions and of reward probabilities is uniform on its simplex.
    """
    generator = as_generator(rng)
    rows = model.transitions.shape[:-1]
    return LatentMDP(
        generator.dirichlet(np.ones(model.n_states), size=rows),
        generator.dirichlet(np.ones(model.n_rewards), size=rows),
        initial=model.initial,
        weights=model.weights,
        horizon=model.horizon,
        discount=model.discount,
        reward_values=model.reward_values,
    )
