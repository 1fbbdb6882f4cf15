"""Checks of a fit: silent where the model is right, and each one heard where its world is wrong."""

import warnings

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.estimation import cut_short
from latentmdp.offline.checks import _Past, _scores, _Setting, _state_values

UNIFORM = np.full((2, 2), 0.5)


def model_of(rng, contexts=2, states=2, actions=2, horizon=5):
    T = rng.dirichlet(np.ones(states), (contexts, states, actions))
    return lm.LatentMDP(T, rng.random((contexts, states, actions)), horizon=horizon)


def failures(logs, model, **settings):
    return {check.name for check in lm.check_fit(logs, model, **settings).failed}


def test_residuals_are_those_of_a_filter_written_by_hand() -> None:
    """E[f | h] and its variance, from the joint probabilities of whole histories."""
    rng = np.random.default_rng(0)
    model = model_of(rng, horizon=3)
    logs = lm.simulate(model, lm.UniformPolicy(), 6, rng=0).without_contexts()
    knowing = rng.dirichlet(np.ones(2), (2, 2))  # the logger's actions are evidence
    setting = _Setting.of(logs, model, knowing, None, model.terminal)
    acting, seeing, after = setting._beliefs(logs, _Past.of(logs))
    outcome = setting._outcomes(logs.steps(), seeing, np.ones(logs.n_steps))
    joint, k = model.observation_probs(), 0
    for states, actions, rewards, _ in logs:
        weights = model.weights * model.initial[:, states[0]]
        for t, a in enumerate(actions):
            s, s2, z = states[t], states[t + 1], rewards[t]
            assert acting[k] == pytest.approx(weights / weights.sum())
            weights = weights * knowing[:, s, a]
            belief = weights / weights.sum()
            assert seeing[k] == pytest.approx(belief)
            for f in range(len(outcome.names)):
                # f = [s' = 0], [s' = 1], the value of s', r, r [s' = 0], r [s' = 1]
                table = np.zeros((2, 2))
                for n in range(2):
                    for r in range(2):
                        value = setting.values[n]
                        table[n, r] = [n == 0, n == 1, value, r, r * (n == 0), r * (n == 1)][f]
                chances = np.einsum("m,mnz->nz", belief, joint[:, s, a].reshape(2, 2, 2))
                mean = (chances * table).sum()
                assert outcome.values[k, f] == table[s2, z]
                assert outcome.expected[k, f] == pytest.approx(mean)
                assert outcome.variance[k, f] == pytest.approx((chances * table**2).sum() - mean**2)
            weights = weights * joint[:, s, a].reshape(2, 2, 2)[:, s2, z]
            assert after[k] == pytest.approx(weights / weights.sum())
            k += 1


def test_every_statistic_has_mean_0_and_variance_1_in_the_model_itself() -> None:
    """Of 200 logs, for every covariate, group and f.

    A mean of 200 is beyond 4.5 standard errors once in 150,000, and so is a variance beyond 1 ±
    4.5 sqrt(2 / 200); some 300 statistics are looked at: a false alarm in 1 of 250 seeds.
    """
    rng = np.random.default_rng(1)
    model = model_of(rng)
    every = lm.simulate(model, lm.UniformPolicy(), 200 * 150, rng=1).without_contexts()
    parts = [every[150 * k : 150 * (k + 1)] for k in range(200)]
    setting = _Setting.of(every, model, UNIFORM, None, model.terminal)
    z = []
    for logs in parts:
        z.append(
            np.concatenate(
                [
                    _scores(question.target, covariate).ravel()
                    for question in setting._questions(logs)
                    for covariate in question.covariates
                ]
            )
        )
    z = np.array(z)
    z = z[:, np.isfinite(z).all(axis=0)]
    assert z.shape[1] > 150
    assert np.abs(z.mean(axis=0)).max() < 4.5 / np.sqrt(200)
    assert np.abs(z.var(axis=0) - 1.0).max() < 4.5 * np.sqrt(2 / 200) * 1.5  # tails are not normal


