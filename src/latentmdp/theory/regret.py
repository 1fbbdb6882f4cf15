"""The regret bound of L-UCRL with revealed contexts [kwon2021, Thm. 3.3].

    Regret(K) <~ H S sqrt(M A N log(M S A N / eta)),    N = H K,

for rewards in [0, 1]. The paper leaves the absolute constant open; it is 1 here, so the curve shows
the rate and the scale, not a certificate.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["regret_bound"]


def regret_bound(
    n_contexts: int,
    n_states: int,
    n_actions: int,
    horizon: int,
    episodes: ArrayLike,
    failure_probability: float = 0.05,
    reward_span: float = 1.0,
) -> NDArray[np.float64]:
    """The bound after each number of episodes in `episodes`.

    Parameters
    ----------
    reward_span
        Largest minus smallest reward: regret scales with it.
    """
    if not 0.0 < failure_probability < 1.0:
        raise ValueError(f"failure_probability must lie in (0, 1), got {failure_probability}")
    steps = horizon * np.asarray(episodes, dtype=np.float64)
    if (steps <= 0.0).any():
        raise ValueError("episodes must be positive")
    logarithm = np.log(n_contexts * n_states * n_actions * steps / failure_probability)
    rate = horizon * n_states * np.sqrt(n_contexts * n_actions * steps * logarithm)
    return np.asarray(reward_span * rate)
