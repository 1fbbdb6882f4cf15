"""A learner says when its model and the world disagree, and when the world is no latent MDP."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.metrics import Interval, mean_return
from latentmdp.offline import outcome_warnings
from latentmdp.online.warnings import learn_warnings, told_apart
from latentmdp.worlds import from_callable


def two_coins(bias: float = 0.9) -> lm.LatentMDP:
    """One state, two actions, each good in one context."""
    R = np.array([[[bias, 1.0 - bias]], [[1.0 - bias, bias]]])
    return lm.LatentMDP(np.ones((2, 1, 2, 1)), R, horizon=20)


def moving_logs(change: float, episodes: int, seed: int) -> lm.Trajectories:
    """Episodes of `two_coins` whose context is drawn anew with a chance of `change` a step."""
    rng = np.random.default_rng(seed)
    model, H = two_coins(), 20
    context = rng.integers(2, size=episodes)
    actions = rng.integers(2, size=(episodes, H))
    rewards = np.zeros((episodes, H), np.int64)
    for t in range(H):
        chance = model.reward_probs[context, 0, actions[:, t], 1]
        rewards[:, t] = rng.random(episodes) < chance
        anew = rng.random(episodes) < change
        context = np.where(anew, rng.integers(2, size=episodes), context)
    return lm.Trajectories.from_arrays(np.zeros((episodes, H + 1), np.int64), actions, rewards)


@pytest.mark.parametrize(("change", "moves"), [(0.0, False), (0.2, True)])
def test_a_context_that_moves_is_found_and_one_that_stays_is_not(change, moves) -> None:
    for seed in range(4):
        logs = moving_logs(change, 600, seed)
        fit = lm.EM(2, restarts=4).fit(logs, rng=0)
        assert bool(outcome_warnings(logs, fit.model, np.random.default_rng(0))) == moves


def parity(rng: np.random.Generator):
    """What pays alternates with time."""
    time = [0]

    def step(action: int) -> tuple[int, float]:
        time[0] += 1
        return 0, float(action == time[0] % 2)

    return 0, step


@pytest.mark.parametrize("n_contexts", [2, "auto"])
@pytest.mark.filterwarnings("ignore::latentmdp.online.warnings.LearnWarning")
def test_a_world_outside_the_class_is_told(n_contexts) -> None:
    world = from_callable(parity, n_states=1, n_actions=2, horizon=10, reward_values=(0.0, 1.0))
    run = lm.learn(world, n_contexts, 300, rng=0, planner=lm.QMDP())
    assert any("not the latent MDP that was learned" in message for message in run.warnings)


@pytest.mark.parametrize(
    ("value", "doubted"),
    [
        (Interval(17.4, 16.0, 18.0), False),
        (Interval(3.0, 2.0, 4.0), True),
        (Interval(40.0, 39.0, 41.0), True),
    ],
)
def test_what_the_model_promises_is_held_against_the_world(value, doubted) -> None:
    model = two_coins()
    logs = lm.simulate(model, lm.UniformPolicy(), 300, rng=0).without_contexts()
    fit = lm.EM(2, restarts=4).fit(logs, rng=0)
    plan = lm.HSVI(gap=0.01).plan(model)
    told = learn_warnings(plan, fit, value, logs, np.random.default_rng(0))
    assert any("promises" in message for message in told) == doubted
    # A world that pays more than promised is not called a wrong model.
    assert any("the model is wrong" in message for message in told) == (value.high < 16.0)


def test_labels_close_to_a_guess_are_doubted() -> None:
    logs = lm.simulate(two_coins(), lm.UniformPolicy(), 300, rng=0)
    clear = lm.EM(2, restarts=4).fit(logs.without_contexts(), rng=0)
    assert told_apart(clear) > 0.8
    even = np.full((300, 2), 0.5)
    blurred = lm.Fit(two_coins(), even, 0.0, True)
    assert told_apart(blurred) == pytest.approx(0.0)


def test_returns_that_are_shares_have_the_interval_of_agresti_and_coull() -> None:
    """Two successes and two failures more, for 95 %."""
    found = mean_return([1.0] * 18 + [0.0] * 2)
    share = 20.0 / 24.0
    width = 2.086 * np.sqrt(share * (1.0 - share) / 24.0)
    assert found.mean == pytest.approx(0.9)
    assert found.low == pytest.approx(share - width, abs=1e-3)
    assert found.high == pytest.approx(share + width, abs=1e-3)


def test_returns_that_never_varied_are_not_certain() -> None:
    found = mean_return(np.zeros(50), every=[0.0, 1.0])
    assert found.low <= 0.0 < 0.02 < found.high < 0.15
    assert mean_return([]) is None


def test_coverage_with_rare_losses() -> None:
    """A loss of 100 in 1 of 50 episodes, 100 episodes: Student's own interval covers 86 %."""
    covered = 0
    for seed in range(400):
        returns = np.where(np.random.default_rng(seed).random(100) < 0.02, -100.0, 0.0)
        found = mean_return(returns, every=[-100.0, 0.0])
        covered += found.low <= -2.0 <= found.high
    assert covered >= 0.93 * 400
