"""What a report says is what the runs hold."""

import re

import numpy as np
import pytest
from pages import small_world

import latentmdp as lm
from latentmdp.errors import FormatError
from latentmdp.metrics import trailing_means
from latentmdp.report.demo import growth
from latentmdp.report.page import Section, Table, render
from latentmdp.report.plans import certificate, compact_table, risk_table
from latentmdp.report.report import (
    Record,
    curves_section,
    filled,
    group_records,
    model_section,
    read,
    runs_section,
    write_report,
)


@pytest.fixture(scope="module")
def learned():
    planner = lm.HSVI(gap=0.05, time_limit=1.0)
    return [
        lm.learn(small_world(), 3, episodes=60, explore=30, rng=k, planner=planner) for k in (0, 1)
    ]


def assert_same(again, first):
    """The outcomes agree in every number and text."""
    np.testing.assert_array_equal(again.returns, first.returns)
    np.testing.assert_array_equal(again.fit.responsibilities, first.fit.responsibilities)
    np.testing.assert_array_equal(np.array(again.phases), np.array(first.phases))
    assert (again.logs, again.model, again.settings) == (first.logs, first.model, first.settings)
    for name in ("lower", "upper", "history", "guarantee", "converged", "message"):
        assert getattr(again.plan, name) == getattr(first.plan, name)


def test_what_was_learned_comes_back_whole(learned, tmp_path):
    first = learned[0]
    lm.save(first, tmp_path / "run.npz")
    again = lm.load(tmp_path / "run.npz")
    assert_same(again, first)
    played = [lm.simulate(small_world(), r.policy, 50, rng=1) for r in (first, again)]
    assert played[0] == played[1]


def test_a_learned_markov_policy_is_kept(tmp_path):
    planner = lm.Memoryless(method="cadp")
    found = lm.learn(small_world(), 2, episodes=30, explore=20, rng=0, planner=planner)
    lm.save(found, tmp_path / "run.npz")
    again = lm.load(tmp_path / "run.npz").policy
    np.testing.assert_array_equal(again.actions, found.policy.actions)


def test_a_cut_file_is_refused(learned, tmp_path):
    path = tmp_path / "run.npz"
    lm.save(learned[0], path)
    whole = path.read_bytes()
    for size in np.random.default_rng(0).integers(len(whole), size=50):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError):
            lm.load(path)


def test_damage_is_refused_or_changes_nothing(learned, tmp_path):
    """A few bytes of an archive, such as the times of its members, say nothing of its contents."""
    path = tmp_path / "run.npz"
    lm.save(learned[0], path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(100):
        damaged = bytearray(whole)
        for place in rng.integers(len(whole), size=3):
            damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(damaged))
        try:
            again = lm.load(path)
        except FormatError:
            refused += 1
        else:
            assert_same(again, learned[0])
    assert refused > 50  # most bytes are contents


def test_runs_that_differ_in_seed_and_world_are_one_curve(learned):
    world = small_world()
    other = lm.learn(
        world, 3, episodes=60, explore=30, bonus=lm.VarianceBonus(deviation=1.0), rng=0
    )
    run = lm.LUCRL().run(world, 20, rng=0)
    records = [Record(str(k), r) for k, r in enumerate([*learned, other, run])]
    groups = group_records(records)
    assert [[r.name for r in members] for members in groups.values()] == [["0", "1"], ["2"], ["3"]]


def test_trailing_means_match_their_definition():
    returns = np.random.default_rng(0).random(30)
    expected = [returns[max(0, k - 6) : k + 1].mean() for k in range(30)]
    means = trailing_means(returns, np.arange(1, returns.size + 1), 7)
    np.testing.assert_allclose(means, expected, rtol=1e-12)


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


def test_the_return_at_the_end_is_that_of_the_last_tenth(learned):
    """In the table, and as the last point of the curve."""
    records = [Record(str(k), run) for k, run in enumerate(learned)]
    groups = {"g": records}
    ends = [run.returns[-6:].mean() for run in learned]  # 60 episodes
    (table,) = runs_section(groups).tables
    column = table.header.index("return at the end")
    assert [row[column] for row in table.rows] == [f"{end:.4g}" for end in ends]
    (axes,) = curves_section(groups).pictures[0].figure.axes
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(np.mean(ends))


def test_unvisited_rows_become_uniform():
    run = lm.LUCRL().run(small_world(), 1, rng=0)
    whole = filled(run.model)
    np.testing.assert_allclose(whole.transitions.sum(axis=-1), 1.0)
    seen = run.model.transitions.sum(axis=-1) > 0.0
    np.testing.assert_array_equal(whole.transitions[seen], run.model.transitions[seen])
    assert not seen.all()


def test_every_figure_has_axes_and_a_caption(learned):
    world = small_world()
    groups = group_records([Record(str(k), r) for k, r in enumerate(learned)])
    first = learned[0]
    pictures = [
        *curves_section(groups, {"random": 1.0}).pictures,
        *model_section("m", first.model, first.policy, first.plan, world).pictures,
    ]
    assert len(pictures) >= 7
    for picture in pictures:
        assert picture.title
        assert len(picture.caption) > 40
        shown = [axes for axes in picture.figure.axes if axes.axison]
        assert all(axes.get_xlabel() for axes in shown)
        rows = [label.get_text() for axes in shown for label in axes.get_yticklabels()]
        assert not shown or shown[0].get_ylabel() or any(rows)


