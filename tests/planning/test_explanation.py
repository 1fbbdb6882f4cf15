"""What `explain` says is right: values by brute force, turning points by the policy itself."""

import json

import numpy as np
import pytest
from models import random_alpha_policy
from support import towards

import latentmdp as lm
from latentmdp.planning.explanation import switches
from latentmdp.testing import policy_value, random_model


def optimal_action_values(model, t, s, u):
    """max over histories of what follows action a at (t, s), for every a; u is b times 1 (M,)."""
    table, A = model.outcomes, model.n_actions
    found = {}
    for a in np.flatnonzero(model.allowed[s]):
        total = float(u @ model.planning_rewards()[:, s, a])
        for k in range(table.starts[s * A + a], table.starts[s * A + a + 1]):
            n = int(table.next_state[k])
            if t + 1 < model.horizon and not model.terminal[n]:
                later = optimal_action_values(model, t + 1, n, u * table.probs[k])
                total += model.discount * max(later.values())
        found[int(a)] = total
    return found


SMALL = [
    {"contexts": 2},
    {"contexts": 3, "actions": 3, "horizon": 2, "bonus": True},
    {"contexts": 3, "states": 4, "forbidden": 0.4, "n_terminal": 1, "actions": 3, "zeros": 0.3},
    {"contexts": 2, "discount": 0.8, "reward_model": "transition", "reward_values": (-2.0, 0.0, 1)},
    {"contexts": 4, "states": 2, "as_table": True},
]


@pytest.mark.parametrize("sizes", SMALL)
def test_values_and_margin_are_the_exact_action_values(sizes):
    """At the first belief every successor is one that `Exact` has planned for."""
    model = random_model(5, **sizes)
    policy = lm.Exact().plan(model).policy
    for s in np.flatnonzero(model.initial.any(axis=0) & ~model.terminal).tolist():
        told = lm.explain(model, policy, s)
        exact = optimal_action_values(model, 0, s, told.belief)
        assert {c.action: c.value for c in told.choices} == pytest.approx(exact, abs=1e-9)
        best = max(exact, key=exact.get)
        others = [value for a, value in exact.items() if a != best]
        assert exact[told.action] == pytest.approx(exact[best], abs=1e-9)
        if others:
            assert told.margin == pytest.approx(exact[best] - max(others), abs=1e-9)
            assert not told.warnings
        else:
            assert told.margin is None
        assert told.value == pytest.approx(float(told.belief @ told.by_context))


@pytest.mark.parametrize("seed", range(3))
def test_vectors_that_are_bounds_give_bounds_on_action_values(seed):
    model = random_model(seed, contexts=3, states=2, actions=3, horizon=3)
    below, above = lm.PBVI(beliefs=2).plan(model).policy, lm.QMDP().plan(model).policy
    belief = np.random.default_rng(seed).dirichlet(np.ones(3))
    exact = optimal_action_values(model, 0, 1, belief)
    for choice in lm.explain(model, below, 1, belief).choices:
        assert choice.value <= exact[choice.action] + 1e-9
    for choice in lm.explain(model, above, 1, belief).choices:
        assert choice.value >= exact[choice.action] - 1e-9


def test_values_later_in_an_episode_are_exact_too():
    model = random_model(2, contexts=3, horizon=4)
    policy = lm.Exact().plan(model).policy
    session = policy.session()
    session.observe(1)
    for t in range(4):
        told = lm.explain(model, policy, 1, session.belief, t)
        assert told.action == session.act_index()
        exact = optimal_action_values(model, t, 1, told.belief)
        assert {c.action: c.value for c in told.choices} == pytest.approx(exact, abs=1e-9)
        session.observe(1, 1.0)


@pytest.mark.parametrize("stationary", [True, False])
def test_values_of_a_markov_policy_are_those_of_deviating_once(stationary):
    model = random_model(3, contexts=2, horizon=3, actions=2, bonus=True)
    rng = np.random.default_rng(0)
    tables = rng.dirichlet(np.ones(2), (3, 3))
    rest = tables[:1].repeat(3, axis=0) if stationary else tables
    policy = lm.MarkovPolicy(tables[0] if stationary else tables)
    told = lm.explain(model, policy, 1, model.weights, t=0)
    assert not told.uses_belief
    assert told.turning_points == ()
    begins = model.replace(initial=1, initial_bonus=None)
    for choice in told.choices:
        once = rest.copy()
        once[0, 1] = np.eye(2)[choice.action]
        deviating = lm.MarkovPolicy(once)
        assert choice.value == pytest.approx(policy_value(begins, deviating))
        each = lm.evaluate(begins, deviating).by_context
        np.testing.assert_allclose(choice.by_context, each)
    assert told.action == int(np.argmax(tables[0, 1]))
    assert "does not look at the belief" in told.text


