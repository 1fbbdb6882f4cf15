"""PSRs: exact ones against brute force, learned ones against the exact, safeguards, verdicts."""

from dataclasses import replace

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.errors import ImpossibleObservationError, TrajectoryError
from latentmdp.policies import History
from latentmdp.spectral import count_moments, population_moments, select
from latentmdp.testing import oracles, random_model


def random_sequence(model, rng, length):
    return (
        rng.integers(model.n_states, size=length + 1).tolist(),
        rng.integers(model.n_actions, size=length).tolist(),
        rng.integers(model.n_rewards, size=length).tolist(),
    )


def exact_prediction(model, sequence, action):
    belief = oracles.posterior(model, *sequence)
    return np.einsum("m,mnz->nz", belief, model.observation_probs()[:, sequence[0][-1], action])


def separated(delta, seed, horizon=4):
    return lm.make(
        "separated", contexts=3, states=7, actions=2, horizon=horizon, delta=delta, rng=seed
    )


UNIFORM = lm.UniformPolicy()
MODELS = {
    "separated .1": separated(0.1, 0),
    "separated 1": separated(1.0, 1),
    "random": random_model(2, contexts=3, states=4, actions=2, horizon=4),
    "next-state rewards": random_model(
        3,
        contexts=2,
        states=3,
        actions=3,
        reward_values=(-1.0, 0.0, 2.0),
        reward_model="transition",
    ),
    "one context": random_model(4, contexts=1),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "options", [{}, {"length": (2, 1)}, {"offsets": "first"}, {"balanced": True}]
)
def test_population_moments_give_the_model_back(name, options):
    model, rng = MODELS[name], np.random.default_rng(0)
    psr = lm.SpectralPSR(rank=model.n_contexts, **options).from_model(model)
    for length in (0, 1, 2, 3, 6, 6, 12):
        sequence = random_sequence(model, rng, length)
        truth = oracles.trajectory_probability(model, *sequence)
        assert psr.sequence_probability(*sequence) == pytest.approx(truth, abs=1e-8, rel=1e-8)
        if truth > 0.0:
            action = int(rng.integers(model.n_actions))
            expected = exact_prediction(model, sequence, action)
            found = psr.predict(History(*map(tuple, sequence)), action)
            np.testing.assert_allclose(found, expected, atol=1e-8)
    assert psr.sufficient


def test_population_moments_under_a_markov_policy():
    model, rng = MODELS["random"], np.random.default_rng(1)
    rows = rng.dirichlet(np.ones(2), (4, 4))
    psr = lm.SpectralPSR(rank=3).from_model(model, lm.MarkovPolicy(rows))
    for _ in range(10):
        sequence = random_sequence(model, rng, 5)
        truth = oracles.trajectory_probability(model, *sequence)
        assert psr.sequence_probability(*sequence) == pytest.approx(truth, abs=1e-8)


def test_predictions_of_tests_are_ratios_of_sequences():
    model, rng = MODELS["random"], np.random.default_rng(2)
    psr = lm.SpectralPSR(rank=3).from_model(model)
    states, actions, rewards = random_sequence(model, rng, 3)
    predictions = psr.predict_tests((states, actions, rewards), [1, 0])
    assert predictions.shape == (4, 2, 4, 2)
    assert predictions.sum() == pytest.approx(1.0)
    before = oracles.trajectory_probability(model, states, actions, rewards)
    for place in [(0, 1, 2, 0), (3, 0, 3, 1), (2, 1, 0, 1)]:
        after = oracles.trajectory_probability(
            model, [*states, place[0], place[2]], [*actions, 1, 0], [*rewards, place[1], place[3]]
        )
        assert predictions[place] == pytest.approx(after / before, abs=1e-10)


def test_filter_keeps_its_normalisation_over_long_horizons():
    model = MODELS["separated 1"].replace(horizon=20_000)
    psr = lm.SpectralPSR(rank=3).from_model(model.replace(horizon=4))
    logs = lm.simulate(model, lm.UniformPolicy(), 2, rng=0)
    states, guarded = psr.filter(logs)
    assert guarded == 0
    totals = np.einsum("tk,tk->t", psr.normalisers[logs.states], states)
    np.testing.assert_allclose(totals, 1.0, atol=1e-9)
    last = psr.predictions(int(logs.states[-1]), states[-1:])[0]
    truth = model.observation_probs()[logs.contexts[1], logs.states[-1]]
    np.testing.assert_allclose(last, truth, atol=1e-6)


def test_filter_does_not_depend_on_threads():
    model = MODELS["random"].replace(horizon=6)
    logs = lm.simulate(model, lm.UniformPolicy(), 10_000, rng=0)
    psr = lm.SpectralPSR(rank=3).fit(logs)
    assert np.array_equal(psr.filter(logs, threads=1)[0], psr.filter(logs, threads=3)[0])


