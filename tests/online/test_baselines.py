"""Baselines do what they say, with the same interface."""

import numpy as np
import pytest
from small_worlds import small

import latentmdp as lm
from latentmdp.experiments.lucrl_runs import labelled_samples
from latentmdp.online import PosteriorSampling
from latentmdp.online.baselines import (
    FixedPolicy,
    best_memoryless,
    context_blind,
    em_without_optimism,
    qmdp_on_truth,
    thompson_sampling,
    uniform,
)
from latentmdp.testing import check_learner, policy_value, random_model


def test_fixed_policies_play_what_simulate_plays():
    model = small()
    for learner in (uniform(), qmdp_on_truth(model)):
        run = learner.run(model, 300, rng=5)
        logs = lm.simulate(model, learner.policy, 300, rng=5)
        np.testing.assert_array_equal(run.returns, logs.returns())
        np.testing.assert_array_equal(run.contexts, logs.contexts)
        assert run.counts.visits.sum() == logs.n_steps
    assert qmdp_on_truth(model).value == lm.QMDP().plan(model).upper


def test_a_blind_learner_estimates_the_average():
    """With one context the counts are those of the data, whatever the contexts were."""
    model = small()
    run = context_blind().run(model, 200, rng=0)
    assert run.model.n_contexts == 1
    assert run.counts.visits.sum() == pytest.approx(200 * model.horizon)
    assert np.isnan(run.error_curve.values).all()
    np.testing.assert_allclose(run.counts.transitions, np.round(run.counts.transitions))


def test_em_without_optimism_adds_no_bonus():
    model = small(1)
    start = labelled_samples(model, 50, 0)
    run = em_without_optimism(start).run(model, 100, rng=0)
    plan = lm.QMDP().plan(run.model.replace(weights=[1 / 3] * 3))
    assert run.optimistic_value == pytest.approx(plan.upper, rel=1e-9)


@pytest.mark.parametrize("contexts", ["revealed", "inferred"])
def test_posterior_sampling_learns(contexts):
    model = small(8, horizon=20)
    start = None if contexts == "revealed" else labelled_samples(model, 10, 0)
    run = PosteriorSampling(contexts=contexts, start=start).run(model, 400, rng=0)
    reference = lm.evaluate(model, lm.QMDP().plan(model).policy, episodes=20_000, rng=0).mean
    random = lm.evaluate(model, lm.UniformPolicy()).mean
    assert run.returns[-200:].mean() > random + 0.7 * (reference - random)
    # Every episode is counted once, for one context: counts stay whole numbers.
    known = 0 if start is None else start.n_steps
    assert run.counts.transitions.sum() == 400 * 20 + known
    np.testing.assert_array_equal(run.counts.transitions, np.round(run.counts.transitions))


def test_the_best_memoryless_policy():
    model = small()
    run = best_memoryless(model).run(model, 100, rng=0)
    assert run.optimistic_value <= lm.QMDP().plan(model).upper


def test_they_conform():
    models = {"small": random_model(0), "values": random_model(1, reward_values=(-1.0, 0.0, 2.0))}
    start = {
        name: random_model(9, reward_values=tuple(m.reward_values)) for name, m in models.items()
    }
    for name, model in models.items():
        for learner in (
            lm.LUCRL(),
            lm.LUCRL(contexts="inferred", start=start[name]),
            uniform(),
            qmdp_on_truth(model),
            context_blind(),
            PosteriorSampling(),
        ):
            check_learner(learner, models={name: model})


def test_a_stochastic_callable_is_a_policy_too(tmp_path):
    """Its chance is keyed, so a run repeats itself, and its mean is that of the same table."""
    model = small()
    table = np.random.default_rng(0).dirichlet(np.ones(2), size=5)

    def policy(history):
        return table[history.states[-1]]

    run = FixedPolicy(policy).run(model, 400, rng=5, checkpoint=tmp_path / "c.npz")
    again = FixedPolicy(policy).run(model, 400, rng=5)
    np.testing.assert_array_equal(run.returns, again.returns)
    logs = lm.simulate(model, policy, 400, rng=5)
    np.testing.assert_array_equal(run.returns, logs.returns())
    exact = lm.evaluate(model, lm.MarkovPolicy(table)).mean
    error = run.returns.std() / np.sqrt(400)
    assert abs(run.returns.mean() - exact) < 4.5 * error  # false alarm: 7e-6


def test_a_checkpoint_of_another_policy_is_refused(tmp_path):
    """Two policies that print alike are two."""
    model, file = small(), tmp_path / "run.npz"
    first, second = (lm.MarkovPolicy(np.full(5, action)) for action in (0, 1))
    assert repr(first) == repr(second)
    FixedPolicy(first).run(model, 50, rng=0, checkpoint=file)
    with pytest.raises(lm.online.CheckpointError, match="its policy is"):
        FixedPolicy(second).run(model, 50, rng=0, checkpoint=file)


def test_thompson_sampling_draws_contexts_from_the_belief():
    """The probability of an action is the posterior of the contexts in which it is optimal."""
    model = random_model(4, contexts=3, states=3, actions=3, horizon=5)
    policy = thompson_sampling(model).policy
    best = [lm.QMDP().plan(model.context(m)).policy for m in range(3)]
    logs = lm.simulate(model, lm.UniformPolicy(), 12, rng=1)
    smoothing = lm.planning.acting_smoothing(model.n_states, model.n_rewards)
    beliefs = lm.posterior(model, logs, smoothing, along=True).reshape(12, 6, 3)
    for i, episode in enumerate(logs):
        for t in reversed(range(5)):  # not in order, so nothing may rest on the last call
            states, actions, rewards = (part.tolist() for part in episode[:3])
            history = lm.logs.History(
                tuple(states[: t + 1]), tuple(actions[:t]), tuple(rewards[:t])
            )
            expected = np.zeros(3)
            for m, plan in enumerate(best):
                values = plan.vectors.reshape(5, 3, 3)[t, states[t]]
                expected[np.argmax(values)] += beliefs[i, t, m]
            np.testing.assert_allclose(policy(history), expected, atol=1e-12)


def test_thompson_sampling_runs_and_is_worth_what_it_earns():
    model = random_model(2, contexts=2, states=3, actions=2, horizon=4)
    learner = thompson_sampling(model)
    run = learner.run(model, 500, rng=0)
    value = policy_value(model, learner.policy)
    assert abs(run.returns.mean() - value) < 4.5 * run.returns.std() / np.sqrt(500)
    assert value <= lm.Exact().plan(model).upper + 1e-9
