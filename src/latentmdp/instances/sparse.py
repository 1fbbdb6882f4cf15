"""Random latent MDPs with few successors: an outcome table that costs what it contains.

Each (s, a) has k possible next states, drawn without replacement, and

    T_m(. | s, a) ~ Dirichlet(1, ..., 1) over them,    in every context anew.

With the same successors in all contexts no single step rules a context out. A share of the (s, a)
pays a Bernoulli reward, the same pairs in all contexts with means of their own.
"""

import numpy as np

from latentmdp._util.arrays import Integers
from latentmdp._util.memory import require_memory
from latentmdp.instances._parts import number, sizes
from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP
from latentmdp.outcomes import outcomes_from_entries, with_rewards


@register("sparse")
def sparse(
    rng: np.random.Generator,
    *,
    contexts: int = 5,
    states: int = 1000,
    actions: int = 4,
    successors: int = 5,
    rewarded: float = 0.1,
    shared_successors: bool = True,
    horizon: int = 50,
    start: int | None = 0,
) -> LatentMDP:
    """Few successors for each state and action, kept as an outcome table.

    Parameters
    ----------
    contexts, states, actions, horizon
        M, S, A and H.
    successors
        How many next states each (s, a) has, at most S.
    rewarded
        Exactly round(rewarded S A) of the (s, a) are rewarded, with means uniform on [0, 1].
    shared_successors
        Whether the successors are the same in all contexts; otherwise each draws its own, and one
        step may give the context away.
    start
        The first state of every episode; None is uniform over states.

    Notes
    -----
    Separation: no guarantee. It is here for planners and simulators at the size of real problems:
    a thousand states take the memory of a few dense ones.
    """
    M, S, A, k = sizes(contexts=contexts, states=states, actions=actions, successors=successors)
    share = number("rewarded", rewarded, 0.0, 1.0)
    if k > S:
        raise ValueError(f"successors must be at most the number of states, {S}, got {k}")
    draws = 1 if shared_successors else M
    require_memory(
        8.0 * S * A * (4.0 * k * M * (1.0 + draws) + 4.0 * M),
        f"an instance with {S:,} states, {A:,} actions and {k:,} successors in {M:,} contexts",
    )
    rows = S * A
    next_states = np.stack([_distinct(rng, rows, k, S) for _ in range(draws)])
    next_states = np.broadcast_to(next_states, (M, rows, k))
    probability = rng.dirichlet(np.ones(k), size=(M, rows))
    m, row, _ = np.indices((M, rows, k))
    flat = (row.ravel(), next_states.ravel(), np.zeros(m.size, np.int64), m.ravel())
    steps = outcomes_from_entries(*flat, probability.ravel(), (M, S, A, 1))
    means = np.zeros((rows, M))
    paying = rng.choice(rows, size=round(share * rows), replace=False)
    means[paying] = rng.random((paying.size, M))
    outcomes = with_rewards(steps, np.stack([1.0 - means, means], axis=1))
    return LatentMDP.from_outcomes(
        *outcomes, n_states=S, horizon=horizon, initial=start, reward_model="state-action"
    )


def _distinct(rng: np.random.Generator, rows: int, k: int, S: int) -> Integers:
    """K of S for each row, without replacement, shape (rows, k).

    Floyd's algorithm, all rows at once: a state that is drawn a second time is replaced by the
    last one, which could not be drawn before; so k draws are enough, and all samples equally
    likely.
    """
    sample = np.full((rows, k), -1)
    for i, last in enumerate(range(S - k, S)):
        candidate = rng.integers(last + 1, size=rows)
        repeated = (sample[:, :i] == candidate[:, None]).any(axis=1)
        sample[:, i] = np.where(repeated, last, candidate)
    return sample
