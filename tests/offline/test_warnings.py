"""Each warning: said with its own words where it applies, and not said elsewhere."""

import warnings

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.logs import cell_counts
from latentmdp.metrics import Interval
from latentmdp.offline import LoggedEstimate, SolveWarning
from latentmdp.offline.warnings import (
    hardly_seen,
    logs_warnings,
    missing_rewards_warnings,
    support_of,
    value_warnings,
)

AGREES = LoggedEstimate(1.0, 0.1, 3, np.array([90.0, 60.0, 40.0]))
NO_STEPS = LoggedEstimate(float("nan"), float("inf"), 0, np.zeros(0))


def test_nothing_is_said_without_a_reason() -> None:
    assert value_warnings(AGREES, 1.39, 0.05) == ()
    assert value_warnings(AGREES, 0.61, 0.0) == ()
    logs = lm.simulate(lm.make("visitor"), lm.UniformPolicy(), 200, rng=0)
    assert logs_warnings(logs, np.zeros(logs.n_states, np.bool_)) == ()


@pytest.mark.parametrize(
    ("logged", "first_steps", "unsupported", "message"),
    [
        (
            AGREES,
            1.0,
            0.06,
            "the policy leaves the data: 6% of its steps are at a context, state and action seen "
            "fewer than 5 times",
        ),
        (
            NO_STEPS,
            float("nan"),
            0.0,
            "no logged episode agrees with the policy: nothing checks the fitted model",
        ),
        (
            AGREES,
            1.41,
            0.0,
            "the logs and the model disagree on the first 3 steps: 1 ± 0.1 and 1.41",
        ),
        (
            AGREES,
            0.59,
            0.0,
            "the logs and the model disagree on the first 3 steps: 1 ± 0.1 and 0.59",
        ),
    ],
)
def test_each_reason_to_mistrust_the_value_has_its_message(
    logged: LoggedEstimate, first_steps: float, unsupported: float, message: str
) -> None:
    assert value_warnings(logged, first_steps, unsupported) == (message,)


def test_several_reasons_are_all_said() -> None:
    assert len(value_warnings(NO_STEPS, float("nan"), 0.5)) == 2


def test_final_and_cut_episodes_are_told_apart() -> None:
    """State 2 is final: one episode ends there, two others are short for another reason."""
    logs = lm.Trajectories.from_lists(
        [[0, 1, 0, 1], [0, 2], [1, 0], [1, 0, 1]],
        [[0, 1, 0], [1], [0], [0, 1]],
        [[0, 0, 1], [1], [0], [0, 0]],
    )
    (message,) = logs_warnings(logs, np.array([False, False, True]))
    assert message.startswith("no action is logged in state 2, where 1 of the 3 short episodes end")
    assert message.endswith("the other 2 are taken as cut short")


def test_gaps_in_the_numbers_of_states_are_said() -> None:
    logs = lm.Trajectories.from_lists([[0, 4, 0]], [[0, 0]], [[0, 1]], n_states=6)
    (message,) = logs_warnings(logs, np.zeros(6, np.bool_))
    assert message.startswith("4 of 6 states never occur, the first is state 1: number states")


@pytest.mark.parametrize(("values", "steps", "said"), [(21, 104, True), (21, 106, False)])
def test_rewards_that_hardly_recur_are_said(values: int, steps: int, said: bool) -> None:
    """More than 20 values, and fewer than 5 steps for each."""
    rewards = [list(range(values)) + [0] * (steps - values)]
    logs = lm.Trajectories.from_lists([[0] * (steps + 1)], [[0] * steps], rewards)
    found = logs_warnings(logs, np.array([False]))
    message = f"{values} different rewards in {steps} steps: rewards must be few values, each seen"
    assert [m.startswith(message) for m in found] == [True] * said


def test_visits_are_shared_out_among_the_contexts() -> None:
    """12 visits of (0, 0), 4 of (1, 1): three quarters of each belong to context 0."""
    logs = lm.Trajectories.from_arrays(
        [[0, 0, 0, 0, 1, 1]] * 4, [[0, 0, 0, 1, 1]] * 4, [[0] * 5] * 4
    )
    shares = np.tile([0.75, 0.25], (4, 1))
    seen = cell_counts(logs, ("state", "action"), shares=shares)
    none_final = np.zeros(2, np.bool_)
    expected = [[[False, True], [True, True]], [[True, True], [True, True]]]
    np.testing.assert_array_equal(hardly_seen(seen, none_final), expected)
    final = np.array([False, True])
    expected = [[[False, True], [False, False]], [[True, True], [False, False]]]
    np.testing.assert_array_equal(hardly_seen(seen, final), expected)


