"""The lower-bound experiment: its parts on known answers, and a small run from end to end."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from latentmdp.cli.app import app
from latentmdp.experiments import lower_bound
from latentmdp.experiments.lower_bound import ARMS, sequences, sweep
from latentmdp.experiments.runner import Setting

SIZES = ((2, 2), (3, 2), (2, 4), (4, 2), (5, 2), (3, 4), (5, 3))


def runs(exponent, noise=0.0, most=np.inf):
    rng = np.random.default_rng(0)
    contexts = np.repeat([M for M, _ in SIZES], 30)
    n = np.repeat([A**M for M, A in SIZES], 30)
    episodes = 5.0 * n**exponent * np.exp(noise * rng.normal(size=n.size))
    return lower_bound.Runs(contexts, n, np.minimum(episodes, most), episodes > most)


@pytest.mark.parametrize("exponent", [1.0, 1.7])
def test_the_exponent_is_recovered(exponent):
    found = lower_bound.fit(runs(exponent, noise=0.5))
    assert abs(found.value - exponent) < 4 * found.stderr
    assert found.stderr < 0.1


def test_runs_that_were_stopped_do_not_bend_the_exponent():
    found = lower_bound.fit(runs(1.2, noise=1.0, most=500))
    assert abs(found.value - 1.2) < 4 * found.stderr


def test_one_size_has_no_exponent():
    many = runs(1.0)
    one = many.sequences == 4
    columns = (many.contexts[one], many.sequences[one], many.episodes[one], many.censored[one])
    assert np.isnan(lower_bound.fit(lower_bound.Runs(*columns)).value)


def test_medians_say_when_they_are_censored():
    rows = lower_bound.medians(runs(1.0, most=100))
    assert [row[0] for row in rows] == [4, 8, 16, 16, 32, 64, 243]
    assert [row[4] for row in rows] == [False, False, False, False, True, True, True]


def test_first_success():
    returns = np.zeros(500)
    assert lower_bound.first_success(returns, 2) is None
    returns[200:] = 0.5
    assert lower_bound.first_success(returns, 2) == 220  # half the optimum: 20 of a window of 40


def test_blind_search_needs_as_long_as_it_must():
    # geometric with mean M A^M = 8: within 4 standard errors over 400 seeds
    values = [{"arm": "blind", "contexts": 2, "actions": 2, "seed": k} for k in range(400)]
    episodes = [lower_bound.work(Setting("", setting))["episodes"][0] for setting in values]
    assert np.mean(episodes) == pytest.approx(8.0, abs=4 * np.sqrt(8 * 7 / 400))


def test_exploration_never_beats_the_bound():
    for setting in sweep(quick=True):
        if setting["arm"] == "exploration":
            assert lower_bound.work(setting)["episodes"][0] >= sequences(setting)


def test_a_small_run_from_the_command_line(tmp_path):
    arguments = ["reproduce", "lower-bound", "--quick", "--jobs", "1", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert len(found["claims"]) == len(ARMS)
    assert found["claims"][0]["held"]
    assert pq.read_table(found["numbers"]).num_rows == len(sweep(quick=True))
