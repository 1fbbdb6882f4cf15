"""Latent RiverSwim: a long way to the reward, by strokes that depend on the hidden current.

RiverSwim [strehl2008] is a chain with a small reward at the left bank and a large one at the far
right, against the current. Here each reach of the river has two channels, and which of them can
be swum depends on the hidden regime of the current: in regime m the *outer* channel is right in
every third reach, beginning with reach m, and the *inner* one elsewhere. In the wrong channel the
swimmer is thrown back and hurt (reward -1), which also tells that the regime is another one.

A policy with memory loses a stroke or two, knows the regime and swims. A memoryless policy cannot
keep what it has learned: whichever channels it picks, in at least two of the three regimes it
is thrown back again and again, and resting at the left bank is the best stationary policy.
"""

import numpy as np

from latentmdp.instances._parts import number, require_dense, sizes
from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP

REST, INNER, OUTER = range(3)
HURT, NOTHING, PAID = range(3)


@register("river-swim")
def river_swim(
    *,
    contexts: int = 3,
    states: int = 10,
    horizon: int = 56,
    forward: float = 0.28,
    backward: float = 0.075,
    rest_pay: float = 0.005,
) -> LatentMDP:
    """Swim up a river whose passable channel depends on a hidden regime.

    Parameters
    ----------
    contexts, states, horizon
        M, S and H.
    forward, backward
        The probabilities that a stroke in the right channel advances, or loses, one reach.
    rest_pay
        The mean reward of resting at the left bank; a stroke in the right channel of the last
        reach pays 1, one in a wrong channel costs 1.

    Notes
    -----
    M = 3, S = 10, A = 3, rewards -1, 0 and 1. Separation: 0, since `rest` is the same in all
    contexts; the channels differ by 2. With the defaults the informed value (regime known) is
    12.888, the optimum 11.113 and Q-MDP within 1e-3 of it; the best stationary memoryless policy
    rests for ever, H rest_pay = 0.28. A memoryless policy that may depend on time tries one channel
    a few times and then gives up; coordinate ascent finds 1.41. (Rewards must be negative
    somewhere for this: without, a memoryless policy is worth at least V*/M [kwon2021, Example 2].)
    """
    M, S = sizes(contexts=contexts, states=states)
    require_dense(M, S, 3)
    forward = number("forward", forward, 0.0, 1.0)
    backward = number("backward", backward, 0.0, 1.0 - forward)
    rest_pay = number("rest_pay", rest_pay, 0.0, 1.0)
    T = np.zeros((M, S, 3, S))
    R = np.zeros((M, S, 3, 3))
    for m in range(M):
        for s in range(S):
            right = OUTER if s % M == m else INNER
            wrong = INNER + OUTER - right
            T[m, s, right, s] = 1.0 - forward - backward
            T[m, s, right, min(s + 1, S - 1)] += forward  # both ends of the river hold
            T[m, s, right, max(s - 1, 0)] += backward
            T[m, s, [REST, wrong], max(s - 1, 0)] = 1.0
            R[m, s, right, PAID if s == S - 1 else NOTHING] = 1.0
            R[m, s, wrong, HURT] = 1.0
            R[m, s, REST, NOTHING] = 1.0
    R[:, 0, REST, NOTHING] = 1.0 - rest_pay
    R[:, 0, REST, PAID] = rest_pay
    return LatentMDP(
        T,
        R,
        reward_values=(-1.0, 0.0, 1.0),
        initial=0,
        horizon=horizon,
        context_names=[f"regime {m + 1}" for m in range(M)],
        state_names=["left bank", *(f"reach {s + 1}" for s in range(1, S))],
        action_names=("rest", "inner channel", "outer channel"),
    )
