"""Episodes that end for good, and actions never tried, against models in which both are known."""

import warnings

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.estimation import cut_short, final_states, only_tried, restricted, tried_pairs
from latentmdp.offline import SolveWarning

LEFT = 3
"""The state in which a customer is gone."""


def customers(seed: int = 0) -> lm.LatentMDP:
    """Two kinds that like different offers; whoever is made the wrong one may leave for good."""
    rng = np.random.default_rng(seed)
    T, R = np.zeros((2, 4, 2, 4)), np.zeros((2, 4, 2, 3))
    for m, s, a in np.ndindex(2, 3, 2):
        leaves = 0.05 if a == m else 0.25
        T[m, s, a, :3] = rng.dirichlet(np.ones(3)) * (1.0 - leaves)
        T[m, s, a, LEFT] = leaves
        R[m, s, a] = [0.1, 0.2, 0.7] if a == m else [0.4, 0.3, 0.3]
    allowed = np.arange(4)[:, None] != np.full(2, LEFT)
    values = [-1.5, 0.0, 2.0]
    return lm.LatentMDP(T, R, initial=0, horizon=8, reward_values=values, allowed=allowed)


def as_logged(logs: lm.Trajectories) -> lm.Trajectories:
    """As a business keeps them: nothing is written down after a customer has left."""
    table = {k: v for k, v in logs.to_table().items() if k != "context"}
    here = table["state"] != LEFT
    return lm.Trajectories.from_table({name: column[here] for name, column in table.items()})


def lists(logs: lm.Trajectories) -> list[tuple[list[int], list[int], list[float]]]:
    values = logs.values()
    return [
        (
            e.states.tolist(),
            e.actions.tolist(),
            values[logs.offsets[i] : logs.offsets[i + 1]].tolist(),
        )
        for i, e in enumerate(logs)
    ]


def by_hand(**sizes: object) -> lm.Trajectories:
    """States 0 and 1 are acted in, 2 is final, 3 is only reached by the longest episode."""
    return lm.Trajectories.from_lists(
        [[0, 1, 0, 1, 3], [0, 2], [1, 0, 1], [1, 1, 1, 2]],
        [[0, 1, 0, 0], [1], [0, 1], [0, 0, 0]],
        [[0, 0, 1, 0], [1], [0, 0], [0, 0, 1]],
        **sizes,
    )


def test_a_state_without_actions_in_which_a_short_episode_ends_is_final() -> None:
    np.testing.assert_array_equal(final_states(by_hand()), [False, False, True, False])
    even = lm.make("separated", contexts=2, states=4, horizon=8, delta=1.0, rng=0)
    assert not final_states(lm.simulate(even, lm.UniformPolicy(), 50, rng=0)).any()


def test_cutting_keeps_the_first_steps() -> None:
    logs = by_hand()
    cut = lists(cut_short(logs, np.array([2, 1, 0, 9])))
    assert [(len(s), len(a)) for s, a, _ in cut] == [(3, 2), (2, 1), (1, 0), (4, 3)]
    for (states, actions, rewards), (s, a, r) in zip(cut, lists(logs)):
        assert (states, actions) == (s[: len(states)], a[: len(actions)])
        assert rewards == r[: len(rewards)]


def test_no_planner_takes_an_action_that_was_never_tried() -> None:
    """Trying it would pay most, and it is the only thing not to do."""
    model = customers()
    logs = lm.simulate(model, lm.MarkovPolicy([0, 1, 0, 0]), 200, rng=0)
    tried = tried_pairs(logs)
    assert tried.sum() == 3
    for planner in (lm.QMDP(), lm.PBVI(), lm.HSVI(gap=0.1), lm.Memoryless(method="cadp")):
        policy = planner.plan(only_tried(model, logs)).policy
        played = lm.simulate(model, policy, 500, rng=1)
        assert not (tried_pairs(played) & ~tried).any(), planner


