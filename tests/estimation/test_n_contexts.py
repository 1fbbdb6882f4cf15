"""The number of contexts: found, with the evidence, and what is kept of the search."""

import inspect

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.cli.commands.logs import fit as fit_command
from latentmdp.estimation import MAX_CONTEXTS, choose_contexts, may_show_contexts
from latentmdp.fit import FitWarning

pytestmark = pytest.mark.filterwarnings("ignore::latentmdp.fit.FitWarning")


@pytest.fixture(scope="module")
def separated() -> lm.LatentMDP:
    return lm.make(
        "separated", contexts=3, states=7, actions=2, horizon=40, delta=0.5,
        rewards="shared", reward_density=1.0, rng=0,
    )  # fmt: skip


def episodes_of(model: lm.LatentMDP) -> tuple[lm.Trajectories, lm.Trajectories]:
    """Many short episodes and 300 long ones."""
    short = lm.simulate(model.replace(horizon=4), lm.UniformPolicy(), 3_000, rng=0)
    return short, lm.simulate(model, lm.UniformPolicy(), 300, rng=1)


def test_the_number_of_contexts_is_found(separated: lm.LatentMDP) -> None:
    short, long = episodes_of(separated)
    fit = lm.initialize(short, long, n_contexts="auto", rng=0)
    selection = fit.selection
    assert fit.model.n_contexts == selection.n_contexts == 3
    assert selection.statement.startswith(("Sure: 3 contexts", "Fairly sure: 3 contexts"))
    assert selection.candidates == (1, 2, 3, 4, 5)
    assert selection.table().count("\n") == 6
    assert "3 (chosen)" in selection.table().splitlines()[3]
    assert selection.stability[2] > 0.8
    assert selection.bic[2] - selection.aic[2] == pytest.approx(
        selection.n_parameters[2] * (np.log(len(short) + len(long)) - 2.0)
    )
    assert (np.diff(selection.log_likelihood[:3]) > 0.0).all()
    assert (np.diff(selection.held_out[:3]) > 0.0).all()
    assert selection.held_out_loss.min() == selection.held_out_error[2] == 0.0
    individuals = len(short) + len(long)
    expected = (selection.held_out[2] - selection.held_out) * individuals
    np.testing.assert_allclose(selection.held_out_loss, expected, rtol=1e-6, atol=1e-3)


def test_one_context_where_all_are_equal(separated: lm.LatentMDP) -> None:
    short, long = episodes_of(separated.context(0))
    fit = lm.initialize(short, long, "auto", rng=0)
    assert fit.model.n_contexts == 1
    assert np.array_equal(fit.labels, np.zeros(300))


def test_a_limit_that_binds_is_said_aloud(separated: lm.LatentMDP) -> None:
    short, long = episodes_of(separated)
    with pytest.warns(FitWarning, match="Not sure: 2 contexts, the most that were tried"):
        fit = lm.initialize(short, long, "auto", max_contexts=2, rng=0)
    assert fit.model.n_contexts == 2


def test_the_fits_of_the_search_are_kept(separated: lm.LatentMDP) -> None:
    """One model for each number tried, with the likelihood reported; the chosen one is close."""
    logs = lm.simulate(separated, lm.UniformPolicy(), 1000, rng=0).without_contexts()
    selection = choose_contexts(
        logs,
        reward_model="state-action",
        behaviour="shared",
        shared_rewards=False,
        shared_initial=True,
        folds=2,
        restarts=2,
        rng=0,
    )
    assert [model.n_contexts for model in selection.models] == list(selection.candidates)
    assert selection.model is selection.models[2]
    assert lm.model_error(separated, selection.model, per_cell=True) < 0.15
    for k, model in enumerate(selection.models):
        fit = lm.EM(k + 1, pseudo_counts=0.0, initial="shared", max_iter=1).fit(logs, start=model)
        # the start is mixed with 1e-6 of the pooled model
        assert fit.log_likelihood == pytest.approx(selection.log_likelihood[k], abs=0.5)


def two_loggers(model: lm.LatentMDP, episodes: int) -> lm.Trajectories:
    """Half of the episodes by a logger that prefers action 0, half by one that prefers 1."""
    parts = []
    for k, row in enumerate(([0.8, 0.2], [0.2, 0.8])):
        table = np.broadcast_to(row, (model.n_states, 2))
        parts.append(lm.simulate(model, lm.MarkovPolicy(table), episodes // 2, rng=k))
    return lm.Trajectories.concat(parts).without_contexts()


def test_individuals_who_were_only_treated_differently_are_one_context(
    separated: lm.LatentMDP,
) -> None:
    one = separated.context(0).replace(horizon=15)
    logs = two_loggers(one, 600)
    fit = lm.initialize(None, logs, rng=0)
    assert fit.model.n_contexts == 1
    (said,) = [said for said in fit.decisions if said.startswith("behaviour")]
    assert said.startswith("behaviour shared")
    assert said.endswith("individuals who were treated differently respond alike")


def test_the_answer_does_not_depend_on_chance(separated: lm.LatentMDP) -> None:
    logs = lm.simulate(separated.replace(horizon=20), lm.UniformPolicy(), 300, rng=0)
    found = {lm.initialize(None, logs, rng=seed).model.n_contexts for seed in range(2)}
    assert found == {3}


def test_what_cannot_show_contexts() -> None:
    model = lm.make("separated", contexts=2, states=4, horizon=3, rng=0)
    logs = lm.simulate(model, lm.UniformPolicy(), 5, rng=0)
    short = lm.simulate(model.replace(horizon=1), lm.UniformPolicy(), 5, rng=0)
    assert may_show_contexts([logs])
    assert may_show_contexts([short, logs[:1]])
    assert not may_show_contexts([short])
    assert not may_show_contexts([logs[:1]])


def test_bad_arguments(separated: lm.LatentMDP) -> None:
    logs = lm.simulate(separated, lm.UniformPolicy(), 5, rng=0)
    with pytest.raises(ValueError, match="max_contexts"):
        choose_contexts(logs, max_contexts=0)
    with pytest.raises(ValueError, match="folds must be at least 2"):
        choose_contexts(logs, folds=1)
    with pytest.raises(ValueError, match="max_contexts"):
        lm.initialize(None, logs, "auto", max_contexts=0)
    with pytest.raises(ValueError, match="reward_model"):
        choose_contexts(logs, reward_model="both")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "function", [choose_contexts, lm.initialize, lm.solve, lm.learn, fit_command]
)
def test_there_is_one_default_for_the_largest_number(function: object) -> None:
    assert inspect.signature(function).parameters["max_contexts"].default == MAX_CONTEXTS


def test_a_logger_without_a_choice_is_not_asked_about() -> None:
    rng = np.random.default_rng(0)
    T = rng.dirichlet(np.ones(3), (3, 3, 1))
    model = lm.LatentMDP(T, rng.random((3, 3, 1)), horizon=12)
    logs = lm.simulate(model, lm.UniformPolicy(), 150, rng=0).without_contexts()
    fit = lm.initialize(None, logs, max_contexts=3, rng=0)
    assert "behaviour" in fit.shared
    assert not [text for text in fit.decisions if text.startswith("behaviour")]
