"""Moments against counting by hand, against their expectation, and on bad logs."""

import itertools

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.errors import TrajectoryError
from latentmdp.spectral import count_moments, moments, population_moments
from latentmdp.testing import random_model


def number(steps, sizes, code=0):
    S, A, Z = sizes
    for a, z, next_state in steps:
        code = code * (A * Z * S) + (a * Z + z) * S + next_state
    return code


def by_hand(logs, lengths, policy, first_only):
    """Dictionaries of histories, joint and through counts, window by window."""
    sizes = (logs.n_states, logs.n_actions, logs.n_rewards)
    p, q = lengths
    n = int(np.prod(sizes))
    out = ({}, {}, {})
    for (states, actions, rewards, _), count in zip(logs, logs.multiplicities()):
        steps = list(zip(actions.tolist(), rewards.tolist(), states[1:].tolist()))
        for t in range(1 if first_only else len(actions)):
            if t + p + q + 1 > len(actions):
                break
            weight = [1.0 / policy[states[j], actions[j]] for j in range(t + p, t + p + q + 1)]
            h = number(steps[t : t + p], sizes, int(states[t]))
            near = number(steps[t + p : t + p + q], sizes)
            far = number(steps[t + p + 1 : t + p + 1 + q], sizes)
            through = h * n + number(steps[t + p : t + p + 1], sizes)
            for table, key, value in zip(
                out, (h, (h, near), (through, far)), (1.0, np.prod(weight[:q]), np.prod(weight))
            ):
                table[key] = table.get(key, 0.0) + count * value
    return out


def stochastic_policy(model, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(model.n_actions, 5.0), model.n_states)
    return lm.MarkovPolicy(0.8 * rows + 0.2 / model.n_actions)


