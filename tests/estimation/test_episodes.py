"""The fused EM pass and the merging of episodes against enumeration, one episode at a time."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.engines.threads import Threads
from latentmdp.estimation.episodes import Episodes
from latentmdp.estimation.starts import PairMoments
from latentmdp.testing import posterior, random_model, trajectory_probability


def mixed_logs(model: lm.LatentMDP, seed: int = 0) -> list[lm.Trajectories]:
    """Episodes of lengths 0 to 40, some of them many times, in two logs."""
    rng = np.random.default_rng(seed)
    plays = [
        lm.simulate(model.replace(horizon=h), lm.UniformPolicy(), n, rng=seed + h)
        for h, n in ((1, 5), (2, 60), (3, 40), (40, 12))
    ]
    states = rng.integers(model.n_states, size=3)
    empty = lm.Trajectories(
        states,
        [],
        [],
        [0, 0, 0, 0],
        reward_values=model.reward_values,
        n_states=model.n_states,
        n_actions=model.n_actions,
    )
    short = lm.Trajectories.concat([p.without_contexts() for p in (*plays[:3], empty)])
    counted = short.deduplicate()
    return [counted, plays[3].without_contexts()]


def tables(model: lm.LatentMDP, episodes: Episodes) -> tuple[np.ndarray, np.ndarray]:
    table = model.packed().reshape(-1, model.n_contexts)[episodes.cells]
    return table, model.initial.T * model.weights


def enumerated(
    model: lm.LatentMDP, logs: list[lm.Trajectories]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Expected counts and log-likelihood, one episode and one step at a time."""
    S, A, Z, M = model.n_states, model.n_actions, model.n_rewards, model.n_contexts
    by_cell, by_first, total = np.zeros((S, A, S, Z, M)), np.zeros((S, M)), 0.0
    for part in logs:
        for count, (states, actions, rewards, _) in zip(part.multiplicities(), part):
            share = count * posterior(model, states, actions, rewards)
            total += count * np.log(trajectory_probability(model, states, actions, rewards))
            by_first[states[0]] += share
            for t, (a, z) in enumerate(zip(actions, rewards)):
                by_cell[states[t], a, states[t + 1], z] += share
    return by_cell.reshape(-1, M), by_first, total


@pytest.mark.parametrize("contexts", [1, 2, 3, 5])
def test_expected_counts_agree_with_enumeration(contexts: int) -> None:
    model = random_model(contexts, contexts=contexts, states=3, horizon=3)
    logs = mixed_logs(model)
    episodes = Episodes(logs)
    found, log_likelihood = episodes.expected_counts(*tables(model, episodes))
    by_cell, by_first, total = enumerated(model, logs)
    np.testing.assert_allclose(found.by_cell, by_cell[episodes.cells], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.by_first, by_first, rtol=1e-9, atol=1e-9)
    assert log_likelihood == pytest.approx(total, rel=1e-12)
    by_episode = episodes.log_evidence(*tables(model, episodes))
    again = sum(float(g.counts @ e) for g, e in zip(episodes.groups, by_episode))
    assert again == pytest.approx(total, rel=1e-12)


def test_counts_of_cells_first_states_and_pairs() -> None:
    model = random_model(1, states=2, actions=1, horizon=3)
    logs = mixed_logs(model, seed=5)
    episodes = Episodes(logs)
    S, A, Z = model.n_states, model.n_actions, model.n_rewards
    cells, pairs = np.zeros(S * A * S * Z), np.zeros((S * A * S * Z, S * A * S * Z))
    for part in logs:
        for count, (s, a, z, _) in zip(part.multiplicities(), part):
            x = ((s[:-1] * A + a) * S + s[1:]) * Z + z
            np.add.at(cells, x, count)
            for t in range(x.size):
                for u in range(x.size):
                    pairs[x[t], x[u]] += count * (t != u)
    np.testing.assert_allclose(episodes.cell_counts(), cells[episodes.cells])
    chosen = np.ix_(episodes.cells, episodes.cells)
    np.testing.assert_allclose(PairMoments(episodes)._pairs, pairs[chosen])
    assert (
        episodes.by_state(episodes.beginning_counts()).sum()
        == episodes.n_episodes
        == sum(p.n_episodes for p in logs)
    )


