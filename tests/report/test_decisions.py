"""Decision tables say what the policy does, phase by phase, and earn what they say."""

import csv
import io

import numpy as np
import pytest
from models import random_alpha_policy
from support import towards

import latentmdp as lm
from latentmdp.report.decisions import decision_table
from latentmdp.testing import random_model


def named():
    model = random_model(3, contexts=2, states=3, actions=3, horizon=4, n_terminal=1)
    return model.replace(
        state_names=["a|b", "fine", "gone"], action_names=["x", "y", "z"], context_names=["u", "v"]
    )


@pytest.mark.parametrize("contexts", [2, 4])
def test_every_row_is_what_the_policy_does(contexts):
    model = random_model(1, contexts=contexts, states=3, actions=4, horizon=2)
    policy = random_alpha_policy(model, 5, vectors=15)
    table = decision_table(model, policy, t=1)
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    for state in range(3):
        for m in range(contexts):
            own = [
                r for r in rows if (r["state"], r["context"]) == (f"state {state}", f"context {m}")
            ]
            begins = [float(row["from_probability"]) for row in own]
            assert begins == sorted(begins)
            assert begins[0] == pytest.approx(model.weights[m])
            for i, row in enumerate(own):
                end = begins[i + 1] if i + 1 < len(own) else 1.0
                for share in np.linspace(begins[i] + 1e-9, end - 1e-9, 20):
                    x = (share - model.weights[m]) / (1.0 - model.weights[m])
                    action = policy.action(1, state, towards(model.weights, m, x))
                    assert row["action"] == f"action {action}"


def test_markdown_has_a_row_for_each_state_and_names(tmp_path):
    model = named()
    table = decision_table(model, lm.QMDP().plan(model).policy, {"u": 0.5, "v": 0.5}, t=0)
    lines = str(table).splitlines()
    assert len(lines[:5]) == 2 + 3
    assert lines[0].startswith("| state | at u 50.0%, v 50.0% | growing sure of u |")
    assert lines[2].startswith("| a\\|b | ")
    assert "the episode is over" in lines[4]
    assert {line.replace("\\|", "").count("|") for line in lines[:5]} == {5}
    for suffix in ("md", "csv"):
        table.write(tmp_path / f"t.{suffix}")
    assert (tmp_path / "t.md").read_text() == str(table) + "\n"
    assert (tmp_path / "t.csv").read_text() == table.to_csv()
    with pytest.raises(ValueError, match=r"\.md or \.csv"):
        table.write(tmp_path / "t.txt")
    assert repr(table).startswith("DecisionTable(3 states, 1 phase, ")


def test_some_states_and_policies_without_belief():
    model = named()
    table = decision_table(model, lm.MarkovPolicy([1, 2, 0]), states=["fine", 0])
    (phase,) = table.phases
    assert [(rule.state, rule.action) for rule in phase.rules] == [(1, 2), (0, 1)]
    assert all(rule.changes == {0: (), 1: ()} for rule in phase.rules)
    with pytest.raises(ValueError, match="no policy"):
        table.as_policy()
    with pytest.raises(ValueError, match="states is 'nowhere'"):
        decision_table(model, lm.MarkovPolicy([1, 2, 0]), states=["nowhere"])


@pytest.mark.parametrize("contexts", [1, 2, 4])
def test_a_table_as_a_policy_does_what_it_prints(contexts):
    """At random beliefs: the column of the context that has grown most, the last change below."""
    model = random_model(1, contexts=contexts, states=3, actions=4, horizon=3, n_terminal=1)
    table = decision_table(model, random_alpha_policy(model, 5, vectors=15), tolerance=0.2)
    printed, rng = table.as_policy(), np.random.default_rng(0)
    for belief in rng.dirichlet(np.ones(contexts), size=200):
        for phase in table.phases:
            for rule in phase.rules:
                if rule.action is not None:
                    m = int(np.argmax(belief - table.belief))
                    taken = [a for x, a in rule.changes[m] if round(x, 3) <= belief[m]]
                    action = printed.action(phase.last, rule.state, belief)
                    assert action == (taken[-1] if taken else rule.action)


def test_phases_are_where_the_actions_change():
    """Every step has the actions of its phase, and thresholds within the tolerance."""
    model = random_model(6, contexts=2, states=3, actions=3, horizon=12)
    policy = lm.HSVI(gap=0.01, time_limit=5.0).plan(model).policy
    table = decision_table(model, policy, tolerance=0.03)
    assert [phase.first for phase in table.phases[1:]] == [p.last + 1 for p in table.phases[:-1]]
    assert (table.phases[0].first, table.phases[-1].last) == (0, 11)
    for phase in table.phases:
        for t in range(phase.first, phase.last + 1):
            (now,) = decision_table(model, policy, t=t).phases
            assert all(a.agrees(b, 0.03) for a, b in zip(phase.rules, now.rules))
    for old, new in zip(table.phases, table.phases[1:]):
        assert not all(a.agrees(b, 0.03) for a, b in zip(old.rules, new.rules))


def test_what_cannot_occur_is_blank():
    """From state 0 context 0 goes to state 1 and context 1 to state 2; nobody comes to state 3."""
    transitions = np.zeros((2, 4, 2, 4))
    transitions[0, 0, :, 1] = transitions[1, 0, :, 2] = 1.0
    transitions[:, 1:, :, 2] = 1.0
    for ending in ({"horizon": 3}, {"horizon": None, "discount": 0.9}):
        model = lm.LatentMDP(transitions, np.full((2, 4, 2), 0.5), initial=0, **ending)
        table = decision_table(model, lm.QMDP().plan(model).policy)
        (phase,) = table.phases
        assert [cells[2:] for cells in table.cells(phase)] == [
            ("the same", "the same"),
            ("the same", ""),
            ("the same", "the same"),
            ("", ""),
        ]
        assert table.cells(phase)[3] == ("state 3", "", "", "")


def test_warnings_of_explain_are_carried_over():
    model = random_model(2, contexts=2, states=2, actions=3, horizon=3)
    policy = random_alpha_policy(model, 1, vectors=4)
    told = [lm.explain(model, policy, s, model.weights).warnings for s in range(2)]
    table = decision_table(model, policy)
    assert any(told)
    assert "Warning: one step of lookahead prefers" in str(table)
    assert "Followed as printed, this earns" in str(table)
