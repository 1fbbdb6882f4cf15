"""L-UCRL with contexts revealed in hindsight: model error and regret over episodes."""

import latentmdp as lm

model = lm.make("random", rng=0, contexts=3, states=5, actions=2, horizon=12)
run = lm.LUCRL(contexts="revealed").run(model, episodes=3_000, rng=0)
regret = run.regret(reference=lm.QMDP().plan(model))
for k, error in zip(run.error_curve.episodes, run.error_curve.values):
    if k in (1, 10, 100, 1_000, 3_000):
        lost = regret.upper[k - 1]
        print(f"after {k:5d} episodes: model error {error:6.2f}, regret at most {lost:.1f}")
lm.save(run, "run.parquet")
