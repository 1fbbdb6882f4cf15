"""Simulation speed at (M, S, A, H) = (7, 15, 3, 30), one thread.

The yardstick is a bare compiled loop under the uniform policy that reads pre-drawn uniforms and
walks cumulative rows. Gymnasium's vector API steps the same problem for comparison.
"""

import gymnasium as gym
import numpy as np
from numba import njit
from timing import best_seconds

import latentmdp as lm

CONTEXTS, STATES, ACTIONS, HORIZON = 7, 15, 3, 30
EPISODES = 100_000
GYM_ENVS, GYM_EPISODES = 64, 20


@njit(nogil=True)
def bare_loop(cumulative, means, contexts, first, uniforms, states, actions, rewards):
    N, H = actions.shape
    S, A = cumulative.shape[1:3]
    for i in range(N):
        m, s = contexts[i], first[i]
        states[i, 0] = s
        for t in range(H):
            a = int(uniforms[i, t, 0] * A)
            x, n = uniforms[i, t, 1], 0
            while n < S - 1 and x >= cumulative[m, s, a, n]:
                n += 1
            actions[i, t] = a
            rewards[i, t] = uniforms[i, t, 2] < means[m, s, a]
            states[i, t + 1] = n
            s = n


class PlainEnv(gym.Env):
    """The problem as anyone would write it for Gymnasium."""

    def __init__(self, model: lm.LatentMDP) -> None:
        self.model = model
        self.cumulative = model.transitions.cumsum(axis=-1)
        self.means = model.mean_rewards()
        self.observation_space = gym.spaces.Discrete(model.n_states)
        self.action_space = gym.spaces.Discrete(model.n_actions)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.context = self.np_random.integers(self.model.n_contexts)
        self.state, self.t = self.np_random.integers(self.model.n_states), 0
        return self.state, {}

    def step(self, action):
        row = self.cumulative[self.context, self.state, action]
        reward = float(self.np_random.random() < self.means[self.context, self.state, action])
        self.state = min(int(np.searchsorted(row, self.np_random.random())), len(row) - 1)
        self.t += 1
        return self.state, reward, False, self.t == self.model.horizon, {}


def main() -> None:
    rng = np.random.default_rng(0)
    shape = (CONTEXTS, STATES, ACTIONS)
    transitions = rng.dirichlet(np.full(STATES, 0.3), shape)
    model = lm.LatentMDP(transitions, rng.random(shape), horizon=HORIZON)
    qmdp = lm.QMDP().plan(model).policy
    out = [np.empty((EPISODES, n), np.int32) for n in (HORIZON + 1, HORIZON, HORIZON)]
    uniforms = rng.random((EPISODES, HORIZON, 3))
    contexts = rng.integers(CONTEXTS, size=EPISODES)
    first = rng.integers(STATES, size=EPISODES)
    cumulative, means = transitions.cumsum(axis=-1), model.mean_rewards()
    vector = gym.vector.SyncVectorEnv([lambda: PlainEnv(model)] * GYM_ENVS)

    def step_gymnasium() -> None:
        vector.reset(seed=0)
        for _ in range(GYM_EPISODES * HORIZON):
            vector.step(rng.integers(ACTIONS, size=GYM_ENVS))

    seconds = best_seconds(
        {
            "bare loop, pre-drawn uniforms": lambda: bare_loop(
                cumulative, means, contexts, first, uniforms, *out
            ),
            "simulate, uniform policy": lambda: lm.simulate(
                model, lm.UniformPolicy(), EPISODES, rng=0, threads=1
            ),
            "simulate, Q-MDP policy": lambda: lm.simulate(model, qmdp, EPISODES, rng=0, threads=1),
        }
    )
    per_step = {name: s / EPISODES / HORIZON for name, s in seconds.items()}
    gym_seconds = best_seconds({"gym": step_gymnasium}, rounds=2)["gym"]
    per_step["Gymnasium vector API"] = gym_seconds / GYM_ENVS / GYM_EPISODES / HORIZON
    yardstick = per_step["bare loop, pre-drawn uniforms"]
    for name, value in per_step.items():
        print(f"{name:32s} {value * 1e9:10.1f} ns/step   {value / yardstick:8.2f} x bare loop")


if __name__ == "__main__":
    main()
