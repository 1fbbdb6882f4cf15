"""Folders of experiments: whole, or refused with a reason."""

import hashlib
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from latentmdp.errors import FormatError
from latentmdp.experiments import read_experiment, reproduce
from latentmdp.experiments.fig1a import analyse


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return reproduce("fig1a", quick=True, seeds=2, jobs=1, out=tmp_path_factory.mktemp("out"))


@pytest.fixture
def folder(written, tmp_path):
    """The files that a reader needs, in a folder of their own."""
    for path in (written.manifest, written.numbers):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def changed(folder, change):
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return content


def test_an_experiment_comes_back(written, folder):
    found = read_experiment(folder)
    findings = analyse(pq.read_table(written.numbers))
    assert found.findings.claims == findings.claims == written.claims
    assert found.findings.panels == findings.panels
    assert found.findings.description.startswith(findings.description)
    assert "not the paper's" in found.findings.description
    assert found.quick
    assert [run.id for run in found.runs] == list(dict.fromkeys(
        pq.read_table(written.numbers)["id"].to_pylist()
    ))  # fmt: skip
    assert all(0.0 <= run.seconds < 600.0 for run in found.runs)


def test_the_digest_is_not_of_the_time_it_took(folder):
    before = read_experiment(folder)
    changed(folder, lambda m: m["runs"][0].update(seconds=77.0))
    changed(folder, lambda m: m["runs"][1].update(seconds=None))
    found = read_experiment(folder)
    assert [run.seconds for run in found.runs[:2]] == [77.0, None]
    assert replace(found, runs=()) == replace(before, runs=())


def test_a_manifest_of_before_is_read(folder, monkeypatch):
    """Schema 1 had the findings in it and no digest of the numbers."""
    before = read_experiment(folder)
    content = changed(folder, lambda m: (m.update(schema=1, title="T"), m.pop("numbers")))
    signed = {n: v for n, v in content.items() if n not in ("digest", "version")}
    signed["runs"] = [{n: v for n, v in run.items() if n != "seconds"} for run in signed["runs"]]
    text = json.dumps(signed, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    changed(folder, lambda m: m.update(digest=digest))
    assert read_experiment(folder) == before


def test_a_folder_without_manifest_is_told_what_to_do(tmp_path):
    with pytest.raises(FormatError, match=r"has no manifest\.json.*`latentmdp reproduce` finishes"):
        read_experiment(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(title="Other"), "not those that were written"),
        (lambda m: m["runs"][1].update(id="other"), "not those that were written"),
        (lambda m: m.update(kind="model"), "holds 'model'"),
        (lambda m: m.update(schema=3), "schema 3"),
        (lambda m: m["runs"][0].update(seconds=-1), "must not be negative"),
        (lambda m: m["runs"][0].update(seconds="long"), "must be a number"),
        (lambda m: m.pop("numbers"), "not those"),
    ],
)
def test_a_changed_manifest_is_refused(folder, change, message):
    changed(folder, change)
    with pytest.raises(FormatError, match=rf"is not the manifest of an experiment: .*{message}"):
        read_experiment(folder)


@pytest.mark.parametrize("change", [{"name": "../m"}, {"name": 3}, {"runs": [{}]}, {"quick": "x"}])
def test_a_signed_manifest_that_cannot_be_is_refused(folder, monkeypatch, change):
    """Even with a right digest, as one who changes a file on purpose would give it."""
    monkeypatch.setattr("latentmdp._util.storage.digest_of", lambda *_: "signed")
    changed(folder, lambda m: m.update({"digest": "signed", **change}))
    with pytest.raises(FormatError, match="is not the manifest of an experiment"):
        read_experiment(folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: pq.write_table(pq.read_table(path).slice(1), path),
        lambda path: path.unlink(),
    ],
)
def test_changed_numbers_are_refused(folder, damage):
    damage(folder / "fig1a.parquet")
    with pytest.raises(FormatError, match="is not the manifest of an experiment"):
        read_experiment(folder)


def test_numbers_that_cannot_be_drawn_are_refused(folder, monkeypatch):
    table = pa.table({"arm": ["revealed"], "seed": ["x"]})
    pq.write_table(table, folder / "fig1a.parquet")
    digest = hashlib.sha256((folder / "fig1a.parquet").read_bytes()).hexdigest()
    monkeypatch.setattr("latentmdp._util.storage.digest_of", lambda *_: "signed")
    changed(folder, lambda m: m.update(digest="signed", numbers=digest))
    with pytest.raises(FormatError, match="is not the manifest of an experiment"):
        read_experiment(folder)
