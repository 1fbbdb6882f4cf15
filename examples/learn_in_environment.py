"""Learn to act in a Gymnasium environment whose hidden kind changes with every episode."""

import gymnasium

import latentmdp as lm


class Doors(gymnasium.Env):
    """Three doors; the hidden kind decides which one is open most of the time."""

    observation_space = gymnasium.spaces.Discrete(2)  # whether the last door opened
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.kind = self.np_random.integers(3)
        return 0, {}

    def step(self, action):
        opened = self.np_random.random() < (0.8 if action == self.kind else 0.1)
        return int(opened), float(opened), False, False, {}


world = lm.envs.adapt(Doors(), n_contexts=3, horizon=12, reward_values=(0, 1))
learned = lm.learn(world, n_contexts=3, episodes=500, rng=0, planner=lm.QMDP())
print(f"{learned.trailing_return(100):.1f} per episode at the end")
for phase in learned.phases[::4]:
    print(f"from episode {phase.first_episode:4d}: {phase.mean_return:.1f} per episode")
