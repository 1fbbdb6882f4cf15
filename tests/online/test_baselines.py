"""Baselines do what they say, with the same interface."""

import numpy as np
import pytest
from small_worlds import small

import latentmdp as lm
from latentmdp.experiments.lucrl_runs import labelled_samples
from latentmdp.online.baselines import (
    PosteriorSampling,
    best_memoryless,
    context_blind,
    em_without_optimism,
    qmdp_on_truth,
    uniform,
)
from latentmdp.testing import check_learner, random_model


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
    np.testing.assert_array_equal(run.counts.transitions, np.round(run.counts.transitions))


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
    whole = run.counts.transitions - (0 if start is None else np.round(run.counts.transitions))
    assert np.isfinite(whole).all()


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
