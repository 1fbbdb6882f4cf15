"""The optimism bias, where it is known: a world of one state and two actions with fixed odds.

Actions 0 and 1 pay 1 with probability p_0 and p_1. What the logs show of them are the frequencies
f_a of n_a pulls, the policy takes the action with the larger frequency, and per step its value in
the fitted model exceeds the true one by max_a f_a - p_argmax. Its expectation is a sum over all
outcomes of binomial draws.
"""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

import latentmdp as lm
from latentmdp.estimation.termination import cut_short
from latentmdp.fit import Fit
from latentmdp.offline import Interval
from latentmdp.offline.optimism_bias import bootstrap_differences, corrected

HORIZON = 2
PULLS = 40
UNIFORM = np.full((1, 2), 0.5)
PLANNER = lm.Memoryless(method="cadp", time_limit=None)
"""Its policies are Markov, so they are valued exactly."""


def bandit(odds: tuple[float, float]) -> lm.LatentMDP:
    return lm.LatentMDP(np.ones((1, 1, 2, 1)), np.array([[odds]]), horizon=HORIZON)


def logged(episodes: int = PULLS // HORIZON, seed: int = 0) -> lm.Trajectories:
    uniform = lm.UniformPolicy()
    return lm.simulate(bandit((0.5, 0.5)), uniform, episodes, rng=seed).without_contexts()


def known(odds: tuple[float, float], logs: lm.Trajectories) -> Fit:
    """A fit that found this very model."""
    return dataclasses.replace(lm.EM(1).fit(logs, rng=0), model=bandit(odds))


def expected_optimism(odds: tuple[float, float]) -> tuple[float, float]:
    """Mean and standard deviation per step, over the outcomes of PULLS uniform pulls."""
    mean = square = 0.0
    for n in range(1, PULLS):
        first, second = np.arange(n + 1), np.arange(PULLS - n + 1)
        mass = stats.binom.pmf(n, PULLS, 0.5) * np.outer(
            stats.binom.pmf(first, n, odds[0]), stats.binom.pmf(second, PULLS - n, odds[1])
        )
        shown = np.meshgrid(first / n, second / (PULLS - n), indexing="ij")
        excess = np.where(shown[0] >= shown[1], shown[0] - odds[0], shown[1] - odds[1])
        mean += float((mass * excess).sum())
        square += float((mass * excess**2).sum())
    return mean, math.sqrt(square - mean**2)


def test_the_expectation_is_that_of_the_larger_of_two_noisy_means() -> None:
    """For equal odds, sigma / sqrt(pi), where sigma^2 = p (1 - p) / n is the variance of a mean."""
    sigma = math.sqrt(0.25 / (PULLS / 2))
    assert expected_optimism((0.5, 0.5))[0] == pytest.approx(sigma / math.sqrt(math.pi), rel=0.03)


@pytest.mark.parametrize(
    ("odds", "lengths"), [((0.5, 0.5), "equal"), ((0.5, 0.6), "cut short")], ids=["equal", "cut"]
)
def test_the_mean_difference_is_the_expected_optimism(
    odds: tuple[float, float], lengths: str
) -> None:
    """Within 4 standard errors of 300 repetitions: a false alarm in 6e-5 of such tests.

    The bias is 9 to 12 standard errors, so that a lost factor of two would be seen. More episodes,
    most of them cut after one step, make as many pulls.
    """
    logs = logged() if lengths == "equal" else cut_short(logged(30), np.repeat([2, 1], [10, 20]))
    assert logs.n_steps == PULLS
    found, errors = bootstrap_differences(
        logs, known(odds, logs), PLANNER, UNIFORM, np.array([False]), 300, np.random.default_rng(1)
    )
    # The standard error of a mean of about half of the pulls is that of a binomial share, within 4
    # standard errors of a standard deviation of 300, and pseudo-counts shrink it a little.
    binomial = [math.sqrt(p * (1 - p) / (PULLS / 2)) for p in odds]
    np.testing.assert_allclose(errors.rewards[0, 0], binomial, rtol=0.25)
    assert errors.weights == pytest.approx(0.0)
    mean, deviation = (HORIZON * x for x in expected_optimism(odds))
    assert abs(found.mean() - mean) < 4 * deviation / math.sqrt(300)
    assert found.std() == pytest.approx(deviation, rel=0.25)


def test_simulated_values_give_the_same_bias_as_exact_ones() -> None:
    """Q-MDP's policies are valued by simulation; the same logs are drawn and fitted for both."""
    logs = logged()
    exact, simulated = (
        bootstrap_differences(
            logs,
            known((0.5, 0.5), logs),
            planner,
            UNIFORM,
            np.array([False]),
            20,
            np.random.default_rng(2),
        )[0]
        for planner in (PLANNER, lm.QMDP())
    )
    noise = math.sqrt(2 * HORIZON * 0.25 / 20_000)
    np.testing.assert_allclose(simulated, exact, atol=5 * noise)


def test_merged_episodes_are_as_many_episodes() -> None:
    logs = logged()
    merged = logs.deduplicate()
    assert len(merged) < len(logs)
    found = [
        bootstrap_differences(
            part, known((0.5, 0.6), logs), PLANNER, UNIFORM, np.array([False]), 3, rng
        )[0]
        for part, rng in ((logs, np.random.default_rng(0)), (merged, np.random.default_rng(0)))
    ]
    np.testing.assert_array_equal(*found)


def test_the_correction_is_its_formula() -> None:
    """Differences 1 and 3: bias 2, variance 2, and t = 1 with one degree of freedom at 50 %."""
    low, high = 8.0 - math.sqrt(7.0), 8.0 + math.sqrt(7.0)
    assert corrected(10.0, np.array([1.0, 3.0]), 0.5) == pytest.approx(Interval(8.0, low, high))
    assert corrected(10.0, np.array([2.0, 2.0]), 0.9) == pytest.approx(Interval(8.0, 6.0, 10.0))
    assert corrected(10.0, np.array([-1.0, 1.0]), 0.5) == pytest.approx(
        Interval(10.0, 10.0 - math.sqrt(3.0), 10.0 + math.sqrt(3.0))
    )


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_interval_covers_one_more_difference(confidence: float) -> None:
    """For normal errors without bias it covers at least as often as asked, and little more.

    Over 4,000 draws the share is known to 0.0063 at worst, so 4 standard errors are 0.025: a false
    alarm in 3e-5 of such tests.
    """
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(4_000):
        differences, error = rng.normal(size=8), rng.normal()
        low, high = corrected(error, differences, confidence)[1:]
        covered += low <= 0.0 <= high
    assert confidence - 0.025 < covered / 4_000 < confidence + 0.05


def drawn_biases(number: int, rng: np.random.Generator) -> np.ndarray:
    """Optimism per step of a bootstrap draw from logs of equal odds, by binomial draws alone."""

    def pulled(shares: np.ndarray, odds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = rng.binomial(PULLS, shares).clip(1, PULLS - 1)
        pulls = np.array([first, PULLS - first])
        return first / PULLS, rng.binomial(pulls, odds) / pulls

    shares, fitted = pulled(np.full(number, 0.5), np.full((2, number), 0.5))
    _, again = pulled(shares, fitted)
    chosen = again.argmax(axis=0)
    return again.max(axis=0) - fitted[chosen, np.arange(number)]


@pytest.mark.filterwarnings("ignore:no logged episode agrees")
def test_solve_takes_off_the_bias_and_covers_the_truth() -> None:
    """50 logs of a world with equal odds, in which every policy earns the same.

    The mean bias that `solve` finds is that of a bootstrap by binomial draws, and its value in the
    model is too high by the expected optimism, both within 4 standard errors: a false alarm in
    1e-4 of such tests. With a coverage of 95 % fewer than 41 of 50 have a probability of 2e-4.
    """
    truth, mean = HORIZON * 0.5, HORIZON * expected_optimism((0.5, 0.5))[0]
    solved = [lm.solve(logged(seed=s), 1, rng=s, bootstrap=10, planner=PLANNER) for s in range(50)]
    biases = np.array([s.optimism_bias for s in solved])
    excess = np.array([s.value.mean + s.optimism_bias - truth for s in solved])
    stderr = [x.std(ddof=1) / math.sqrt(len(solved)) for x in (excess, biases)]
    assert abs(excess.mean() - mean) < 4 * stderr[0]
    drawn = HORIZON * drawn_biases(100_000, np.random.default_rng(0)).mean()
    assert abs(biases.mean() - drawn) < 4 * stderr[1]
    assert biases.mean() > 4 * stderr[1]
    assert sum(s.value.low <= truth <= s.value.high for s in solved) >= 41


def test_simulated_episodes_may_all_end_before_the_longest_logged_one() -> None:
    """One episode of many lasted: a refit to others like them still has its horizon."""
    T = np.array([[[[0.1, 0.9], [0.1, 0.9]], [[0.0, 1.0], [0.0, 1.0]]]])
    world = lm.LatentMDP(
        T, [[[0.4, 0.6], [0.0, 0.0]]], horizon=4, initial=0, allowed=[[True, True], [False, False]]
    )
    logs = lm.simulate(world, lm.UniformPolicy(), 20_000, rng=0).without_contexts()
    longest = int(np.argmax(logs.lengths == 4))
    few = lm.Trajectories.concat([logs[logs.lengths == 1][:60], logs[longest : longest + 1]])
    found = lm.solve(few, 1, rng=0, planner=PLANNER)
    assert found.model.horizon == 4
    assert found.value.low <= found.value.mean <= found.value.high
