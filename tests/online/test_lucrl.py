"""L-UCRL: its compiled loop against Algorithms 1 to 3 written out, and against the plain path."""

from dataclasses import dataclass

import numpy as np
import pytest
from box import Box
from small_worlds import PlainQMDP, small

import latentmdp as lm
from latentmdp._util.random import philox_key
from latentmdp.experiments.lucrl_runs import labelled_samples, unrelated_model
from latentmdp.online import Counts
from latentmdp.online.baselines import qmdp_on_truth
from latentmdp.testing import random_model
from latentmdp.worlds import Space, from_callable

PAPER = lm.Bonus(scale=1e-3, adaptive=False)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("contexts", ["revealed", "inferred"])
def test_a_run_is_the_box(seed, contexts):
    model = random_model(seed, contexts=3, states=4, actions=2, horizon=5)
    other = random_model(seed + 50, contexts=3, states=4, actions=2, horizon=5)
    start = None if contexts == "revealed" else other
    learner = lm.LUCRL(contexts=contexts, start=start, bonus=PAPER, smoothing=0.02)
    run = learner.run(model, 60, rng=seed)
    widths = PAPER.widths(Space.of(model), 60)
    assert widths.reach == model.horizon
    prior = None if start is None else (other, 10.0)
    box = Box(model, philox_key(seed), 0.02, widths.reach, widths.row, start=prior)
    revealed = contexts == "revealed"
    expected = [box.episode(k, revealed, uniform_start=not revealed) for k in range(60)]
    np.testing.assert_array_equal(run.returns, expected)
    for place in np.ndindex(3, 4, 2, 4):
        assert run.counts.transitions[place] == pytest.approx(box.next[place], abs=1e-9)
    for place in np.ndindex(3, 4, 2, 2):
        assert run.counts.rewards[place] == pytest.approx(box.paid[place], abs=1e-9)


def test_what_no_plan_knows_is_tried_once_an_episode():
    """Where nothing is known, every action that is allowed comes before any a second time."""
    allowed = np.array([[True, True, False, True]])
    T, means = np.ones((1, 1, 4, 1)) * allowed[..., None], np.full((1, 1, 4), 0.5)
    model = lm.LatentMDP(T, means, horizon=5, allowed=allowed)
    world = from_callable(
        lambda rng: (0, lambda action: (0, 1.0)),
        n_states=2,
        n_actions=4,
        horizon=5,
        reward_values=(0.0, 1.0),
        allowed=np.append(allowed, [[False] * 4], axis=0),
    )
    for where in (model, world):  # the compiled loop, and the plain one
        options = {"replan": "lazy", "contexts": "inferred", "n_contexts": 1}
        once = lm.LUCRL(**options, retry=False).run(where, 1, rng=0)
        assert once.counts.visits[0, 0].tolist() == [3.0, 1.0, 0.0, 1.0]
        again = lm.LUCRL(**options).run(where, 1, rng=0)
        assert again.counts.visits[0, 0].tolist() == [5.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"replan": "lazy"},
        {"bonus": None},
        {"contexts": "inferred", "start": "other"},
        {"contexts": "inferred", "start": "other", "weights": [0.2, 0.3, 0.5]},
        {"contexts": "inferred", "start": "other", "weights": "learned", "replan": 1.5},
        {"contexts": "inferred", "start": "other", "reward_model": "transition"},
    ],
    ids=str,
)
def test_any_planner_takes_the_same_steps(options):
    model = small()
    options = {k: unrelated_model(model, 7) if v == "other" else v for k, v in options.items()}
    options = {"bonus": lm.Bonus()} | options  # hidden rewards, the same in every path
    fast = lm.LUCRL(**options).run(model, 120, rng=1)
    slow = lm.LUCRL(planner=PlainQMDP(), **options).run(model, 120, rng=1)
    np.testing.assert_array_equal(fast.returns, slow.returns)
    np.testing.assert_array_equal(fast.counts.transitions, slow.counts.transitions)
    np.testing.assert_allclose(fast.policy.vectors, slow.policy.vectors, rtol=1e-12)
    assert fast.optimistic_value == pytest.approx(slow.optimistic_value, rel=1e-12)


