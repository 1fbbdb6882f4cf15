"""What notebooks show: everything that is made or found has a table of its facts, escaped."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.testing import random_model


def things():
    model = random_model(0, contexts=2, states=3, actions=2, horizon=3)
    model = model.replace(context_names=["<a>", "b & c"])
    plan = lm.QMDP().plan(model)
    logs = lm.simulate(model, plan.policy, 10, rng=0)
    session = plan.policy.session()
    yield from (model, plan, plan.policy, lm.UniformPolicy(), logs, session)
    yield lm.evaluate(model, plan.policy)
    yield lm.EM(2).fit(logs, rng=0)
    yield lm.LUCRL().run(model, 5, rng=0)
    yield lm.explain(model, plan.policy, 0)
    yield lm.report.decision_table(model, plan.policy)


def test_everything_has_a_table():
    for thing in things():
        shown = thing._repr_html_()
        assert "<table" in shown, type(thing).__name__
        assert "<a>" not in shown, type(thing).__name__
        assert " at 0x" not in shown, type(thing).__name__


def test_facts_of_logs_are_those_of_the_logs():
    model = random_model(1, contexts=2, states=3, actions=2, horizon=4)
    logs = lm.simulate(model, lm.UniformPolicy(), 20, rng=0)
    facts = logs.facts()
    assert facts["steps"] == int(logs.lengths.sum())
    assert facts["mean_return"] == pytest.approx(logs.returns().mean())
    assert facts["lengths"].value == [4, 4]
    empty = logs[np.zeros(0, int)] if hasattr(logs, "__getitem__") else None
    assert empty is None or empty.facts()["mean_return"] is None


def test_a_session_says_where_it_is():
    model = random_model(2, contexts=2, states=3, actions=2, horizon=4)
    session = lm.QMDP().plan(model).policy.session()
    assert session.facts()["state"] is None
    state = int(np.argmax(model.initial[0]))
    session.observe(state)
    facts = session.facts()
    assert facts["state"] == f"state {state}"
    assert facts["belief"].startswith("context 0 ")
