"""Value a new policy from logs of an old one, without trying it out."""

import latentmdp as lm

# Stand-in for logs of one's own: an old policy that acts by the state, half at random.
truth = lm.make("separated", contexts=2, states=4, actions=2, horizon=6, delta=0.8, rng=0)
old = lm.MarkovPolicy([[0.7, 0.3], [0.4, 0.6], [0.5, 0.5], [0.3, 0.7]])
logs = lm.simulate(truth, old, 4_000, rng=1).without_contexts()

fit = lm.initialize(None, logs[:2_000], n_contexts=2, rng=0)
new = lm.QMDP().plan(fit.model).policy
print(f"the old policy earned {logs.returns().mean():.2f} per episode")
for method in ("per-decision", "doubly-robust"):
    value = lm.off_policy_value(logs[2_000:], new, method=method)
    least = value.effective_size.min()
    print(f"{method}: {value.mean:.2f} [{value.low:.2f}, {value.high:.2f}], {least:.0f} episodes")
    for warning in value.warnings:
        print("warning:", warning)
