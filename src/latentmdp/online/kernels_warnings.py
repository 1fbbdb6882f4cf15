"""How well a filter predicts episodes whose context may change from step to step."""

import math

import numpy as np
from numba import njit

from latentmdp._kernels import AWAKE, LEVEL, MANTISSA, find_outcome, reset_belief, update_belief


@njit(cache=True, nogil=True)
def moving_evidence(table, known, states, actions, rewards, offsets, change, out):
    """Log-likelihood of the steps of each episode, given its first state, in out (N,).

    The context is drawn anew from the prior with a chance of `change` after every step, so the
    belief becomes (1 - change) b + change w. Steps at an (s, a) that is not `known` (S, A) tell
    nothing. `table` is a smoothed `Filter`; likelihoods are summed in the order of the contexts,
    their logarithms in the order of the steps. Episodes are as `Trajectories` holds them: episode i
    has the states from offsets[i] + i on, one more than its steps. `out` is returned.
    """
    prior, sizes = table.prior, table.sizes
    starts, next_state, reward = table.starts, table.next_state, table.reward
    belief = np.empty((3, prior.shape[0]))
    for i in range(out.shape[0]):
        begin = offsets[i] + i
        reset_belief(belief, prior, table.initial, np.int64(states[begin]))
        out[i] = 0.0
        for t in range(offsets[i + 1] - offsets[i]):
            s, a = states[begin + t], actions[offsets[i] + t]
            if known[s, a]:
                n, z = states[begin + t + 1], rewards[offsets[i] + t]
                k = find_outcome(sizes, starts, next_state, reward, s, a, n, z)
                if k < 0:  # not listed: as unlikely in every context
                    out[i] += math.log(table.smoothing)
                else:
                    row, chance = np.int64(table.pattern[k]), 0.0
                    for m in range(prior.shape[0]):
                        chance += belief[AWAKE, m] * table.likelihood[row, m]
                    out[i] += math.log(chance)
                    update_belief(belief, table.likelihood, row)
            if change > 0.0:
                # What slept is less than rounding beside the prior's share.
                for m in range(prior.shape[0]):
                    belief[AWAKE, m] = (1.0 - change) * belief[AWAKE, m] + change * prior[m]
                    belief[MANTISSA, m] = belief[LEVEL, m] = 0.0
    return out
