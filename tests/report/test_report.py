"""What a report says is what the runs hold."""

import re

import numpy as np
import pytest
from pages import small_world, write_small_report

import latentmdp as lm
from latentmdp.errors import FormatError
from latentmdp.report import sections
from latentmdp.report.beliefs import growth
from latentmdp.report.curves import trailing
from latentmdp.report.differences import difference_maps
from latentmdp.report.page import Section, Table, render
from latentmdp.report.records import filled, group_records, record_of
from latentmdp.report.runs import write_report


@pytest.fixture(scope="module")
def learned():
    planner = lm.HSVI(gap=0.05, time_limit=1.0)
    return [
        lm.learn(small_world(), 3, episodes=60, explore=30, rng=k, planner=planner) for k in (0, 1)
    ]


def test_what_was_learned_comes_back_whole(learned, tmp_path):
    first = learned[0]
    lm.save(first, tmp_path / "run.npz")
    again = lm.load(tmp_path / "run.npz")
    np.testing.assert_array_equal(again.returns, first.returns)
    np.testing.assert_array_equal(again.fit.responsibilities, first.fit.responsibilities)
    np.testing.assert_array_equal(np.array(again.phases), np.array(first.phases))
    assert (again.logs, again.model, again.settings) == (first.logs, first.model, first.settings)
    for name in ("lower", "upper", "history", "guarantee", "converged", "message"):
        assert getattr(again.plan, name) == getattr(first.plan, name)
    played = [lm.simulate(small_world(), r.policy, 50, rng=1) for r in (first, again)]
    assert played[0] == played[1]


def test_a_learned_markov_policy_is_kept(tmp_path):
    planner = lm.Memoryless(method="cadp")
    found = lm.learn(small_world(), 2, episodes=30, explore=20, rng=0, planner=planner)
    lm.save(found, tmp_path / "run.npz")
    again = lm.load(tmp_path / "run.npz").policy
    np.testing.assert_array_equal(again.actions, found.policy.actions)


def test_a_damaged_file_is_refused(learned, tmp_path):
    path = tmp_path / "run.npz"
    lm.save(learned[0], path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(whole)
        for place in rng.integers(len(whole), size=3):
            damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(damaged)[: int(rng.integers(1, len(whole) + 1))])
        try:
            lm.load(path)
        except FormatError:
            continue


def test_runs_that_differ_in_seed_and_world_are_one_curve(learned):
    world = small_world()
    other = lm.learn(world, 3, episodes=60, explore=30, bonus=0.5, rng=0)
    run = lm.LUCRL().run(world, 20, rng=0)
    records = [record_of(str(k), r) for k, r in enumerate([*learned, other, run])]
    groups = group_records(records)
    assert [[r.name for r in members] for members in groups.values()] == [["0", "1"], ["2"], ["3"]]


def test_trailing_means_match_their_definition():
    returns = np.random.default_rng(0).random(30)
    expected = [returns[max(0, k - 6) : k + 1].mean() for k in range(30)]
    np.testing.assert_allclose(trailing(returns, 7), expected, rtol=1e-12)


def test_difference_maps_attain_the_separation():
    few, many = small_world(), lm.make("separated", 0, contexts=5, states=6, delta=0.5)
    assert len(difference_maps(few)) == 3
    assert min(d.min() for d in difference_maps(few).values()) == pytest.approx(lm.separation(few))
    maps = difference_maps(many)
    assert maps["nearest pair"].min() == pytest.approx(lm.separation(many))
    assert (maps["nearest pair"] <= maps["farthest pair"]).all()


def test_the_belief_in_the_true_context_is_a_martingale_upwards():
    """E b_t(true) = E sum_m b_t(m)^2 starts at that of the prior and never falls in the mean."""
    world = small_world()
    curve = growth(world, lm.UniformPolicy(), world, 4000, 0)
    first = lm.posterior(world, lm.simulate(world, lm.UniformPolicy(), 4000, rng=0), along=True)
    prior = (first.reshape(4000, -1, 3)[:, 0] ** 2).sum(axis=1).mean()
    error = 4.0 / np.sqrt(4000)  # a probability varies by 1 at most: far beyond 4 standard errors
    assert curve[:, 0].mean() == pytest.approx(prior, abs=error)
    assert (np.diff(curve.mean(axis=0)) > -error).all()
    same = growth(world, lm.UniformPolicy(), world.subset([2, 0, 1]), 100, 0)
    np.testing.assert_allclose(same, growth(world, lm.UniformPolicy(), world, 100, 0), atol=1e-9)


def test_unvisited_rows_become_uniform():
    run = lm.LUCRL().run(small_world(), 1, rng=0)
    whole = filled(run.model)
    np.testing.assert_allclose(whole.transitions.sum(axis=-1), 1.0)
    seen = run.model.transitions.sum(axis=-1) > 0.0
    np.testing.assert_array_equal(whole.transitions[seen], run.model.transitions[seen])
    assert not seen.all()


def test_every_figure_has_axes_and_a_caption(learned):
    world = small_world()
    groups = group_records([record_of(str(k), r) for k, r in enumerate(learned)])
    first = learned[0]
    pictures = [
        *sections.curves_section(groups, {"random": 1.0}).pictures,
        *sections.model_section("m", first.model, first.policy, first.plan, world).pictures,
    ]
    assert len(pictures) == 6
    for picture in pictures:
        assert picture.title
        assert len(picture.caption) > 40
        shown = [axes for axes in picture.figure.axes if axes.axison]
        assert all(axes.get_xlabel() for axes in shown)
        assert not shown or shown[0].get_ylabel()


def test_a_curve_is_held_against_what_can_be_earned(learned):
    """Not against a bound that no policy reaches."""
    groups = group_records([record_of(str(k), r) for k, r in enumerate(learned)])
    lines = {"context known (bound)": 3.0, "the best plan": 2.0, "random actions": 1.0}
    caption = sections.curves_section(groups, lines).pictures[0].caption
    assert "near the line of: the best plan." in caption


def test_a_table_of_many_columns_is_stacked_on_a_phone():
    wide, narrow = ("abcde", "abc")
    tables = [Table(header, tuple(header), [tuple(header)]) for header in (wide, narrow)]
    text = render("Title", "Lead", [Section("One", "", tables)])
    assert text.count('<table class="stack">') == 1
    assert text.index('aria-label="abcde"') < text.index('<table class="stack">')
    assert text.index('<table class="stack">') < text.index('aria-label="abc"')


def test_the_page_is_self_contained_and_escaped(tmp_path):
    text = write_small_report(tmp_path).read_text()
    assert "A &lt;small&gt; report" in text
    assert "<script" not in text
    links = re.findall(r"""(?:src|href)=["']([^"']+)["']""", text)
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.findall(r"url\((?!#)", text)
    for part in ("From logs to a policy", "Figure 1a", "Theorem 3.1", "What the paper claims"):
        assert part in text
    for part in ("Runs and seeds", "Settings", "Which assumptions", "Certificates", "Wall-clock"):
        assert part in text
    seeds = re.findall(r"<td[^>]*>(\d{15,})</td>", text)
    assert len(set(seeds)) == 2


def test_nothing_to_report_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="at least one"):
        write_report([], tmp_path / "report.html")
