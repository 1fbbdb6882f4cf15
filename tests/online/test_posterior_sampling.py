"""Models drawn given a fit have the posterior's moments, and sampling with refits learns."""

import numpy as np
import pytest
from small_worlds import small

import latentmdp as lm
from latentmdp.estimation import EM
from latentmdp.logs import cell_counts
from latentmdp.online.posterior_sampling import drawn_fit
from latentmdp.testing import check_learner, random_model
from latentmdp.worlds import Space


def test_drawn_rows_have_the_mean_and_the_variance_of_a_dirichlet():
    """Against the closed form, from the same expected counts, added up independently."""
    model = small(2)
    logs = lm.simulate(model, lm.UniformPolicy(), 60, rng=0)
    fit = EM(model.n_contexts, pseudo_counts=2.0).fit(logs.without_contexts(), rng=0)
    space, prior, draws = Space.of(model), 0.5, 300
    columns = ("state", "action", "next_state", "reward")
    _, S, A, Z = model.dimensions
    counts = cell_counts(logs, columns, (S, A, Z), fit.responsibilities)
    pooled = counts.sum(axis=0)
    shares = pooled / np.maximum(1e-300, pooled.sum(axis=(2, 3), keepdims=True))
    alpha = counts + 2.0 * shares
    total = alpha.sum(axis=(3, 4), keepdims=True) + prior
    # The further outcome is uniform over all S Z, so it adds prior / (S Z) to every mean.
    mean = (alpha + prior / (S * Z)) / total
    drawn = np.stack(
        [
            drawn_fit(np.random.default_rng(i), fit, logs, space, prior).observation_probs()
            for i in range(draws)
        ]
    )
    error = np.sqrt(drawn.var(axis=0) / draws)
    # Cells that only the further outcome reaches are too rare for a normal interval.
    often = alpha > 0.5
    z = (drawn.mean(axis=0) - mean)[often] / error[often]
    assert np.abs(z).max() < 5.5  # false alarm: below 1e-4 for a few hundred cells
    variance = (mean * (1 - mean) / (total + 1))[often]
    ratio = drawn.var(axis=0)[often] / variance
    assert 0.9 < np.median(ratio) < 1.1


def test_sampling_with_refits_learns():
    model = small(8, horizon=20)
    run = lm.learn(model, model.n_contexts, 250, rng=0, method="sampling", planner=lm.QMDP())
    reference = lm.evaluate(model, lm.QMDP().plan(model).policy, episodes=20_000, rng=0).mean
    random = lm.evaluate(model, lm.UniformPolicy()).mean
    assert run.returns[-80:].mean() > random + 0.6 * (reference - random)
    assert run.settings["sampling"]


def test_it_conforms():
    learner = lm.online.Refit(2, explore=10, restarts=1, sampling=True, planner=lm.QMDP())
    check_learner(learner, models={"small": random_model(0)}, episodes=25)


def test_the_method_must_be_known():
    with pytest.raises(ValueError, match="'sampling'"):
        lm.learn(small(), 2, 10, method="guessing")
