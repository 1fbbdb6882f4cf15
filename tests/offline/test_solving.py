"""From logs to a policy: its value is covered, and doubts are voiced."""

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp.offline import Interval, SolveWarning
from latentmdp.offline.off_policy import behaviour_policy, logged_estimate


def test_importance_sampling_is_unbiased_where_the_logs_reach() -> None:
    """Within 5 standard errors of the exact value of the same steps."""
    model = random_model(0, horizon=3)
    policy = random_alpha_policy(model, 1)
    logs = lm.simulate(model, lm.UniformPolicy(), 40_000, rng=0).without_contexts()
    uniform = np.full((3, 2), 0.5)
    found = logged_estimate(logs, policy, model, uniform, np.random.default_rng(0))
    exact = lm.evaluate(model, policy, method="exact").mean
    assert found.steps == 3
    assert abs(found.mean - exact) < 5 * found.stderr
    np.testing.assert_allclose(found.effective_size, 40_000 / 2.0 ** np.arange(1, 4), rtol=0.1)


def test_logs_that_never_agree_say_nothing() -> None:
    model = random_model(0, horizon=3)
    logs = lm.simulate(model, lm.MarkovPolicy([0, 0, 0]), 100, rng=0)
    never = lm.MarkovPolicy([1, 1, 1])
    behaviour = behaviour_policy(logs)
    found = logged_estimate(logs, never, model, behaviour, np.random.default_rng(0))
    assert found.steps == 0
    np.testing.assert_array_equal(behaviour, [[1.0, 0.0]] * 3)


def test_solve_covers_the_truth_and_beats_the_logged_policy() -> None:
    world = lm.make(
        "separated", contexts=2, states=4, actions=2, horizon=12, delta=1.0, rewards="own", rng=3
    )
    logs = lm.simulate(world, lm.UniformPolicy(), 1_000, rng=0).without_contexts()
    solved = lm.solve(logs, 2, rng=0, bootstrap=8)
    truth = lm.evaluate(world, solved.policy, 50_000, rng=1)
    assert isinstance(solved.value, Interval)
    assert solved.value.low - 4 * truth.stderr < truth.mean < solved.value.high + 4 * truth.stderr
    assert truth.mean > logs.returns().mean()
    assert solved.model.n_contexts == 2
    assert solved.warnings == ()
    assert solved.diagnosis.delta == pytest.approx(lm.separation(solved.model))


def test_evidence_is_not_counted_twice_where_the_next_state_is_the_reward() -> None:
    """Rewards that repeat the next state tell nothing more, and the interval covers the truth."""
    T = np.empty((2, 2, 2, 2))
    for m, a in np.ndindex(2, 2):
        T[m, :, a] = (0.4, 0.6) if a == m else (0.9, 0.1)
    R = np.broadcast_to(np.eye(2), (2, 2, 2, 2, 2))
    world = lm.LatentMDP(T, R, initial=0, horizon=10)
    logs = lm.simulate(world, lm.UniformPolicy(), 600, rng=0).without_contexts()
    solved = lm.solve(logs, 2, rng=0, bootstrap=10)
    assert solved.model.reward_model == "transition"
    truth = lm.evaluate(world, solved.policy, 50_000, rng=1)
    assert solved.value.low < truth.mean < solved.value.high


def test_rewards_may_depend_on_the_next_state() -> None:
    world = random_model(0, contexts=2, states=3, horizon=8, form="next-state")
    logs = lm.simulate(world, lm.UniformPolicy(), 300, rng=0).without_contexts()
    solved = lm.solve(logs, 2, rng=0, bootstrap=2, reward_model="transition")
    assert solved.model.reward_model == "transition"
    assert solved.value.low <= solved.value.mean <= solved.value.high


def test_a_policy_that_leaves_the_data_is_reported() -> None:
    """One action is logged hardly ever, and the planner likes it."""
    world = lm.make("random", contexts=2, states=3, actions=2, horizon=6, rng=5)
    rarely = lm.MarkovPolicy(np.tile([0.99, 0.01], (3, 1)))
    logs = lm.simulate(world, rarely, 60, rng=0).without_contexts()
    with pytest.warns(SolveWarning):
        solved = lm.solve(logs, 2, rng=0, bootstrap=2)
    assert solved.warnings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"confidence": 1.0}, "confidence must lie in"),
        ({"bootstrap": 1}, "bootstrap must be at least 2"),
        ({"behaviour": np.full((2, 2), 0.5)}, r"behaviour must have shape \(3, 2\)"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str) -> None:
    logs = lm.simulate(random_model(0), lm.UniformPolicy(), 5, rng=0)
    with pytest.raises(ValueError, match=message):
        lm.solve(logs, 2, **settings)
