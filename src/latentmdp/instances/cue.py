"""Cue: what the first state tells is of use at the end, after a corridor.

An episode of context m begins in the place of cue m, walks down a corridor whatever is done, and
ends with a choice: action m pays 1, and another pays 0. So V* = 1 for whoever remembers where the
episode began, and 1 / M for whoever does not: only nu_m(s) tells contexts apart before it is too
late.
"""

import numpy as np

from latentmdp.instances._parts import sizes
from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP


@register("cue")
def cue(*, contexts: int = 2, horizon: int = 6) -> LatentMDP:
    """A cue in the first state, and a choice that needs it in the last step.

    Parameters
    ----------
    contexts
        M, the number of cues and of actions.
    horizon
        H; the choice comes H - 1 steps after the cue, so H is at least 2.

    Notes
    -----
    S = M + H - 1, A = M. Separation: 0, as only the choice pays. It is here for learners that must
    see that first states are evidence, and for filters that must keep it.
    """
    M, H = sizes(contexts=contexts, horizon=horizon)
    if H < 2:
        raise ValueError(f"horizon must be at least 2, a cue and a choice, got {H}")
    S, choice = M + H - 1, M + H - 2
    follows = np.minimum(np.maximum(np.arange(S) + 1, M), choice)  # every cue leads to state M
    transitions = np.broadcast_to(np.eye(S)[follows][:, None], (M, S, M, S))
    rewards = np.zeros((M, S, M))
    rewards[:, choice] = np.eye(M)
    return LatentMDP(transitions, rewards, initial=np.eye(M, S), horizon=H)
