"""Argument checks and sparse Bernoulli rewards, shared by several families of instances."""

import numpy as np

from latentmdp._util import arrays, validation
from latentmdp._util.arrays import Floats
from latentmdp._util.memory import require_memory
from latentmdp._util.validation import require_choice

number = validation.number


def sizes(**named: int) -> tuple[int, ...]:
    """Return each of the named sizes as an int of at least one."""
    return tuple(arrays.positive_integer(name, value) for name, value in named.items())


def require_dense(M: int, S: int, A: int) -> None:
    """Refuse, before any work, transitions of a size that would not fit into memory."""
    require_memory(
        2.0 * 8.0 * M * S * A * S,
        f"an instance with transitions of shape {(M, S, A, S)}",
        "the instance 'sparse' keeps only what can happen",
    )


def sparse_means(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    density: float,
    low: float,
    high: float,
    rewards: str,
) -> Floats:
    """Bernoulli means (M, S, A) with exactly round(density S A) rewarded pairs per context.

    The means of rewarded pairs are uniform on [low, high], the rest are 0. With rewards="shared"
    all contexts have the same places and means; with "own" each draws both for itself.
    """
    density = number("reward_density", density, 0.0, 1.0)
    low = number("reward_low", low, 0.0, 1.0)
    high = number("reward_high", high, low, 1.0)
    require_choice("rewards", rewards, ("own", "shared"))
    M, S, A = shape
    count = round(density * S * A)
    means = np.zeros((1 if rewards == "shared" else M, S * A))
    for row in means:
        row[rng.choice(S * A, size=count, replace=False)] = rng.uniform(low, high, size=count)
    return np.broadcast_to(means, (M, S * A)).reshape(M, S, A)