def test_very_long_and_very_unlikely_episodes_do_not_underflow() -> None:
    rng = np.random.default_rng(0)
    T = rng.dirichlet(np.full(40, 0.02), (2, 40, 1))
    T = (T + 1e-40) / (T + 1e-40).sum(axis=-1, keepdims=True)
    model = lm.LatentMDP(T, np.full((2, 40, 1), 0.5), horizon=3000)
    logs = lm.simulate(model, lm.UniformPolicy(), 2, rng=0).without_contexts()
    rare = lm.Trajectories.from_arrays(  # every step has probability about 1e-40 in both contexts
        np.tile(np.argsort(T.sum(axis=(0, 1, 2)))[:8], (1, 2))[:, :13],
        np.zeros((1, 12), int),
        np.zeros((1, 12), int),
        n_states=40,
        reward_values=(0, 1),
    )
    for part in (logs, rare):
        episodes = Episodes([part])
        table, first = tables(model, episodes)
        found, log_likelihood = episodes.expected_counts(table, first)
        expected = 0.0
        for states, actions, rewards, _ in part:
            joint = np.log(model.observation_probs()[:, states[:-1], actions, states[1:], rewards])
            expected += np.logaddexp.reduce(np.log(0.5 / 40) + joint.sum(axis=1))
        assert log_likelihood == pytest.approx(expected, rel=1e-12)
        assert found.by_cell.sum() == pytest.approx(part.n_steps)


def test_the_number_of_threads_changes_no_bit() -> None:
    model = random_model(3, contexts=3, states=5, actions=3, horizon=60)
    logs = [lm.simulate(model, lm.UniformPolicy(), 8000, rng=1).without_contexts()]
    episodes = Episodes(logs)
    assert len(episodes.groups[0].blocks(episodes._block_size)) > 2
    alone, log_likelihood = episodes.expected_counts(*tables(model, episodes))
    together, same = episodes.expected_counts(*tables(model, episodes), Threads(3))
    assert np.array_equal(alone.by_cell, together.by_cell)
    assert log_likelihood == same


@pytest.mark.parametrize("number", [2, 3, 5])
def test_no_fold_is_without_episodes(number: int) -> None:
    model = random_model(0, contexts=2, horizon=4)
    logs = lm.simulate(model, lm.UniformPolicy(), number, rng=0)
    for seed in range(30):
        folds = Episodes([logs]).folds(5, np.random.default_rng(seed))
        assert folds
        for train, test in folds:
            assert train.n_episodes >= 1
            assert test.n_episodes >= 1
            assert train.n_episodes + test.n_episodes == number


def test_folds_partition_the_episodes() -> None:
    model = random_model(4, states=3, horizon=3)
    episodes = Episodes(mixed_logs(model))
    folds = episodes.folds(4, np.random.default_rng(0))
    for train, test in folds:
        assert train.n_episodes + test.n_episodes == episodes.n_episodes
    held = sum(test.cell_counts() for _, test in folds)
    np.testing.assert_allclose(held, episodes.cell_counts())


def test_no_training_fold_is_empty() -> None:
    """Two episodes fall into the same of three folds in a third of all draws."""
    logs = lm.Trajectories.from_lists([[0, 1], [1, 0]], [[0], [0]], [[0], [1]])
    episodes = Episodes([logs])
    for seed in range(20):
        for train, test in episodes.folds(3, np.random.default_rng(seed)):
            inside, outside = (
                sum(group.counts.sum() for group in part.groups) for part in (train, test)
            )
            assert inside >= 1.0
            assert inside + outside == 2.0


def test_given_shares_are_added_up_like_an_e_step() -> None:
    """Several logs, some with multiplicities; the shares are those that a model gives."""
    model = random_model(2, contexts=3, states=3, horizon=3)
    logs = mixed_logs(model)
    episodes = Episodes(logs)
    shares = np.array([posterior(model, s, a, z) for part in logs for s, a, z, _ in part])
    found = episodes.shared_out(logs, shares)
    expected, _ = episodes.expected_counts(*tables(model, episodes))
    np.testing.assert_allclose(found.by_cell, expected.by_cell, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.by_first, expected.by_first, rtol=1e-9, atol=1e-9)
