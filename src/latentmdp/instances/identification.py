"""Identification: twenty questions about a hidden target, and then a guess.

The context is the target, one of 2^n with uniform weights. Question i asks for bit i of the target
and is answered right with probability 1 - noise; a guess names a target, pays 1 if it is right, and
ends the episode. Only information is worth anything before the last step, and every question halves
the targets that are left, so that without noise

    V* = 2^-max(0, n + 1 - H):

n questions and a guess are enough, and with fewer steps each missing bit halves the chance.
"""

import numpy as np

from latentmdp._util.memory import require_memory
from latentmdp.instances._parts import number, sizes
from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP
from latentmdp.outcomes import outcomes_from_entries

STATES = ("start", "heard 0", "heard 1", "over")
START, HEARD, _, OVER = range(len(STATES))


@register("identification")
def identification(*, bits: int = 3, noise: float = 0.0, horizon: int = 4) -> LatentMDP:
    """Twenty questions: ask for bits of a hidden target, then name it.

    Parameters
    ----------
    bits
        The number n of questions; there are 2^n targets.
    noise
        The probability that an answer is wrong.
    horizon
        H. With n + 1 steps each bit can be asked for once.

    Notes
    -----
    M = 2^n, S = 4, A = n + 2^n; the last state is terminal. Separation: 0, as a guess tells only
    one target from the others. It is here for planning with many contexts that only deliberate
    questions tell apart, where the optimum is known.
    """
    (n,) = sizes(bits=bits)
    noise = number("noise", noise, 0.0, 1.0)
    targets = 2**n
    A = n + targets
    require_memory(8.0 * 4 * OVER * 2 * A * targets, f"identification of {targets:,} targets")
    probs = np.zeros((OVER, A, 2, targets))  # of the outcomes 0 and 1 of every row
    bit = np.arange(targets) >> np.arange(n)[:, None] & 1
    probs[:, :n, 1] = np.where(bit == 1, 1.0 - noise, noise)
    probs[:, n:, 1] = np.eye(targets)
    probs[:, :, 0] = 1.0 - probs[:, :, 1]
    state, action, outcome, m = np.nonzero(probs)
    asks = action < n
    then, reward = np.where(asks, HEARD + outcome, OVER), np.where(asks, 0, outcome)
    entries = (state * A + action, then, reward, m, probs[state, action, outcome, m])
    table = outcomes_from_entries(*entries, (targets, len(STATES), A, 2))
    questions = [f"ask for bit {i}" for i in range(n)]
    return LatentMDP.from_outcomes(
        *table,
        n_states=len(STATES),
        initial=START,
        horizon=horizon,
        context_names=[f"{m:0{n}b}" for m in range(targets)],
        state_names=STATES,
        action_names=[*questions, *(f"guess {m:0{n}b}" for m in range(targets))],
    )
