"""From nothing to L-UCRL by a PSR and clustering: Theorem 3.5's path."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.online import CheckpointError, PSRStart, Run


def world() -> lm.LatentMDP:
    return lm.make(
        "separated", contexts=2, states=4, actions=2, horizon=30, delta=1.0, rewards="own", rng=1
    )


@pytest.fixture(scope="module")
def learned() -> Run:
    return lm.learn(world(), 2, 20_000, rng=0, method="psr", planner=lm.QMDP())


def test_the_start_is_good_and_the_policy_as_good_as_with_the_truth(learned) -> None:
    """Error below 0.1 a row where rows of the contexts differ by 1 at least."""
    truth = world()
    assert lm.model_error(truth, learned.fit.model, per_cell=True) < 0.1
    best = lm.evaluate(truth, lm.QMDP().plan(truth).policy, 50_000, rng=1)
    value = lm.evaluate(truth, learned.policy, 50_000, rng=2)
    assert value.mean + 4 * value.stderr > 0.98 * best.mean
    assert learned.trailing_return() > 0.95 * best.mean


def test_every_episode_is_accounted_for(learned) -> None:
    assert learned.returns.size == 20_000
    assert learned.logs.lengths.tolist() == [3] * 10_000 + [30] * 1_000
    np.testing.assert_array_equal(learned.returns[:11_000], learned.logs.returns())
    starts = [phase.first_episode for phase in learned.phases]
    ends = [phase.first_episode + phase.episodes for phase in learned.phases]
    assert starts == [0, *ends[:-1]]
    assert ends[-1] == 20_000
    total = sum(phase.episodes * phase.mean_return for phase in learned.phases)
    assert total == pytest.approx(learned.returns.sum())


def test_it_is_saved_and_reproducible(learned, tmp_path) -> None:
    lm.save(learned, tmp_path / "run.npz")
    found = lm.load(tmp_path / "run.npz")
    assert found.model == learned.model
    assert found.fit.model == learned.fit.model
    assert found.settings == learned.settings
    again = lm.learn(world(), 2, 20_000, rng=0, method="psr", planner=lm.QMDP())
    assert again.model == learned.model
    np.testing.assert_array_equal(again.returns, learned.returns)


def test_l_ucrl_goes_on_from_its_checkpoint(learned, tmp_path) -> None:
    settings = {"rng": 0, "method": "psr", "planner": lm.QMDP(), "checkpoint": tmp_path / "c.npz"}
    for _ in range(2):
        again = lm.learn(world(), 2, 20_000, **settings)
        np.testing.assert_array_equal(again.returns, learned.returns)
    with pytest.raises(CheckpointError, match="another run"):
        lm.learn(world(), 2, 20_001, **settings)


@pytest.mark.filterwarnings("ignore:recovery is unreliable")
def test_l_ucrl_is_told_what_rewards_depend_on() -> None:
    for asked, counted in (
        ("auto", "state-action"),
        ("state-action", "state-action"),
        ("transition", "transition"),
    ):
        found = lm.learn(
            world(), 2, 2_000, rng=0, method="psr", planner=lm.QMDP(), reward_model=asked
        )
        assert found.model.reward_model == counted


@pytest.mark.filterwarnings("ignore:recovery is unreliable")
def test_it_learns_in_a_gymnasium_environment() -> None:
    env = lm.envs.LatentMDPEnv(world())
    start = PSRStart(2, short_episodes=1_200, long_episodes=300, planner=lm.QMDP())
    found = start.run(env, 1_600, rng=0)
    assert found.logs.lengths.tolist() == [3] * 1_200 + [30] * 300
    assert lm.model_error(world(), found.fit.model, per_cell=True) < 0.4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_contexts": "auto"}, "needs a known n_contexts"),
        ({"method": "spectral"}, "method must be"),
        ({"episodes": 1}, "short_episodes must be at least 1"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lm.learn(world(), **{"n_contexts": 2, "episodes": 100, "method": "psr", **settings})
    with pytest.raises(ValueError, match="leave no episode for L-UCRL"):
        PSRStart(2, short_episodes=60, long_episodes=40).run(world(), 100)
    with pytest.raises(ValueError, match="needs episodes of 3 steps"):
        PSRStart(2).run(world().replace(horizon=2), 100)