def test_values_of_states_are_what_the_logger_earns_from_them() -> None:
    """By matrix powers: the mean over t of sum_{k < H - t} P^k r, contexts by weight."""
    model, H = model_of(np.random.default_rng(9)), 4
    rows = np.random.default_rng(8).dirichlet(np.ones(2), (2, 2))
    by_context = []
    for m in range(2):
        P = np.einsum("sa,san->sn", rows[m], model.transitions[m])
        r = np.einsum("sa,sa->s", rows[m], model.mean_rewards()[m])
        ahead = [np.linalg.matrix_power(P, k) @ r for k in range(H)]
        by_context.append(np.mean(np.cumsum(ahead, axis=0), axis=0))
    assert _state_values(model, rows, H) == pytest.approx(model.weights @ np.array(by_context))


def test_false_alarms_are_as_rare_as_stated() -> None:
    """In the model itself a check fails with probability 0.1: of 30, 9 or more once in 500."""
    rng = np.random.default_rng(2)
    alarms = 0
    for seed in range(30):
        model = model_of(rng, horizon=4)
        logs = lm.simulate(model, lm.UniformPolicy(), 80, rng=seed).without_contexts()
        logs = cut_short(logs, rng.integers(1, 5, 80))
        alarms += bool(failures(logs, model, level=0.1, replicates=19))
    assert alarms < 9


def moving(seed, effect, episodes=600, steps=8, leave=None, logger=None):
    """One of two states, better with probability .5 + effect(what came before)."""
    rng = np.random.default_rng(seed)
    frail = rng.random(episodes) < 0.5
    states, actions = np.zeros((episodes, steps + 1), int), np.zeros((episodes, steps), int)
    lengths = np.full(episodes, steps)
    states[:, 0] = rng.integers(0, 2, episodes)
    for t in range(steps):
        actions[:, t] = rng.random(episodes) < 0.5
        if logger is not None:
            actions[:, t] = rng.random(episodes) < logger(states, actions, t)
        better = 0.5 + effect(states, actions, t, frail)
        states[:, t + 1] = rng.random(episodes) < better
        if leave is not None:
            gone = rng.random(episodes) < leave(frail)
            lengths = np.where(gone, np.minimum(lengths, t + 1), lengths)
    rewards = states[:, :-1]
    logs = lm.Trajectories.from_arrays(states, actions, rewards, reward_values=[0.0, 1.0])
    return cut_short(logs, lengths)


def nothing(states, actions, t, frail):
    return 0.0


def repeats(states, actions, t, frail):
    return 0.0 if t == 0 else np.where(actions[:, t] == actions[:, t - 1], -0.2, 0.2)


def remembers(states, actions, t, frail):
    return 0.0 if t == 0 else 0.4 * (states[:, t - 1] - 0.5)


def doses(states, actions, t, frail):
    return 0.2 - 0.08 * actions[:, :t].sum(axis=1)


def fades(states, actions, t, frail):
    return 0.3 * (actions[:, t] - 0.5) * (1.0 if t < 4 else -1.0)


def differs(states, actions, t, frail):
    return np.where(frail, -0.2, 0.2)


def regimes(states, actions, t, frail):
    """What helps is drawn anew with probability .2 a step; `frail` is which of the two it is."""
    drawn = np.random.default_rng(t).random(frail.size) < 0.2
    frail[drawn] = ~frail[drawn]
    return np.where(actions[:, t] == frail, 0.4, -0.4)


@pytest.mark.parametrize(
    ("effect", "name"),
    [
        (regimes, "the last step"),
        (repeats, "the previous action"),
        (repeats, "the time since the action"),
        (remembers, "the previous state"),
        (doses, "how often the action was taken"),
        (fades, "the time within the episode"),
        (differs, "heterogeneity"),
    ],
)
def test_what_the_model_leaves_out_is_found_and_said(effect, name) -> None:
    logs = moving(0, effect)
    fit = lm.EM(1).fit(logs, rng=0)
    found = lm.check_fit(logs, fit)
    (check,) = (check for check in found if check.name == name)
    assert check.failed
    assert abs(check.statistic) > 4.0
    assert check.p_value <= 0.05
    assert check.verdict in found.warnings()[0] or check.advice in " ".join(found.warnings())
    assert not failures(moving(0, nothing), lm.EM(1).fit(moving(0, nothing), rng=0))


@pytest.mark.parametrize(("effect", "remedy"), [(repeats, (1, 0)), (remembers, (0, 1))])
def test_the_remedy_that_is_advised_is_one(effect, remedy) -> None:
    logs = moving(0, effect).with_history(*remedy)
    assert not failures(logs, lm.EM(1).fit(logs, rng=0))


