"""Assumptions 3 and 4 and the diameter against brute force."""

from itertools import product

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp import testing, theory
from latentmdp.theory.communication import connectivity, diameter, reach_probs, reachability


def enumerate_states(model, policy, steps):
    """P_m(s after `steps` transitions) by summing over histories."""
    from latentmdp.testing import action_probabilities

    acts = action_probabilities(policy, model.n_actions)
    P = model.observation_probs()
    found = np.zeros((model.n_contexts, model.n_states))
    for m in range(model.n_contexts):
        paths = [
            (lm.policies.History((s,), (), ()), model.initial[m, s]) for s in range(model.n_states)
        ]
        for _ in range(steps):
            paths = [
                (
                    lm.policies.History((*h.states, n), (*h.actions, a), (*h.rewards, z)),
                    p * acts(h)[a] * P[m, h.states[-1], a, n, z],
                )
                for h, p in paths
                for a in range(model.n_actions)
                for n in range(model.n_states)
                for z in range(model.n_rewards)
            ]
        for h, p in paths:
            found[m, h.states[-1]] += p
    return found


@pytest.mark.parametrize("horizon", [1, 2, 4])
@pytest.mark.parametrize("kind", ["uniform", "alpha"])
def test_alpha_2_is_the_rarest_state_at_time_H_minus_1(horizon, kind):
    model = random_model(horizon, contexts=2, states=2, horizon=horizon)
    policy = lm.UniformPolicy() if kind == "uniform" else random_alpha_policy(model, 3)
    expected = enumerate_states(model, policy, max(0, horizon - 2))
    np.testing.assert_allclose(theory.reach_probs(model, policy), expected, atol=1e-12)
    assert theory.reachability(model, policy) == pytest.approx(expected.min(), abs=1e-12)


def is_connected(T, threshold):
    S = len(T)
    strong = (T.max(axis=1) >= threshold) & ~np.eye(S, dtype=bool)
    strong |= strong.T
    reached, frontier = {0}, [0]
    while frontier:
        s = frontier.pop()
        for n in np.flatnonzero(strong[s]):
            if int(n) not in reached:
                reached.add(int(n))
                frontier.append(int(n))
    return len(reached) == S


@pytest.mark.parametrize("seed", range(8))
def test_alpha_3_is_the_largest_threshold_that_connects(seed):
    model = random_model(seed, states=5, sparse=seed % 2 == 1)
    for m, alpha in enumerate(theory.connectivity(model)):
        T = model.transitions[m]
        if alpha == 0.0:
            assert not is_connected(T, np.nextafter(0.0, 1.0))
            continue
        assert is_connected(T, alpha)
        assert not is_connected(T, np.nextafter(alpha, 2.0))


def test_alpha_3_of_one_state_and_of_islands():
    one = lm.LatentMDP(np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1)), horizon=1)
    assert theory.connectivity(one).tolist() == [1.0]
    islands = lm.LatentMDP(np.eye(3)[None, :, None, :], np.zeros((1, 3, 1)), horizon=1)
    assert theory.connectivity(islands).tolist() == [0.0]
    assert np.isinf(theory.diameter(islands)[0])


def brute_force_times(T):
    """Hitting times by trying every deterministic stationary policy."""
    S, A, _ = T.shape
    best = np.full((S, S), np.inf)
    np.fill_diagonal(best, 0.0)
    for goal in range(S):
        others = [s for s in range(S) if s != goal]
        for choice in product(range(A), repeat=S - 1):
            Q = np.array([[T[s, a, n] for n in others] for s, a in zip(others, choice)])
            # a policy is proper from s if all that s can reach can reach the goal
            reach = np.linalg.matrix_power((Q > 0) + np.eye(S - 1), S) > 0
            exits = np.array([T[s, a, goal] > 0 for s, a in zip(others, choice)])
            can = reach @ exits
            proper = np.array([all(can[j] for j in np.flatnonzero(row)) for row in reach])
            keep = np.flatnonzero(proper)
            if keep.size:
                times = np.linalg.solve(
                    np.eye(keep.size) - Q[np.ix_(keep, keep)], np.ones(keep.size)
                )
                for i, t in zip(keep, times):
                    best[others[i], goal] = min(best[others[i], goal], t)
    return best


@pytest.mark.parametrize("seed", range(10))
def test_hitting_times_and_diameter(seed):
    model = random_model(seed, contexts=2, states=4, sparse=seed % 2 == 0)
    for m in range(2):
        expected = brute_force_times(model.transitions[m])
        found = theory.hitting_times(model.transitions[m])
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert theory.diameter(model)[m] == pytest.approx(expected.max(), rel=1e-9)


