"""Logs as people have them: without next states, with gaps, of one step, with ends; and reports."""

import warnings

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.report.report import belief_picture, beliefs_along


def table(seed=0, episodes=200, steps=4):
    rng = np.random.default_rng(seed)
    n = episodes * steps
    action = rng.integers(0, 2, n)
    return {
        "episode": np.repeat(np.arange(episodes), steps),
        "t": np.tile(np.arange(steps), episodes),
        "state": np.array(["poor", "good"], dtype=object)[rng.integers(0, 2, n)],
        "action": action,
        "reward": (rng.random(n) < 0.3 + 0.4 * action).astype(float),
    }


def one_empty_state():
    columns = table()
    columns["state"][6] = None
    return lm.Trajectories.from_table(columns)


def ending():
    """The last of four states is final."""
    rng = np.random.default_rng(1)
    T = rng.dirichlet(np.ones(4), (2, 4, 2))
    allowed = np.array([[True, True]] * 3 + [[False, False]])
    start = np.array([[1.0, 0.0, 0.0, 0.0]] * 2)
    model = lm.LatentMDP(T, rng.random((2, 4, 2)), initial=start, horizon=5, allowed=allowed)
    return lm.simulate(model, lm.UniformPolicy(), 200, rng=0).without_contexts()


KINDS = {
    "no next states": lambda: lm.Trajectories.from_table(table()),
    "one empty state": one_empty_state,
    "one step": lambda: lm.Trajectories.from_table(table(steps=1)),
    "one step and an end": lambda: lm.Trajectories.from_table(
        {**table(steps=1), "terminated": np.ones(200, bool)}
    ),
    "endings": ending,
}


def solved(logs, contexts=1):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lm.solve(logs, contexts, rng=0, bootstrap=3)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_solved_valued_and_reported(kind, tmp_path) -> None:
    logs = KINDS[kind]()
    found = solved(logs)
    assert found.logged.steps > 0, "some episodes agree with the policy"
    assert np.isfinite([*found.value, *found.gain]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = lm.off_policy_value(logs, found.policy, model=found.model)
    assert value.low <= value.mean <= value.high
    lm.save(found, tmp_path / "found.npz")
    lm.report.write_report([tmp_path / "found.npz"], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Do the logs bear it out?" in page
    assert "Is it better?" in page


def test_one_step_is_worth_what_its_actions_paid() -> None:
    columns = table(steps=1)
    found = solved(lm.Trajectories.from_table(columns))
    means = [columns["reward"][columns["action"] == a].mean() for a in (0, 1)]
    values = {one.name: one.value.mean for one in found.references}
    assert values["always action 1"] == pytest.approx(means[1], abs=0.05)
    assert values["always action 0"] == pytest.approx(means[0], abs=0.05)


def test_beliefs_of_episodes_that_end_are_drawn() -> None:
    """An episode that ended keeps its last belief: the posterior of the whole episode."""
    rng = np.random.default_rng(2)
    T = rng.dirichlet(np.ones(3), (2, 3, 2))
    allowed = np.array([[True, True]] * 2 + [[False, False]])
    start = np.array([[1.0, 0.0, 0.0]] * 2)
    model = lm.LatentMDP(T, rng.random((2, 3, 2)), initial=start, horizon=5, allowed=allowed)
    along, _ = beliefs_along(model, lm.UniformPolicy(), model, 30, 0)
    logs = lm.simulate(model, lm.UniformPolicy(), 30, rng=0)
    assert along.shape == (30, 6, 2)
    assert len(set(logs.lengths.tolist())) > 1
    smoothing = min(1e-4, 0.1 / (3 * 2))
    np.testing.assert_allclose(along[:, -1], lm.posterior(model, logs, smoothing))
    assert "before the first step" in belief_picture(model, lm.UniformPolicy(), model).caption


def test_gaps_are_left_out_of_the_estimate_from_the_logs() -> None:
    """An empty state splits one individual; all others count as if it were not there."""
    columns = table()
    whole = lm.Trajectories.from_table(columns)
    gaps = one_empty_state()
    found = solved(whole)
    one, other = solved(gaps).logged, found.logged
    assert one.steps == other.steps
    assert one.mean == pytest.approx(other.mean, abs=3 * other.stderr)
