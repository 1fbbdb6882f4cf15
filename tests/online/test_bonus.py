"""Constants, bonus, coverage of the confidence set, optimism and the value difference lemma."""

import numpy as np
import pytest
from models import random_alpha_policy

import latentmdp as lm
from latentmdp.online import Counts
from latentmdp.online.empirical_model import EmpiricalModel
from latentmdp.testing import policy_value, random_model
from latentmdp.theory import ConfidenceConstants, confidence_constants, confidence_set_contains
from latentmdp.worlds import Space

PAPER = lm.Bonus(scale=1.0, adaptive=False)


def empirical_of(model, counts, bonus=PAPER, episodes=1_000):
    space = Space.of(model)
    widths = bonus.widths(space, episodes)
    found = EmpiricalModel.begin(space, counts, widths, 0.01, 0.0, model.weights, False)
    found.replan()
    return found


def sampled_counts(model, per_row, rng):
    rng = np.random.default_rng(rng)
    rows = zip(*(a.reshape(-1, a.shape[-1]) for a in (model.transitions, model.reward_probs)))
    drawn = [(rng.multinomial(per_row, t), rng.multinomial(per_row, r)) for t, r in rows]
    T, R = (np.array(part, dtype=float) for part in zip(*drawn))
    nu = np.array([rng.multinomial(per_row, row) for row in model.initial], dtype=float)
    shapes = (model.transitions.shape, model.reward_probs.shape)
    return Counts.of_arrays(T.reshape(shapes[0]), R.reshape(shapes[1]), nu)


def test_the_constants_are_weissman_and_a_union_bound():
    c = confidence_constants(7, 15, 3, 30, 100_000, 0.05)
    rows = np.log(3 * 7 * 15 * 3 * 30 * 1e5 / 0.05)
    assert c.transition == pytest.approx(2 * (15 * np.log(2) + rows))
    assert c.reward == pytest.approx(2 * (2 * np.log(2) + rows))
    assert c.initial == pytest.approx(2 * (15 * np.log(2) + np.log(3 * 7 * 1e5 / 0.05)))
    with pytest.raises(ValueError, match="failure_probability"):
        confidence_constants(7, 15, 3, 30, 100, 1.5)


def test_the_bonus_is_the_proposition():
    model = random_model(0, contexts=2, states=3, actions=2, horizon=4)
    counts = sampled_counts(model, 1, 0)
    for n in (1, 50, 5_000):
        arrays = (counts.transitions, counts.rewards, counts.initial)
        scaled = Counts.of_arrays(*(n * array for array in arrays))
        optimistic = empirical_of(model, scaled).optimistic_model(scaled)
        c = confidence_constants(2, 3, 2, 4, 1_000, 0.05)
        width = 5 * (c.reward + c.transition)
        np.testing.assert_allclose(optimistic.bonus, 4 * min(1.0, np.sqrt(width / n)))
        np.testing.assert_allclose(optimistic.initial_bonus, 4 * min(1.0, np.sqrt(c.initial / n)))


def test_rewards_of_any_sign_have_a_larger_reach():
    space = Space(2, 3, 2, (-1.0, 0.5, 2.0), 4)
    assert space.largest_return == 12.0
    assert Space(2, 3, 2, (0.0, 1.0), 4, 0.5).largest_return == 1.875
    assert lm.Bonus().widths(space, 10).lowest == -4.0


def test_the_confidence_set_covers():
    """Radii hold with probability 0.95 for all rows and all N up to H K at once, so at one N a
    miss is far rarer: 200 draws miss none with probability above 0.99."""
    model = random_model(1, contexts=2, states=4, actions=2, horizon=5)
    c = confidence_constants(2, 4, 2, 5, 1_000, 0.05)
    for seed in range(200):
        counts = sampled_counts(model, (3, 30, 300)[seed % 3], seed)
        estimate = counts.model(Space.of(model), model.weights)
        assert confidence_set_contains(model, estimate, counts.visits, counts.episodes, c)


def test_the_confidence_set_covers_with_inferred_contexts():
    """Corollary 1: from a good start and with separated contexts, beliefs are right but for few
    episodes, and the truth stays in the set around counts that were only inferred."""
    model = lm.make("separated", contexts=2, states=4, actions=2, horizon=40, delta=1.2, rng=0)
    known = lm.simulate(model, lm.UniformPolicy(), 100, rng=1)
    c = confidence_constants(2, 4, 2, 40, 400, 0.05)
    for seed in range(3):
        run = lm.LUCRL(contexts="inferred", start=known).run(model, 400, rng=seed)
        counts = run.counts
        assert run.beliefs.mean() > 0.99
        assert confidence_set_contains(model, run.model, counts.visits, counts.episodes, c)


