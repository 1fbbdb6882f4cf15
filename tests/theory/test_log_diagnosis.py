"""What logs show: coverage, singular values with their noise, connectedness."""

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp import theory


def uniform_logs(model, episodes, rng=0):
    return lm.simulate(model, lm.UniformPolicy(), episodes, rng=rng)


@pytest.mark.parametrize("policy", [None, lm.UniformPolicy()])
@pytest.mark.parametrize("seed", range(3))
def test_contexts_that_are_there_are_seen(seed, policy):
    model = lm.make("separated", contexts=3, states=4, actions=2, delta=1.0, horizon=4, rng=0)
    found = lm.diagnose(uniform_logs(model, 20_000, seed), policy, rng=seed)
    assert found.n_contexts_seen == 3
    shares = theory.end_state_probs(model)
    error = np.sqrt(shares * (1.0 - shares) / 20_000)
    assert (np.abs(found.end_state_probs - shares) < 5.5 * error).all()  # false alarm 1e-6 in all


def test_the_singular_values_are_those_of_the_population():
    """Of P(o, h | s, a) in a model of two steps, where the only history is the first step.

    Weyl: singular values move by at most the norm of the error, here below 4 standard errors of a
    table of 4 by 4 cells and 12,000 draws or more.
    """
    model = random_model(5, contexts=2, states=2, actions=2, horizon=2)
    found = lm.diagnose(uniform_logs(model, 100_000), rng=0)
    P, b = model.observation_probs(), model.weights[:, None] * model.initial
    for s in range(2):
        largest = []
        for a in range(2):
            before = np.einsum("ms,msbz->msbz", b, P[:, :, :, s]) / 2.0
            joint = np.einsum("mo,mh->oh", P[:, s, a].reshape(2, -1), before.reshape(2, -1))
            joint /= joint.sum()
            scale = np.sqrt(np.outer(joint.sum(axis=1), joint.sum(axis=0)))
            largest.append(np.linalg.svd(joint / scale, compute_uv=False)[1])
        assert min(abs(found.singular_values[s][1] - value) for value in largest) < 0.04


@pytest.mark.parametrize("seed", range(6))
def test_two_policies_are_not_two_contexts(seed):
    """One MDP logged by two policies: which actions occur together says nothing of contexts.

    None of 60 other such logs showed a second context."""
    rng = np.random.default_rng(seed)
    model = random_model(200 + seed, contexts=1, states=3, actions=2, horizon=6)
    sharp = [[0.9, 0.1], [0.1, 0.9]]
    parts = [
        lm.simulate(model, lm.MarkovPolicy(np.tile(row, (3, 1))), 5_000, rng=rng) for row in sharp
    ]
    assert lm.diagnose(lm.Trajectories.concat(parts), rng=seed).n_contexts_seen == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_logger_that_knew_the_context_does_not_add_any(seed):
    """Each context logged by a policy of its own: still no more than the two that are there."""
    model = random_model(seed, contexts=2, states=3, actions=3, horizon=8)
    parts = []
    for m in range(2):
        rows = np.random.default_rng(9 * seed + m).dirichlet(np.ones(3), 3)
        one = model.replace(weights=np.eye(2)[m])
        parts.append(lm.simulate(one, lm.MarkovPolicy(rows), 5_000, rng=seed + 10 * m))
    assert lm.diagnose(lm.Trajectories.concat(parts), rng=seed).n_contexts_seen == 2


@pytest.mark.parametrize("episodes", [2_000, 50_000])
@pytest.mark.parametrize("seed", range(5))
def test_one_context_shows_one(seed, episodes):
    """All but the first singular value are noise; none of 60 other logs showed a second one, so
    that the chance is below 5% (95% confidence) for each."""
    model = random_model(100 + seed, contexts=1, states=3, horizon=4)
    assert lm.diagnose(uniform_logs(model, episodes, seed)).n_contexts_seen == 1


def test_counts_and_coverage():
    model = random_model(1)
    logs = lm.simulate(model, lm.MarkovPolicy(np.zeros(3, dtype=int)), 1000, rng=0)
    found = lm.diagnose(logs.deduplicate())
    states, actions, _ = logs.as_arrays()
    expected = np.zeros((3, 2), dtype=int)
    np.add.at(expected, (states[:, :-1].ravel(), actions.ravel()), 1)
    np.testing.assert_array_equal(found.visits[:, : logs.n_actions], expected[:, : logs.n_actions])
    assert (found.episodes, found.steps) == (1000, 3000)
    assert "never tried" in found.table() or logs.n_actions == 1


def test_equality_is_by_content():
    logs = uniform_logs(random_model(1), 200)
    assert lm.diagnose(logs) == lm.diagnose(logs)
    assert lm.diagnose(logs) != lm.diagnose(logs[:100])
    assert "episodes=200" in repr(lm.diagnose(logs))
    assert len(repr(lm.diagnose(logs))) < 150


def test_unconnected_states_are_reported():
    logs = lm.Trajectories.from_arrays([[0, 0, 0], [1, 1, 1]], [[0, 0], [0, 0]], [[0, 0], [0, 1]])
    found = lm.diagnose(logs)
    assert not found.connected
    assert "need a model" in found.table()


def test_bad_logs():
    logs = lm.Trajectories.from_arrays([[0, 1]], [[0]], [[1]])
    with pytest.raises(ValueError, match="2 steps"):
        lm.diagnose(logs)
    longer = lm.Trajectories.from_arrays([[0, 1, 0]], [[0, 0]], [[1, 0]])
    with pytest.raises(TypeError, match="policy"):
        lm.diagnose(longer, lambda history: 0)


def with_gaps(logs, seed):
    """A fifth of the rewards and a tenth of the last states lost; every third episode goes on."""
    rng = np.random.default_rng(seed)
    states, rewards = logs.states.copy(), logs.rewards.copy()
    rewards[rng.random(rewards.size) < 0.2] = -1
    ends = logs.offsets[1:] + np.arange(len(logs))
    states[ends[rng.random(len(logs)) < 0.1]] = -1
    continues = np.arange(len(logs)) % 3 == 1
    fields = logs.without_contexts().to_fields()
    fields |= {"states": states, "rewards": rewards, "continues": continues}
    return lm.Trajectories.from_fields(fields)


@pytest.mark.parametrize("policy", [None, lm.UniformPolicy()])
@pytest.mark.parametrize("contexts", [1, 3])
def test_gaps_are_left_out(contexts, policy):
    """Windows are counted by hand; contexts are seen as in logs without gaps."""
    model = lm.make("separated", contexts=3, states=4, actions=2, delta=1.0, horizon=4, rng=0)
    if contexts == 1:
        model = random_model(7, contexts=1, states=4, horizon=4)
    logs = with_gaps(uniform_logs(model, 30_000), 1)
    found = lm.diagnose(logs, policy, rng=0)
    assert found.n_contexts_seen == contexts
    assert found.connected
    rewards = logs.rewards.reshape(-1, 4) < 0
    rewards[:, -1] |= logs.last_states < 0
    lost = int((rewards[:, :-1] | rewards[:, 1:]).sum())
    assert found.lost_windows == lost > 0
    assert f"{lost}  " in found.table()


def test_logs_with_nothing_but_gaps_show_one_context():
    logs = uniform_logs(random_model(1, horizon=4), 50).without_contexts()
    lost = lm.Trajectories.from_fields({**logs.to_fields(), "rewards": logs.rewards * 0 - 1})
    found = lm.diagnose(lost)
    assert found.n_contexts_seen == 1
    assert found.lost_windows == 150
    assert "no state was seen often enough" in found.table()
