"""What a run gives back."""

import numpy as np
import pytest
from small_worlds import small

import latentmdp as lm
from latentmdp.online.base import milestones


def test_milestones_are_log_spaced_and_end_with_the_run():
    assert milestones(1).tolist() == [1]
    assert milestones(35).tolist() == [*range(1, 10), 10, 20, 30, 35]
    assert {300, 30_000, 40_000} <= set(milestones(40_000).tolist())


def test_regret_carries_the_bounds_of_the_plan():
    model = small()
    run = lm.LUCRL().run(model, 100, rng=0)
    upper = lm.QMDP().plan(model)
    regret = run.regret(reference=upper)
    assert regret.lower is None
    np.testing.assert_allclose(regret.upper, np.cumsum(upper.upper - run.returns))
    np.testing.assert_array_equal(np.asarray(regret), regret.upper)
    both = lm.Plan(upper.policy, lower=1.0, upper=2.0, guarantee=(0.5, 0.1))
    regret = run.regret(reference=both)
    np.testing.assert_allclose(regret.lower, np.cumsum(0.5 * 1.0 - 0.1 - run.returns))
    np.testing.assert_allclose(regret.upper, np.cumsum(0.5 * 2.0 - 0.1 - run.returns))
    assert (regret.bound > regret.upper).all()
    with pytest.raises(ValueError, match="no upper bound"):
        run.regret(reference=lm.Plan(upper.policy))


def test_regret_against_a_memoryless_plan_is_refused():
    """What it bounds is not V*: here Q-MDP, with its memory, earns much more."""
    model = lm.make("river-swim", rng=0)
    plan = lm.Memoryless(method="cadp", time_limit=5.0).plan(model)
    best = lm.QMDP().plan(model)
    earned = lm.evaluate(model, best.policy, episodes=2_000, rng=0)
    assert plan.lower < earned.mean - 5 * earned.stderr
    run = lm.LUCRL().run(model, 5, rng=0)
    with pytest.raises(ValueError, match="memoryless plan holds for policies without memory"):
        run.regret(reference=plan)


def test_progress_is_shown(capsys):
    lm.LUCRL().run(small(), 30, rng=0, progress=True)
    told = capsys.readouterr()
    assert "trailing return" in told.err
    assert told.out == ""


def test_runs_are_equal_by_content_and_shown_in_a_line_and_as_a_table():
    first, same, other = (lm.LUCRL().run(small(), 40, rng=seed) for seed in (0, 0, 1))
    assert first == same
    assert first != other
    assert repr(first).startswith("Run(40 episodes of LUCRL, 3 contexts, ")
    assert "\n" not in repr(first)
    assert '<td style="text-align: left">LUCRL</td>' in first._repr_html_()


def test_the_return_at_the_end_is_that_of_the_last_tenth():
    run = lm.LUCRL().run(small(), 95, rng=0)
    assert run.trailing_return() == pytest.approx(run.returns[-9:].mean())
    assert run.trailing_return(20) == pytest.approx(run.returns[-20:].mean())
    short = lm.LUCRL().run(small(), 5, rng=0)
    assert short.trailing_return() == short.returns[-1]
