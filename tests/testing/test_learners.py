"""`check_learner` accepts the library's learners and finds what is wrong with others."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.estimation import SubspaceClustering, TrajectoryKMeans
from latentmdp.testing import ConformanceError, check_learner

pytestmark = pytest.mark.filterwarnings("ignore::latentmdp.fit.FitWarning")


def test_lucrl_conforms():
    check_learner(lm.LUCRL())


SMALL = {"contexts": 2, "states": 3, "actions": 2, "horizon": 30, "delta": 1.0}
ONE = {"small": lm.make("separated", rng=0, **SMALL)}
FITTERS = {
    "EM": lm.EM(2),
    "EM, shared rewards": lm.EM(2, shared_rewards=True),
    "EM, rewards given s'": lm.EM(2, reward_model="transition"),
    "subspace clustering": SubspaceClustering(2),
    "trajectory k-means": TrajectoryKMeans(2),
}


@pytest.mark.parametrize("name", FITTERS)
def test_learners_from_logs_conform(name):
    check_learner(FITTERS[name])


def test_a_fit_is_checked_on_models_that_are_given():
    model = lm.make("separated", contexts=3, states=4, horizon=30, delta=1.0, rng=5)
    check_learner(lm.EM(3), models={"three contexts": model}, episodes=600)


class Forgetful:
    """A learner that draws a fresh seed whatever it is given."""

    def run(self, world, episodes, rng=None, checkpoint=None):
        return lm.LUCRL().run(world, episodes)


class Boastful:
    """A learner that reports returns nobody can earn."""

    def run(self, world, episodes, rng=None, checkpoint=None):
        run = lm.LUCRL().run(world, episodes, rng=rng, checkpoint=checkpoint)
        return replace(run, returns=run.returns + 100.0)


def test_broken_rules_of_runs_are_listed():
    with pytest.raises(ConformanceError, match="the same seed gave another run"):
        check_learner(Forgetful())
    with pytest.raises(ConformanceError, match="out of the range"):
        check_learner(Boastful())


def test_what_is_no_learner_is_told_so():
    with pytest.raises(ConformanceError, match=r"neither fit\(logs, rng=...\) nor run"):
        check_learner(np.zeros(3))


def plain_em():
    """A learner that conforms, and chooses nothing by cross-validation."""
    return lm.EM(2, pseudo_counts=1.0, restarts=2)


@dataclass
class Spoilt:
    """EM whose logs, or whose fit, are tampered with."""

    before: Any = lambda logs: logs
    after: Any = lambda fit, logs: fit

    def fit(self, logs, rng=None):
        seen = self.before(logs)
        fit = plain_em().fit(seen, rng=rng)
        if len(seen) != len(logs):
            fit = replace(fit, responsibilities=fit.predict(logs))
        return self.after(fit, logs)


def without_counts(logs):
    sizes = {"n_states": logs.n_states, "n_actions": logs.n_actions}
    flat = logs.states, logs.actions, logs.rewards, logs.offsets
    return lm.Trajectories(*flat, reward_values=logs.reward_values, **sizes)


def with_fresh_weights(fit, logs):
    share = np.random.default_rng().uniform(0.4, 0.6)
    return replace(fit, model=fit.model.replace(weights=[share, 1.0 - share]))


def with_known_contexts(fit, logs):
    known = fit.responsibilities if logs.contexts is None else np.eye(2)[logs.contexts]
    return replace(fit, responsibilities=known)


def with_averaged_contexts(fit, logs):
    T, R = (np.stack([x.mean(axis=0)] * 2) for x in (fit.model.transitions, fit.model.reward_probs))
    return replace(fit, model=fit.model.replace(transitions=T, rewards=R))


BROKEN = {
    "chance of its own": (Spoilt(after=with_fresh_weights), "the same seed gave another fit"),
    "looks at contexts": (Spoilt(after=with_known_contexts), "hiding the contexts gave another"),
    "only the first half": (
        Spoilt(before=lambda logs: logs[: len(logs) // 2]),
        "another order of the episodes moved the model by",
    ),
    "deaf to counts": (Spoilt(before=without_counts), "copies in place of counts moved the model"),
    "finds no contexts": (Spoilt(after=with_averaged_contexts), "the model is off by"),
    "boasts": (
        Spoilt(after=lambda fit, logs: replace(fit, log_likelihood=fit.log_likelihood + 1.0)),
        "log_likelihood is",
    ),
    "never sure": (
        Spoilt(after=lambda fit, logs: replace(fit, responsibilities=np.full((len(logs), 2), 0.5))),
        "the responsibilities are not the posterior",
    ),
    "forgets episodes": (
        Spoilt(after=lambda fit, logs: replace(fit, responsibilities=fit.responsibilities[1:])),
        "responsibilities must have shape (500, 2), got (499, 2)",
    ),
    "a word for converged": (
        Spoilt(after=lambda fit, logs: replace(fit, converged="yes")),
        "converged must be a bool, got 'yes'",
    ),
    "no fit": (Spoilt(after=lambda fit, logs: fit.model), "the fit lacks model, responsibilities"),
    "three contexts": (lm.EM(3), "the fit has (contexts, states, actions) (3, 3, 2), the model (2"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_fit_is_found_out(name):
    learner, message = BROKEN[name]
    with pytest.raises(ConformanceError) as failure:
        check_learner(learner, models=ONE)
    assert f"small: {message}" in str(failure.value)


def test_a_correct_fit_in_the_same_frame_conforms():
    """So that each of the above fails for its own fault only."""
    check_learner(Spoilt(), models=ONE)


@dataclass
class Gullible:
    """A learner that makes something of anything."""

    answer: Any

    def fit(self, logs, rng=None):
        usable = isinstance(logs, lm.Trajectories) and len(logs) and not isinstance(rng, str)
        if usable:
            return plain_em().fit(logs, rng=rng)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "told"), [(None, "was accepted"), (KeyError("states"), "was met with KeyError")]
)
def test_bad_input_must_be_refused(answer, told):
    with pytest.raises(ConformanceError) as failure:
        check_learner(Gullible(answer), models=ONE)
    for what in ("logs without episodes", "a model in place of logs", "a word in place of a seed"):
        assert f"{what} must raise ValueError or TypeError, {told}" in str(failure.value)
    assert str(failure.value).count("\n") == 3  # these three rules, and nothing else


def test_a_learner_of_both_kinds_is_checked_in_both():
    class Both(Boastful):
        def fit(self, logs, rng=None):
            return lm.EM(3).fit(logs, rng=rng)

    with pytest.raises(ConformanceError) as failure:
        check_learner(Both())
    assert "separated 0: the fit has" in str(failure.value)
    assert "random 0: a return is out of the range" in str(failure.value)