@pytest.mark.parametrize("lengths", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("first_only", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_counts_are_those_by_hand(lengths, first_only, sparse, monkeypatch):
    model = random_model(1, contexts=2, states=2, actions=2, horizon=6)
    policy = stochastic_policy(model)
    logs = lm.simulate(model, policy, 40, rng=0).deduplicate()
    if sparse:
        monkeypatch.setattr(moments, "DENSE_ENTRIES", 0)
    found = count_moments(logs, lengths, policy, offsets="first" if first_only else "all")
    histories, joint, through = by_hand(logs, lengths, policy.probabilities[0], first_only)
    for table, expected in ((found.joint, joint), (found.through, through)):
        dense = table.toarray() if sparse else table
        assert dense.sum() == pytest.approx(sum(expected.values()))
        for key, value in expected.items():
            assert dense[key] == pytest.approx(value)
    assert found.histories.sum() == found.n_windows == sum(histories.values())
    assert all(found.histories[h] == value for h, value in histories.items())


def test_shards_add_up():
    model = random_model(2, contexts=3, horizon=5)
    logs = lm.simulate(model, lm.UniformPolicy(), 300, rng=0)
    whole = count_moments(logs)
    parts = count_moments(logs[:100]) + count_moments(logs[100:])
    merged = count_moments(logs.deduplicate())
    for other in (parts, merged):
        for name in ("histories", "joint", "through", "firsts", "starts"):
            np.testing.assert_allclose(getattr(other, name), getattr(whole, name))
        assert (other.n_windows, other.n_starts) == (whole.n_windows, whole.n_starts)
    with pytest.raises(ValueError, match="lengths"):
        whole + count_moments(logs, (2, 1))


@pytest.mark.parametrize("markov", [False, True])
def test_population_moments_are_sums_over_histories(markov):
    """Every entry from the probabilities of whole sequences (sum over contexts by hand)."""
    model = random_model(3, contexts=2, states=2, actions=2, horizon=4)
    S, A, Z, n = 2, 2, 2, 8
    policy = stochastic_policy(model) if markov else None
    pi = np.full((S, A), 0.5) if policy is None else policy.probabilities[0]
    exact = population_moments(model, 1, policy, offsets="all")
    P = model.observation_probs()
    acted = np.einsum("sa,msanz->msn", pi, P)
    places = [model.initial, np.einsum("ms,msn->mn", model.initial, acted)]
    for first, a, z, s in itertools.product(range(S), range(A), range(Z), range(S)):
        h = sum(
            model.weights * place[:, first] * pi[first, a] * P[:, first, a, s, z]
            for place in places
        ) / len(places)
        column = (first * A + a) * Z + z
        assert exact.history_probs(s)[column] == pytest.approx(h.sum())
        for b, y, next_state in itertools.product(range(A), range(Z), range(S)):
            step = (b * Z + y) * S + next_state
            longer = h * P[:, s, b, next_state, y]
            assert exact.joint_probs(s)[step, column] == pytest.approx(longer.sum())
            tests = np.einsum("m,manz->azn", longer, P[:, next_state]).ravel()
            np.testing.assert_allclose(exact.through_probs(s, step)[:, column], tests)
    assert exact.joint_probs(0).shape == (n, n)


@pytest.mark.parametrize("seed", range(5, 9))
@pytest.mark.parametrize("markov", [False, True])
def test_counts_converge_to_the_population(markov, seed):
    """Each entry is within 6 standard errors of its expectation (false alarm below 1e-5 a run)."""
    model = random_model(4, contexts=3, states=3, actions=2, horizon=4)
    policy = stochastic_policy(model) if markov else None
    logs = lm.simulate(model, policy or lm.UniformPolicy(), 100_000, rng=seed)
    counted = count_moments(logs, 1, policy)
    exact = population_moments(model, 1, policy)
    heaviest = 1.0 / (policy.probabilities.min() if markov else 0.5)
    for s in range(3):
        pairs = [
            (counted.history_probs(s), exact.history_probs(s), 1.0, counted.n_windows),
            (counted.joint_probs(s), exact.joint_probs(s), heaviest, counted.n_windows),
            (counted.start_probs(s), exact.start_probs(s), heaviest, counted.n_starts),
            (counted.through_probs(s, 4), exact.through_probs(s, 4), heaviest**2, logs.n_episodes),
        ]
        for estimate, truth, weight, n in pairs:
            # A window weighs at most `weight`; windows of one episode may coincide (two here).
            error = np.sqrt(2.0 * weight * truth / n) + weight / n
            assert (np.abs(estimate - truth) <= 6.0 * error).all()


def test_bad_logs():
    model = random_model(0, contexts=2, states=3, actions=2, horizon=2)
    short = lm.simulate(model, lm.UniformPolicy(), 10, rng=0)
    with pytest.raises(TrajectoryError, match="at least 3 actions, the longest of 10 has 2"):
        count_moments(short)
    with pytest.raises(TrajectoryError, match="at least 5 actions"):
        count_moments(short, 2)
    with pytest.raises(TrajectoryError, match="no episodes"):
        count_moments(short[:0])
    with pytest.raises(ValueError, match="length must be at least 1, got 0"):
        count_moments(short, 0)
    with pytest.raises(ValueError, match="offsets"):
        count_moments(short, offsets="some")


def test_policies_that_do_not_fit():
    model = random_model(0, contexts=2, states=3, actions=2, horizon=4)
    lazy = lm.simulate(model, lm.MarkovPolicy(np.zeros(3, int)), 200, rng=0)
    with pytest.raises(TrajectoryError, match=r"never take action 1 in state \d"):
        count_moments(lazy)
    uniform = lm.simulate(model, lm.UniformPolicy(), 5_000, rng=0)
    skewed = lm.MarkovPolicy(np.tile([0.9, 0.1], (3, 1)))
    with pytest.warns(UserWarning, match="do not look like the sampling policy's"):
        count_moments(uniform, policy=skewed)
    with pytest.raises(ValueError, match="deterministic"):
        count_moments(uniform, policy=lm.MarkovPolicy(np.zeros(3, int)))
    with pytest.raises(ValueError, match="never takes action 1 in state 2 at time 0"):
        count_moments(uniform, policy=lm.MarkovPolicy(np.array([[0.5, 0.5]] * 2 + [[1.0, 0.0]])))
    with pytest.raises(TypeError, match="UniformPolicy or a MarkovPolicy"):
        count_moments(uniform, policy=lambda history: 0)