def test_a_model_far_away_is_outside():
    model, other = (random_model(s, contexts=2, states=4, actions=2) for s in (1, 2))
    counts = sampled_counts(model, 5_000, 0)
    estimate = counts.model(Space.of(model), model.weights)
    c = confidence_constants(2, 4, 2, 3, 1_000, 0.05)
    assert not confidence_set_contains(other, estimate, counts.visits, counts.episodes, c)
    tight = ConfidenceConstants(1e-9, 1e-9, 1e-9)
    assert not confidence_set_contains(model, estimate, counts.visits, counts.episodes, tight)


@pytest.mark.parametrize("values", [(0.0, 1.0), (-1.0, 0.5, 2.0)], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_optimism(seed, values):
    """Prop. 3.2: whenever the truth is in the set, every policy is worth more in the optimistic
    model. Constants are cut to the smallest that keep the truth inside, so that the bonus is not
    merely clipped at H."""
    rng = np.random.default_rng(seed)
    model = random_model(seed, contexts=2, states=2, actions=2, horizon=3, reward_values=values)
    counts = sampled_counts(model, int(rng.integers(1, 400)), seed)
    visits, episodes = counts.visits, counts.episodes
    estimate = counts.model(Space.of(model), model.weights)
    needed = ConfidenceConstants(
        *(
            float((np.abs(a - b).sum(axis=-1) ** 2 * n).max()) * (1 + 1e-12)
            for a, b, n in (
                (model.transitions, estimate.transitions, visits),
                (model.reward_probs, estimate.reward_probs, visits),
                (model.initial, estimate.initial, episodes),
            )
        )
    )
    assert confidence_set_contains(model, estimate, visits, episodes, needed)
    bonus = lm.Bonus(scale=1.0, adaptive=False, constants=needed)
    optimistic = empirical_of(model, counts, bonus).optimistic_model(counts)
    for k in range(5):
        policy = random_alpha_policy(model, k)
        assert policy_value(optimistic, policy) >= policy_value(model, policy) - 1e-9


def test_an_unvisited_row_keeps_optimism():
    model = random_model(3, contexts=2, states=2, actions=2, horizon=3)
    counts = sampled_counts(model, 100_000, 0)
    arrays = [a.copy() for a in (counts.transitions, counts.rewards, counts.initial)]
    arrays[0][0, 1], arrays[1][0, 1] = 0.0, 0.0
    empty = Counts.of_arrays(*arrays)
    optimistic = empirical_of(model, empty).optimistic_model(empty)
    assert (optimistic.transitions[0, 1] == 0.0).all()
    assert (optimistic.bonus[0, 1] == model.horizon).all()
    for k in range(5):
        policy = random_alpha_policy(model, k)
        assert policy_value(optimistic, policy) >= policy_value(model, policy)


@pytest.mark.parametrize("seed", range(5))
def test_the_value_difference_lemma(seed):
    """Lemma B.3: |V1 - V2| <= H E2[||nu1 - nu2||] + sum_t E2[|R1 - R2|] + H sum_t E2[||P1 - P2||],
    the expectations over policy and second model, by giving the differences as rewards."""
    first = random_model(seed, contexts=2, states=2, actions=2, horizon=3)
    mix = random_model(seed + 100, contexts=2, states=2, actions=2, horizon=3)
    for share in (0.02, 0.5):
        second = first.replace(
            transitions=(1 - share) * first.transitions + share * mix.transitions,
            rewards=(1 - share) * first.reward_probs + share * mix.reward_probs,
            initial=(1 - share) * first.initial + share * mix.initial,
        )
        H = first.horizon
        joint = np.abs(first.observation_probs() - second.observation_probs()).sum(axis=(-1, -2))
        means = np.abs(first.mean_rewards() - second.mean_rewards())
        initial = H * np.abs(first.initial - second.initial).sum(axis=-1)
        policy = random_alpha_policy(first, seed)
        priced = second.replace(bonus=H * joint + means, initial_bonus=initial)
        bound = policy_value(priced, policy) - policy_value(second, policy)
        difference = abs(policy_value(first, policy) - policy_value(second, policy))
        assert difference <= bound + 1e-12


def test_bad_bonuses_are_refused():
    with pytest.raises(ValueError, match="scale"):
        lm.Bonus(scale=-1.0)
    with pytest.raises(ValueError, match="failure_probability"):
        lm.Bonus(failure_probability=0.0)
    with pytest.raises(TypeError, match="bonus must be"):
        lm.LUCRL(bonus=0.1)
