"""Every picture on every kind of result, without a warning, and with the numbers it is made of."""

import warnings

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

import latentmdp as lm
from latentmdp.testing import random_model

SIZES = [(1, 1), (2, 3), (7, 20), (50, 4), (3, 500)]


@pytest.fixture(autouse=True)
def strict():
    """A warning is a failure, and drawing to the end is part of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def drawn(axes):
    """The axes after everything was laid out, where most warnings of matplotlib come from."""
    axes.figure.draw_without_rendering()
    return axes


def sized(contexts, states, **more):
    return random_model(0, contexts=contexts, states=states, actions=3, **{"horizon": 4, **more})


def panel():
    """Axes as a user has them, beside others."""
    return Figure().subplots(1, 2)[0]


@pytest.mark.parametrize(("contexts", "states"), SIZES)
def test_models_of_every_size(contexts, states):
    model = sized(contexts, states)
    plan = lm.QMDP().plan(model)
    session = plan.policy.session()
    session.observe(int(np.argmax(model.initial[0])))
    for given in (None, panel()):
        for draw, what in (
            (lm.plot.beliefs, session),
            (lm.plot.bounds, plan),
            (lm.plot.groups, model),
            (lm.plot.graph, model),
            (lm.plot.policy, plan),
        ):
            axes = drawn(draw(what, ax=given))
            assert isinstance(axes, mpl.axes.Axes)
            assert given is None or axes is given


def test_policies_of_every_kind():
    model = sized(3, 4, n_terminal=1)
    endless = model.replace(horizon=None, discount=0.8)
    plans = [
        lm.HSVI(gap=0.1, time_limit=2.0).plan(model),
        lm.HSVI(gap=0.1, time_limit=2.0).plan(endless).compact(vectors=2, graph=True),
        lm.Robust(gap=0.1, time_limit=2.0).plan(model),
        lm.Memoryless().plan(model),
        lm.PBVI().plan(model),
    ]
    for plan in plans:
        drawn(lm.plot.policy(plan))
        drawn(lm.plot.bounds(plan))
        drawn(lm.plot.graph(endless if plan is plans[1] else model, plan.policy))
        told = lm.explain(endless if plan is plans[1] else model, plan.policy, 0)
        drawn(lm.plot.policy(told))
    drawn(lm.plot.bounds({"one": plans[0], "two": plans[4], "three": plans[3]}))
    drawn(lm.plot.policy(lm.MarkovPolicy(np.full((4, 4, 3), 1 / 3))))
    terminal = int(np.argmax(model.terminal))
    assert "over" in drawn(lm.plot.policy(plans[0], terminal)).get_title()
    with pytest.raises(TypeError, match="neither a model nor a table"):
        lm.plot.policy(lm.UniformPolicy())
    with pytest.raises(ValueError, match="no bound"):
        lm.plot.bounds(lm.Plan(lm.UniformPolicy()))


def test_the_bars_of_a_policy_change_colour_where_its_action_changes():
    model = sized(4, 2)
    policy = lm.HSVI(gap=0.05).plan(model).policy
    axes = drawn(lm.plot.policy(policy, 0, model.weights))
    told = lm.explain(model, policy, 0, model.weights)
    for point in told.turning_points:
        bars = [bar for bar in axes.patches if round(bar.get_y() + 0.35) == point.context]
        assert bars[0].get_x() == pytest.approx(model.weights[point.context])
        assert sum(bar.get_width() for bar in bars) == pytest.approx(1 - bars[0].get_x())
        if point.belief is not None:
            assert bars[1].get_x() == pytest.approx(point.belief[point.context])


def test_graph_shows_the_chain():
    """In a chain without choice, arrows and loops are the chain."""
    chain = np.array([[0.5, 0.5, 0.0], [0.2, 0.0, 0.8], [1.0, 0.0, 0.0]])
    transitions = np.broadcast_to(chain[None, :, None], (2, 3, 2, 3))
    model = lm.LatentMDP(transitions, np.full((2, 3, 2), 0.5), initial=0, horizon=50)
    axes = drawn(lm.plot.graph(model, episodes=400))
    assert len(axes.patches) == 4  # 0 -> 1, 1 -> 0, 1 -> 2, 2 -> 0
    (loop,) = [text.get_text() for text in axes.texts if "stays" in text.get_text()]
    # 400 x 50 steps, half of them in state 0: a standard error of half a per cent
    assert abs(float(loop.rpartition(" ")[2].strip("%")) - 50.0) < 3.0


def test_runs_and_regret():
    world = sized(2, 3)
    runs = [lm.LUCRL().run(world, 30, rng=seed) for seed in range(2)]
    one = lm.LUCRL().run(world, 1, rng=0)
    for group in (runs[0], runs, {"a": runs, "b": runs[0]}, one):
        axes = drawn(lm.plot.returns(group, references={"best": 1.0}))
        drawn(lm.plot.model_errors(group))
        drawn(lm.plot.regret(group, lm.HSVI(gap=0.1).plan(world)))
    last = lm.plot.returns(runs[0]).lines[0].get_ydata()[-1]
    assert last == pytest.approx(runs[0].trailing_return())
    assert axes.get_xlabel() == "episodes played"
    with pytest.raises(TypeError, match="run must be"):
        lm.plot.returns([])


def test_logs_that_were_solved():
    logs = lm.simulate(sized(2, 3), lm.UniformPolicy(), 300, rng=0).without_contexts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solved = lm.solve(logs, 2, rng=0, bootstrap=2)
        value = lm.off_policy_value(logs, lm.UniformPolicy())
    drawn(lm.plot.estimates(solved, true=1.0))
    for result in (solved, solved.fit, solved.model):
        drawn(lm.plot.groups(result))
    assert len(drawn(lm.plot.agreement(value)).lines[0].get_xdata()) == value.steps
    drawn(lm.plot.agreement(solved))
    drawn(lm.plot.policy(solved))


def test_groups_show_what_tells_contexts_apart():
    model = sized(3, 4)
    axes = drawn(lm.plot.groups(model, most=1))
    dots = np.array([dot.get_offsets()[0, 0] for dot in axes.collections[:3]])
    widest = np.ptp(np.concatenate([model.initial.T, model.outcomes.probs]), axis=1).max()
    assert np.ptp(dots) == pytest.approx(widest)


def test_beliefs_add_up():
    path = np.random.default_rng(0).dirichlet(np.ones(50), size=6)
    axes = drawn(lm.plot.beliefs(path, true=49))
    tops = {}
    for bar in axes.patches:
        key = round(bar.get_x() + 0.43)
        tops[key] = max(tops.get(key, 0.0), bar.get_y() + bar.get_height())
    assert list(tops.values()) == pytest.approx([1.0] * 6)
    assert axes.containers[0].get_label() == "context 49 (true)"
    with pytest.raises(ValueError, match="got shape"):
        lm.plot.beliefs(np.ones(3))


def test_no_file_and_no_figure_is_left(tmp_path, monkeypatch):
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    lm.plot.groups(sized(2, 2))
    assert list(tmp_path.iterdir()) == []
    assert pyplot.get_fignums() == []


def test_picture_draws_what_says_most(tmp_path):
    model = sized(2, 3)
    plan = lm.QMDP().plan(model)
    run = lm.LUCRL().run(model, 30, rng=0)
    for result, label in (
        (plan, "value per episode"),
        ({"a": plan}, "value per episode"),
        (run, "mean return per episode"),
        (plan.policy.session(), "probability"),
    ):
        assert drawn(lm.plot.picture(result)).get_ylabel() == label
    for result in (model, plan.policy, lm.explain(model, plan.policy, 0)):
        drawn(lm.plot.picture(result, ax=panel()))
    with pytest.raises(TypeError, match="no picture of a int"):
        lm.plot.picture(3)
