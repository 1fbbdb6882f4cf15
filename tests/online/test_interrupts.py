"""Ctrl-C and time limits: a run ends between two rounds, and what was done is kept."""

import os
import signal
from typing import Any

import numpy as np
import pytest
from small_worlds import small

import latentmdp as lm
from latentmdp.online import Run, base, refit


def learned(**settings: Any) -> Run:
    arguments = {"n_contexts": 2, "episodes": 300, "rng": 0, "growth": 1.5, "restarts": 1}
    return lm.learn(small(contexts=2), **{**arguments, "planner": lm.QMDP(), **settings})


def interrupt(monkeypatch: pytest.MonkeyPatch, rounds: int, times: int = 1) -> None:
    """Let Ctrl-C come while the plan of a round is made."""
    plan, planned = refit._Refitting.plan, []

    def interrupted(learning: Any) -> None:
        planned.append(1)
        if len(planned) == rounds:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        plan(learning)

    monkeypatch.setattr(refit._Refitting, "plan", interrupted)


def test_a_resumed_run_is_the_undisturbed_one(tmp_path: Any, monkeypatch: Any) -> None:
    whole = learned()
    interrupt(monkeypatch, rounds=4)
    with pytest.raises(KeyboardInterrupt):
        learned(checkpoint=tmp_path / "run.npz")
    assert learned(checkpoint=tmp_path / "run.npz") == whole
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_checkpoint_the_run_so_far_is_returned(monkeypatch: Any) -> None:
    whole = learned()
    interrupt(monkeypatch, rounds=3)
    with pytest.warns(UserWarning, match="was interrupted after 45 of 300 episodes"):
        run = learned()
    assert (run.returns == whole.returns[:45]).all()
    assert len(run.fit.responsibilities) == len(run.logs) == 45
    assert run.value is None
    assert run.policy.session().observe(0) is None


def test_a_second_interrupt_is_raised_at_once(monkeypatch: Any) -> None:
    interrupt(monkeypatch, rounds=3, times=2)
    with pytest.raises(KeyboardInterrupt):
        learned()


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_limits_that_are_none_are_refused(limit: float) -> None:
    with pytest.raises(ValueError, match="time_limit must be positive"):
        learned(time_limit=limit)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_time_limit_ends_any_learner() -> None:
    run = learned(time_limit=1e-9)
    assert run.returns.size == run.logs.n_episodes == 20
    counted = lm.LUCRL().run(small(), 500, rng=0, time_limit=1e-9)
    whole = lm.LUCRL().run(small(), 500, rng=0)
    done = counted.returns.size
    assert 1 <= done < 500
    assert (counted.returns == whole.returns[:done]).all()
    assert counted.error_curve.episodes[-1] <= done


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_end_of_a_limited_run_shows_what_its_policy_earns(monkeypatch: Any) -> None:
    """From some share of the limit on, all that is left are episodes of the final policy."""
    monkeypatch.setattr(base, "_HURRY", 0.0)
    run = learned(time_limit=3600.0)
    assert run.returns.size == 25
    assert run.value.mean == pytest.approx(run.returns[20:].mean())


@pytest.mark.filterwarnings("ignore:recovery is unreliable")
def test_a_limit_is_looked_at_once_a_start_was_recovered() -> None:
    model = lm.make("separated", contexts=2, states=4, actions=2, horizon=30, delta=1.0, rng=1)
    settings: Any = {"rng": 0, "method": "psr", "planner": lm.QMDP()}
    with pytest.warns(UserWarning, match="reached its time limit"):
        run = lm.learn(model, 2, 4_000, time_limit=1e-9, **settings)
    random, done = 2_200, run.n_episodes
    assert random < done < 4_000
    np.testing.assert_array_equal(run.returns, lm.learn(model, 2, 4_000, **settings).returns[:done])
