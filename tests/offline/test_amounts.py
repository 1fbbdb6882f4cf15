"""Measured rewards: levels are evidence, values are means of the amounts."""

import warnings

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.offline.optimism_bias import LogSimulator
from latentmdp.offline.warnings import logs_warnings


def table_of(seed, pay, episodes=400, steps=5):
    """States and actions by chance; rewards by pay(state, action, rng)."""
    rng = np.random.default_rng(seed)
    n = episodes * steps
    state, action = rng.integers(0, 2, n), rng.integers(0, 2, n)
    return {
        "episode": np.repeat(np.arange(episodes), steps),
        "t": np.tile(np.arange(steps), episodes),
        "state": state,
        "action": action,
        "reward": pay(state, action, rng),
    }


def skewed(state, action, rng):
    """Action 1 costs less as a rule, and more on average."""
    usual = rng.lognormal(3.0, 0.3, state.size)
    rare = np.where(rng.random(state.size) < 0.05, 1_000.0, 5.0) * rng.lognormal(
        0.0, 0.2, state.size
    )
    return -np.where(action == 0, usual, rare)


def raw_means(table):
    return np.array(
        [
            [table["reward"][(table["state"] == s) & (table["action"] == a)].mean() for a in (0, 1)]
            for s in (0, 1)
        ]
    )


@pytest.mark.parametrize("options", [{}, {"reward_levels": 3}, {"informative_rewards": False}])
def test_the_fitted_model_has_the_means_of_the_amounts(options) -> None:
    table = table_of(0, skewed)
    logs = lm.Trajectories.from_table(table, **options)
    model = lm.EM(1, pseudo_counts=0.0).fit(logs, rng=0).model
    np.testing.assert_allclose(model.planning_rewards()[0], raw_means(table), rtol=1e-9)
    assert logs.returns().mean() == pytest.approx(table["reward"].sum() / 400)


def test_amounts_survive_files(tmp_path) -> None:
    logs = lm.Trajectories.from_table(table_of(1, skewed))
    for name in ("logs.npz", "logs.parquet"):
        lm.save(logs, tmp_path / name)
        again = lm.load(tmp_path / name)
        assert again.amounts.tolist() == logs.amounts.tolist()
        assert again.rewards.tolist() == logs.rewards.tolist()
    files = lm.open_logs(str(tmp_path / "logs.parquet"))
    assert files.pays_amounts
    np.testing.assert_array_equal(files.mean_amounts(), logs.mean_amounts())


@pytest.mark.parametrize("options", [{}, {"informative_rewards": False}])
def test_solve_takes_the_action_with_the_better_mean(options) -> None:
    """What it promises is what was paid: an interval of 95 %, of 10 repetitions."""
    logs = lm.Trajectories.from_table(table_of(2, skewed), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = lm.solve(logs, 1, rng=0, bootstrap=10)
    truth = -5 * np.exp(3.0 + 0.3**2 / 2)
    session = found.policy.session(found.model)
    session.observe(0)
    assert session.act() == 0
    assert found.value.low < truth < found.value.high
    logged = lm.off_policy_value(logs, lm.MarkovPolicy([0, 0]), model=found.model)
    assert logged.mean == pytest.approx(truth, rel=0.1), (
        "few episodes agree: about 4 % off by chance"
    )


def test_simulated_amounts_are_those_of_their_cells() -> None:
    table = table_of(3, lambda s, a, rng: 100.0 * s + 10.0 * a + rng.random(s.size))
    logs = lm.Trajectories.from_table(table)
    model = lm.EM(1).fit(logs, rng=0).model
    final = np.zeros(2, bool)
    simulator = LogSimulator(logs, model, np.full((2, 2), 0.5), final)
    played = simulator.simulate(np.random.default_rng(0))
    steps = played.steps()
    base = 100.0 * steps.state + 10.0 * steps.action
    own = played.amounts
    levels = np.searchsorted(model.reward_edges, own, side="right")
    seen = (own > base) & (own < base + 1.0) & (levels == played.rewards)
    assert seen.mean() > 0.99, "others are levels that the smoothed model has and the logs have not"


def test_heavy_tails_are_said() -> None:
    heavy = table_of(4, lambda s, a, rng: np.exp(rng.normal(0.0, 3.0, s.size)))
    light = table_of(4, lambda s, a, rng: rng.normal(0.0, 3.0, s.size))
    final = np.zeros(2, bool)
    (message,) = logs_warnings(lm.Trajectories.from_table(heavy), final)
    assert "rare amounts" in message
    assert logs_warnings(lm.Trajectories.from_table(light), final) == ()


def test_a_drift_of_unseen_amounts_is_found() -> None:
    table = table_of(5, lambda s, a, rng: rng.normal(0.0, 1.0, s.size))
    drifting = {**table, "reward": table["reward"] + 0.5 * table["t"]}
    for columns, expected in ((table, set()), (drifting, {"the time within the episode"})):
        logs = lm.Trajectories.from_table(columns, informative_rewards=False)
        checks = lm.check_fit(logs, lm.EM(1).fit(logs, rng=0))
        failed = {check.name for check in checks.failed}
        assert failed >= expected
        assert bool(failed) == bool(expected)
