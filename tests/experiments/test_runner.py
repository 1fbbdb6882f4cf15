"""Sweeps: settings are data, results appear whole, interrupted sweeps resume."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from toy_sweep import settings, squares

from latentmdp import experiments
from latentmdp._util.checkpoint import CheckpointError
from latentmdp.experiments import reproduce, run_sweep
from latentmdp.experiments.fig1a import sweep as sweep_1a
from latentmdp.experiments.fig1b import sweep as sweep_1b
from latentmdp.experiments.runner import designs, read_result


class Refusing:
    """Work that fails at one seed."""

    def __init__(self, seed):
        self.seed, self.calls = seed, []

    def __call__(self, setting):
        self.calls.append(setting["seed"])
        if setting["seed"] == self.seed:
            raise RuntimeError("out of luck")
        return squares(setting)


def test_results_carry_their_settings(tmp_path):
    table = run_sweep(settings(), squares, tmp_path, jobs=1)
    assert table.column_names == ["x", "y", "id", "seed", "scale"]
    np.testing.assert_array_equal(table["y"].to_numpy(), [1, 1, 1, 0, 1, 2, 0, 1, 4])
    assert table["id"].to_pylist()[3] == "toy/1"


def columns(setting):
    return {"name": ["a", "b"], "x": np.array([0.1, math.nan]), "late": [True, False]}


def test_a_result_comes_back(tmp_path):
    (setting,) = settings(1)
    run_sweep([setting], columns, tmp_path, jobs=1)
    found = read_result(tmp_path, setting)
    assert 0.0 <= found.seconds < 60.0
    assert found.table.column_names == list(columns(setting))
    np.testing.assert_array_equal(found.table["x"].to_numpy(), columns(setting)["x"])
    assert found.table["name"].to_pylist() == ["a", "b"]
    assert found.table["late"].to_pylist() == [True, False]


def other_id(data):
    before, after = (name.encode("utf-32-le") for name in ("toy/0", "toy/7"))
    assert before in data
    return data.replace(before, after)


@pytest.mark.parametrize("damage", [lambda data: data[:-20], other_id])
def test_damaged_results_are_refused(tmp_path, damage):
    (setting,) = settings(1)
    run_sweep([setting], columns, tmp_path, jobs=1)
    path = tmp_path / setting.file_name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"toy-0-.*npz is not a whole .*; remove it"):
        run_sweep([setting], columns, tmp_path, jobs=1)


def test_a_sweep_resumes(tmp_path):
    work = Refusing(1)
    with pytest.raises(RuntimeError, match="out of luck"):
        run_sweep(settings(), work, tmp_path, jobs=1)
    again = Refusing(None)
    run_sweep(settings(), again, tmp_path, jobs=1)
    assert work.calls == [0, 1]
    assert again.calls == [1, 2]
    other = Refusing(None)
    run_sweep(settings(scale=2), other, tmp_path, jobs=1)
    assert other.calls == [0, 1, 2]  # other values under the same ids overwrite nothing
    assert len(list(tmp_path.iterdir())) == 6


def test_processes_give_the_same(tmp_path):
    parallel = run_sweep(settings(4), squares, tmp_path / "two", jobs=2)
    assert parallel.equals(run_sweep(settings(4), squares, tmp_path / "one", jobs=1))


def test_ids_must_differ(tmp_path):
    with pytest.raises(ValueError, match="distinct ids"):
        run_sweep([settings(1)[0]] * 2, squares, tmp_path)


def test_the_paper_settings_are_the_papers():
    assert len(sweep_1a()) == 30
    sizes = {name: sweep_1a()[0][name] for name in ("contexts", "states", "actions", "horizon")}
    assert sizes == {"contexts": 7, "states": 15, "actions": 3, "horizon": 30}
    assert {s["seed"] for s in sweep_1b()} == set(range(10))
    for setting in (*sweep_1a(), *sweep_1b()):
        json.dumps(dict(setting.values))
    assert len({s.file_name for s in (*sweep_1a(), *sweep_1b(), *sweep_1a(quick=True))}) == (
        len(sweep_1a()) + len(sweep_1b()) + len(sweep_1a(quick=True))
    )


@pytest.mark.parametrize("name", ["fig1a", "fig1b"])
def test_quick_figures(name, tmp_path):
    found = reproduce(name, quick=True, out=tmp_path, seeds=2, jobs=1)
    assert [path.suffix for path in found.figures] == [".svg", ".png"]
    for path in (*found.figures, found.numbers):
        assert path.stat().st_size > 1_000
    page = found.page.read_text()
    for claim in found.claims:
        assert claim.paper in page
        assert claim.measured in page
    assert page.count("**Held** here.") == sum(claim.held is True for claim in found.claims)
    written = found.manifest.read_text()
    before = {path: path.stat().st_mtime_ns for path in (found.folder / "runs").iterdir()}
    reproduce(name, quick=True, out=tmp_path, seeds=2, jobs=1)
    assert before == {path: path.stat().st_mtime_ns for path in (found.folder / "runs").iterdir()}
    assert found.manifest.read_text() == written


def test_the_table_has_every_experiment():
    folder = Path(experiments.__file__).parent
    runnable = {p.stem for p in folder.glob("*.py") if "\ndef analyse(" in p.read_text()}
    assert {name.replace("-", "_") for name in designs()} == runnable
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    assert f"for name in {' '.join(designs())};" in makefile  # `make experiments` runs them all
    for design in designs().values():
        ids = [setting.id for setting in design.sweep(quick=True)]
        assert len(set(ids)) == len(ids) > 1


def test_unknown_experiments_are_named():
    with pytest.raises(ValueError, match="no experiment 'fig9'"):
        reproduce("fig9")
