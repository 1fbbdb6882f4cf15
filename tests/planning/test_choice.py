"""The planner in use is the one that earns more in the fitted model."""

import latentmdp as lm
from latentmdp.offline import planners
from latentmdp.planning.choice import acting_policy, certified_plan


def test_information_is_bought_where_q_mdp_would_wait() -> None:
    model = lm.make("wait-hub")
    waiting = lm.evaluate(model, lm.QMDP().plan(model).policy, 20_000, rng=0)
    acting = lm.evaluate(model, acting_policy(model, model), 20_000, rng=0)
    assert acting.mean - 4 * acting.stderr > 5.0 * waiting.mean


def test_q_mdp_acts_where_it_is_good_enough() -> None:
    model = lm.make("separated", rng=0)
    quick = lm.QMDP(smoothing=planners.ACTING_SMOOTHING).plan(model)
    episodes = [
        lm.simulate(model, policy, 200, rng=0)
        for policy in (quick.policy, acting_policy(model, model))
    ]
    assert episodes[0] == episodes[1]


def test_a_certificate_comes_with_the_better_policy(monkeypatch) -> None:
    """With no time to improve, HSVI's lower bound is that of one action for ever."""
    model = lm.make("separated", contexts=5, states=8, horizon=20, rewards="own", rng=3)
    in_time = certified_plan(model)
    assert in_time.converged
    monkeypatch.setattr(planners, "_SECONDS", 1e-9)
    plan = certified_plan(model)
    earned = lm.evaluate(model, plan.policy, 20_000, rng=0)
    assert not plan.converged
    assert plan.upper >= in_time.lower
    assert plan.lower <= earned.mean + 4 * earned.stderr
    assert earned.mean > 0.95 * in_time.lower