@pytest.mark.parametrize("chance", [1e-3, 1e-12, 1e-17, 1e-100, 1e-300, 1e-310])
@pytest.mark.filterwarnings("error")
def test_hitting_times_of_chances_that_round_away(chance):
    """A line of states, each left forwards by chance: steps to the k-th are k / chance."""
    T = np.zeros((4, 2, 4))
    for s in range(4):
        T[s, 0, s] = 1.0 - chance
        T[s, 0, (s + 1) % 4] = chance
        T[s, 1, s] = 1.0  # never leaves
    times = theory.hitting_times(T)
    with np.errstate(over="ignore"):
        unit = 1.0 / np.float64(chance)
    np.testing.assert_allclose(times[0], [0.0, unit, 2.0 * unit, 3.0 * unit])
    one_way = np.full((3, 1, 3), chance / 2)
    one_way[np.arange(3), 0, np.arange(3)] = 1.0 - chance
    found = theory.hitting_times(one_way)
    np.testing.assert_allclose(found[0, 1:], 2.0 * unit)


def test_hitting_times_avoid_traps():
    # action 0 is quick but may fall into a trap; only action 1 reaches the goal for sure
    T = np.zeros((3, 2, 3))
    T[0, 0] = (0.0, 0.9, 0.1)
    T[0, 1] = (0.75, 0.25, 0.0)
    T[1, :, 0] = 1.0
    T[2, :, 2] = 1.0
    times = theory.hitting_times(T)
    assert times[0, 1] == pytest.approx(4.0)
    assert np.isinf(times[2, 0])


@pytest.mark.parametrize("seed", range(5))
def test_remark_1(seed):
    model = random_model(seed, states=5)
    assert (theory.connectivity(model) >= 1.0 / theory.diameter(model) - 1e-12).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_table_is_measured_like_its_arrays(seed):
    kind = {"states": 4, "actions": 3, "zeros": 0.3, "forbidden": 0.4, "horizon": 5}
    dense = testing.random_model(seed, **kind)
    table = testing.random_model(seed, **kind, as_table=True)
    np.testing.assert_allclose(connectivity(table), connectivity(dense))
    np.testing.assert_allclose(diameter(table), diameter(dense))
    np.testing.assert_allclose(reach_probs(table), reach_probs(dense), atol=1e-15)


def test_a_forbidden_action_is_no_way():
    """A line of three states; the action that would not move is forbidden in the middle."""
    T = np.zeros((1, 3, 2, 3))
    T[0, 0, 0, 1] = T[0, 1, 0, 2] = T[0, 2, 0, 0] = 1.0
    T[0, 0, 1, 0] = T[0, 2, 1, 2] = 1.0
    allowed = [[True, True], [True, False], [True, True]]
    model = lm.LatentMDP(T, np.zeros((1, 3, 2)), horizon=4, allowed=allowed)
    np.testing.assert_allclose(diameter(model), [2.0])


def test_a_terminal_state_need_not_be_explored():
    T = np.zeros((1, 3, 1, 3))
    T[0, 0, 0] = [0.0, 0.5, 0.5]
    T[0, 1, 0] = [0.5, 0.0, 0.5]
    allowed = [[True], [True], [False]]
    model = lm.LatentMDP(
        T, np.zeros((1, 3, 1)), initial=[[0.5, 0.5, 0.0]], horizon=3, allowed=allowed
    )
    np.testing.assert_allclose(reach_probs(model), [[0.25, 0.25, 0.0]])
    assert reachability(model) == pytest.approx(0.25)
    np.testing.assert_allclose(diameter(model), [np.inf])
    tests = lm.theory.sigma_tau(model)
    np.testing.assert_array_equal(np.isinf(tests), [False, False, True])


def two_groups(n):
    """Any state of one's own group of n at will, or a uniform jump to the other group."""
    T = np.zeros((1, 2 * n, n + 1, 2 * n))
    for s in range(2 * n):
        own = s // n * n
        T[0, s, range(n), range(own, own + n)] = 1.0
        T[0, s, n, (n - own) : (2 * n - own)] = 1.0 / n
    return lm.LatentMDP(T, np.zeros((1, 2 * n, n + 1)), horizon=5)


def test_remark_1_has_a_counterexample():
    model = two_groups(4)
    assert connectivity(model)[0] == pytest.approx(0.25)
    assert diameter(model)[0] == pytest.approx(1.75)
    assert connectivity(model)[0] < 1.0 / diameter(model)[0]


@pytest.mark.parametrize("seed", range(20))
def test_connectivity_is_at_least_two_by_states_and_diameter(seed):
    model = random_model(seed, contexts=2, states=2 + seed % 5, actions=2)
    times = diameter(model)
    finite = np.isfinite(times)
    assert (connectivity(model) * model.n_states * times >= 2.0 - 1e-9)[finite].all()
    tight = two_groups(2 + seed % 4)
    assert connectivity(tight)[0] * tight.n_states * diameter(tight)[0] >= 2.0
