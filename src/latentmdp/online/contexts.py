"""The belief over contexts at the end of an episode [kwon2021, Alg. 2 and 3].

Revealed: b-hat is one at the true context. Inferred:

    p-hat_m = prod_t (alpha + (1 - alpha S Z) Phat_m(s_{t+1}, r_t | s_t, a_t)),
    b-hat(m) = p-hat_m / sum_n p-hat_n,

which is what the acting filter holds when the episode ends, since acting and learning use the same
smoothed filter. Algorithm 3 has neither weights nor initial distributions, and neither has the
filter here when contexts are inferred and weights are not given: started from weights that are
themselves learned from inferred contexts, the likelier contexts take in ever more episodes, and
with little separation the model fails to converge. With known weights, with `weights="learned"`, or
when contexts are revealed, the filter starts from w_m nuhat_m(s_1) instead: then the update is the
full step of online EM [cappe2009].
"""

import numpy as np

from latentmdp._util.arrays import Floats

__all__ = ["inferred_context", "revealed_context"]


def revealed_context(context: int, n_contexts: int) -> Floats:
    """Algorithm 2: all weight on the true context."""
    if not 0 <= context < n_contexts:
        raise ValueError(
            f'contexts="revealed": the world gave context {context}, expected one in '
            f"[0, {n_contexts}); in an environment, info of the last step must hold it"
        )
    weights = np.zeros(n_contexts)
    weights[context] = 1.0
    return weights


def inferred_context(belief: Floats) -> Floats:
    """Algorithm 3, from the final (3, M) belief of the smoothed filter."""
    from latentmdp._kernels.belief import AWAKE

    return belief[AWAKE].copy()
