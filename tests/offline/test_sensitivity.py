"""Bounds on what an unseen influence on the logger could do, against linear programs."""

import warnings

import numpy as np
import pytest
from scipy.optimize import linprog

import latentmdp as lm
from latentmdp.metrics import Interval
from latentmdp.offline.sensitivity import least_value, sensitivity


def case(rng, contexts=2, states=3, actions=2, horizon=3):
    T = rng.dirichlet(np.ones(states), (contexts, states, actions))
    R = rng.random((contexts, states, actions))
    model = lm.LatentMDP(T, R, weights=rng.dirichlet(np.ones(contexts)), horizon=horizon)
    table = rng.dirichlet(np.ones(actions), (horizon, states))
    behaviour = rng.dirichlet(np.ones(actions), (contexts, states))
    return model, table, behaviour


def least_by_programs(model, table, behaviour, gamma):
    """Backward induction in which every least mean is a linear program over w."""
    M, S, A, Z = model.dimensions
    joint = model.observation_probs().reshape(M, S, A, S, Z)
    V = np.zeros((M, S))
    for t in reversed(range(model.horizon)):
        new = np.zeros_like(V)
        for m, s, a in np.ndindex(M, S, A):
            P = joint[m, s, a].ravel()
            worth = (model.reward_values[None, :] + V[m][:, None]).ravel()
            pi = behaviour[m, s, a]
            bounds = (pi + (1 - pi) / gamma, pi + (1 - pi) * gamma)
            found = linprog(P * worth, A_eq=[P], b_eq=[1.0], bounds=[bounds] * P.size)
            new[m, s] += table[t, s, a] * found.fun
        V = new
    return float(model.weights @ (model.initial * V).sum(axis=1))


@pytest.mark.parametrize("gamma", [1.0, 1.3, 4.0])
def test_least_values_are_those_of_linear_programs(gamma) -> None:
    model, table, behaviour = case(np.random.default_rng(0))
    expected = least_by_programs(model, table, behaviour, gamma)
    assert least_value(model, table, behaviour, gamma) == pytest.approx(expected, abs=1e-9)


def test_without_influence_it_is_the_value_of_the_policy() -> None:
    model, table, behaviour = case(np.random.default_rng(1))
    value = lm.evaluate(model, lm.MarkovPolicy(table)).mean
    assert least_value(model, table, behaviour, 1.0) == pytest.approx(value)


def test_the_critical_factor_uses_up_the_gain() -> None:
    model, table, behaviour = case(np.random.default_rng(2))
    found = sensitivity(model, table, behaviour, Interval(0.2, 0.1, 0.3))
    assert 1.0 < found.doubtful < found.overturned
    lost = [
        least_value(model, table, behaviour, 1.0) - least_value(model, table, behaviour, gamma)
        for gamma in (found.doubtful, found.overturned)
    ]
    assert lost == pytest.approx([0.1, 0.2], abs=1e-3)
    assert (np.diff(found.gains) < 0.0).all()
    assert found.gains[0] == pytest.approx(0.2)


def test_an_action_that_was_always_taken_leaves_nothing_to_influence() -> None:
    model, _, _ = case(np.random.default_rng(3))
    always = np.broadcast_to(np.eye(2)[0], (1, 3, 2))
    behaviour = np.broadcast_to(np.eye(2)[0], (2, 3, 2))
    found = sensitivity(model, always, behaviour, Interval(0.2, 0.1, 0.3))
    assert np.isinf(found.overturned)
    assert "no unseen influence" in str(found)


def test_no_gain_cannot_be_overturned() -> None:
    model, table, behaviour = case(np.random.default_rng(4))
    found = sensitivity(model, table, behaviour, Interval(-0.2, -0.3, -0.1))
    assert found.overturned == 1.0
    assert "no gain" in str(found)


def test_a_hidden_severity_stays_within_the_bound_of_its_strength(tmp_path) -> None:
    """One step, two actions: those who are worse off are given action 1 with odds 3 times higher.

    The action does nothing; the logs show it to do harm. With Gamma = 3 the bound admits the truth.
    """
    rng = np.random.default_rng(5)
    n, gamma = 20_000, 3.0
    severe = rng.random(n) < 0.5
    odds = np.where(severe, np.sqrt(gamma), 1.0 / np.sqrt(gamma))
    action = (rng.random(n) < odds / (1.0 + odds)).astype(int)
    reward = (rng.random(n) < np.where(severe, 0.2, 0.8)).astype(float)
    table = {"episode": np.arange(n), "t": np.zeros(n, int), "state": np.zeros(n, int)}
    table |= {"action": action, "reward": reward, "next_state": np.zeros(n, int)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solved = lm.solve(lm.Trajectories.from_table(table), 1, rng=0, bootstrap=5)
    assert solved.gain.low > 0.05  # promised, and not there
    at = dict(zip(solved.sensitivity.gammas, solved.sensitivity.gains))
    assert at[1.0] > 0.05
    assert at[3.0] < 0.0
    assert 1.0 < solved.sensitivity.overturned <= gamma
    lm.save(solved, tmp_path / "solved.npz")
    assert lm.load(tmp_path / "solved.npz").sensitivity == solved.sensitivity