def test_support_counts_what_stands_behind_a_policy() -> None:
    """Three individuals: one takes both actions in state 0, one takes action 0 twice."""
    logs = lm.Trajectories.from_lists(
        [[0, 0, 1, 0], [0, 0, 1], [0, 1, 1]],
        [[0, 1, 0], [0, 0], [1, 0]],
        [[0, 0, 0], [0, 0], [0, 0]],
        state_names=["fair", "good"],
        action_names=["wait", "treat"],
    )
    model = lm.make("random", contexts=2, states=2, actions=2, horizon=3, rng=0)
    model = model.replace(state_names=logs.state_names, action_names=logs.action_names)
    visits = np.zeros((2, 2, 2))
    visits[0, 0, 1], visits[1, 0, 1], visits[0, 1, 0] = 1.5, 0.5, 1.0
    seen = cell_counts(logs, ("state", "action"), shares=np.tile([0.75, 0.25], (3, 1)))
    behaviour = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.9, 0.1], [0.8, 0.2]]])
    first, second = support_of(logs, model, visits, seen, behaviour)
    assert first == ("fair", "treat", 2.0 / 3.0, 0.1, 2.0, 0.5, 0.5)
    assert second[:6] == ("good", "wait", 1.0 / 3.0, 0.8, 2.0, 1.5)
    assert np.isnan(second.varied)  # nobody acted there twice


def said_by_solve(logs: lm.Trajectories, n_contexts: int, **settings: object) -> tuple[str, ...]:
    """The messages in the result, after a check that each was also issued as a warning."""
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", SolveWarning)
        solved = lm.solve(logs, n_contexts, rng=0, bootstrap=2, **settings)
    assert tuple(str(w.message) for w in issued) == solved.warnings
    assert all(w.filename == __file__ for w in issued)
    return solved.warnings


@pytest.mark.parametrize("seed", range(3))
def test_a_policy_that_leaves_the_data_is_reported(seed: int) -> None:
    """Action 1 is logged three times and paid each time; action 0 hardly ever pays."""
    rng = np.random.default_rng(seed)
    actions = np.zeros((60, 4), np.int64)
    actions[:3, 0] = 1
    rewards = np.where(actions == 1, 1, rng.random((60, 4)) < 0.1).astype(np.int64)
    logs = lm.Trajectories.from_arrays(np.zeros((60, 5), np.int64), actions, rewards)
    found = said_by_solve(logs, 1)
    assert "the policy leaves the data: 100% of its steps" in found[0]


def test_logs_without_an_episode_like_the_policy_are_reported() -> None:
    """Of 16 uniform episodes 8 agree with any policy at the first step."""
    logs = lm.simulate(lm.make("visitor"), lm.UniformPolicy(), 16, rng=0).without_contexts()
    found = said_by_solve(logs, 1)
    assert "no logged episode agrees with the policy: nothing checks the fitted model" in found


def test_a_model_that_contradicts_the_logs_is_reported() -> None:
    """Action 1 pays at the first step only, which no model of one state and context can do."""
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, (800, 6))
    rewards = np.zeros_like(actions)
    rewards[:, 0] = actions[:, 0]
    logs = lm.Trajectories.from_arrays(np.zeros((800, 7), np.int64), actions, rewards)
    first, *_, message = said_by_solve(logs, 1)
    assert "in the logs and" in first, "a check of the fit failed too"
    assert message.startswith("the logs and the model disagree on the first 4 steps: 1 ± 0 and 0.6")


def test_missing_rewards_that_could_move_the_value_beyond_its_interval() -> None:
    """One of four rewards, counted as often as its episode, of a value between 0 and 2."""
    logs = lm.Trajectories.from_lists(
        [[0, 0, 0], [0, 0, 0]], [[0, 0], [0, 0]], [[1, -1], [1, 1]],
        counts=[2, 2], reward_values=[0.0, 1.0],
    )  # fmt: skip
    (warning,) = missing_rewards_warnings(logs, Interval(1.6, 1.3, 1.9), (0.0, 2.0))
    assert warning.startswith("25.0% of the rewards are missing")
    assert "up to 0.4 lower" in warning
    assert "up to 0.1 higher" in warning
    assert missing_rewards_warnings(logs, Interval(1.6, 1.2, 2.0), (0.0, 2.0)) == ()
