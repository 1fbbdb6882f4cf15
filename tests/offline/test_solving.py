"""From logs to a policy whose interval covers the true value; what the result says of itself."""

import dataclasses
import json

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp.offline import Interval, LoggedEstimate, Solved, solving


@pytest.fixture(scope="module")
def logs() -> lm.Trajectories:
    return lm.simulate(random_model(0), lm.UniformPolicy(), 200, rng=0).without_contexts()


@pytest.fixture(scope="module")
def solved(logs: lm.Trajectories) -> Solved:
    return lm.solve(logs, 2, rng=7, bootstrap=2)


def covers(solved: Solved, world: lm.LatentMDP) -> bool:
    """Whether the interval holds the true value, up to the standard error of the latter."""
    truth = lm.evaluate(world, solved.policy, 50_000, rng=1)
    low, high = solved.value.low - truth.stderr, solved.value.high + truth.stderr
    return low <= truth.mean <= high


def test_solve_covers_the_truth_and_beats_the_logged_policy() -> None:
    """With a coverage of 95 % fewer than 5 of 8 intervals have a probability of 4e-4."""
    world = lm.make(
        "separated", contexts=2, states=4, actions=2, horizon=12, delta=1.0, rewards="own", rng=3
    )
    covered = 0
    for seed in range(8):
        logs = lm.simulate(world, lm.UniformPolicy(), 400, rng=seed).without_contexts()
        solved = lm.solve(logs, 2, rng=seed, bootstrap=8)
        covered += covers(solved, world)
        assert solved.value.low > logs.returns().mean()
        assert lm.evaluate(world, solved.policy, rng=1).mean > logs.returns().mean()
        assert solved.model.n_contexts == 2
        assert solved.warnings == ()
    assert covered >= 5
    assert solved.diagnosis.delta == pytest.approx(lm.separation(solved.model))


def test_evidence_is_not_counted_twice_where_the_next_state_is_the_reward() -> None:
    """Rewards that repeat the next state tell nothing more, and the intervals cover the truth.

    With a coverage of 95 % fewer than 3 of 6 have a probability of 9e-5.
    """
    T = np.empty((2, 2, 2, 2))
    for m, a in np.ndindex(2, 2):
        T[m, :, a] = (0.4, 0.6) if a == m else (0.9, 0.1)
    R = np.broadcast_to(np.eye(2), (2, 2, 2, 2, 2))
    world = lm.LatentMDP(T, R, initial=0, horizon=10)
    covered = 0
    for seed in range(6):
        logs = lm.simulate(world, lm.UniformPolicy(), 600, rng=seed).without_contexts()
        solved = lm.solve(logs, 2, rng=seed, bootstrap=10)
        assert solved.model.reward_model == "transition"
        covered += covers(solved, world)
    assert covered >= 3


def test_rewards_may_depend_on_the_next_state() -> None:
    world = random_model(0, contexts=2, states=3, horizon=8, form="next-state")
    logs = lm.simulate(world, lm.UniformPolicy(), 300, rng=0).without_contexts()
    solved = lm.solve(logs, 2, rng=0, bootstrap=2, reward_model="transition")
    assert solved.model.reward_model == "transition"
    assert solved.value.low <= solved.value.mean <= solved.value.high


def as_vectors(policy: lm.MarkovPolicy, model: lm.LatentMDP) -> lm.AlphaVectorPolicy:
    """A deterministic Markov policy as one alpha vector for each time and state."""
    assert policy.actions is not None
    labels = policy.actions.ravel()
    vectors = np.zeros((labels.size, model.n_contexts))
    return lm.AlphaVectorPolicy(vectors, labels, np.arange(labels.size + 1), model)