def check_turning_points(policy, state, belief, t):
    """On a fine grid of every line to a vertex, the action changes where the explanation says."""
    told = lm.explain(policy.model, policy, state, belief, t)
    assert told.action == policy.action(t, state, told.belief)
    for point in told.turning_points:
        m = point.context
        grid = np.linspace(0.0, 1.0, 2001)[:-1]
        taken = [policy.action(t, state, towards(told.belief, m, x)) for x in grid]
        changed = [x for x, a in zip(grid, taken) if a != told.action]
        if point.belief is None:
            assert not changed
            continue
        x = (point.belief[m] - told.belief[m]) / (1.0 - told.belief[m])
        assert point.belief.sum() == pytest.approx(1.0)
        before = [y for y in grid if y < x - 1e-9]
        assert all(a == told.action for a in taken[: len(before)])
        assert policy.action(t, state, towards(told.belief, m, x + 1e-9)) == point.action
        assert policy.action(t, state, towards(told.belief, m, max(x - 1e-9, 0.0))) == told.action
        # A piece shorter than the grid's step may lie between its points.
        pieces = [p for p, _ in switches(*_group(policy, t, state), told.belief, m)]
        if (np.diff([*pieces, 1.0]) > 1e-3).all():
            assert changed
            assert changed[0] - x < 1e-3


def _group(policy, t, state):
    begin, end = policy.group(t, state)
    return policy.vectors[begin:end], policy.actions[begin:end]


@pytest.mark.parametrize("contexts", [2, 3, 5])
def test_turning_points_agree_with_the_policy_on_a_grid(contexts):
    model = random_model(contexts, contexts=contexts, states=2, actions=4, horizon=2)
    policy = random_alpha_policy(model, contexts, vectors=12)
    rng = np.random.default_rng(contexts)
    for _ in range(4):
        check_turning_points(policy, 1, rng.dirichlet(np.ones(contexts)), 1)


def test_turning_points_of_plans():
    endless = lm.testing.random_model(1, contexts=3, actions=3, horizon=None, discount=0.9)
    finite = lm.make("treatment")
    for model in (endless, finite):
        policy = lm.HSVI(gap=0.01, time_limit=1.0).plan(model).policy
        for state in range(3):
            check_turning_points(policy, state, None, 0)


def test_switches_follow_the_whole_line():
    rng = np.random.default_rng(0)
    vectors, labels = rng.random((40, 3)), rng.integers(4, size=40)
    belief = np.array([0.6, 0.3, 0.1])
    for m in range(3):
        pieces = switches(vectors, labels, belief, m)
        starts = np.array([x for x, _ in pieces])
        for x in np.linspace(0.0, 1.0, 997)[:-1]:
            action = pieces[np.searchsorted(starts, x, side="right") - 1][1]
            assert action == labels[np.argmax(vectors @ towards(belief, m, x))]


def test_a_tie_turns_at_once_and_equal_vectors_never():
    vectors, labels = np.array([[1.0, 1.0], [0.0, 2.0]]), np.array([3, 5])
    middle = np.array([0.5, 0.5])
    assert switches(vectors, labels, middle, 1) == [(0.0, 3), (0.0, 5)]
    assert switches(vectors, labels, middle, 0) == [(0.0, 3)]
    assert switches(np.ones((2, 2)), labels, middle, 1) == [(0.0, 3)]


@pytest.mark.parametrize("horizon", [4, None])
def test_wishes_are_the_optimal_policies_of_single_contexts(horizon):
    model = random_model(
        4, contexts=3, horizon=horizon, discount=0.7, actions=3, forbidden=0.3, bonus=True
    )
    told = lm.explain(model, lm.QMDP().plan(model).policy, 2, t=1)
    for wish in told.wishes:
        alone = model.context(wish.context).replace(initial=2, initial_bonus=None)
        if horizon is not None:
            alone = alone.replace(horizon=horizon - 1)
        value = lm.QMDP().plan(alone).upper
        assert wish.value == pytest.approx(value)
        assert model.allowed[2, wish.action]


def test_prospects_are_those_of_a_session():
    model = random_model(7, contexts=3, states=4, horizon=5, zeros=0.3)
    policy = lm.HSVI(gap=0.01).plan(model).policy
    told = lm.explain(model, policy, 2)
    assert sum(p.probability for p in told.prospects) == pytest.approx(1.0)
    assert [p.probability for p in told.prospects] == sorted(
        (p.probability for p in told.prospects), reverse=True
    )
    for prospect in told.prospects:
        session = policy.session()
        session.observe(2)
        np.testing.assert_allclose(session.belief, told.belief, atol=1e-12)
        assert session.act_index() == told.action
        session.observe(prospect.next_state, prospect.reward)
        np.testing.assert_allclose(session.belief, prospect.belief, atol=1e-12)
        assert session.act_index() == prospect.action


