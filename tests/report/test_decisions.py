"""Decision tables say what the policy does, and pictures of decisions are cut where it changes."""

import csv
import io

import numpy as np
import pytest
from models import random_alpha_policy

import latentmdp as lm
from latentmdp.planning.explanation import towards
from latentmdp.report.decisions import decision_table
from latentmdp.report.explanations import action_regions, explanation_figure, policy_graph
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
    table = decision_table(model, lm.QMDP().plan(model).policy, {"u": 0.5, "v": 0.5})
    lines = str(table).splitlines()
    assert len(lines) == 2 + 3
    assert lines[0].startswith("| state | at u 50%, v 50% | growing sure of u |")
    assert lines[2].startswith("| a\\|b | ")
    assert "the episode is over" in lines[4]
    assert {line.replace("\\|", "").count("|") for line in lines} == {5}
    for suffix in ("md", "csv"):
        table.write(tmp_path / f"t.{suffix}")
    assert (tmp_path / "t.md").read_text() == str(table) + "\n"
    assert (tmp_path / "t.csv").read_text() == table.to_csv()
    with pytest.raises(ValueError, match=r"\.md or \.csv"):
        table.write(tmp_path / "t.txt")
    assert repr(table).startswith("DecisionTable(3 states, t=0, ")


def test_some_states_and_policies_without_belief():
    model = named()
    table = decision_table(model, lm.MarkovPolicy([1, 2, 0]), states=["fine", 0])
    assert [(rule.state, rule.action) for rule in table.rules] == [(1, 2), (0, 1)]
    assert all(rule.turning_points == () for rule in table.rules)
    with pytest.raises(ValueError, match="states is 'nowhere'"):
        decision_table(model, lm.MarkovPolicy([1, 2, 0]), states=["nowhere"])


def test_regions_cover_the_triangle_with_the_right_actions():
    rng = np.random.default_rng(0)
    vectors, labels = rng.random((25, 3)), rng.integers(5, size=25)
    area, whole = 0.0, 0.5
    for action, corners in action_regions(vectors, labels):
        np.testing.assert_allclose(corners.sum(axis=1), 1.0)
        x, y = corners[:, 0], corners[:, 1]
        area += abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2.0
        middle = corners.mean(axis=0)
        assert labels[np.argmax(vectors @ middle)] == action
    assert area == pytest.approx(whole)


@pytest.mark.parametrize("contexts", [1, 2, 3, 5])
def test_every_number_of_contexts_has_a_picture(contexts, tmp_path):
    model = random_model(2, contexts=contexts, states=2, actions=9, horizon=2, n_terminal=1)
    for policy in (lm.QMDP().plan(model).policy, lm.UniformPolicy()):
        for state in (0, 1):
            told = lm.explain(model, policy, state)
            lm.report.plot_explanation(told, tmp_path / "picture.svg")
            assert (tmp_path / "picture.svg").read_text().lstrip().startswith("<?xml")
    spans = explanation_figure(lm.explain(model, lm.QMDP().plan(model).policy, 0)).axes
    assert spans


def test_the_graph_follows_the_policy():
    """Without anything to learn the belief never moves, and the graph is the Markov chain."""
    chain = np.array([[0.5, 0.5, 0.0], [0.2, 0.0, 0.8], [1.0, 0.0, 0.0]])
    transitions = np.broadcast_to(chain[None, :, None], (2, 3, 2, 3))
    rewards = np.broadcast_to(np.array([[[0.2, 0.7]] * 3]), (2, 3, 2))
    model = lm.LatentMDP(transitions, rewards, initial=0, horizon=None, discount=0.95)
    graph = policy_graph(lm.QMDP().plan(model).policy)
    assert not graph.merged
    order = np.argsort(graph.states)
    np.testing.assert_allclose(graph.probabilities[np.ix_(order, order)], chain)
    assert (graph.actions == 1).all()
    visits = np.linalg.solve(np.eye(3) - 0.95 * chain.T, [1.0, 0.0, 0.0])
    # Episodes are followed for 60 steps only: 0.95 ** 60 is 0.05.
    np.testing.assert_allclose(graph.visits[order], visits / visits.sum(), atol=0.01)


def test_large_graphs_are_merged_and_drawn(tmp_path):
    model = random_model(4, contexts=3, states=5, actions=3, horizon=None, discount=0.8)
    policy = lm.HSVI(gap=0.05, time_limit=1.0).plan(model).policy
    graph = policy_graph(policy, most=6)
    assert graph.merged
    assert graph.states.size <= 6
    assert (graph.probabilities.sum(axis=1) <= 1.0 + 1e-9).all()
    lm.report.plot_policy_graph(policy, tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").stat().st_size > 1_000
    finite = lm.QMDP().plan(random_model(0)).policy
    with pytest.raises(ValueError, match="without a horizon"):
        policy_graph(finite)


def test_a_graph_is_drawn_as_it_is_followed():
    """How often nodes are visited, discounted, against sessions that follow the graph."""
    model = random_model(2, contexts=3, states=2, actions=3, horizon=None, discount=0.8)
    graph = lm.HSVI(gap=0.01, time_limit=2.0).plan(model).compact(vectors=3, graph=True).policy
    drawn = policy_graph(graph)
    assert not drawn.merged
    assert set(drawn.vectors.tolist()) <= set(np.flatnonzero(graph.reached_nodes()).tolist())
    visits, individuals, rng = np.zeros(graph.n_nodes), 2_000, np.random.default_rng(0)
    table, A = model.outcomes, model.n_actions
    context = rng.choice(3, p=model.weights, size=individuals)
    states = np.array([rng.choice(2, p=model.initial[m]) for m in context])
    session = graph.batch_session(individuals)
    session.observe(states)
    for t in range(25):
        np.add.at(visits, session._nodes, model.discount**t)
        rows = states * A + session.act()
        seen = [
            table.starts[r]
            + rng.choice(np.diff(table.starts[r : r + 2])[0], p=_chances(table, r, m))
            for r, m in zip(rows, context)
        ]
        states = table.next_state[seen]
        session.observe(states, model.reward_values[table.reward[seen]])
    shares = visits / visits.sum()
    # a share of 2,000 episodes of about five steps: six standard errors are below 0.04
    np.testing.assert_allclose(drawn.visits, shares[drawn.vectors], atol=0.04)
    with pytest.raises(ValueError, match=r"each of policy\.parts"):
        policy_graph(lm.MixturePolicy(graph.nodes, graph.followers, [graph.first], [1.0]))


def _chances(table, row, context):
    chances = table.probs[table.starts[row] : table.starts[row + 1], context]
    return chances / chances.sum()
