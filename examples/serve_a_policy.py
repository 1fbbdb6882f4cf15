"""Act for many individuals at once with a saved policy."""

import numpy as np

import latentmdp as lm

model = lm.make("visitor")
lm.save(lm.QMDP().plan(model).policy, "policy.npz")

policy = lm.load("policy.npz")
crowd = policy.batch_session(10_000, rng=0)
crowd.observe(np.zeros(10_000, int))
for _ in range(3):
    actions = crowd.act()
    # The world answers; here everybody stays on the first page and buys nothing.
    crowd.observe(np.zeros(10_000, int), np.zeros(10_000))
names, counts = np.unique(actions, return_counts=True)
print("actions", dict(zip(names.tolist(), counts.tolist())))
print("belief of the first", crowd.beliefs[0].round(2))
