"""Serving: sessions saved and resumed, measured and missing rewards, covariates."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm
from latentmdp.errors import FormatError
from latentmdp.logs import Covariates, WeightModel
from latentmdp.sessions import SessionError

GO_ON = """
import json, sys
import latentmdp as lm
session = lm.load(sys.argv[1])
steps = json.loads(sys.argv[2])
acts = []
for state, reward in steps:
    acts.append(session.act())
    session.observe(state, reward)
print(json.dumps([acts, session.belief.tolist(), session.t]))
"""


def played(model, policy, seed):
    """An episode: its first state, and (next state, reward value) of every step."""
    logs = lm.simulate(model, policy, 1, rng=seed)
    states, _, rewards, _ = logs[0]
    return int(states[0]), list(zip(states[1:].tolist(), model.reward_values[rewards].tolist()))


def follow(session, steps):
    """The actions of a session along an episode."""
    acts = []
    for state, reward in steps:
        acts.append(session.act())
        session.observe(state, reward)
    return acts


def test_another_process_acts_the_same(tmp_path):
    model = random_model(0, contexts=4, horizon=12)
    policy = random_alpha_policy(model, 1, vectors=4)
    first, steps = played(model, policy, 3)
    session = policy.session()
    session.observe(first)
    follow(session, steps[:5])
    session.act()
    session.save(tmp_path / "one.json")
    assert (tmp_path / "one.json").stat().st_size < 2048
    command = [sys.executable, "-c", GO_ON, str(tmp_path / "one.json"), json.dumps(steps[5:])]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == [follow(session, steps[5:]), session.belief.tolist(), 12]


@pytest.mark.parametrize("when", [0, 1, 6])
@pytest.mark.parametrize("kind", ["alpha", "uniform", "markov", "mixture"])
def test_every_policy_at_any_time(tmp_path, kind, when):
    model = random_model(0, contexts=3, horizon=8)
    made = {
        "alpha": random_alpha_policy(model, 1),
        "uniform": lm.UniformPolicy(),
        "markov": lm.MarkovPolicy(np.full((3, 2), 0.5)),
        "mixture": lm.Robust("regret", gap=0.01).plan(model).policy,
    }
    policy = made[kind]
    first, steps = played(model, policy, 5)
    session = policy.session(model, rng=7)
    if when:
        session.observe(first)
        follow(session, steps[: when - 1])
    lm.save(session, tmp_path / "s.json")
    again = lm.load(tmp_path / "s.json")
    if not when:
        for one in (session, again):
            one.observe(first)
    rest = steps[max(when - 1, 0) :]
    assert follow(again, rest) == follow(session, rest)
    np.testing.assert_array_equal(again.belief, session.belief)


def test_a_mixture_goes_on_with_what_was_drawn(tmp_path):
    """Whatever was drawn and seen: the node is kept, and one that does not fit is refused."""
    model = random_model(4, contexts=3, horizon=4)
    policy = lm.Robust("regret", gap=1e-3, time_limit=5.0).plan(model).policy
    assert policy.weights.size > 1
    differ = 0
    for seed in range(12):
        session = policy.session(rng=seed)
        session.observe(0)
        session.observe(seed % 3, 0.0, action=session.act())
        session.save(tmp_path / "s.json")
        again = lm.load(tmp_path / "s.json")
        for state in (1, 2):
            assert again.act() == session.act()
            differ += session.act() != policy.nodes.actions[-1]
            for one in (session, again):
                one.observe(state, 1.0, action=one.act())
    assert differ
    fields = json.loads((tmp_path / "s.json").read_text())
    for wrong in (None, 10**6, 0):
        damaged = json.dumps(fields | {"node": wrong})
        (tmp_path / "w.json").write_text(damaged)
        with pytest.raises(FormatError, match="node"):
            lm.load(tmp_path / "w.json")


@pytest.mark.parametrize("kind", ["graph", "mixture"])
@pytest.mark.parametrize("horizon", [8, None])
def test_policy_graphs_go_on_at_their_node(tmp_path, kind, horizon):
    """The same actions as the session that was never saved, whatever part was drawn."""
    model = random_model(0, contexts=3, horizon=8).replace(horizon=horizon, discount=0.9)
    if kind == "graph":
        policy = lm.HSVI(gap=0.05, time_limit=2).plan(model).compact(vectors=6, graph=True).policy
    else:
        policy = lm.Robust("worst-case", gap=0.05, time_limit=2).plan(model).policy
    world = model.replace(horizon=8)
    for seed in range(6):
        first, steps = played(world, lm.UniformPolicy(), seed)
        session = policy.session(rng=seed)
        session.observe(first)
        for when, (state, reward) in enumerate(steps[:-1]):
            done = session.act()
            session.save(tmp_path / "s.json")
            again = lm.load(tmp_path / "s.json")
            for one in (session, again):
                assert one.act() == done
                one.observe(state, reward, action=when % 2 if seed % 2 else None)
            assert again.act() == session.act()
            assert again._batch._nodes[0] == session._batch._nodes[0]


def test_contexts_too_unlikely_for_a_number_survive(tmp_path):
    """500 observations that speak for one context, and 500 for the other: the belief is even."""
    rewards = np.array([[[0.05]], [[0.95]]])
    model = lm.LatentMDP(np.ones((2, 1, 1, 1)), rewards, horizon=2000)
    session = lm.AlphaVectorPolicy(np.eye(2), [0, 0], [0, 2], model).session()
    session.observe(0)
    for _ in range(500):
        session.observe(0, 1.0, action=0)
    session.save(tmp_path / "s.json")
    again = lm.load(tmp_path / "s.json")
    for one in (session, again):
        for _ in range(500):
            one.observe(0, 0.0, action=0)
        np.testing.assert_allclose(one.belief, [0.5, 0.5], atol=1e-9)


def test_the_policy_is_found_where_it_is(tmp_path):
    model = random_model(0)
    policy = random_alpha_policy(model, 1)
    session = policy.session()
    session.save(tmp_path / "a.json")
    policy.session().save(tmp_path / "b.json")
    assert len(list(tmp_path.glob("policy-*.npz"))) == 1
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in tmp_path.glob("*.*"):
        shutil.move(path, moved)
    assert lm.load(moved / "a.json").policy == policy
    (moved / next(moved.glob("policy-*.npz")).name).unlink()
    with pytest.raises(FormatError, match=r"a\.json: its policy should be in policy-.*npz, which"):
        lm.load(moved / "a.json")
    assert lm.load(moved / "a.json", policy=policy).t == 0
    with pytest.raises(FormatError, match="its policy was another one"):
        lm.load(moved / "a.json", policy=random_alpha_policy(model, 2))


def test_a_policy_of_a_file_is_not_written_again(tmp_path):
    lm.save(random_alpha_policy(random_model(0), 1), tmp_path / "policy.npz")
    (tmp_path / "sessions").mkdir()
    policy = lm.load(tmp_path / "policy.npz")
    policy.session().save(tmp_path / "sessions" / "a.json")
    assert [path.name for path in (tmp_path / "sessions").iterdir()] == ["a.json"]
    assert lm.load(tmp_path / "sessions" / "a.json").policy == policy
    lm.save(random_alpha_policy(random_model(0), 2), tmp_path / "policy.npz")
    with pytest.raises(FormatError, match="its policy was another one than that in"):
        lm.load(tmp_path / "sessions" / "a.json")
    policy.session().save(tmp_path / "sessions" / "b.json")
    assert lm.load(tmp_path / "sessions" / "b.json").policy == policy


def test_what_cannot_be_saved_or_was_damaged(tmp_path):
    model = random_model(0)
    with pytest.raises(TypeError, match="no file can hold its policy"):
        lm.sessions.Session(lambda history: 0, model).save(tmp_path / "s.json")
    policy = random_alpha_policy(model, 1)
    with pytest.raises(FormatError, match=r"is saved as \.json"):
        policy.session().save(tmp_path / "s.npz")
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "s.json"
    session = policy.session()
    session.observe(0)
    session.save(path)
    good = json.loads(path.read_text())
    bad = {"state": 9, "belief": [0.5], "t": -1, "key": "no number", "policy_file": 3}
    for name, value in bad.items():
        path.write_text(json.dumps({**good, "session": {**good["session"], name: value}}))
        with pytest.raises(FormatError, match=r"s\.json: "):
            lm.load(path)
    lm.save(model, tmp_path / "m.json")
    with pytest.raises(FormatError, match="holds no session"):
        lm.load(tmp_path / "m.json", policy=policy)


def test_measured_rewards_fall_into_levels():
    values, edges = (0.0, 1.0, 5.0), (0.5, 2.0)
    model = lm.testing.random_model(
        0, states=3, actions=2, contexts=2, reward_values=values, horizon=5
    )
    measured = model.replace(reward_edges=edges)
    exact, rough = (random_alpha_policy(m, 1).session() for m in (model, measured))
    for session in (exact, rough):
        session.observe(0)
    for state, level, reward in [(1, 0.0, -3.0), (2, 5.0, 2.0), (0, 1.0, 1.99)]:
        assert exact.act() == rough.act()
        exact.observe(state, level)
        rough.observe(state, reward)
        np.testing.assert_array_equal(exact.belief, rough.belief)
    with pytest.raises(ValueError, match="is infinite"):
        rough.observe(0, np.inf, action=0)


def test_a_missing_reward_is_summed_over():
    model = random_model(0, contexts=3)
    session = random_alpha_policy(model, 1).session()
    session.observe(1)
    before = session.belief
    action = session.act_index()
    session.observe(2, float("nan"))
    expected = before * model.transitions[:, 1, action, 2]
    np.testing.assert_allclose(session.belief, expected / expected.sum())
    with pytest.raises(SessionError, match="rewards are missing"):
        session.observe(2, action=0)


def test_unseen_amounts_are_taken_no_notice_of():
    T = random_model(0).transitions
    model = lm.LatentMDP.from_amounts(T, np.ones(T.shape[1:3]), observed=False, horizon=5)
    told, silent = (random_alpha_policy(model, 1).session() for _ in range(2))
    for session in (told, silent):
        session.observe(0)
    told.observe(1, 12.75, action=0)
    silent.observe(1, action=0)
    np.testing.assert_array_equal(told.belief, silent.belief)


def test_covariates_set_the_belief(tmp_path):
    model = random_model(0, contexts=2)
    people = Covariates.from_columns({"age": [20.0, 60.0], "region": ["n", "s"]})
    weights = WeightModel(people.encoder(), [0.1, -0.1], [[1.0, 0.5, 0.0], [0.0, 0.0, 2.0]])
    policy = random_alpha_policy(model, 1).with_weight_model(weights)
    lm.save(policy, tmp_path / "p.npz")
    assert lm.load(tmp_path / "p.npz") == policy
    many = policy.batch_session(2, covariates={"age": [20.0, 60.0], "region": ["n", "s"]})
    np.testing.assert_array_equal(many.beliefs, weights.of(people))
    many.observe([0, 1])
    for i, state in enumerate([0, 1]):
        one = policy.session(covariates=people.row(i))
        np.testing.assert_array_equal(one.belief, weights.of(people)[i])
        one.observe(state)
        expected = weights.of(people)[i] * model.initial[:, state]
        np.testing.assert_allclose(one.belief, expected / expected.sum())
        np.testing.assert_array_equal(many.beliefs[i], one.belief)
        one.save(tmp_path / "s.json")
        np.testing.assert_array_equal(lm.load(tmp_path / "s.json").belief, one.belief)
    np.testing.assert_array_equal(policy.session().belief, model.weights)
    with pytest.raises(ValueError, match="no weight model"):
        random_alpha_policy(model, 1).session(covariates={"age": 3})
    with pytest.raises(ValueError, match="those of 3 individuals, got 2"):
        policy.batch_session(3, covariates=people)
    with pytest.raises(ValueError, match="has 2 contexts, the policy's model 3"):
        random_alpha_policy(random_model(0, contexts=3), 1).with_weight_model(weights)


def test_a_graph_goes_on_at_the_best_node_where_a_reward_is_missing():
    """No outcome tells which node follows: it is the best one at the belief."""
    model = lm.testing.random_model(3, contexts=3, states=3, actions=2, horizon=6)
    policy = lm.Robust(gap=0.5, time_limit=5).plan(model).policy
    graphs = policy.parts if isinstance(policy, lm.MixturePolicy) else [policy]
    for graph in (g for g in graphs if isinstance(g, lm.PolicyGraph)):
        nodes = graph.nodes
        for state in range(3):
            session = graph.session()
            session.observe(0)
            session.act()
            session.observe(state, float("nan"))
            group = nodes.offsets[model.n_states + state : model.n_states + state + 2]
            if nodes.n_layers == 1:
                group = nodes.offsets[state : state + 2]
            scores = nodes.vectors[group[0] : group[1]] @ session.belief
            best = np.flatnonzero(scores >= scores.max() - 1e-12) + group[0]
            assert session.act() in nodes.actions[best]
