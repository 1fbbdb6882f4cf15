"""The page of decisions: the table, and values by context that are those of the policy."""

import re

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.report import write_decision_page


def machines(contexts=3):
    """Costs of a machine that is run or repaired, in models that wear at different rates."""
    rates = np.linspace(0.1, 0.6, contexts)
    transitions = np.array([[[[1 - r, r], [1, 0]], [[0, 1], [0.8, 0.2]]] for r in rates])
    costs = np.array([[0.0, -2.0], [-5.0, -4.0]])
    names = {"state_names": ["fine", "worn"], "action_names": ["run", "repair"]}
    return lm.LatentMDP.from_amounts(transitions, costs, horizon=8, initial=0, **names)


@pytest.mark.parametrize("contexts", [1, 2, 3, 5])
def test_the_worst_case_on_the_page_is_that_of_the_policy(tmp_path, contexts):
    model = machines(contexts)
    policy = lm.HSVI(gap=0.001).plan(model).policy
    write_decision_page(model, policy, tmp_path / "page.html", title="Machines & costs")
    text = (tmp_path / "page.html").read_text()
    assert "Machines &amp; costs" in text
    assert "<script" not in text
    cells = re.findall(r'data-label="this policy"[^>]*>(-?[\d.]+)( \(worst\))?<', text)
    (worst,) = [float(number) for number, mark in cells if mark]
    exact = lm.evaluate(model, policy, method="exact").by_context
    simulated = lm.evaluate(model, policy, rng=0).stderr_by_context
    assert worst == pytest.approx(exact.min(), rel=5e-4, abs=4.0 * simulated.max() + 1e-9)
    assert "fine" in text
    assert "repair" in text


def test_without_an_end_and_without_belief(tmp_path):
    model = machines(2).replace(horizon=None, discount=0.9)
    found = lm.HSVI(gap=0.01).plan(model)
    small = found.compact(vectors=3, graph=True)
    for plan in (found, small, lm.Memoryless().plan(model), lm.Robust(gap=0.01).plan(model)):
        write_decision_page(model, plan.policy, tmp_path / "page.html")
        assert "(worst)" in (tmp_path / "page.html").read_text()