def test_replanning_what_changed_is_replanning_everything():
    model = small(3)
    start = unrelated_model(model, 1)
    for contexts in ("revealed", "inferred"):
        runs = [
            lm.LUCRL(contexts=contexts, start=start, replan=mode).run(model, 150, rng=2)
            for mode in ("every", "changed")
        ]
        np.testing.assert_array_equal(runs[0].returns, runs[1].returns)
        np.testing.assert_array_equal(runs[0].policy.vectors, runs[1].policy.vectors)


def test_lazy_replanning_calls_the_planner_seldom():
    model, calls = small(), []

    class Counting:
        def plan(self, model):
            calls.append(1)
            return lm.QMDP().plan(model)

    lm.LUCRL(planner=Counting(), replan=1.2).run(model, 300, rng=0)
    assert len(calls) < 150


def test_inferred_contexts_are_the_posterior_of_the_smoothed_filter():
    """Algorithm 3's update is one step of online EM: counts grow by the posterior of the context
    under the current estimate, times the episode's own counts [cappe2009]."""
    model, other = small(2), unrelated_model(small(2), 3)
    options = {"contexts": "inferred", "start": other, "smoothing": 0.02}
    for known in (None, np.array([0.5, 0.3, 0.2])):
        learner = lm.LUCRL(**options, weights=known, reward_model="transition")
        run = learner.run(model, 1, rng=5)
        grown = run.counts.rewards - 10.0 * other.observation_probs()
        responsibility = grown.sum(axis=(1, 2, 3, 4)) / model.horizon
        episode = np.round(grown.sum(axis=0))  # how often each (s, a, s', r) occurred
        assert episode.sum() == model.horizon
        cells = model.n_states * model.n_rewards
        smoothed = 0.02 + (1 - 0.02 * cells) * other.observation_probs()
        log = (episode * np.log(smoothed)).sum(axis=(1, 2, 3, 4))
        if known is not None:  # then the first state counts too, by nu-hat and a pseudo-count
            first = np.argmax((run.counts.initial - 10.0 * other.initial).sum(axis=0))
            seen = 10.0 * other.initial[:, first] + 1.0
            log += np.log(known) + np.log(seen / (10.0 + model.n_states))
        expected = np.exp(log - log.max())
        np.testing.assert_allclose(responsibility, expected / expected.sum(), atol=1e-12)


def test_a_symmetric_start_never_splits_and_says_so():
    with pytest.warns(UserWarning, match="start alike"):
        run = lm.LUCRL(contexts="inferred").run(small(), 50, rng=0)
    assert np.ptp(run.counts.transitions, axis=0).max() < 1e-9
    np.testing.assert_allclose(run.beliefs, 1 / 3)


def test_rows_never_visited_are_zero_and_fully_rewarded():
    model = small()
    run = lm.LUCRL(bonus=PAPER).run(model, 3, rng=0)
    unvisited = run.counts.visits == 0.0
    assert unvisited.any()
    assert (run.model.transitions[unvisited] == 0.0).all()
    last = run.policy.vectors.reshape(6, 5, 2, 3)[-1].transpose(2, 0, 1)
    np.testing.assert_array_equal(last[unvisited], float(model.horizon))


def test_counts_add_up():
    model = small(4)
    start = labelled_samples(model, 3, 0)
    run = lm.LUCRL(contexts="inferred", start=start).run(model, 70, rng=0)
    assert run.counts.visits.sum() == pytest.approx(len(start) + 70 * model.horizon)
    assert run.counts.rewards.sum() == pytest.approx(len(start) + 70 * model.horizon)
    assert run.counts.episodes.sum() == pytest.approx(len(start) + 70)
    errors = lm.model_error(model, run.model)
    assert run.error_curve.values[-1] == pytest.approx(errors, rel=1e-9)


def test_starts_become_counts():
    model = small(5)
    space = Space.of(model)
    prior = Counts.start(model, space, 10.0, "state-action")
    np.testing.assert_allclose(prior.visits, 10.0)
    joint = Counts.start(model, space, 2.0, "transition")
    np.testing.assert_allclose(joint.rewards, 2.0 * model.observation_probs())
    logs = lm.simulate(model, lm.UniformPolicy(), 200, rng=0)
    seen = Counts.start(logs, space, 10.0, "state-action")
    expected = np.zeros_like(seen.transitions)
    for episode in logs:
        for t, a in enumerate(episode.actions):
            expected[episode.context, episode.states[t], a, episode.states[t + 1]] += 1
    np.testing.assert_array_equal(seen.transitions, expected)


