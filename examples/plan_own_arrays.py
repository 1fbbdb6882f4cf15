"""Plan for several models of one's own, given as arrays, with a certificate."""

import numpy as np

import latentmdp as lm

# Two models of a machine: state 0 is broken, 1 works; action 0 waits, 1 and 2 are two repairs.
# Which repair works depends on a hidden fault that stays the same for a whole episode.
works, fails, waits = [0.2, 0.8], [0.9, 0.1], [1.0, 0.0]
decays = [0.3, 0.7]
transitions = np.array(
    [
        [[waits, works, fails], [decays, decays, decays]],
        [[waits, fails, works], [decays, decays, decays]],
    ]
)
rewards = np.array([[[0.0, 0.0, 0.0], [1.0, 0.5, 0.5]]] * 2)  # repairing costs half the output

model = lm.LatentMDP(transitions, rewards, initial=0, weights=[0.6, 0.4], horizon=8)
plan = lm.HSVI(gap=0.01, time_limit=30).plan(model)
memoryless = lm.Memoryless().plan(model)
print(model)
print(f"optimal within 1 %: {plan.lower:.3f} to {plan.upper:.3f} ({plan.message})")
print(f"without a belief the best is {memoryless.lower:.3f}, proved: {memoryless.converged}")