def test_a_terminal_state_says_so():
    model = random_model(0, n_terminal=1, states=3)
    told = lm.explain(model, lm.QMDP().plan(model).policy, 2)
    assert told.action is None
    assert told.margin is None
    assert told.value == 0.0
    assert "terminal" in str(told)
    assert json.loads(json.dumps(told.to_dict()))["action"] is None


def test_the_last_step_has_no_action_after_it():
    model = random_model(0)
    told = lm.explain(model, lm.QMDP().plan(model).policy, 0, t=2)
    assert all(prospect.action is None for prospect in told.prospects)
    assert "the episode is over" in told.text
    expected = {a: float(told.belief @ model.planning_rewards()[:, 0, a]) for a in range(2)}
    assert {c.action: c.value for c in told.choices} == pytest.approx(expected)


def test_words_and_data_use_the_names():
    model = lm.make("treatment")
    policy = lm.QMDP().plan(model).policy
    told = lm.explain(model, policy, "mild", {"slow": 0.5, "fast, responsive": 0.5}, t=3)
    assert told.text.startswith(
        'In mild at step 3 of 20, believing slow 50%, "fast, responsive" 50%, the policy takes '
    )
    data = json.loads(json.dumps(told.to_dict()))
    assert data["state"] == "mild"
    assert data["belief"]["fast, responsive"] == 0.5
    assert data["action"] in model.action_names
    assert data["choices"][0]["action"] == data["action"]
    assert {wish["context"] for wish in data["wishes"]} == set(model.context_names)
    assert len(repr(told)) < 150
    assert "<table>" in told._repr_html_()


def test_one_context_leaves_nothing_to_believe():
    model = random_model(1, contexts=1)
    assert "one context only" in str(lm.explain(model, lm.QMDP().plan(model).policy, 0))


def test_uniform_policies_draw():
    model = random_model(1, actions=3, forbidden=0.5, n_terminal=1)
    told = lm.explain(model, lm.UniformPolicy(), 0)
    assert told.probabilities.sum() == pytest.approx(1.0)
    assert not told.probabilities[~model.allowed[0]].any()
    assert "does not look at the belief" in str(told)


def test_doubts_reach_the_result():
    model = lm.make("treatment")
    never = lm.MarkovPolicy([0] * 5)
    told = lm.explain(model, never, "mild", t=3)
    assert told.margin < 0.0
    assert any("lookahead prefers" in warning for warning in told.warnings)
    assert "Warning: " in told.text
    other = model.replace(weights=[0.1, 0.2, 0.3, 0.4])
    told = lm.explain(other, lm.QMDP().plan(model).policy, "mild")
    assert any("another model" in warning for warning in told.warnings)


def test_bad_input_is_named():
    model = random_model(0, contexts=2)
    policy = lm.QMDP().plan(model).policy
    with pytest.raises(ValueError, match="state is 7"):
        lm.explain(model, policy, 7)
    with pytest.raises(ValueError, match="no names"):
        lm.explain(model, policy, "mild")
    with pytest.raises(ValueError, match="t must lie in"):
        lm.explain(model, policy, 0, t=3)
    with pytest.raises(TypeError, match="t must be"):
        lm.explain(model, policy, 0, t=0.5)
    with pytest.raises(ValueError, match="2 contexts"):
        lm.explain(model, policy, 0, [0.2, 0.3, 0.5])
    with pytest.raises(ValueError, match="belief"):
        lm.explain(model, policy, 0, [0.2, 0.3])
    with pytest.raises(TypeError, match="cannot be read"):
        lm.explain(model, lambda history: 0, 0)
    with pytest.raises(ValueError, match="explain it in policy"):
        lm.explain(model.subset([0]), policy, 0)
    with pytest.raises(ValueError, match="does not know"):
        lm.explain(lm.make("visitor"), lm.UniformPolicy(), "basket")


# --------------------------------------------------------------------------- graphs and mixtures


def drawn_policy(seed=4, **sizes):
    """A mixture of several graphs, and its model."""
    given = {"contexts": 3, "states": 3, "horizon": 3, "zeros": 0.3, **sizes}
    model = random_model(seed, **given)
    policy = lm.Robust("regret", gap=1e-3, time_limit=5.0).plan(model).policy
    return model, policy


