"""Loggers that knew the context, covariates, missing cells and further logs, in the likelihood."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.logs import Covariates
from latentmdp.testing import random_model

pytestmark = pytest.mark.filterwarnings("ignore::latentmdp.fit.FitWarning")


def by_context(model: lm.LatentMDP, tables: np.ndarray, episodes: int) -> lm.Trajectories:
    """Episodes of a logger that acts by tables[m] (S, A) in context m, context after context."""
    parts = [
        lm.simulate(model.context(m), lm.MarkovPolicy(table), episodes, rng=m).with_contexts(
            np.full(episodes, m)
        )
        for m, table in enumerate(tables)
    ]
    return lm.Trajectories.concat(parts)


def knowing() -> tuple[lm.LatentMDP, np.ndarray, lm.Trajectories]:
    model = random_model(0, contexts=2, states=3, horizon=8).replace(weights=[0.5, 0.5])
    tables = np.array([[[0.8, 0.2]] * 3, [[0.2, 0.8]] * 3])
    return model, tables, by_context(model, tables, 600)


def test_a_logger_that_knew_is_found_and_told_apart_from_one_that_did_not() -> None:
    model, tables, logs = knowing()
    fit = lm.EM(2, behaviour="auto").fit(logs.without_contexts(), rng=0)
    assert "behaviour" not in fit.shared
    order = [0, 1] if fit.behaviour[0, 0, 0] > 0.5 else [1, 0]
    # 600 episodes of 8 steps: a standard error of about .01 a row
    np.testing.assert_allclose(fit.behaviour[order], tables, atol=0.08)
    plain = lm.EM(2, behaviour="shared").fit(logs.without_contexts(), rng=0)
    assert lm.model_error(model, fit.model) < lm.model_error(model, plain.model)
    assert plain.behaviour.shape == (3, 2)
    uniform = lm.simulate(model, lm.UniformPolicy(), 1200, rng=0).without_contexts()
    assert "behaviour" in lm.EM(2, behaviour="auto").fit(uniform, rng=0).shared


def test_responsibilities_take_the_actions_for_evidence_and_the_filter_does_not() -> None:
    _, _, logs = knowing()
    fit = lm.EM(2, behaviour="by-context", pseudo_counts=1.0).fit(logs.without_contexts(), rng=0)
    found = lm.posterior(fit.model, logs.without_contexts())
    episode, state, action, *_ = logs.steps()
    acted = np.zeros((len(logs), 2))
    np.add.at(acted, episode, np.log(fit.behaviour[:, state, action]).T)
    expected = found * np.exp(acted - acted.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fit.responsibilities, expected, atol=1e-8)
    np.testing.assert_allclose(fit.predict(logs), expected, atol=1e-8)


def with_covariates(matter: bool) -> tuple[lm.Trajectories, np.ndarray]:
    model = lm.make("separated", contexts=2, states=4, actions=2, horizon=6, delta=0.8, rng=0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 2))
    labels = (rng.uniform(size=800) < 1.0 / (1.0 + np.exp(-2.0 * x[:, 0]))).astype(int)
    parts = [
        lm.simulate(model.context(m), lm.UniformPolicy(), int(np.sum(labels == m)), rng=m)
        for m in range(2)
    ]
    logs = lm.Trajectories.concat(parts).without_contexts()
    logs = logs[np.argsort(np.argsort(labels, kind="stable"), kind="stable")]
    shown = x if matter else rng.normal(size=(800, 2))
    fields = {**logs.to_fields(), "covariates": Covariates(["age", "noise"], shown)}
    return lm.Trajectories.from_fields(fields), labels


def test_covariates_that_matter_set_the_weights() -> None:
    logs, labels = with_covariates(matter=True)
    fit = lm.EM(2, shared_rewards=True).fit(logs, rng=0)
    model = fit.weight_model
    slope = np.abs(np.diff(model.coefficients, axis=0)[0] / model.encoder.scales)
    # a logistic regression of 800 labels has standard errors of about .15
    assert slope == pytest.approx([2.0, 0.0], abs=0.6)
    assert model.of({"age": 0.3, "noise": 0.0}).sum() == pytest.approx(1.0)
    without = lm.EM(2, shared_rewards=True, covariates=False).fit(logs, rng=0)
    right = [lm.clustering_accuracy(labels, f.labels) for f in (fit, without)]
    assert right[0] > right[1]
    assert (np.diff(fit.history) >= -1e-9).all()


def test_covariates_that_do_not_matter_are_not_used() -> None:
    logs, _ = with_covariates(matter=False)
    fit = lm.EM(2, shared_rewards=True).fit(logs, rng=0)
    assert fit.weight_model is None
    assert any(said.startswith("covariates not used") for said in fit.decisions)


def test_missing_rewards_are_summed_over_and_segments_stay_together() -> None:
    """Against the likelihood of each individual by hand."""
    model = random_model(1, contexts=2, states=3, horizon=6)
    logs = lm.simulate(model, lm.UniformPolicy(), 200, rng=0).without_contexts()
    rewards = np.array(logs.rewards)
    rewards[::5] = -1
    continues = np.arange(200) % 2 == 1
    fields = {**logs.to_fields(), "rewards": rewards, "continues": continues}
    gappy = lm.Trajectories.from_fields(fields)
    fit = lm.EM(2, pseudo_counts=1.0, initial="own").fit(gappy, rng=0)
    own, total = fit.model, 0.0
    for i in range(0, 200, 2):
        scores = np.log(own.weights * own.initial[:, gappy[i].states[0]])
        for states, actions, paid, _ in (gappy[i], gappy[i + 1]):
            for t, (a, z) in enumerate(zip(actions, paid)):
                scores += np.log(own.transitions[:, states[t], a, states[t + 1]])
                scores += 0.0 if z < 0 else np.log(own.reward_probs[:, states[t], a, z])
        total += np.logaddexp.reduce(scores)
        shares = np.exp(scores - np.logaddexp.reduce(scores))
        np.testing.assert_allclose(fit.responsibilities[i : i + 2], [shares, shares], atol=1e-6)
    assert fit.log_likelihood == pytest.approx(total, rel=1e-9)


def test_a_fit_goes_on_with_further_logs() -> None:
    model = lm.make("separated", contexts=2, states=4, horizon=10, delta=1.0, rng=0)
    logs = lm.simulate(model, lm.UniformPolicy(), 600, rng=0).without_contexts()
    fit = lm.EM(2).fit(logs[:300], rng=0)
    more = fit.update(logs[300:], rng=0)
    assert len(more.responsibilities) == 600
    assert (more.pseudo_counts, more.shared) == (fit.pseudo_counts, fit.shared)
    assert lm.model_error(model, more.model) < lm.model_error(model, fit.model)
    kept = lm.Fit.from_fields({k: v for k, v in fit.to_fields().items() if v is not None})
    with pytest.raises(ValueError, match="does not hold the logs"):
        kept.update(logs[300:])


def test_a_fit_whose_contexts_share_everything_goes_on_too() -> None:
    model = random_model(0, contexts=1, states=3, horizon=6)
    logs = lm.simulate(model, lm.UniformPolicy(), 200, rng=0).without_contexts()
    em = lm.EM(2, shared_rewards="auto", shared_transitions="auto", restarts=2)
    fit = em.fit(logs[:100], rng=0)
    assert {"transitions", "rewards", "behaviour"} <= {*fit.shared}
    assert len(fit.update(logs[100:], rng=0).responsibilities) == 200


def test_contexts_must_differ_in_something() -> None:
    logs = knowing()[2]
    with pytest.raises(ValueError, match="cannot be told apart"):
        lm.EM(2, shared_rewards=True, shared_transitions=True).fit(logs)
    with pytest.raises(ValueError, match="behaviour"):
        lm.EM(2, behaviour="known")  # type: ignore[arg-type]