@pytest.mark.parametrize("options", [{}, {"balanced": True}, {"refinements": 1}])
def test_learned_psr_approaches_the_exact_one(options):
    """The mean L1 error of predictions falls like 1/sqrt(N), by 10 here; by 4 is required."""
    model = separated(1.0, 3)
    probe = lm.simulate(model.replace(horizon=6), lm.UniformPolicy(), 40, rng=9)
    errors = []
    for episodes in (5_000, 500_000):
        logs = lm.simulate(model, lm.UniformPolicy(), episodes, rng=4)
        psr = lm.SpectralPSR(rank=3, **options).fit(logs)
        distances = [
            np.abs(psr.predict(episode, 0) - exact_prediction(model, episode[:3], 0)).sum()
            for episode in probe
        ]
        errors.append(np.mean(distances))
    assert errors[1] < errors[0] / 4.0


def test_safeguards_can_be_switched_off():
    model = separated(0.3, 5)
    logs = lm.simulate(model, lm.UniformPolicy(), 20_000, rng=0)
    long = lm.simulate(model.replace(horizon=30), lm.UniformPolicy(), 500, rng=1)
    psr = lm.SpectralPSR(rank=3).fit(logs)
    bare = replace(psr, safeguards=False)
    _, guarded = psr.filter(long)
    assert guarded > 0
    assert bare.filter(long)[1] == 0
    predictions = psr.predictions(0, psr.filter(long)[0][long.states == 0])
    np.testing.assert_allclose(predictions.sum(axis=(2, 3)), 1.0)
    assert (predictions >= 0.0).all()
    raw = bare.predictions(0, bare.filter(long)[0][long.states == 0])
    assert (raw < 0.0).any()
    # One step by hand, as printed: b_2 = B b_1 / (b_inf · B b_1).
    states, actions, rewards, _ = long[0]
    b = bare.starts[states[0]]
    b = bare.operators[states[0], actions[0], states[1], rewards[0]] @ b
    b /= bare.normalisers[states[1]] @ b
    np.testing.assert_allclose(
        bare.state((states[:2], actions[:1], rewards[:1])), b, rtol=1e-9, atol=1e-12
    )


def test_verdict_follows_the_singular_values():
    good = lm.simulate(separated(1.0, 0), lm.UniformPolicy(), 100_000, rng=0)
    poor = lm.simulate(separated(0.1, 0), lm.UniformPolicy(), 100_000, rng=0)
    trusted, doubted = (lm.SpectralPSR(rank=3).fit(logs) for logs in (good, poor))
    assert trusted.sufficient
    assert not doubted.sufficient
    assert "Do not trust rank 3" in doubted.verdict()
    for psr, logs in ((trusted, good), (doubted, poor)):
        joint = count_moments(logs).joint_probs(2)
        values = np.linalg.svd(joint, compute_uv=False)
        np.testing.assert_allclose(psr.singular_values[2], values, atol=1e-12)
        ratio = psr.singular_value_ratios()[2]
        assert ratio == pytest.approx(values[2] / values[3])


def entered_twice(seed, states, actions):
    """One MDP as two contexts."""
    one = random_model(seed, contexts=1, states=states, actions=actions, horizon=3)
    parts = (one.transitions, one.reward_probs, one.initial)
    T, R, initial = (np.repeat(part, 2, axis=0) for part in parts)
    return lm.LatentMDP(T, R, initial=initial, horizon=3)


