"""Find the hidden groups in logged episodes, and a policy for the next individual."""

import latentmdp as lm

# Stand-in for a file of one's own: columns episode, t, state, action, reward, next_state.
truth = lm.make("separated", contexts=2, states=4, actions=2, horizon=15, delta=0.8, rng=0)
lm.save(lm.simulate(truth, lm.UniformPolicy(), 600, rng=1).without_contexts(), "logs.parquet")

logs = lm.load("logs.parquet")
solved = lm.solve(logs, n_contexts=2, rng=0, bootstrap=5)
print(logs)
print("weights of the groups", solved.model.weights.round(2))
print(f"logged {logs.returns().mean():.2f} per episode, the policy will earn {solved.value}")
for warning in solved.warnings:
    print("warning:", warning)
lm.save(solved.policy, "policy.npz")