def taking_first(part, action):
    """A graph, followed after another first action."""

    def act(history):
        session = part.session()
        session.observe(history.states[0])
        if not history.actions:
            return action
        values = part.model.reward_values
        for a, n, z in zip(history.actions, history.states[1:], history.rewards):
            session.observe(n, float(values[z]), action=a)
        return session.act()

    return act


@pytest.mark.parametrize("sizes", [{}, {"n_terminal": 1, "states": 4, "bonus": True}])
def test_a_graph_is_valued_as_it_is_followed(sizes):
    """Every action, then what a session does: enumerated in each context."""
    model, policy = drawn_policy(**sizes)
    part = policy.parts[-1]
    for s in np.flatnonzero(~model.terminal).tolist():
        told = lm.explain(model, part, s)
        session = part.session()
        session.observe(s)
        assert told.action == session.act()
        assert not told.uses_belief
        assert "goes on by what was seen" in told.text
        for choice in told.choices:
            for m in range(3):
                start = np.broadcast_to(np.eye(model.n_states)[s], (3, model.n_states))
                alone = model.replace(weights=np.eye(3)[m], initial=start)
                # The belief of the graph is that of its own model, as for every s.
                follows = taking_first(part, choice.action)
                expected = policy_value(alone, follows)
                if model.initial_bonus is not None:
                    expected -= model.initial_bonus[m]
                assert choice.by_context[m] == pytest.approx(expected, abs=1e-9)
        for prospect in told.prospects:
            again = part.session()
            again.observe(s)
            again.observe(prospect.next_state, prospect.reward, action=told.action)
            np.testing.assert_allclose(again.belief, prospect.belief, atol=1e-12)
            assert prospect.action == (None if again.over else again.act())


@pytest.mark.parametrize("horizon", [3, None])
def test_a_mixture_is_explained_by_what_may_be_drawn(horizon):
    endless = {} if horizon else {"horizon": None, "discount": 0.8}
    model, policy = drawn_policy(**endless)
    assert policy.weights.size > 1
    told = lm.explain(model, policy, 0)
    assert [part.action for part in told.parts] == [
        int(policy.nodes.actions[first[0]]) for first in policy.first
    ]
    expected = policy.weights @ policy.nodes.vectors[policy.first[:, 0]]
    np.testing.assert_allclose(told.by_context, expected, rtol=1e-7)
    sessions = policy.batch_session(20_000, rng=0)
    sessions.observe(np.zeros(20_000, int))
    shares = np.bincount(sessions.act(), minlength=model.n_actions) / 20_000
    # six standard errors of a share are at most 0.022
    np.testing.assert_allclose(told.probabilities, shares, atol=0.022)
    assert f"one of {policy.weights.size} policies is drawn" in told.text
    for i, weight in enumerate(policy.weights):
        assert f"Policy {i + 1}, drawn with probability {weight:.3g}:" in told.text
    data = json.loads(json.dumps(told.to_dict()))
    assert len(data["parts"]) == policy.weights.size
    assert "lookahead prefers" not in "".join(told.warnings)
    assert "3 parts" in repr(told) or "2 parts" in repr(told)


def test_later_a_graph_is_at_one_of_the_nodes_it_can_be_at():
    model, policy = drawn_policy()
    part = policy.parts[0]
    reached = part.reached_nodes()
    for s, belief in ((s, b) for s in range(3) for b in np.eye(3)):
        own = np.arange(*part.nodes.group(2, s))
        own = own[reached[own]]
        told = lm.explain(model, part, s, belief, t=2)
        if own.size:
            best = own[np.argmax(part.nodes.vectors[own] @ belief)]
            assert told.action == part.nodes.actions[best]
            assert told.value == pytest.approx(part.nodes.vectors[best] @ belief)
    logs = lm.simulate(model, part, 200, rng=0)
    assert len(logs) == 200
    followed = {int(f) for f in part.first}
    rows_of = np.repeat(np.arange(part.nodes.offsets.size - 1) % 3, np.diff(part.nodes.offsets))
    for _ in range(3):
        rows = {i: rows_of[i] * model.n_actions + part.nodes.actions[i] for i in followed if i >= 0}
        followed |= {
            int(part.follower(i, k))
            for i, row in rows.items()
            for k in range(*model.outcomes.starts[row : row + 2])
        }
    assert followed - {-1} == set(np.flatnonzero(reached).tolist())


def test_a_terminal_state_of_a_mixture_says_so():
    model, policy = drawn_policy(n_terminal=1, states=4)
    told = lm.explain(model, policy, int(np.flatnonzero(model.terminal)[0]))
    assert told.action is None
    assert "the episode is over" in told.text
    assert told.value == 0.0