@pytest.mark.parametrize(("states", "actions"), [(1, 1), (1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("episodes", [100, 20_000])
def test_one_mdp_entered_twice_has_no_second_direction(states, actions, episodes):
    """Few histories occur, so that sigma_3 may be exactly zero and sigma_2 is noise all the same.

    Of 40 other such logs, the ratio of the two called 20 sufficient and the simulated noise none.
    """
    for seed in range(4):
        logs = lm.simulate(entered_twice(seed, states, actions), UNIFORM, episodes, rng=seed)
        psr = lm.SpectralPSR(rank=2).fit(logs)
        assert not psr.sufficient
        assert "Do not trust rank 2" in psr.verdict()


def test_counts_under_a_markov_policy_have_its_weights_taken_off():
    """The evidence is that of the counts: the same for the policy and for moments made with it."""
    policy = lm.MarkovPolicy(np.tile([0.8, 0.2], (7, 1)))
    logs = lm.simulate(separated(1.0, 0), policy, 50_000, rng=0)
    psr = lm.SpectralPSR(rank=3).fit(logs, policy)
    moments = count_moments(logs, policy=policy)
    np.testing.assert_array_equal(
        psr.visible_contexts, lm.SpectralPSR(rank=3).fit(moments, policy).visible_contexts
    )
    assert (psr.visible_contexts == 3).all()


def test_rank_beyond_the_model_is_not_trusted():
    psr = lm.SpectralPSR(rank=4).from_model(separated(0.5, 0))
    assert not psr.sufficient
    assert "longer tests and histories or a smaller rank" in psr.verdict()
    rng = np.random.default_rng(0)
    sequence = random_sequence(separated(0.5, 0), rng, 4)
    truth = oracles.trajectory_probability(separated(0.5, 0), *sequence)
    assert psr.sequence_probability(*sequence) == pytest.approx(truth, abs=1e-8)


def test_moments_of_shards_are_as_good_as_logs():
    logs = lm.simulate(separated(1.0, 0), lm.UniformPolicy(), 20_000, rng=0)
    estimator = lm.SpectralPSR(rank=3)
    whole = estimator.fit(logs)
    summed = estimator.fit(count_moments(logs[:7_000]) + count_moments(logs[7_000:]))
    sequence = logs[5][:3]
    expected = whole.sequence_probability(*sequence)
    assert summed.sequence_probability(*sequence) == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ValueError, match="need the logs themselves"):
        lm.SpectralPSR(rank=3, refinements=1).fit(count_moments(logs))


def test_a_state_never_visited_is_named():
    logs = lm.simulate(separated(1.0, 0), lm.UniformPolicy(), 20_000, rng=0)
    arrays = logs.as_arrays()
    wider = lm.Trajectories.from_arrays(*arrays, n_states=8, n_actions=2, reward_values=(0, 1))
    with pytest.warns(UserWarning, match="no history ends in state 7"):
        psr = lm.SpectralPSR(rank=3).fit(wider)
    for array in (psr.operators, psr.normalisers, psr.starts, psr.homes, psr.pooled):
        assert np.isfinite(array).all()
    with pytest.raises(ImpossibleObservationError, match="ends in state 7"):
        psr.predict(((0, 7), (0,), (0,)), 0)
    assert np.isfinite(psr.predict(((0, 7, 1), (0, 1), (0, 0)), 0)).all()


def test_equality_is_by_content_and_the_representation_is_short():
    first, second = (lm.SpectralPSR(rank=3).from_model(MODELS["random"]) for _ in range(2))
    first.predict(((0,), (), ()), 0)  # caches what it computes, which is no part of the content
    assert first == second
    assert first != lm.SpectralPSR(rank=2).from_model(MODELS["random"])
    assert first != replace(second, safeguards=True)
    assert "PSR(rank=3, states=4, actions=2, rewards=2" in repr(first)
    logs = lm.simulate(MODELS["random"], UNIFORM, 100, rng=0)
    moments = count_moments(logs), population_moments(MODELS["random"])
    for shown in (first, select(moments[1], 3, 4, 4), *moments):
        assert len(repr(shown)) < 200


def test_bad_arguments():
    logs = lm.simulate(separated(1.0, 0), lm.UniformPolicy(), 1_000, rng=0)
    psr = lm.SpectralPSR(rank=3).fit(logs)
    with pytest.raises(ValueError, match="rank must be at most 28"):
        lm.SpectralPSR(rank=29).fit(logs)
    with pytest.raises(ValueError, match="rank must be at least 1"):
        lm.SpectralPSR(rank=0)
    with pytest.raises(TrajectoryError, match="state 7 is out of range"):
        psr.predict(((0, 7), (0,), (0,)), 0)
    with pytest.raises(ValueError, match=r"action must be an integer in \[0, 2\), got 2"):
        psr.predict(((0, 1), (0,), (0,)), 2)
    with pytest.raises(TrajectoryError, match="2 states, 2 actions"):
        psr.sequence_probability([0, 1], [0, 1], [0, 0])


@pytest.mark.parametrize("balanced", [False, True])
def test_episodes_may_begin_where_no_history_ends(balanced):
    """State 0 is left for ever, so the empty history has to stand in for histories there."""
    base = random_model(6, contexts=2, states=4, actions=2, horizon=4)
    T = base.transitions.copy()
    T[..., 0] = 0.0
    T /= T.sum(axis=-1, keepdims=True)
    initial = np.array([[0.7, 0.3, 0.0, 0.0], [0.4, 0.1, 0.5, 0.0]])
    model = base.replace(transitions=T, initial=initial)
    exact = lm.SpectralPSR(rank=2, balanced=balanced).from_model(model)
    assert exact.sufficient
    logs = lm.simulate(model, UNIFORM, 200_000, rng=0)
    learned = lm.SpectralPSR(rank=2, balanced=balanced).fit(logs)
    for states in ([0], [0, 2], [0, 1, 3], [0, 3, 3, 2, 1]):
        sequence = states, [1] * (len(states) - 1), [0] * (len(states) - 1)
        truth = oracles.trajectory_probability(model, *sequence)
        assert exact.sequence_probability(*sequence) == pytest.approx(truth, abs=1e-10)
        assert learned.sequence_probability(*sequence) == pytest.approx(truth, abs=0.01)
        np.testing.assert_allclose(
            exact.predict(sequence, 0), exact_prediction(model, sequence, 0), atol=1e-8
        )
