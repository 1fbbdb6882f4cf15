"""Dynamic programming over the beliefs that can be reached, for problems where they are few."""

import numpy as np


def q_values(model):
    """Q_m(t, s, a) of every context on its own, shape (H, M, S, A)."""
    T, means = model.transitions, model.mean_rewards()
    V = np.zeros(T.shape[:2])
    Q = np.empty((model.horizon, *means.shape))
    for t in reversed(range(model.horizon)):
        Q[t] = means + np.einsum("msan,mn->msa", T, V)
        V = Q[t].max(axis=-1)
    return Q


def informed_values(model):
    """The optimal value of each context if it is known from the start."""
    return (q_values(model)[0].max(axis=-1) * model.initial).sum(axis=1)


def value(model, policy=None):
    """The value of `policy(t, s, belief) -> action`, or the optimal value."""
    P = model.observation_probs()
    memo = {}

    def best(t, s, belief):
        if t == model.horizon:
            return 0.0
        key = (t, s, tuple(np.round(belief, 10)))
        if key not in memo:
            actions = range(model.n_actions) if policy is None else [policy(t, s, belief)]
            memo[key] = max(act(t, s, a, belief) for a in actions)
        return memo[key]

    def act(t, s, a, belief):
        total = 0.0
        for s_next, z in np.argwhere((P[:, s, a] > 0).any(axis=0)):
            joint = belief * P[:, s, a, s_next, z]
            p = joint.sum()
            if p > 0:
                total += p * (model.reward_values[z] + best(t + 1, int(s_next), joint / p))
        return total

    starts = [(s, model.weights * model.initial[:, s]) for s in range(model.n_states)]
    return sum(u.sum() * best(0, s, u / u.sum()) for s, u in starts if u.any())


def qmdp_policy(model):
    Q = q_values(model)
    return lambda t, s, belief: int(np.argmax(belief @ Q[t, :, s]))
