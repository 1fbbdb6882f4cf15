"""Fits of many states: outcome tables of what the episodes show, against dense fits."""

import tracemalloc
import warnings

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.estimation import likelihood
from latentmdp.fit import FitWarning

pytestmark = pytest.mark.filterwarnings("ignore:no episode visits")


def sparse(n_states, n_actions, horizon, seed=0, branches=2):
    """Two contexts that choose differently among a few successors of every (s, a)."""
    rng = np.random.default_rng(seed)
    rows = n_states * n_actions
    starts = np.arange(0, rows * branches + 1, branches)
    following = np.sort(np.argsort(rng.random((rows, n_states)), axis=1)[:, :branches], axis=1)
    pays = rng.random(n_states) < 0.2
    high = 0.9 * (rng.random(rows) < 0.5) + 0.05
    probs = np.stack([np.column_stack([p, 1 - p]).ravel() for p in (high, 1 - high)], axis=1)
    return lm.LatentMDP.from_outcomes(
        starts,
        following.ravel(),
        pays[following.ravel()].astype(int),
        probs,
        n_states=n_states,
        horizon=horizon,
    )


FITS = [
    {},
    {"reward_model": "transition"},
    {"shared_rewards": True},
    {"shared_rewards": True, "reward_model": "transition"},
]


@pytest.mark.parametrize("options", FITS, ids=str)
def test_a_table_and_arrays_are_one_fit(options, monkeypatch):
    model = sparse(12, 2, 10)
    logs = lm.simulate(model, lm.UniformPolicy(), 400, rng=0).without_contexts()
    em = lm.EM(2, restarts=2, pseudo_counts=1.0, **options)
    dense = em.fit(logs, rng=0)
    monkeypatch.setattr(likelihood, "few_entries", lambda number: False)
    fit = em.fit(logs, rng=0)
    assert fit.model.is_table
    assert not dense.model.is_table
    assert fit.model.reward_model == dense.model.reward_model
    np.testing.assert_array_equal(fit.model.allowed, True)
    assert lm.model_error(dense.model, fit.model) == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(fit.responsibilities, dense.responsibilities, atol=1e-9)
    assert fit.log_likelihood == dense.log_likelihood
    assert fit.n_parameters == dense.n_parameters
    # climbing on from a table is climbing on from arrays
    again = [em.fit(logs, start=model, rng=0) for model in (dense.model, fit.model)]
    assert again[0].log_likelihood == pytest.approx(again[1].log_likelihood, abs=1e-6)


def test_what_no_episode_shows_is_not_allowed_and_draws_nobody(monkeypatch):
    monkeypatch.setattr(likelihood, "few_entries", lambda number: False)
    logs = lm.Trajectories.from_lists(
        [[0, 1, 0, 2], [0, 1, 1, 0], [1, 0, 1, 2]] * 5,
        [[0, 1, 1], [0, 0, 1], [1, 0, 0]] * 5,
        [[0, 1, 0], [1, 0, 1], [0, 1, 1]] * 5,
        n_states=4,
        n_actions=3,
        reward_values=[-1.0, 1.0],
    )
    with pytest.warns(FitWarning, match="left out of the model"):
        model = lm.EM(1).fit(logs, rng=0).model
    np.testing.assert_array_equal(model.allowed[:2], [[True, True, False]] * 2)
    np.testing.assert_array_equal(model.allowed[2:], True)  # nothing is known of them
    table = model.outcomes
    for s in (2, 3):
        for a in range(3):
            (k,) = range(table.starts[s * 3 + a], table.starts[s * 3 + a + 1])
            assert (table.next_state[k], table.reward[k], table.probs[k, 0]) == (s, 0, 1.0)


def test_a_sparse_problem_of_300_states_is_recovered():
    model = sparse(300, 2, 60)
    logs = lm.simulate(model, lm.UniformPolicy(), 1_500, rng=1)
    fit = lm.EM(2, restarts=2, reward_model="transition").fit(logs.without_contexts(), rng=0)
    assert fit.model.is_table
    assert lm.metrics.clustering_accuracy(logs.contexts, fit.labels) > 0.99
    assert lm.model_error(model, fit.model, per_cell=True) < 0.15


def test_memory_follows_what_the_logs_show():
    """2,000 states: an array over all (s, a, s') and rewards would take 256 MB a context."""
    model = sparse(2_000, 4, 20)
    logs = lm.simulate(model, lm.UniformPolicy(), 3_000, rng=1).without_contexts()
    em = lm.EM(2, restarts=1, pseudo_counts=1.0, max_iter=10, reward_model="transition")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        em.fit(logs[:10], rng=0)  # compiled before memory is counted
        tracemalloc.start()
        fit = em.fit(logs, rng=0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert fit.model.is_table
    assert peak < 100e6


def test_solve_finds_a_policy_among_many_states():
    model = sparse(250, 3, 12)
    logs = lm.simulate(model.replace(initial=0), lm.UniformPolicy(), 800, rng=1).without_contexts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solved = lm.solve(logs, 2, rng=0, bootstrap=3, reward_model="transition")
    assert solved.model.is_table
    played = lm.simulate(solved.model, solved.policy, 200, rng=0)
    tried = lm.estimation.tried_pairs(logs)
    steps = played.steps()
    known = tried.any(axis=1)[steps.state]
    assert tried[steps.state, steps.action][known].all()
    assert np.isfinite(solved.value.mean)