def test_two_contexts_are_enough_where_individuals_are_of_two_kinds() -> None:
    logs = moving(3, differs)
    assert failures(logs, lm.EM(1).fit(logs, rng=0))
    assert not failures(logs, lm.EM(2).fit(logs, rng=0))


def test_leaving_that_tells_of_the_context_is_found() -> None:
    logs = moving(4, differs, leave=lambda frail: np.where(frail, 0.3, 0.03))
    by_chance = moving(4, differs, leave=lambda frail: np.full(frail.size, 0.15))
    assert "leaving" in failures(logs, lm.EM(2).fit(logs, rng=0))
    assert not failures(by_chance, lm.EM(2).fit(by_chance, rng=0))


def test_a_logger_that_looks_back_is_found() -> None:
    def logger(states, actions, t):
        return np.full(len(states), 0.5) if t == 0 else np.where(states[:, t - 1] == 1, 0.8, 0.2)

    logs = moving(5, nothing, logger=logger)
    found = failures(logs, lm.EM(1).fit(logs, rng=0))
    assert "logger: the previous state" in found
    assert not {name for name in found if not name.startswith("logger")}


def test_known_contexts_may_be_more_than_the_model_has() -> None:
    logs = moving(10, nothing, episodes=60)
    labelled = logs.with_contexts(np.arange(60) % 5)
    model = lm.EM(1).fit(logs, rng=0).model
    assert lm.check_fit(labelled, model, 3) == lm.check_fit(logs, model, 3)


def test_merged_episodes_count_as_often_as_they_occurred() -> None:
    logs = moving(6, repeats, steps=4)
    fit = lm.EM(1).fit(logs, rng=0)
    one = lm.check_fit(logs, fit)
    other = lm.check_fit(logs.deduplicate(), fit)
    statistics = [{c.name: c.statistic for c in checks} for checks in (one, other)]
    del statistics[0]["the order of individuals"]  # there is none where alike ones are merged
    assert statistics[0] == pytest.approx(statistics[1])


def test_individuals_that_drift_or_stand_in_clusters_are_found_and_shuffled_ones_are_not() -> None:
    year = np.arange(600) / 600
    ward = np.repeat(np.random.default_rng(3).normal(0.0, 0.2, 30), 20)

    def drifts(states, actions, t, frail):
        return 0.8 * (year - 0.5) * (actions[:, t] - 0.5)

    def wards(states, actions, t, frail):
        return ward * (2 * actions[:, t] - 1)

    for effect in (drifts, wards):
        logs = moving(0, effect)
        shuffled = logs[np.random.default_rng(0).permutation(len(logs))]
        assert "the order of individuals" in failures(logs, lm.EM(1).fit(logs, rng=0))
        assert "the order of individuals" not in failures(shuffled, lm.EM(1).fit(shuffled, rng=0))


def test_solve_warns_and_does_not_support_its_value(tmp_path) -> None:
    logs = moving(7, repeats)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solved = lm.solve(logs, 1, rng=0, bootstrap=2)
    assert not solved.supported
    assert solved.checks is not None
    assert solved.warnings[: len(solved.checks.failed)] == solved.checks.warnings()
    assert "not supported" in repr(solved)
    assert "not supported" in solved.facts()["value"].text
    lm.save(solved, tmp_path / "solved.npz")
    assert lm.load(tmp_path / "solved.npz") == solved


def test_missing_cells_are_left_out() -> None:
    logs = moving(8, repeats)
    fields = logs.to_fields()
    rng = np.random.default_rng(0)
    fields["rewards"] = np.where(rng.random(logs.n_steps) < 0.2, -1, logs.rewards)
    fields["states"] = logs.states.copy()
    fields["states"][logs.offsets[1:] + np.arange(len(logs))] = -1
    gaps = lm.Trajectories.from_fields(fields)
    assert "the previous action" in failures(gaps, lm.EM(1).fit(gaps, rng=0))


def test_bad_arguments_are_refused() -> None:
    logs = moving(9, nothing, episodes=10)
    model = model_of(np.random.default_rng(0))
    with pytest.raises(TypeError):
        lm.check_fit(logs, "a model")
    with pytest.raises(TypeError):
        lm.check_fit("logs", model)
    with pytest.raises(ValueError, match="level"):
        lm.check_fit(logs, model, level=2.0)
    with pytest.raises(ValueError, match="reward_values"):
        lm.check_fit(logs, model.replace(reward_values=[0.0, 2.0]))