def test_a_curve_is_held_against_what_can_be_earned(learned):
    """Not against a bound that no policy reaches."""
    groups = group_records([Record(str(k), r) for k, r in enumerate(learned)])
    lines = {"context known (bound)": 3.0, "the best plan": 2.0, "random actions": 1.0}
    caption = curves_section(groups, lines).pictures[0].caption
    assert "near the line of: the best plan." in caption


def test_a_table_of_many_columns_is_stacked_on_a_phone():
    wide, narrow = ("abcde", "abc")
    tables = [Table(header, tuple(header), [tuple(header)]) for header in (wide, narrow)]
    text = render("Title", "Lead", [Section("One", "", tables)])
    assert text.count('<table class="stack">') == 1
    assert text.index('aria-label="abcde"') < text.index('<table class="stack">')
    assert text.index('<table class="stack">') < text.index('aria-label="abc"')


def test_the_page_is_self_contained_and_escaped(small_report):
    text = (small_report / "report.html").read_text()
    assert "A &lt;small&gt; report" in text
    assert "<script" not in text
    links = re.findall(r"""(?:src|href)=["']([^"']+)["']""", text)
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.findall(r"url\((?!#)", text)
    for part in ("From logs to a policy", "Figure 1a", "Theorem 3.1", "What the paper claims"):
        assert part in text
    for part in ("Runs and seeds", "Settings", "Which assumptions", "What is proved", "Wall-clock"):
        assert part in text
    seeds = re.findall(r'data-label="seed"[^>]*>(\d+)</td>', text)
    runs = [read(small_report / name) for name in ("a.npz", "b.npz", "c.parquet")]
    assert seeds == [str(run.run.settings.get("seed")) for run in runs]
    assert seeds[0] != seeds[1]


def test_logs_come_first_and_the_theory_is_folded(small_report):
    text = (small_report / "report.html").read_text()
    headings = re.findall(r"<h2>([^<]*)</h2>", text)
    assert headings[0].startswith("From logs to a policy")
    assert headings[1].startswith("What was found in the logs")
    contents = re.findall(r'<li><a href="#s\d+">([^<]*)</a></li>', text)
    assert contents == headings
    folded = re.findall(r"<summary><strong>([^<]*)</strong></summary>", text)
    assert set(folded) == {"Which assumptions of the theory hold"}


def test_risk_is_what_the_policy_earns_in_each_context():
    world = small_world()
    plan = lm.HSVI(gap=0.05, time_limit=1.0).plan(world)
    table = risk_table(world, {"planned": plan.policy, "random": lm.UniformPolicy()})
    exact = lm.evaluate(world, lm.UniformPolicy()).by_context
    known = lm.planning.context_values(world)
    shown = [row[-1] for row in table.rows[:3]]
    assert [float(cell.split()[0]) for cell in shown] == pytest.approx(exact, rel=1e-3)
    assert shown[int(exact.argmin())].endswith("(worst)")
    assert sum(cell.endswith("(worst)") for cell in shown) == 1
    assert float(table.rows[-1][-1]) == pytest.approx((known - exact).max(), rel=1e-3)
    assert float(table.rows[-2][-1]) == pytest.approx(world.weights @ exact, rel=1e-3)


def test_a_certificate_holds_what_is_known_and_nothing_else():
    world = small_world()
    bounded, informed = lm.HSVI(gap=0.05).plan(world), lm.QMDP().plan(world)
    for plan in (bounded, informed):
        rows = dict(certificate(plan).rows)
        assert ("lower" in rows) == (plan.lower is not None)
        assert "-" not in rows.values()


def test_the_plan_in_short_states_its_loss():
    plan = lm.HSVI(gap=0.001, time_limit=5.0).plan(small_world())
    table = compact_table(plan)
    rows = dict(table.rows)
    assert "vectors in place of" in rows["message"]
    assert float(rows["lower"]) >= 0.98 * plan.lower
    assert compact_table(lm.QMDP().plan(small_world())) is None


def test_nothing_to_report_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="at least one"):
        write_report([], tmp_path / "report.html")


def test_models_without_an_end_and_large_ones_have_a_section_without_the_theory():
    ends = lm.make("random", states=3, horizon=4, rng=0)
    for model in (ends.replace(horizon=None, discount=0.8), lm.make("sparse", states=4_000)):
        plan = lm.QMDP().plan(model)
        section = model_section("a model", model, plan.policy, plan)
        titles = [table.title for table in section.tables]
        few = ["What to do"] if model.n_states == 3 else []
        assert titles == [
            *few,
            "Risk: what is earned in each context",
            "What is proved of the plan",
        ]
        assert "whose episodes end" in section.text
        assert ("plan.compact" in section.text) == (model.n_states > 3)  # what is left out is said
        assert ("explain --out" in section.text) == (model.n_states > 3)
        drawn = [picture.title for picture in section.pictures]
        assert "How episodes go" in drawn
    titles = [table.title for table in model_section("a model", ends, None, None).tables]
    assert titles[0].startswith("What to do · Step")
    assert titles[-1] == "Which assumptions of the theory hold"