@pytest.mark.parametrize("form", ["values", "next-state"])
def test_simulated_and_exact_values_agree(form: str) -> None:
    """One policy in both forms, by simulation and by recursion over time.

    20,000 episodes, within 5 standard errors in each of 6 numbers: a false alarm in 4e-6 of such
    tests. Rewards lie in [-1, 2], so that the deviation of one is at most 1.5.
    """
    model = random_model(1, horizon=4, form=form, discount=0.9)
    rng = np.random.default_rng(0)
    markov = lm.MarkovPolicy(rng.integers(0, 2, (4, 3)))
    flagged = rng.random((3, 3, 2)) < 0.3
    exact, simulated = (
        solving._value_in_model(model, policy, flagged, np.random.default_rng(2))
        for policy in (markov, as_vectors(markov, model))
    )
    stderr = 1.5 / np.sqrt(20_000)
    assert exact.value == lm.evaluate(model, markov).mean
    assert abs(simulated.value - exact.value) < 5 * 4 * stderr
    np.testing.assert_allclose(simulated.by_step, exact.by_step, atol=5 * stderr)
    assert abs(simulated.unsupported - exact.unsupported) < 5 * 0.5 / np.sqrt(20_000)
    np.testing.assert_allclose(simulated.visits, exact.visits, atol=5 * 4 * 0.5 / np.sqrt(20_000))
    for found in (exact, simulated):
        assert abs(found.first_steps(4) - found.value) < 2 * 5 * 4 * stderr
        assert found.first_steps(2) == pytest.approx(found.by_step[:2].sum())
        assert np.isnan(found.first_steps(0))


def test_the_parts_of_a_value_are_those_of_the_whole() -> None:
    """A policy with a memory: 20,000 episodes each, within 6 standard errors."""
    model = random_model(2, horizon=5, discount=0.9)
    policy, flagged = random_alpha_policy(model, 1), np.ones((3, 3, 2), np.bool_)
    found = solving._value_in_model(model, policy, flagged, np.random.default_rng(3))
    value = lm.evaluate(model, policy, 20_000, np.random.default_rng(4))
    assert abs(found.value - value.mean) < 2 * 6 * value.stderr
    assert abs(found.by_step.sum() - value.mean) < 2 * 6 * value.stderr
    assert found.unsupported == pytest.approx(1.0)
    assert found.visits.sum() == pytest.approx(5.0)


def test_planners_with_markov_policies_are_valued_exactly(logs: lm.Trajectories) -> None:
    planner = lm.Memoryless(method="cadp", time_limit=None)
    solved = lm.solve(logs, 2, rng=0, bootstrap=2, planner=planner)
    exact = lm.evaluate(solved.model, solved.policy)
    assert exact.exact
    assert solved.value.mean + solved.optimism_bias == pytest.approx(exact.mean, rel=1e-12)


def test_settings_say_what_was_asked(logs: lm.Trajectories, solved: Solved) -> None:
    assert solved.settings == {
        "episodes": 200,
        "n_contexts": 2,
        "planner": "QMDP(smoothing=0.001, threads=None)",
        "behaviour": "auto",
        "shared_rewards": "auto",
        "shared_transitions": "auto",
        "shared_initial": "auto",
        "covariates": "auto",
        "started": False,
        "confidence": 0.95,
        "bootstrap": 2,
        "max_contexts": 10,
        "reward_model": "auto",
        "horizon": None,
        "discount": None,
        "reference": "logger",
        "seed": 7,
    }
    uniform = np.full((3, 2), 0.5)
    other = lm.solve(
        logs,
        np.int64(1),
        np.random.default_rng(0),
        behaviour=uniform,
        bootstrap=np.int64(3),
        confidence=np.float64(0.5),
        max_contexts=np.int64(4),
    )
    assert json.loads(json.dumps(other.settings)) == {
        **solved.settings,
        "n_contexts": 1,
        "behaviour": "given",
        "confidence": 0.5,
        "bootstrap": 3,
        "max_contexts": 4,
        "seed": None,
    }


