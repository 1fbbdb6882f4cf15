"""Importance sampling from logs, against exact values and counts made by hand."""

import warnings

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp.estimation import cut_short
from latentmdp.fit import logged_behaviour
from latentmdp.offline import Interval, LoggedEstimate, OffPolicyWarning
from latentmdp.offline.off_policy import logged_estimate
from latentmdp.testing import oracles


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_importance_sampling_is_right_where_the_logs_reach(seed: int, discount: float) -> None:
    """Within 5 standard errors of the exact value: a false alarm in 6e-7 of such tests."""
    model = random_model(seed, horizon=3, discount=discount)
    policy = random_alpha_policy(model, seed + 1)
    logs = lm.simulate(model, lm.UniformPolicy(), 20_000, rng=seed).without_contexts()
    uniform = np.full((3, 2), 0.5)
    found = logged_estimate(logs, policy, model, uniform, np.random.default_rng(seed))
    exact = lm.evaluate(model, policy, method="exact").mean
    assert found.steps == 3
    assert abs(found.mean - exact) < 5 * found.stderr
    np.testing.assert_allclose(found.effective_size, 20_000 / 2.0 ** np.arange(1, 4), rtol=0.1)


def test_the_standard_error_is_that_of_the_estimate() -> None:
    """Over 60 logs the spread of the estimates is the mean standard error within a factor 1.5.

    The standard deviation of 60 normal numbers has a relative error of 9 %, so a false alarm is
    one of more than 3.5 standard errors: less than one in 2,000.
    """
    model = random_model(3, horizon=2)
    policy = random_alpha_policy(model, 4)
    uniform = np.full((3, 2), 0.5)
    found = [
        logged_estimate(
            lm.simulate(model, lm.UniformPolicy(), 400, rng=seed),
            policy,
            model,
            uniform,
            np.random.default_rng(seed),
        )
        for seed in range(60)
    ]
    spread = np.std([estimate.mean for estimate in found], ddof=1)
    stderr = np.mean([estimate.stderr for estimate in found])
    assert 1 / 1.5 < spread / stderr < 1.5


def test_episodes_that_agree_are_counted_by_hand() -> None:
    """40 episodes of each sequence of two actions; the policy takes action 1, then action 0."""
    pairs = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], 40, axis=0)
    rewards = np.arange(160)[:, None] // 40 * [1, 0] + [0, 1]
    logs = lm.Trajectories.from_arrays(
        np.zeros((160, 3), np.int64), pairs, rewards, reward_values=[0.0, 1.0, 2.0, 3.0]
    )
    T, R = np.ones((1, 1, 2, 1)), np.full((1, 1, 2, 4), 0.25)
    model = lm.LatentMDP(T, R, horizon=2, reward_values=[0.0, 1.0, 2.0, 3.0], discount=0.5)
    policy = lm.MarkovPolicy([[1], [0]])
    behaviour = logged_behaviour(logs)
    np.testing.assert_array_equal(behaviour, [[0.5, 0.5]])
    found = logged_estimate(logs, policy, model, behaviour, np.random.default_rng(0))
    assert (found.steps, found.mean) == (2, pytest.approx(2.5 + 0.5 * 1.0))
    np.testing.assert_allclose(found.effective_size, [80.0, 40.0])


def test_episodes_with_counts_are_as_many_episodes() -> None:
    model = random_model(0, horizon=2)
    logs = lm.simulate(model, lm.UniformPolicy(), 2_000, rng=0).without_contexts()
    policy, uniform = random_alpha_policy(model, 1), np.full((3, 2), 0.5)
    whole, merged = (
        logged_estimate(part, policy, model, uniform, np.random.default_rng(0))
        for part in (logs, logs.deduplicate())
    )
    assert merged.mean == pytest.approx(whole.mean, rel=1e-12)
    assert merged.stderr == pytest.approx(whole.stderr, rel=0.3)
    np.testing.assert_allclose(merged.effective_size, whole.effective_size)


