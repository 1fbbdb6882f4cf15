"""The wait-hub: an instance in which Q-MDP never asks and never acts.

A traveller at a hub knows that one of two roads leads to a mine, which pays every step. They may
*ask* (a noisy signal, no pay), *wait* (a small pay, no information) or *take* a road, which cannot
be undone: the right one reaches the mine after a journey, the wrong one ends in the desert.

Q-MDP believes that the context will be known from the next step on. So it holds waiting, which
costs one step of the mine and pays a little, to be better than taking a road that may be wrong,
and better than asking, which pays nothing; it waits again at every step until the end. A policy
that plans for information asks until it is sure and then goes.
"""

import numpy as np

from latentmdp.instances._parts import number
from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP

STATES = ("hub", "told east", "told west", "road 1", "road 2", "road 3", "mine", "desert")
ACTIONS = ("ask", "wait", "take east", "take west")
HUB, TOLD, _, ROAD, _, _, MINE, DESERT = range(len(STATES))
ASK, WAIT, TAKE, _ = range(len(ACTIONS))


@register("wait-hub")
def wait_hub(
    *, accuracy: float = 0.8, pay: float = 0.51, wait_pay: float = 0.055, horizon: int = 30
) -> LatentMDP:
    """Ask for a noisy signal, take a road for good, or wait for a small pay: Q-MDP waits for ever.

    Parameters
    ----------
    accuracy
        The probability that the signal is right.
    pay, wait_pay
        The mean (Bernoulli) reward of a step in the mine and of waiting at the hub.
    horizon
        H.

    Notes
    -----
    M = 2, S = 8, A = 4. Separation: 0, since only `ask` and the two roads tell the contexts apart.
    With the defaults Q-MDP earns H wait_pay = 1.65 and the optimum is 11.068.
    """
    accuracy = number("accuracy", accuracy, 0.0, 1.0)
    pay = number("pay", pay, 0.0, 1.0)
    wait_pay = number("wait_pay", wait_pay, 0.0, 1.0)
    T = np.zeros((2, len(STATES), len(ACTIONS), len(STATES)))
    means = np.zeros(T.shape[:3])
    for m in range(2):
        for s in (HUB, TOLD, TOLD + 1):
            T[m, s, ASK, TOLD + m] = accuracy
            T[m, s, ASK, TOLD + 1 - m] = 1.0 - accuracy
            T[m, s, WAIT, HUB] = 1.0
            T[m, s, TAKE + m, ROAD] = 1.0
            T[m, s, TAKE + 1 - m, DESERT] = 1.0
            means[m, s, WAIT] = wait_pay
    for s in range(ROAD, MINE):
        T[:, s, :, s + 1] = 1.0
    T[:, MINE, :, MINE] = 1.0
    T[:, DESERT, :, DESERT] = 1.0
    means[:, MINE] = pay
    return LatentMDP(
        T,
        means,
        initial=HUB,
        horizon=horizon,
        context_names=("mine in the east", "mine in the west"),
        state_names=STATES,
        action_names=ACTIONS,
    )
