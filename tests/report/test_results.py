"""The page of results is filled from folders of runs, and keeps what has none."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import script

from latentmdp.experiments import reproduce

results = script("docs/tools/results.py")
PARTS, write_results = results.PARTS, results.write_results


@pytest.fixture
def docs(tmp_path):
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    marks = "".join(f"<!-- begin {n} -->\nnot yet {n}\n<!-- end {n} -->\n\n" for n in PARTS)
    (tmp_path / "docs" / "results.md").write_text(f"# Results\n\n{marks}after\n")
    return tmp_path / "docs"


def test_parts_are_filled_and_filled_again(docs, tmp_path):
    out = tmp_path / "out"
    before = (docs / "results.md").read_text()
    assert write_results(out, docs) == []
    assert (docs / "results.md").read_text() == before
    found = reproduce("lower_bound", quick=True, seeds=2, jobs=1, out=out)
    found.folder.rename(out / "lower_bound")
    (out / "coverage").mkdir()
    good = {"kind": "far", "covers": True, "value": 2.0, "mean": 2.1, "low": 1.9, "high": 2.3}
    bad = {"kind": "near", "covers": False, "value": 2.0, "mean": 1.0, "low": 0.9, "high": 1.1}
    for i, row in enumerate([good] * 9 + [bad]):
        (out / "coverage" / f"instance-{i:05d}.json").write_text(json.dumps(row))
    gaps = [(0.1, 0.5), (1.0, 0.1), (2.0, 0.01)]
    entries = [
        {"planner": planner, "sizes": [3, 7, 2, 10], "seed": seed, "gaps": gaps}
        for planner in ("HSVI", "SARSOP")
        for seed in (0, 1)
    ]
    other = {"problem": "no end", "sizes": [4, 2, 4, None], "seed": 0, "gaps": gaps}
    (out / "planning_gap.json").write_text(json.dumps([*entries, other]))
    cells = {
        **{"task": ["a", "b"], "learner": ["learn", "learn"], "seed": [0, 0]},
        **{"episodes": [5, 5], "score": [0.95, 0.5], "earned": [1.0, 1.0], "reached": [1.0, 1.0]},
        **{"seconds": [1.0, 1.0], "problem": ["", ""]},
    }
    (out / "arena").mkdir()
    pq.write_table(pa.table(cells), out / "arena" / "arena.parquet")
    for _ in range(2):  # the second time changes nothing
        filled = write_results(out, docs)
        text = (docs / "results.md").read_text()
        assert filled == ["lower_bound", "planning", "arena", "coverage"]
        assert "not yet lower_bound" not in text
        assert "not yet fig2" in text
        assert text.endswith("after\n")
    for claim in found.claims:
        assert claim.verdict in text
        assert claim.measured in text
    assert "steps | 9 | 100% | 10.0% | +5.0% |" in text
    assert "| all | 10 | 90% | 9.5% | -0.5% |" in text
    assert "| (3, 7, 2, 10) | HSVI | 2 | 2 s | 1.00% |" in text
    assert "| (3, 7, 2, 10) | SARSOP | 2 | 2 s | 1.00% |" in text
    assert "(4, 2, 4" not in text
    assert "beside SARSOP" in text
    assert "| learn | 0.72 | 0.50 | 1 | - |" in text or "| learn | 0.73 | 0.50 | 1 | - |" in text
    shown = {path.stem for path in (docs / "pictures").iterdir()}
    assert {"coverage", "planning-gap", "arena", "lower_bound-1"} <= shown
    assert all(f"pictures/{name}.svg" in text for name in shown)


def test_a_page_without_marks_is_refused(docs, tmp_path):
    (docs / "results.md").write_text("# Results\n")
    (tmp_path / "coverage").mkdir()
    row = {"kind": "far", "covers": True, "value": 2.0, "mean": 2.1, "low": 1.9, "high": 2.3}
    (tmp_path / "coverage" / "instance-00000.json").write_text(json.dumps(row))
    with pytest.raises(ValueError, match="begin coverage"):
        write_results(tmp_path, docs)
