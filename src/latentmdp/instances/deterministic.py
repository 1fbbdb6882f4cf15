"""Random deterministic latent MDPs [kwon2021, Thm. A.1]: given the context, nothing is random.

A base MDP draws, for each (s, a), a next state and whether it pays 1. Each context copies it and
draws a fraction `variation` of the (s, a) anew. So most steps look alike in all contexts, and a
few *distinguishing observations* split them.
"""

import numpy as np

from latentmdp.instances._parts import number, require_dense, sizes
from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP


@register("deterministic")
def deterministic(
    rng: np.random.Generator,
    *,
    contexts: int = 3,
    states: int = 5,
    actions: int = 2,
    horizon: int = 6,
    variation: float = 0.3,
    reward_density: float = 0.2,
    start: int | None = 0,
) -> LatentMDP:
    """Deterministic transitions, rewards and start; contexts differ in a fraction of (s, a).

    Parameters
    ----------
    contexts, states, actions, horizon
        M, S, A and H.
    variation
        Each context draws exactly round(variation S A) of the (s, a) anew.
    reward_density
        The probability that a drawn (s, a) pays 1.
    start
        The first state of every episode; None draws one for each context.

    Notes
    -----
    Separation: 0 unless variation is 1, since contexts agree in most rows; where they differ they
    differ by 2. It is here for exploration by distinguishing observations, which
    needs about (S A)^M episodes and no separation.
    """
    M, S, A = sizes(contexts=contexts, states=states, actions=actions)
    require_dense(M, S, A)
    redrawn = round(number("variation", variation, 0.0, 1.0) * S * A)
    density = number("reward_density", reward_density, 0.0, 1.0)
    next_state = np.tile(rng.integers(S, size=S * A), (M, 1))
    pays = np.tile(rng.random(S * A) < density, (M, 1))
    for m in range(M):
        pairs = rng.choice(S * A, size=redrawn, replace=False)
        next_state[m, pairs] = rng.integers(S, size=redrawn)
        pays[m, pairs] = rng.random(redrawn) < density
    first = np.full(M, start) if start is not None else rng.integers(S, size=M)
    if start is not None and not 0 <= start < S:
        raise ValueError(f"start must lie in [0, {S}), got {start}")
    T, means = np.eye(S)[next_state].reshape(M, S, A, S), pays.reshape(M, S, A).astype(np.float64)
    return LatentMDP(T, means, initial=np.eye(S)[first], horizon=horizon)