def test_logs_that_never_agree_say_nothing() -> None:
    model = random_model(0, horizon=3)
    logs = lm.simulate(model, lm.MarkovPolicy([0, 0, 0]), 100, rng=0)
    never = lm.MarkovPolicy([1, 1, 1])
    behaviour = logged_behaviour(logs)
    found = logged_estimate(logs, never, model, behaviour, np.random.default_rng(0))
    assert found.steps == 0
    assert np.isnan(found.mean)
    np.testing.assert_array_equal(behaviour, [[1.0, 0.0]] * 3)


def test_estimates_are_equal_by_content_and_short_to_read() -> None:
    one = LoggedEstimate(0.5, 0.125, 2, np.array([80.0, 40.0]))
    assert one == LoggedEstimate(0.5, 0.125, 2, np.array([80.0, 40.0]))
    assert one != LoggedEstimate(0.5, 0.125, 2, np.array([80.0, 41.0]))
    none = LoggedEstimate(float("nan"), float("inf"), 0, np.zeros(0))
    assert none == LoggedEstimate(float("nan"), float("inf"), 0, np.zeros(0))
    assert one != none
    assert repr(one) == "LoggedEstimate(0.5 ± 0.12 over 2 steps)"
    assert str(Interval(1.0, 0.5, 2.0)) == "1 [0.5, 2]"


def exact_logs(model: lm.LatentMDP, behaviour: np.ndarray) -> lm.Trajectories:
    """Every episode there can be, as often as its probability times a power of two says.

    The mean over these logs is the expectation over the law of logs. All probabilities, and those
    of the actions, behaviour (M, S, A), must be multiples of 1/4.
    """
    P, found = model.observation_probs(), {}
    open_ = {((s,), (), ()): model.weights * model.initial[:, s] for s in range(model.n_states)}
    for _ in range(model.horizon):
        longer = {}
        for (states, actions, rewards), mass in open_.items():
            s = states[-1]
            if model.terminal[s]:
                found[states, actions, rewards] = mass
                continue
            for a, n, z in np.ndindex(*P.shape[2:]):
                after = mass * behaviour[:, s, a] * P[:, s, a, n, z]
                if after.any():
                    longer[(*states, n), (*actions, a), (*rewards, z)] = after
        open_ = longer
    found |= open_
    columns = [[list(key[k]) for key, mass in found.items() if mass.any()] for k in range(3)]
    counts = np.array([mass.sum() for mass in found.values() if mass.any()]) * 4.0**8
    assert (counts == np.rint(counts)).all()
    sizes = {"n_states": model.n_states, "n_actions": model.n_actions}
    logs = lm.Trajectories.from_lists(*columns, **sizes, reward_values=model.reward_values)
    flat = (logs.states, logs.actions, logs.rewards, logs.offsets, None, counts.astype(int))
    return lm.Trajectories(*flat, **sizes, reward_values=model.reward_values)


