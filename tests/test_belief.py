"""The filter against enumeration, exact arithmetic and its stated behaviour at the edges."""

from fractions import Fraction

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp._kernels.belief import AWAKE, update_belief
from latentmdp.errors import ImpossibleObservationError


@pytest.mark.parametrize("form", ["bernoulli", "values", "next-state"])
@pytest.mark.parametrize("smoothing", [0.0, 0.01])
def test_posterior_matches_oracle(form: str, smoothing: float) -> None:
    model = random_model(1, contexts=4, states=5, horizon=20, form=form)
    logs = lm.simulate(model, lm.UniformPolicy(), 30, rng=2)
    after = lm.posterior(model, logs, smoothing=smoothing)
    for i, (states, actions, rewards, _) in enumerate(logs):
        expected = testing.posterior(model, states, actions, rewards, smoothing)
        np.testing.assert_allclose(after[i], expected, rtol=1e-12)


def test_posterior_along_the_episode_ends_in_the_posterior_after_it() -> None:
    model = random_model(3, horizon=6)
    logs = lm.simulate(model, lm.UniformPolicy(), 10, rng=0)
    along = lm.posterior(model, logs, along=True).reshape(10, 7, 3)
    np.testing.assert_array_equal(along[:, -1], lm.posterior(model, logs))
    first = model.weights * model.initial[:, logs.as_arrays()[0][:, 0]].T
    np.testing.assert_allclose(along[:, 0], first / first.sum(axis=1, keepdims=True), rtol=1e-14)