def test_fewer_actions_are_fewer_rows_in_arrays_and_in_tables() -> None:
    model = lm.testing.random_model(0, contexts=2, states=4, actions=3, horizon=3)
    allowed = np.array([[1, 0, 1], [1, 1, 1], [0, 0, 0], [0, 0, 1]], bool)
    arrays = restricted(model, allowed)
    table = restricted(model.replace(outcomes=model.outcomes), allowed)
    np.testing.assert_array_equal(arrays.allowed, allowed)
    np.testing.assert_array_equal(table.allowed, allowed)
    assert table.is_table
    assert not arrays.is_table
    np.testing.assert_allclose(table.transitions, arrays.transitions, atol=1e-15)
    np.testing.assert_allclose(arrays.transitions[:, allowed], model.transitions[:, allowed])
    assert restricted(model, np.ones((4, 3), bool)) is model


def test_the_value_of_a_policy_counts_that_episodes_end() -> None:
    """The interval holds the truth; going on from a state that ends episodes would promise more."""
    world = customers()
    logs = as_logged(lm.simulate(world, lm.UniformPolicy(), 1_500, rng=0))
    assert logs.lengths.min() < 8
    solved = lm.solve(logs, 2, rng=0, bootstrap=8)
    truth = lm.evaluate(world, solved.policy, 50_000, rng=1)
    assert solved.final_states == (LEFT,)
    assert solved.warnings == ()
    assert solved.value.low - 4 * truth.stderr < truth.mean < solved.value.high + 4 * truth.stderr
    np.testing.assert_array_equal(np.flatnonzero(solved.model.terminal), [LEFT])


def test_the_logs_alone_count_who_has_left() -> None:
    """Importance sampling of the behaviour itself is the mean return of all, not of who stayed."""
    world = customers()
    logs = as_logged(lm.simulate(world, lm.MarkovPolicy([0, 0, 0, 0]), 2_000, rng=2))
    solved = lm.solve(logs, 1, rng=0, bootstrap=2)
    assert solved.logged.steps == 8
    assert solved.logged.mean == pytest.approx(logs.returns().mean(), abs=1e-9)


def test_short_episodes_of_both_kinds_are_said() -> None:
    world = customers()
    logs = as_logged(lm.simulate(world, lm.UniformPolicy(), 600, rng=0))
    logs = cut_short(logs, np.arange(600) % 6 + 3)
    with pytest.warns(SolveWarning, match="no action is logged in state 3"):
        assert lm.solve(logs, 2, rng=0, bootstrap=2).final_states == (LEFT,)


@pytest.mark.filterwarnings("ignore:no episode visits", "ignore:no logged episode")
def test_gaps_in_the_numbers_and_rewards_without_end_are_said() -> None:
    table = dict(lm.simulate(customers(), lm.UniformPolicy(), 60, rng=0).to_table())
    spread = {**table, "state": table["state"] * 2, "next_state": table["next_state"] * 2}
    with pytest.warns(SolveWarning, match="3 of 7 states never occur, the first is state 1"):
        lm.solve(lm.Trajectories.from_table(spread).without_contexts(), 1, rng=0, bootstrap=2)
    noise = {**table, "reward": np.random.default_rng(0).normal(size=table["t"].size)}
    logs = lm.Trajectories.from_table(noise, reward_levels=None).without_contexts()
    with pytest.warns(SolveWarning, match="307 different rewards in 307 steps"):
        lm.solve(logs, 1, rng=0, bootstrap=2)


def test_logs_must_be_logs() -> None:
    with pytest.raises(
        TypeError, match=r"logs must be Trajectories or LogFiles, got str: read a file with"
    ):
        lm.solve("logs.parquet", 2)  # type: ignore[arg-type]


def test_a_fitted_model_ends_where_the_logs_end() -> None:
    """`initialize` on logs of unequal lengths: the final state is terminal."""
    logs = as_logged(lm.simulate(customers(), lm.UniformPolicy(), 1_500, rng=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = lm.initialize(None, logs, 2, rng=0)
    assert fit.responsibilities.shape == (1_500, 2)
    np.testing.assert_array_equal(np.flatnonzero(fit.model.terminal), [LEFT])
    assert lm.model_error(customers(), fit.model, per_cell=True) < 0.25


def test_short_episodes_do_not_make_states_final() -> None:
    """Episodes that are short by design end early everywhere, but in states that go on."""
    model = lm.make("separated", contexts=2, states=4, horizon=20, delta=1.0, rng=0)
    short = lm.simulate(model.replace(horizon=3), lm.UniformPolicy(), 500, rng=0)
    long = lm.simulate(model, lm.UniformPolicy(), 200, rng=1)
    assert not final_states([short, long]).any()