def quarters(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random distributions over the last axis, in multiples of 1/4."""
    return rng.multinomial(4, np.full(shape[-1], 1 / shape[-1]), size=shape[:-1]) / 4.0


def quarter_model(seed: int, ends: bool = False) -> lm.LatentMDP:
    """Two contexts, costs, a discount; with `ends`, the last state is terminal."""
    rng, S = np.random.default_rng(seed), 3 if ends else 2
    allowed = np.ones((S, 2), bool)
    allowed[-1] = not ends
    return lm.LatentMDP(
        quarters(rng, 2, S, 2, S),
        quarters(rng, 2, S, 2, 2),
        initial=np.repeat([[0.5, 0.5, 0.0][:S]], 2, axis=0),
        weights=[0.25, 0.75],
        horizon=2,
        discount=0.5 if seed % 2 else 1.0,
        reward_values=[-1.0, 2.0],
        allowed=allowed,
    )


POLICIES = {
    "Markov": lambda model: lm.MarkovPolicy(
        [[[0.3, 0.7], [0.6, 0.4], [1, 0]][: model.n_states]] * 2
    ),
    "alpha vectors": lambda model: lm.QMDP().plan(model).policy,
    "function": lambda model: lambda history: [0.3, 0.7] if sum(history.rewards) % 2 else 1,
}
WAYS = [(m, w) for m in ("importance", "per-decision", "doubly-robust") for w in (False, True)]
KNOWN = np.broadcast_to(np.array([[0.25, 0.75], [0.5, 0.5], [0.5, 0.5]]), (2, 3, 2))
BY_CONTEXT = np.array([[[0.25, 0.75], [0.5, 0.5]], [[0.75, 0.25], [0.25, 0.75]]])


@pytest.mark.filterwarnings("ignore::latentmdp.offline.OffPolicyWarning")
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(("seed", "ends"), [(0, False), (1, False), (3, True)])
def test_the_expectation_over_all_logs_is_the_value(seed: int, ends: bool, name: str) -> None:
    """Exactly, for every method, and for a doubly robust one whatever its model says."""
    model = quarter_model(seed, ends)
    S = model.n_states
    policy, logs = POLICIES[name](model), exact_logs(model, KNOWN[:, :S])
    value = oracles.policy_value(model, policy)
    wrong = quarter_model(seed + 10, ends).replace(discount=model.discount)
    for method, weighted in WAYS:
        for start in (model, wrong) if method == "doubly-robust" else (model,):
            found = lm.off_policy_value(
                logs, policy, KNOWN[0, :S], method, start, weighted=weighted
            )
            assert found.mean == pytest.approx(value, abs=1e-9)
            assert found.low <= found.mean <= found.high
            assert (found.method, found.weighted) == (method, weighted)


@pytest.mark.filterwarnings("ignore::latentmdp.offline.OffPolicyWarning")
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", range(2))
def test_a_logger_that_knew_the_context(seed: int, name: str) -> None:
    """Exact by context, where the pooled probabilities are wrong."""
    model = quarter_model(seed)
    policy, logs = POLICIES[name](model), exact_logs(model, BY_CONTEXT)
    value = oracles.policy_value(model, policy)
    for method, weighted in WAYS:
        found = lm.off_policy_value(logs, policy, BY_CONTEXT, method, model, weighted=weighted)
        assert found.mean == pytest.approx(value, abs=1e-9)
        assert found.behaviour == "by context"
    pooled = lm.off_policy_value(logs, policy, None, "per-decision", model)
    assert abs(pooled.mean - value) > 0.02
    assert "depend on more than the state" in pooled.warnings[0]


def test_the_right_model_needs_no_right_behaviour() -> None:
    """Doubly robust: with the true model's values the ratios may be wrong.

    For a Markov policy those values are exact; per decision the same ratios are off."""
    model = quarter_model(1)
    logs, policy = exact_logs(model, KNOWN[:, :2]), POLICIES["Markov"](model)
    value, wrong = oracles.policy_value(model, policy), [[0.6, 0.4], [0.3, 0.7]]
    found = lm.off_policy_value(logs, policy, wrong, model=model, weighted=False)
    assert found.mean == pytest.approx(value, abs=1e-9)
    other = lm.off_policy_value(logs, policy, wrong, "per-decision", model, weighted=False)
    assert abs(other.mean - value) > 0.1


@pytest.mark.parametrize(
    ("method", "behaviour"), [("per-decision", "given"), ("doubly-robust", "estimated")]
)
def test_intervals_cover(method: str, behaviour: str) -> None:
    """90 % intervals of 40 logs: 29 or fewer of 40 would be a false alarm of one in 500."""
    model = random_model(3, horizon=3)
    policy = random_alpha_policy(model, 4)
    rows = np.array([[0.3, 0.7], [0.5, 0.5], [0.8, 0.2]])
    value, inside = lm.evaluate(model, policy, method="exact").mean, 0
    for seed in range(40):
        logs = lm.simulate(model, lm.MarkovPolicy(rows), 300, rng=seed).without_contexts()
        given = rows if behaviour == "given" else None
        found = lm.off_policy_value(logs, policy, given, method, rng=seed, confidence=0.9)
        inside += found.low <= value <= found.high
        assert found.behaviour == behaviour
    assert inside > 29


def test_a_policy_may_be_the_logger() -> None:
    """The logger's own policy has ratios of one: the estimate is the mean return."""
    model = random_model(0, horizon=3)
    logger = random_alpha_policy(model, 1)
    logs = lm.simulate(model, logger, 500, rng=0).without_contexts()
    for method in ("importance", "per-decision"):
        found = lm.off_policy_value(logs, logger, logger, method)
        assert found.mean == pytest.approx(logs.returns().mean())
        np.testing.assert_allclose(found.effective_size, 500.0)
    spread = logs.returns().std(ddof=1) / np.sqrt(500)
    assert found.stderr == pytest.approx(spread, rel=1e-6)
    with pytest.raises(ValueError, match="episode 0, step 0"):
        lm.off_policy_value(logs, logger, lm.MarkovPolicy(1 - logs.actions[[0, 0, 0]]), model=model)


def test_without_a_model_one_is_fitted_to_the_other_half() -> None:
    """Within 5 standard errors, and tighter than without values to start from."""
    model = random_model(7, contexts=2, horizon=4)
    policy = lm.MarkovPolicy([[0.9, 0.1]] * 3)
    logs = lm.simulate(model, lm.UniformPolicy(), 2_000, rng=0).without_contexts()
    value = lm.evaluate(model, policy).mean
    uniform = np.full((3, 2), 0.5)
    robust, plain = (
        lm.off_policy_value(logs, policy, uniform, method)
        for method in ("doubly-robust", "per-decision")
    )
    for found in (robust, plain):
        assert abs(found.mean - value) < 5 * found.stderr
        assert not found.warnings
    assert robust.stderr < plain.stderr
    assert robust == lm.off_policy_value(logs, policy, uniform)


def test_episodes_without_end_say_what_lies_beyond_the_logs() -> None:
    model = random_model(2, horizon=None, discount=0.8)
    policy = lm.MarkovPolicy([[0.7, 0.3]] * 3)
    cut = lm.simulate(model.replace(horizon=6), lm.UniformPolicy(), 4_000, rng=0)
    uniform = np.full((3, 2), 0.5)
    with pytest.warns(OffPolicyWarning, match="the logs end after 6 steps"):
        plain = lm.off_policy_value(cut, policy, uniform, "per-decision", model)
    assert plain.truncation == pytest.approx(0.8**6 / 0.2)
    value = lm.evaluate(model, policy).mean
    assert plain.mean < value < plain.mean + plain.truncation
    robust = lm.off_policy_value(cut, policy, uniform, model=model)
    assert abs(robust.mean - value) < 5 * robust.stderr  # the true model speaks of the rest
    assert robust.truncation < 1e-3


def test_episodes_cut_short_lose_nothing_but_weight() -> None:
    """Cut by chance, each step is estimated from the episodes that reach it."""
    model = random_model(4, horizon=3)
    policy = random_alpha_policy(model, 5)
    logs = lm.simulate(model, lm.UniformPolicy(), 30_000, rng=0).without_contexts()
    lengths = np.random.default_rng(0).integers(1, 4, len(logs))
    value = lm.evaluate(model, policy, method="exact").mean
    for method, weighted in WAYS:
        found = lm.off_policy_value(
            cut_short(logs, lengths), policy, np.full((3, 2), 0.5), method, weighted=weighted
        )
        assert abs(found.mean - value) < 5 * found.stderr


@pytest.mark.parametrize("method", ["doubly-robust", "per-decision", "importance"])
@pytest.mark.filterwarnings("ignore")
def test_a_table_without_next_states(method: str) -> None:
    """The last state of whole episodes says nothing; of others, the last step is not valued."""
    model = random_model(3, horizon=4)
    policy = random_alpha_policy(model, 4)

    def estimate(logs: lm.Trajectories) -> lm.offline.OffPolicyValue:
        behaviour = np.full((model.n_states, model.n_actions), 1.0 / model.n_actions)
        return lm.off_policy_value(logs, policy, behaviour, model=model, method=method, rng=0)

    for horizon in (4, 3):
        logs = lm.simulate(model, lm.UniformPolicy(), 300, rng=0, horizon=horizon)
        columns = logs.without_contexts().to_table()
        del columns["next_state"]
        unknown = lm.Trajectories.from_table(
            columns, n_states=model.n_states, reward_values=model.reward_values
        )
        assert unknown.missing == lm.logs.MissingCells(ends=300)
        if horizon == 3 and method == "doubly-robust":
            logs = cut_short(logs, np.full(300, 2))
        assert estimate(unknown).mean == pytest.approx(estimate(logs).mean, rel=1e-12)


def test_solve_checks_a_table_without_next_states_against_its_logs() -> None:
    model = random_model(3, horizon=4)
    columns = lm.simulate(model, lm.UniformPolicy(), 300, rng=0).without_contexts().to_table()
    del columns["next_state"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solved = lm.solve(lm.Trajectories.from_table(columns), 1, bootstrap=2, rng=0)
    assert not any("no logged episode agrees" in message for message in solved.warnings)


def test_too_little_agreement_is_said() -> None:
    model = random_model(0, horizon=3)
    logs = lm.simulate(model, lm.MarkovPolicy([0, 0, 0]), 100, rng=0)
    never = lm.MarkovPolicy([1, 1, 1])
    rows = np.full((3, 2), 0.5)
    with pytest.warns(OffPolicyWarning, match="no logged episode agrees"):
        found = lm.off_policy_value(logs, never, rows, "per-decision", model)
    assert np.isnan(found.mean)
    assert (found.low, found.high, found.steps) == (0.0, 3.0, 0)
    few = lm.simulate(model, lm.UniformPolicy(), 40, rng=0)
    with pytest.warns(OffPolicyWarning, match="effective size is"):
        found = lm.off_policy_value(few, random_alpha_policy(model, 1), rows)
    assert len(repr(found)) < 150
    facts = found.facts()
    assert (facts["method"], facts["weighted"]) == ("doubly-robust", True)
    assert "per episode" in found._repr_html_()


def test_bad_requests() -> None:
    model = random_model(0, horizon=3)
    logs = lm.simulate(model, lm.UniformPolicy(), 50, rng=0)
    policy = lm.MarkovPolicy([0, 1, 0])
    with pytest.raises(ValueError, match="method must be"):
        lm.off_policy_value(logs, policy, method="magic")
    with pytest.raises(ValueError, match="confidence must lie"):
        lm.off_policy_value(logs, policy, confidence=1.0)
    with pytest.raises(TypeError, match="policy must be a Policy"):
        lm.off_policy_value(logs, [0, 1, 0])
    with pytest.raises(ValueError, match="by context needs model="):
        lm.off_policy_value(logs, policy, np.full((2, 3, 2), 0.5))
    with pytest.raises(ValueError, match="behaviour must have shape"):
        lm.off_policy_value(logs, policy, np.full((3, 3), 1 / 3))
    with pytest.raises(ValueError, match="two episodes"):
        lm.off_policy_value(logs[:1], policy)


def test_the_lower_bound_holds_and_says_something() -> None:
    """Two arms that pay -1 or 1, in which uniform actions are logged: V = 0.4 of the better arm.

    At 90 % it may fail in 10 of 100 logs; 20 or more would be seen once in 700 times, and the
    bound of Bernstein fails far less often. With 4,000 pulls it is within 0.15 of the value.
    """
    rewards = np.array([[[[0.7, 0.3], [0.3, 0.7]]]])
    model = lm.LatentMDP(np.ones((1, 1, 2, 1)), rewards, horizon=1, reward_values=[-1.0, 1.0])
    better, uniform = lm.MarkovPolicy(np.array([[0.0, 1.0]])), np.array([[0.5, 0.5]])
    few, failed = [], 0
    for seed in range(100):
        logs = lm.simulate(model, lm.UniformPolicy(), 60, rng=seed).without_contexts()
        found = lm.off_policy_value(logs, better, uniform, model=model, confidence=0.9, rng=seed)
        failed += found.lower > 0.4
        few.append(found.lower)
    assert failed < 20
    assert min(few) >= -1.0
    logs = lm.simulate(model, lm.UniformPolicy(), 4_000, rng=0).without_contexts()
    found = lm.off_policy_value(logs, better, uniform, model=model, confidence=0.9)
    assert 0.25 < found.lower < found.low
    assert np.mean(few) < found.lower


@pytest.mark.parametrize("seed", range(3))
def test_fitted_q_with_one_context_is_the_model_counted_by_time(seed: int) -> None:
    """Up to one observation of the mean, backward induction over frequencies of each step."""
    model = random_model(seed, contexts=1, horizon=3, discount=0.9)
    chances = np.random.default_rng(seed).dirichlet([1.0, 1.0], 3)
    policy = lm.MarkovPolicy(chances)
    logs = lm.simulate(model, lm.UniformPolicy(), 20_000, rng=seed).without_contexts()
    found = lm.off_policy_value(logs, policy, method="fitted-q", model=model)
    states, actions, rewards = logs.as_arrays()
    value = np.zeros(3)
    for t in (2, 1, 0):
        target = model.reward_values[rewards[:, t]] + 0.9 * value[states[:, t + 1]]
        at = [[(states[:, t] == s) & (actions[:, t] == a) for a in range(2)] for s in range(3)]
        Q = np.array([[target[here].mean() for here in row] for row in at])
        value = (chances * Q).sum(axis=1)
    assert found.mean == pytest.approx(value[states[:, 0]].mean(), abs=2e-3)
    exact = lm.evaluate(model, policy).mean
    assert abs(found.mean - exact) < 5 * found.stderr


@pytest.mark.parametrize("seed", range(3))
def test_fitted_q_follows_a_policy_with_a_memory(seed: int) -> None:
    """Q is linear in the belief only nearly: within 5 standard errors and a hundredth."""
    model = random_model(seed, horizon=4)
    policy = random_alpha_policy(model, seed + 1)
    logs = lm.simulate(model, lm.UniformPolicy(), 5_000, rng=seed).without_contexts()
    found = lm.off_policy_value(logs, policy, method="fitted-q")
    exact = lm.evaluate(model, policy, method="exact").mean
    assert abs(found.mean - exact) < 5 * found.stderr + 0.01 * abs(exact)
    importance = lm.off_policy_value(logs, policy, method="per-decision")
    assert found.stderr < importance.stderr  # ratios of one step, not of the whole past


def test_fitted_q_refuses_a_logger_that_knew_the_context() -> None:
    model = random_model(0, horizon=3)
    logs = lm.simulate(model, lm.UniformPolicy(), 50, rng=0).without_contexts()
    rows = np.full((model.n_contexts, model.n_states, model.n_actions), 0.5)
    with pytest.raises(ValueError, match="no logger that knew the context"):
        lm.off_policy_value(logs, lm.UniformPolicy(), rows, "fitted-q", model)


@pytest.mark.parametrize("method", ["per-decision", "importance", "doubly-robust", "fitted-q"])
def test_logged_actions_that_the_policys_model_lacks(method) -> None:
    """As where every action is allowed and the policy does not take it: its ratios are 0 there."""
    model = random_model(3, contexts=1, states=3, actions=2, horizon=3)
    logs = lm.simulate(model, lm.UniformPolicy(), 400, rng=0).without_contexts()
    allowed = np.array([[True, False], [True, True], [True, True]])
    known = np.full((3, 2), 0.5)
    policy, fewer = lm.MarkovPolicy([0, 1, 0]), model.replace(allowed=allowed)
    found = lm.off_policy_value(logs, policy, known, method, model=fewer)
    same = lm.off_policy_value(logs, policy, known, method, model=model)
    close = 1e-12 if method in ("per-decision", "importance") else 4 * same.stderr
    assert found.mean == pytest.approx(same.mean, abs=close)