def test_posterior_does_not_depend_on_threads() -> None:
    model = random_model(4, horizon=3)
    logs = lm.simulate(model, lm.UniformPolicy(), 50_000, rng=0)
    one, two = (lm.posterior(model, logs, threads=n) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def exact_posterior(likelihoods: np.ndarray, prior: np.ndarray) -> np.ndarray:
    weights = [Fraction(float(p)) for p in prior]
    for row in likelihoods:
        weights = [w * Fraction(float(x)) for w, x in zip(weights, row)]
    total = sum(weights)
    return np.array([float(w / total) for w in weights])


def test_update_is_exact_where_doubles_underflow() -> None:
    """A context that falls to 1e-600 and comes back is weighed correctly."""
    rng = np.random.default_rng(0)
    down, up = rng.random((2, 300, 3)) * 0.5 + 0.5
    down[:, 1] *= 1e-2
    up[:, [0, 2]] *= 1e-2
    table = np.concatenate([down, up])
    belief = np.zeros((3, 3))
    belief[AWAKE] = 1 / 3
    for row in range(len(table)):
        assert update_belief(belief, table, row)
    np.testing.assert_allclose(belief[AWAKE], exact_posterior(table, np.full(3, 1 / 3)), rtol=1e-12)


def test_tiny_weights_are_weighed_correctly() -> None:
    belief = np.zeros((3, 2))
    belief[AWAKE] = [1.0, 1e-300]
    table = np.array([[1e-200, 1.0], [1e-150, 1.0], [0.5, 0.25]])
    for row in range(3):
        assert update_belief(belief, table, row)
    np.testing.assert_allclose(
        belief[AWAKE], exact_posterior(table, np.array([1.0, 1e-300])), rtol=1e-12
    )


def test_long_horizon_neither_underflows_nor_drifts() -> None:
    """100,000 steps in nearly equal contexts, against sums of logarithms in extended precision."""
    model = random_model(5, contexts=1, states=3, horizon=100_000)
    tilted = model.transitions * (1 + 1e-3 * np.random.default_rng(0).normal(size=(4, 3, 2, 3)))
    tilted /= tilted.sum(axis=-1, keepdims=True)
    model = lm.LatentMDP(
        tilted, np.repeat(model.reward_probs, 4, axis=0), initial=0, horizon=100_000
    )
    logs = lm.simulate(model, lm.UniformPolicy(), 2, rng=1)
    logarithms = np.log(model.observation_probs().astype(np.longdouble))
    for i, (s, a, r, _) in enumerate(logs):
        total = logarithms[:, s[:-1], a, s[1:], r].sum(axis=1)
        expected = np.exp(total - total.max())
        np.testing.assert_allclose(
            lm.posterior(model, logs)[i], (expected / expected.sum()).astype(float), rtol=1e-9
        )


def impossible_case() -> tuple[lm.LatentMDP, lm.Trajectories]:
    transitions = np.zeros((2, 2, 1, 2))
    transitions[:, :, 0, 0] = 1.0
    model = lm.LatentMDP(transitions, np.zeros((2, 2, 1)), initial=0, horizon=2)
    return model, lm.Trajectories.from_lists([[0, 0, 1]], [[0, 0]], [[0, 0]])


def test_impossible_observation_names_episode_and_step() -> None:
    model, logs = impossible_case()
    with pytest.raises(ImpossibleObservationError, match=r"episode 0, step 1.*next state 1"):
        lm.posterior(model, logs)
    np.testing.assert_allclose(lm.posterior(model, logs, smoothing=0.1), 0.5)


def test_impossible_start_is_refused_and_tolerated_with_smoothing() -> None:
    model, _ = impossible_case()
    logs = lm.Trajectories.from_lists([[1, 0]], [[0]], [[0]])
    with pytest.raises(ImpossibleObservationError, match="starts in state 1"):
        lm.posterior(model, logs)
    np.testing.assert_allclose(lm.posterior(model, logs, smoothing=0.1), 0.5)


def test_acting_filter_keeps_its_belief_at_an_impossible_observation() -> None:
    """The policy believes in a world where state 1 is never reached; the real one goes there."""
    believed, _ = impossible_case()
    real = believed.replace(transitions=1.0 - believed.transitions)
    policy = random_alpha_policy(believed, 0)
    logs = lm.simulate(real, policy, 5, rng=0)
    belief = believed.weights  # nothing the agent sees tells the contexts apart
    for t, state in enumerate(logs.as_arrays()[0][0][:-1]):
        assert logs.as_arrays()[1][0][t] == policy.action(t, int(state), belief)


@pytest.mark.parametrize("smoothing", [-0.1, 0.26])
def test_smoothing_outside_its_range_is_refused(smoothing: float) -> None:
    model, logs = impossible_case()
    with pytest.raises(ValueError, match="smoothing must lie in"):
        lm.posterior(model, logs, smoothing=smoothing)


@pytest.mark.parametrize("sizes", [(1, 3), (3, 1)])
def test_smoothing_works_with_one_context_or_one_state(sizes: tuple[int, int]) -> None:
    model = random_model(0, contexts=sizes[0], states=sizes[1])
    logs = lm.simulate(model, lm.UniformPolicy(), 5, rng=0)
    np.testing.assert_allclose(lm.posterior(model, logs, smoothing=0.01).sum(axis=1), 1.0)


def completions(
    model: lm.LatentMDP, logs: lm.Trajectories, law: np.ndarray | None = None
) -> list[np.ndarray]:
    """w_m times the probability of what each individual shows, summed over what is missing.

    By brute force: every reward and last state that is missing takes every value in turn.
    """
    law = model.observation_probs() if law is None else law
    found: list[np.ndarray] = []
    for i, (states, actions, rewards, _) in enumerate(logs):
        if logs.continues is None or not logs.continues[i]:
            start = model.weights.copy()
            found.append(start * model.initial[:, states[0]] if states[0] >= 0 else start)
        for t, action in enumerate(actions):
            after = range(model.n_states) if states[t + 1] < 0 else [states[t + 1]]
            paid = range(model.n_rewards) if rewards[t] < 0 else [rewards[t]]
            found[-1] = found[-1] * sum(
                law[:, states[t], action, n, z] for n in after for z in paid
            )
    return found


@pytest.mark.parametrize("smoothing", [0.0, 0.02])
@pytest.mark.parametrize("form", ["bernoulli", "values", "next-state"])
def test_what_is_missing_is_summed_over_and_segments_go_on(form: str, smoothing: float) -> None:
    model = random_model(0, contexts=3, horizon=6, form=form)
    full = lm.simulate(model, lm.UniformPolicy(), 200, rng=0)
    rng = np.random.default_rng(1)
    rewards = np.where(rng.random(full.n_steps) < 0.3, -1, full.rewards)
    states = full.states.copy()
    ends = full.offsets[1:] + np.arange(200)
    states[ends[rng.random(200) < 0.5]] = -1
    later = rng.random(200) < 0.4
    later[0] = False
    logs = lm.Trajectories(states, full.actions, rewards, full.offsets, continues=later)
    belief = lm.posterior(model, logs, smoothing)
    last = np.append(logs.beginnings()[1:], len(logs)) - 1
    law = model.observation_probs()
    law = smoothing + (1.0 - smoothing * model.n_states * model.n_rewards) * law
    expected = np.array(completions(model, logs, law))
    np.testing.assert_allclose(belief[last], expected / expected.sum(axis=1, keepdims=True))


def test_an_individual_without_a_first_state_begins_at_the_prior() -> None:
    model = random_model(0, contexts=3)
    logs = lm.Trajectories([-1, 0, 1], [1], [1], [0, 0, 1], continues=[False, True])
    expected = completions(model, logs)[0]
    belief = lm.posterior(model, logs)
    np.testing.assert_allclose(belief[0], model.weights)
    np.testing.assert_allclose(belief[1], expected / expected.sum())
