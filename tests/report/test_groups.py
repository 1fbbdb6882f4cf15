"""Groups of a fit: profiles against the model of the logs, and a table for spreadsheets."""

import csv
import warnings

import numpy as np

import latentmdp as lm
from latentmdp.report.groups import profiles, write_groups


def fitted(names=None):
    """Two groups that differ in one state and action alone: it leads to B in 90 % or in 10 %."""
    T = np.full((2, 2, 2, 2), 0.5)
    T[:, 0, 1] = [[0.1, 0.9], [0.9, 0.1]]
    model = lm.LatentMDP(T, np.full((2, 2, 2), 0.5), horizon=20)
    logs = lm.simulate(model, lm.UniformPolicy(), 300, rng=0).without_contexts()
    called = {"state_names": ("A", "B"), "action_names": ("wait", "drug"), "episode_names": names}
    logs = lm.Trajectories.from_fields({**logs.to_fields(), **called})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lm.initialize(None, logs, 2, rng=0), logs


def test_a_profile_names_what_sets_a_group_apart() -> None:
    fit, logs = fitted()
    B = fit.model.transitions[:, 0, 1, 1]
    for m, sentence in enumerate(profiles(fit, logs, most=1)):
        assert f"{fit.model.weights[m]:.0%} of individuals" in sentence
        there, others = (f"{B[m]:.2g} (others {B[1 - m]:.2g})", f"{1 - B[m]:.2g}")
        assert f"drug in A leads to B: {there}" in sentence or f"leads to A: {others}" in sentence


def test_one_group_has_nothing_that_sets_it_apart() -> None:
    _, logs = fitted()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (sentence,) = profiles(lm.EM(1).fit(logs, rng=0), logs)
    assert sentence.endswith("nothing clearly sets it apart")


def test_a_spreadsheet_gets_every_individual_and_runs_no_name(tmp_path) -> None:
    names = ["=cmd()", "+1", "-1", "@x", *map(str, range(4, 300))]
    fit, logs = fitted(names)
    write_groups(tmp_path / "groups.csv", fit, logs)
    with (tmp_path / "groups.csv").open() as stream:
        header, *rows = csv.reader(stream)
    assert header == ["individual", "group", "context 0", "context 1"]
    assert [row[0] for row in rows] == [f"'{name}" for name in names[:4]] + names[4:]
    shares = np.array([row[2:] for row in rows], float)
    np.testing.assert_allclose(shares, fit.responsibilities, atol=1e-5)
    assert [row[1] for row in rows] == [f"context {m}" for m in fit.labels]
