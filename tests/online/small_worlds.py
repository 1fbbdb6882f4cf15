"""A world and a planner that tests of learners share; imported as `small_worlds`."""

from dataclasses import dataclass

import latentmdp as lm
from latentmdp.worlds import ModelWorld, World


@dataclass(frozen=True)
class PlainQMDP:
    """Q-MDP that the learner does not recognise, so it takes the path of any planner."""

    def plan(self, model):
        return lm.QMDP().plan(model)


class Opaque(World):
    """A model that nobody recognises as one, so that it is played step by step."""

    def __init__(self, model):
        self._inner = ModelWorld(model)
        self.space = self._inner.space

    def begin(self, key, episode):
        return self._inner.begin(key, episode)

    def step(self, action):
        return self._inner.step(action)

    def context(self):
        return self._inner.context()

    def fingerprint(self):
        return "opaque"


def small(seed=0, **changes):
    """A world small enough for thousands of episodes; `changes` are arguments of `random`."""
    arguments = {"contexts": 3, "states": 5, "actions": 2, "horizon": 6, "concentration": 0.3}
    return lm.make("random", rng=seed, reward_density=0.2, reward_low=0.5, **arguments | changes)
