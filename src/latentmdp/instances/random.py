"""Random latent MDPs: every row of every context drawn independently.

    T_m(. | s, a) ~ Dirichlet(concentration, ..., concentration),

and a few (s, a) of each context pay a Bernoulli reward. With concentration 1 rows are uniform on
the simplex and contexts differ in every row, so a few steps reveal the context and most planners
do equally well; a small concentration makes rows sparse, so that rewarded states are worth
travelling to.
"""

import numpy as np

from latentmdp.instances._parts import number, require_dense, sizes, sparse_means
from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP


@register("random")
def random(
    rng: np.random.Generator,
    *,
    contexts: int = 3,
    states: int = 7,
    actions: int = 2,
    horizon: int = 10,
    concentration: float = 1.0,
    reward_density: float = 0.2,
    reward_low: float = 0.0,
    reward_high: float = 1.0,
    rewards: str = "own",
    start: int | None = 0,
) -> LatentMDP:
    """Dirichlet transitions, sparse Bernoulli rewards, uniform weights.

    Parameters
    ----------
    contexts, states, actions, horizon
        M, S, A and H.
    concentration
        Of the Dirichlet distribution of each row.
    reward_density
        Exactly round(reward_density S A) of the (s, a) are rewarded in each context.
    reward_low, reward_high
        The means of rewarded pairs are uniform between them.
    rewards
        "own": each context draws which pairs are rewarded and their means; "shared": one draw
        for all contexts.
    start
        The first state of every episode; None is uniform over states.

    Notes
    -----
    Separation: no guarantee; 0.2 to 0.5 with the defaults. The defaults are the smallest benchmark
    of planners; that of learners is contexts=7, states=15, actions=3, horizon=30,
    concentration=0.3, reward_density=4/45, reward_low=0.5.
    """
    M, S, A = sizes(contexts=contexts, states=states, actions=actions)
    require_dense(M, S, A)
    scale = number("concentration", concentration, 0.0, np.inf, open_low=True)
    T = rng.dirichlet(np.full(S, scale), size=(M, S, A))
    means = sparse_means(rng, (M, S, A), reward_density, reward_low, reward_high, rewards)
    return LatentMDP(T, means, initial=start, horizon=horizon)
