"""Latent MDPs whose contexts lie at a chosen distance of each other [kwon2021, Sec. 5.2].

For every (s, a) and every pair of contexts,

    delta <= ||T_m(. | s, a) - T_n(. | s, a)||_1 <= 2 delta.

Per (s, a), draw q_1..q_M ~ Dirichlet(a) and p ~ Dirichlet(1), and let d_min and d_max be the
smallest and largest distance of two of the q's. T_m = (1 - lam) p + lam q_m scales all distances
by lam, so the bounds hold for lam in [delta / d_min, min(1, 2 delta / d_max)]: draw lam there if
the interval is not empty, else draw again. Smaller concentrations a push the q's towards
different corners, which a large delta needs; a falls after every batch of rejections.
"""

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.errors import LatentMDPError
from latentmdp.instances._parts import number, require_dense, sizes, sparse_means
from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP


@register("separated")
def separated(
    rng: np.random.Generator,
    *,
    contexts: int = 3,
    states: int = 7,
    actions: int = 2,
    horizon: int = 20,
    delta: float = 0.5,
    rewards: str = "shared",
    reward_density: float = 0.1,
    reward_low: float = 0.5,
    reward_high: float = 1.0,
    start: int | None = None,
) -> LatentMDP:
    """Transitions of every two contexts differ by delta to 2 delta in every row.

    Parameters
    ----------
    contexts, states, actions, horizon
        M, S, A and H.
    delta
        In (0, 2). Large values need as many states as contexts.
    rewards
        "shared": the same in all contexts, so that only transitions tell them apart and
        `separation` is that of the transitions; "own": each context draws its own, and rewards
        give the context away even where delta is small.
    reward_density, reward_low, reward_high
        Exactly round(reward_density S A) pairs are rewarded (most are not, as in the paper), with
        means uniform between `reward_low` and `reward_high`.
    start
        The first state of every episode; None is uniform over states, in all contexts.

    Raises
    ------
    LatentMDPError
        If no rows at such distances turn up: too many contexts at too large a delta.

    Notes
    -----
    The paper's own experiments are contexts=7, states=15, actions=3, horizon=30 and contexts=3,
    states=7, actions=2, with delta between 0.1 and 1.
    """
    M, S, A = sizes(contexts=contexts, states=states, actions=actions)
    require_dense(M, S, A)
    delta = number("delta", delta, 0.0, 2.0, open_low=True)
    if delta == 2.0 and M > 1:
        raise ValueError(
            "delta must be below 2: only rows with disjoint supports are that far apart"
        )
    T = np.empty((M, S, A, S))
    for s in range(S):
        for a in range(A):
            T[:, s, a] = _separated_rows(rng, M, S, delta)
    means = sparse_means(rng, (M, S, A), reward_density, reward_low, reward_high, rewards)
    return LatentMDP(T, means, initial=start, horizon=horizon)


def _separated_rows(
    rng: np.random.Generator,
    M: int,
    S: int,
    delta: float,
    concentrations: tuple[float, ...] = (1.0, 0.5, 0.3, 0.2, 0.1, 0.05),
    draws: int = 50,
    batches: int = 10_000,
) -> Floats:
    """M distributions over S states with pairwise distances in [delta, 2 delta].

    They are drawn in batches of so many `draws`, each at the next one of the `concentrations` a of
    Dirichlet(a, ..., a), the last one for all further batches.
    """
    if M == 1:
        return rng.dirichlet(np.ones(S), size=1)
    first, second = np.triu_indices(M, 1)
    for batch in range(batches):
        concentration = concentrations[min(batch, len(concentrations) - 1)]
        q = rng.dirichlet(np.full(S, concentration), size=(draws, M))
        distances = np.abs(q[:, first] - q[:, second]).sum(axis=-1)
        with np.errstate(divide="ignore"):
            low = delta / distances.min(axis=1)
        high = np.minimum(1.0, 2.0 * delta / distances.max(axis=1))
        accepted = np.flatnonzero(low <= high)
        if accepted.size:
            k = accepted[0]
            lam = rng.uniform(low[k], high[k])
            return np.asarray((1.0 - lam) * rng.dirichlet(np.ones(S)) + lam * q[k])
    raise LatentMDPError(
        f"found no {M} distributions over {S} states with pairwise distances in "
        f"[{delta:g}, {2 * delta:g}] after {draws * batches} draws: "
        "lower delta or contexts, or raise states"
    )