def test_results_are_equal_by_content(logs: lm.Trajectories, solved: Solved) -> None:
    again = lm.solve(logs, 2, rng=7, bootstrap=2)
    assert again == solved
    assert again == dataclasses.replace(solved, seconds=solved.seconds + 1.0)
    early, late = (
        dataclasses.replace(solved.plan, history=((t, 0.0, 1.0),), seconds=t) for t in (0.1, 0.2)
    )
    assert dataclasses.replace(solved, plan=early) == dataclasses.replace(solved, plan=late)
    nothing = dataclasses.replace(
        solved,
        logged=LoggedEstimate(float("nan"), float("inf"), 0, np.zeros(0)),
        model_first_steps=float("nan"),
    )
    assert nothing == dataclasses.replace(nothing)
    for changes in (
        {"value": Interval(0.0, 0.0, 0.0)},
        {"model_first_steps": float("nan")},
        {"logged": nothing.logged},
        {"warnings": ("careful",)},
        {"policy": lm.UniformPolicy()},
        {"policy": lm.QMDP(smoothing=0.01).plan(solved.model).policy},
        {"plan": dataclasses.replace(solved.plan, upper=1e9)},
        {"fit": dataclasses.replace(solved.fit, responsibilities=np.zeros((200, 2)))},
        {"settings": {**solved.settings, "seed": 8}},
    ):
        assert dataclasses.replace(solved, **changes) != solved, changes
    assert solved != "solved"


def test_a_result_is_shown_in_a_line_and_as_a_table(solved: Solved) -> None:
    plain = dataclasses.replace(solved, warnings=())
    assert repr(plain) == f"Solved(2 contexts, {solved.value} per episode)"
    one, two = (dataclasses.replace(solved, warnings=("a < b", "c")[:n]) for n in (1, 2))
    assert repr(one).endswith("per episode, 1 warning)")
    assert repr(two).endswith("per episode, 2 warnings)")
    html = two._repr_html_()
    assert html.startswith("<table>")
    assert str(solved.value) in html
    assert "a &lt; b" in html
    assert two.facts()["warnings"].value == ["a < b", "c"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"confidence": 1.0}, "confidence must lie in"),
        ({"bootstrap": 1}, "bootstrap must be at least 2"),
        ({"n_contexts": 0}, "n_contexts must be at least 1"),
        ({"max_contexts": 0}, "max_contexts must be at least 1"),
        ({"behaviour": np.full((2, 2), 0.5)}, r"behaviour must have shape \(3, 2\)"),
        ({"behaviour": [[0.5, 0.4]] * 3}, "behaviour: the row of state 0 sums to 0.9"),
        ({"behaviour": [[0.5, 0.5], [1, 0], [0, 1]]}, r"behaviour\[1, 1\] is 0, but action 1 is"),
        ({"reward_model": "next"}, "reward_model must be"),
    ],
)
def test_bad_settings_are_refused(logs: lm.Trajectories, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lm.solve(logs, **{"n_contexts": 2, **settings})


def test_a_planner_is_asked_for_before_the_work_starts(logs: lm.Trajectories) -> None:
    with pytest.raises(TypeError, match="planner must be a Planner, got str"):
        lm.solve(logs, 2, planner="qmdp")  # type: ignore[arg-type]


def test_a_logger_that_knew_the_context_is_modelled_and_every_doubt_is_kept() -> None:
    """The logger takes the context's own action; then the contexts' rewards are told apart."""
    good = np.array([[[0.9, 0.1]] * 2, [[0.1, 0.9]] * 2])
    T = np.full((2, 2, 2, 2), 0.5)
    model = lm.LatentMDP(T, np.stack([1.0 - good, good], axis=-1), horizon=6)
    parts = [
        lm.simulate(model.context(m), lm.MarkovPolicy(table), 300, rng=m)
        for m, table in enumerate(np.array([[[0.8, 0.2]] * 2, [[0.2, 0.8]] * 2]))
    ]
    logs = lm.Trajectories.concat(parts).without_contexts()
    with pytest.warns(lm.offline.SolveWarning, match="the most that were tried"):
        solved = lm.solve(logs, max_contexts=2, bootstrap=4, rng=0)
    assert any("the most that were tried" in said for said in solved.warnings)
    assert "behaviour" not in solved.fit.shared
    value = lm.evaluate(model, solved.policy, 20_000, rng=0)
    assert solved.value.low <= value.mean <= solved.value.high
    assert abs(solved.logged.mean - solved.model_first_steps) < 4.0 * solved.logged.stderr
    again = lm.solve(logs, bootstrap=2, start=solved, rng=0)
    assert again.model.n_contexts == 2
    assert again.fit.shared == solved.fit.shared
    assert again.settings["started"]
