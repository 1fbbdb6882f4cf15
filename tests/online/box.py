"""Algorithms 1 to 3 [kwon2021] by hand, in dictionaries and loops: the oracle of the learner."""

from collections import defaultdict

import numpy as np

from latentmdp._kernels.rollout import begin_episode, world_step
from latentmdp.worlds import chances_of


class Box:
    """One run of the box with backward induction written out; slow and simple."""

    def __init__(self, model, key, smoothing, reach, width, spread=None, start=None):
        self.model, self.key, self.alpha = model, np.uint64(key), smoothing
        self.reach, self.width = reach, width
        self.chances = chances_of(model)
        self.next, self.paid, self.first = (defaultdict(float) for _ in range(3))
        if start is not None:
            self._prior(*start)

    def _prior(self, other, count):
        M, S, A, Z = self._sizes()
        for m in range(M):
            for s in range(S):
                self.first[m, s] = count * other.initial[m, s]
                for a in range(A):
                    for x in range(S):
                        self.next[m, s, a, x] = count * other.transitions[m, s, a, x]
                    for z in range(Z):
                        self.paid[m, s, a, z] = count * other.reward_probs[m, s, a, z]

    def _sizes(self):
        m = self.model
        return m.n_contexts, m.n_states, m.n_actions, m.n_rewards

    def visits(self, m, s, a):
        return sum(self.next[m, s, a, x] for x in range(self.model.n_states))

    def T(self, m, s, a, x):
        return self.next[m, s, a, x] / max(1.0, self.visits(m, s, a))

    def R(self, m, s, a, z):
        return self.paid[m, s, a, z] / max(1.0, self.visits(m, s, a))

    def P(self, m, s, a, x, z):
        """What a row with less than one visit lacks is filled by that of all contexts."""
        contexts, lacking = range(self.model.n_contexts), max(0.0, 1.0 - self.visits(m, s, a))
        total = sum(self.visits(n, s, a) for n in contexts) or 1.0
        moved = sum(self.next[n, s, a, x] for n in contexts) / total
        paid = sum(self.paid[n, s, a, z] for n in contexts) / total
        return self.T(m, s, a, x) * self.R(m, s, a, z) + lacking * moved * paid

    def bonus(self, m, s, a):
        n = self.visits(m, s, a)
        return self.reach * min(1.0, max(0.0, 1.0 - n) + np.sqrt(self.width / max(1.0, n)))

    def plan(self):
        M, S, A, Z = self._sizes()
        H, values = self.model.horizon, self.model.reward_values
        Q = np.zeros((H + 1, M, S, A))
        for m in range(M):
            for t in range(H - 1, -1, -1):
                for s in range(S):
                    for a in range(A):
                        mean = sum(self.R(m, s, a, z) * values[z] for z in range(Z))
                        future = sum(self.T(m, s, a, x) * Q[t + 1, m, x].max() for x in range(S))
                        Q[t, m, s, a] = mean + self.bonus(m, s, a) + future
        return Q

    def episode(self, k, revealed, uniform_start):
        M, S, A, Z = self._sizes()
        Q = self.plan()
        m, s = begin_episode(self.chances, self.key, np.uint64(k))
        started = [sum(self.first[n, x] for x in range(S)) for n in range(M)]
        b = np.ones(M)
        if not uniform_start:
            for n in range(M):
                b[n] = (started[n] + 1.0) * (self.first[n, s] + 1.0) / (started[n] + S)
        b /= b.sum()
        steps, first = [], s
        for t in range(self.model.horizon):
            a = int(np.argmax([sum(b[n] * Q[t, n, s, a] for n in range(M)) for a in range(A)]))
            x, z = world_step(self.chances, self.key, np.uint64(k), t, m, s, a)
            likelihood = [
                self.alpha + (1 - self.alpha * S * Z) * self.P(n, s, a, x, z) for n in range(M)
            ]
            b = b * likelihood / np.dot(b, likelihood)
            steps.append((s, a, x, z))
            s = x
        weights = np.eye(M)[m] if revealed else b
        for n in range(M):
            self.first[n, first] += weights[n]
            for s, a, x, z in steps:
                self.next[n, s, a, x] += weights[n]
                self.paid[n, s, a, z] += weights[n]
        return sum(self.model.reward_values[z] for *_, z in steps)
