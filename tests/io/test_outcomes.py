"""Outcomes of `learn` and `solve` as files: whole, readable from anywhere, strict."""

import dataclasses
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp.errors import FormatError
from latentmdp.offline import LoggedEstimate, Solved
from latentmdp.online import Learned


@pytest.fixture(scope="module")
def logs():
    model = random_model(0, contexts=2, states=3, actions=2, horizon=5)
    return lm.simulate(model, lm.UniformPolicy(), 200, rng=0).without_contexts()


@pytest.fixture(scope="module")
def solved(logs):
    return lm.solve(logs, 2, rng=7, bootstrap=2, planner=lm.HSVI(gap=0.1))


@pytest.fixture(scope="module")
def learned():
    world = random_model(0, contexts=2, states=3, actions=2, horizon=5)
    return lm.learn(world, 2, 40, rng=0, explore=20, restarts=1, planner=lm.QMDP())


@pytest.fixture(params=["learned", "solved"])
def outcome(request):
    return request.getfixturevalue(request.param)


def test_what_was_solved_comes_back_whole(solved, logs, tmp_path):
    lm.save(solved, tmp_path / "s.npz")
    again = lm.load(tmp_path / "s.npz")
    assert again == solved
    assert again.seconds == solved.seconds
    for name in ("model", "value", "optimism_bias", "logged", "unsupported", "warnings"):
        assert getattr(again, name) == getattr(solved, name), name
    np.testing.assert_array_equal(again.fit.responsibilities, solved.fit.responsibilities)
    assert again.fit.history == solved.fit.history
    for name in ("lower", "upper", "history", "guarantee", "converged", "message", "seconds"):
        assert getattr(again.plan, name) == getattr(solved.plan, name), name
    played = [lm.simulate(solved.model, s.policy, 50, rng=1) for s in (solved, again)]
    assert played[0] == played[1]
    assert (solved.settings["seed"], solved.settings["episodes"]) == (7, len(logs))


def test_logs_that_never_agree_are_kept(solved, tmp_path):
    """The estimate from the logs is then NaN, its error infinite."""
    never = LoggedEstimate(float("nan"), float("inf"), 0, np.zeros(0))
    without = dataclasses.replace(solved, logged=never, model_first_steps=float("nan"))
    lm.save(without, tmp_path / "s.npz")
    assert lm.load(tmp_path / "s.npz") == without


def test_a_fresh_process_loads_it(outcome, tmp_path):
    """Only `import latentmdp` comes before: the kind is found by its name in the file."""
    path = tmp_path / "o.npz"
    lm.save(outcome, path)
    code = (
        "import sys, latentmdp as lm\n"
        "assert not any(m.startswith('latentmdp.offline') for m in sys.modules)\n"
        "assert 'numpy' not in sys.modules\n"
        "print(type(lm.load(sys.argv[1])).__name__)\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == type(outcome).__name__


def test_settings_of_other_versions_are_kept(outcome, tmp_path):
    more = {**outcome.settings, "of tomorrow": [1, {"deep": None}]}
    lm.save(dataclasses.replace(outcome, settings=more), tmp_path / "o.npz")
    assert lm.load(tmp_path / "o.npz").settings == more


def test_one_is_not_the_other(learned, solved, tmp_path):
    learned.save(tmp_path / "l.npz")
    lm.save(solved, tmp_path / "s.npz")
    assert isinstance(lm.load(tmp_path / "l.npz"), Learned)
    assert isinstance(lm.load(tmp_path / "s.npz"), Solved)
    with pytest.raises(FormatError, match="holds a Solved, not the outcome of `learn`"):
        Learned.load(tmp_path / "s.npz")


def changed(path, change, array=None):
    """Write the file again with another record or array; all checksums are right."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with np.load(path) as file:
        header = json.loads(str(file["header"]))
    record = json.loads(header["values"]["record"])
    change(record)
    header["values"]["record"] = json.dumps(record)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            replaced = {"header.npy": np.array(json.dumps(header)), **(array or {})}.get(name)
            if replaced is None:
                archive.writestr(name, data)
            else:
                with archive.open(name, "w") as out:
                    np.save(out, replaced)


def test_a_field_that_came_later_keeps_its_default(outcome, tmp_path):
    file = tmp_path / "o.npz"
    lm.save(outcome, file)
    changed(file, lambda record: record["fit"].pop("reward_smoothing"))
    again = lm.load(file)
    assert again.fit.reward_smoothing == 0.0
    assert again.fit.smoothing == outcome.fit.smoothing


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["seconds"], "soon", "'seconds' must be a number"),
        (["seconds"], -1.0, "must not be negative"),
        (["settings"], [], "'settings' of the record"),
        (["fit", "n_iter"], 1.5, "'n_iter' must be an integer"),
        (["fit", "converged"], 1, "'converged' must be true or false"),
        (["plan", "lower"], "low", "'lower' must be a number"),
        (["plan", "message"], 3, "'message' must be a string"),
        (["guarantee"], [1.0], "'guarantee'"),
    ],
)
def test_records_of_the_wrong_type_are_refused(outcome, tmp_path, path, value, message):
    file = tmp_path / "o.npz"
    lm.save(outcome, file)

    def change(record):
        for name in path[:-1]:
            record = record[name]
        record[path[-1]] = value

    changed(file, change)
    with pytest.raises(FormatError, match=message):
        lm.load(file)


@pytest.mark.parametrize(
    ("array", "value", "message"),
    [
        ("responsibilities", np.ones((4, 3)), "not rows of 2"),
        ("plan_history", np.ones(3), "not rows of 3"),
        ("returns", np.ones(3), "there are 40 episodes"),
        ("phases", np.ones((2, 5)), "not rows of 6"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(learned, tmp_path, array, value, message):
    file = tmp_path / "o.npz"
    learned.save(file)
    changed(file, lambda record: None, {f"{array}.npy": value})
    with pytest.raises(FormatError, match=message):
        lm.load(file)


def test_an_outcome_says_in_a_line_what_it_is(learned, solved):
    assert repr(learned).startswith("Learned(40 episodes, 2 contexts, ")
    assert repr(solved).startswith(f"Solved(2 contexts, {solved.value} per episode")