def test_the_policy_of_a_run_acts_by_the_filter_of_the_run():
    model = small(6)
    run = lm.LUCRL().run(model, 400, rng=0)
    assert run.policy.smoothing == pytest.approx(0.01)
    assert lm.evaluate(model, run.policy, episodes=4_000, rng=1).mean > 0.9 * (
        lm.evaluate(model, lm.QMDP().plan(model).policy, episodes=4_000, rng=1).mean
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contexts": "told"}, "contexts must be one of"),
        ({"replan": 0.5}, "factor above 1"),
        ({"replan": "never"}, "replan must be one of"),
        ({"smoothing": 0.5}, "smoothing must lie in"),
        ({"prior_count": -1.0}, "prior_count must not be negative"),
        ({"weights": [0.5, 0.5]}, "weights must have shape"),
        ({"weights": "known"}, "weights must be one of"),
        ({"start": random_model(0, contexts=3, states=4)}, "start has n_states=4"),
        ({"n_contexts": 2}, "n_contexts=2"),
        ({"reward_model": "joint"}, "reward_model must be one of"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        lm.LUCRL(**options).run(small(), 5)


def test_bad_types_are_named():
    with pytest.raises(TypeError, match="planner must have plan"):
        lm.LUCRL(planner="qmdp")
    with pytest.raises(TypeError, match="start must be"):
        lm.LUCRL(start=3).run(small(), 5)
    with pytest.raises(TypeError, match="world must be"):
        lm.LUCRL().run("model", 5)
    logs = lm.simulate(small(), lm.UniformPolicy(), 2, rng=0).without_contexts()
    with pytest.raises(ValueError, match="logs must know their contexts"):
        lm.LUCRL(start=logs).run(small(), 5)


def test_it_learns():
    """Revealed contexts reach Q-MDP; the margin is many standard errors of both returns."""
    model = small(8, horizon=20)
    reference = lm.evaluate(model, lm.QMDP().plan(model).policy, episodes=20_000, rng=0).mean
    run = lm.LUCRL().run(model, 3_000, rng=0)
    assert run.trailing_return() > 0.9 * reference
    assert run.error_curve.values[-1] < 0.2 * run.error_curve.values[0]


def test_other_reward_values_and_discount():
    model = random_model(3, reward_values=(-1.0, 0.5, 2.0), discount=0.9, horizon=4)
    fast = lm.LUCRL(bonus=lm.Bonus()).run(model, 50, rng=0)
    slow = lm.LUCRL(planner=PlainQMDP(), bonus=lm.Bonus()).run(model, 50, rng=0)
    np.testing.assert_array_equal(fast.returns, slow.returns)
    logs_bound = 2.0 * (1 + 0.9 + 0.81 + 0.729)
    assert np.abs(fast.returns).max() <= logs_bound + 1e-12


def test_regret_grows_like_a_square_root():
    """Theorem 3.3: with revealed contexts the regret's exponent in K is at most 1/2, up to
    logarithms. Against Q-MDP on the truth, which plays through the same chance, so that most of
    the noise of returns cancels; ten times as many episodes, with sqrt(10) = 3.2."""
    growth = []
    for seed in range(4):
        model = small(20 + seed, horizon=10)
        bonus = lm.Bonus(scale=1e-3, adaptive=False)
        learned = lm.LUCRL(bonus=bonus).run(model, 30_000, rng=seed).returns
        known = qmdp_on_truth(model).run(model, 30_000, rng=seed).returns
        regret = np.cumsum(known - learned)
        growth.append(regret[-1] / regret[2_999])
    assert np.mean(growth) < 10**0.6


def test_a_fit_is_a_start():
    model = small()

    @dataclass(frozen=True)
    class Fit:
        model: lm.LatentMDP

    by_fit, by_model = (
        lm.LUCRL(contexts="inferred", start=start, prior_count=5.0).run(model, 30, rng=0)
        for start in (Fit(unrelated_model(model, 1)), unrelated_model(model, 1))
    )
    np.testing.assert_array_equal(by_fit.returns, by_model.returns)


def test_the_number_of_contexts_may_be_wrong_if_they_are_inferred():
    model = small()
    start = unrelated_model(small(contexts=2), 1)
    run = lm.LUCRL(contexts="inferred", start=start).run(model, 30, rng=0)
    assert run.model.n_contexts == 2
    assert np.isnan(run.error_curve.values).all()
