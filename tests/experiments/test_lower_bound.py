"""The lower-bound experiment: its parts on known answers, and a small run from end to end."""

import importlib.util

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from latentmdp.experiments.lower_bound import analysis, run
from latentmdp.experiments.lower_bound.settings import ARMS, FULL, QUICK, Setting

HAS_LUCRL = importlib.util.find_spec("latentmdp.learning") is not None


def outcomes(exponent, arm="exploration", noise=0.0, censored_above=np.inf):
    rng = np.random.default_rng(0)
    found = []
    for M, A in ((2, 2), (3, 2), (2, 4), (4, 2), (5, 2), (3, 4), (5, 3)):
        for seed in range(30):
            setting = Setting(M, A, arm, seed)
            episodes = 5.0 * setting.sequences**exponent * np.exp(noise * rng.normal())
            late = episodes > censored_above
            found.append(run.Outcome(setting, int(min(episodes, censored_above)), bool(late)))
    return found


@pytest.mark.parametrize("exponent", [1.0, 1.7])
def test_the_exponent_is_recovered(exponent):
    found = analysis.fit(outcomes(exponent, noise=0.5), "exploration")
    assert abs(found.value - exponent) < 4 * found.stderr
    assert found.stderr < 0.1


def test_runs_that_were_stopped_do_not_bend_the_exponent():
    found = analysis.fit(outcomes(1.2, noise=1.0, censored_above=500), "exploration")
    assert abs(found.value - 1.2) < 4 * found.stderr


def test_one_size_has_no_exponent():
    single = [o for o in outcomes(1.0) if o.setting.sequences == 4]
    assert np.isnan(analysis.fit(single, "exploration").value)


def test_medians_say_when_they_are_censored():
    rows = analysis.medians(outcomes(1.0, censored_above=100), "exploration")
    assert [row[0] for row in rows] == [4, 8, 16, 16, 32, 64, 243]
    assert [row[4] for row in rows] == [False, False, False, False, True, True, True]


def test_first_success():
    returns = np.zeros(500)
    assert run.first_success(returns, 2) is None
    returns[200:] = 0.5
    assert run.first_success(returns, 2) == 220  # half the optimum: 20 of a window of 40


def test_blind_search_needs_as_long_as_it_must():
    # geometric with mean M A^M = 8: within 4 standard errors over 400 seeds
    episodes = [run.run_one(Setting(2, 2, "blind", seed)).episodes for seed in range(400)]
    assert np.mean(episodes) == pytest.approx(8.0, abs=4 * np.sqrt(8 * 7 / 400))


def test_settings_have_distinct_ids():
    for settings in (FULL, QUICK):
        assert len({s.id for s in settings}) == len(settings)
        assert {s.arm for s in settings} == set(ARMS)


@pytest.mark.skipif(not HAS_LUCRL, reason="needs the learner")
def test_a_small_run_from_end_to_end(tmp_path):
    said = analysis.reproduce(tmp_path, quick=True)
    assert "Algorithm 5: exponent" in said
    table = pq.read_table(tmp_path / "lower_bound.parquet")
    assert table.num_rows == len(QUICK)
    exploration = [r for r in table.to_pylist() if r["arm"] == "exploration"]
    assert all(r["episodes"] >= r["sequences"] for r in exploration)
    assert (tmp_path / "lower_bound.svg").read_text().lstrip().startswith("<?xml")
    assert (tmp_path / "lower_bound.txt").read_text() == said + "\n"


def test_unknown_experiments_are_refused():
    from latentmdp.cli.app import app

    found = CliRunner().invoke(app, ["reproduce", "lower"])
    assert found.exit_code == 2
    assert "lower-bound" in found.output
