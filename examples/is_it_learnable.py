"""Measure every assumption of the theory on a model, before spending episodes on it."""

import latentmdp as lm

model = lm.make("separated", contexts=2, states=3, actions=2, horizon=8, delta=0.6, rng=0)
found = lm.diagnose(model, rng=0, episodes=500)
print(f"delta {found.delta:.2f}, diameters {found.diameter.round(1)}")
print(found.table())
