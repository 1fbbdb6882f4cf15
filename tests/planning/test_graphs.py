"""Policy graphs: what they earn in every context, and how they are followed."""

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp._kernels.rollout import Links
from latentmdp._util.random import philox_key
from latentmdp.planning.graphs import node_bounds
from latentmdp.simulation import PolicyAgent
from latentmdp.worlds import ModelWorld, play_episode


def mixed(seed: int = 0, horizon: int | None = 3, **arguments) -> lm.MixturePolicy:
    """A mixture of several graphs."""
    model = random_model(seed, 3, 3, 2, 4, sparse=True)
    if horizon is None:
        model = model.replace(horizon=None, discount=0.8)
    return lm.Robust("regret", gap=1e-3, time_limit=5.0, **arguments).plan(model).policy


@pytest.mark.parametrize("horizon", [4, None])
def test_vectors_are_the_values_of_the_nodes(horizon: int | None) -> None:
    policy = mixed(horizon=horizon)
    model, nodes = policy.model, policy.nodes
    rewards, table = model.planning_rewards(), model.outcomes
    for t, s in np.ndindex(nodes.n_layers, model.n_states):
        for i in range(*nodes.offsets[t * model.n_states + s :][:2]):
            row = s * model.n_actions + nodes.actions[i]
            outcomes = range(*table.starts[row : row + 2])
            links = [policy.follower(i, k) for k in outcomes]
            rest = np.array([nodes.vectors[f] if f >= 0 else np.zeros(3) for f in links])
            probs = table.probs[outcomes]
            expected = rewards[:, s, nodes.actions[i]] + model.discount * (probs * rest).sum(0)
            np.testing.assert_allclose(nodes.vectors[i], expected, rtol=1e-8)


def test_a_graph_is_followed_alike_everywhere() -> None:
    """Session, batch, compiled rollout and the loop step by step, with the same chance."""
    policy = mixed(4)
    assert policy.weights.size > 1
    model = policy.model
    logs = lm.simulate(model, policy, 200, rng=3)
    for part in policy.parts:
        alone = testing.action_probabilities(part, 2, model)
        for episode in lm.simulate(model, part, 20, rng=5):
            one = part.session()
            one.observe(int(episode.states[0]))
            history = lm.policies.History((int(episode.states[0]),), (), ())
            for a, z, n in zip(episode.actions, episode.rewards, episode.states[1:]):
                assert one.act() == a
                assert alone(history)[a] == 1.0
                one.observe(int(n), float(model.reward_values[z]))
                history = history.then(int(a), int(n), int(z))
    key = philox_key(3)
    agent = PolicyAgent(policy, model, key)
    for i in range(50):
        played = play_episode(ModelWorld(model), agent, key, i, model.horizon)
        assert played.actions.tolist() == logs[i].actions.tolist()
        assert played.states.tolist() == logs[i].states.tolist()


def test_parts_are_drawn_with_their_weights() -> None:
    policy = mixed(4)
    session = policy.batch_session(20_000, rng=0)
    session.observe(np.zeros(20_000, int))
    drawn = np.bincount(session._nodes, minlength=policy.n_nodes)
    for part in np.unique(policy.first[:, 0]):
        share = policy.weights[policy.first[:, 0] == part].sum()
        # six standard errors
        assert abs(drawn[part] / 20_000 - share) < 6 * np.sqrt(share / 20_000) + 1e-9


def test_values_are_exact_also_in_other_models_with_the_same_outcomes() -> None:
    policy = mixed(0)
    other = random_model(0, 3, 3, 2, 4, sparse=True).replace(weights=[0.2, 0.3, 0.5])
    value = lm.evaluate(other, policy)
    assert value.exact
    assert value.mean == pytest.approx(other.weights @ value.by_context)
    for part, share in zip(policy.parts, policy.weights):
        assert lm.evaluate(other, part, method="exact").exact
        assert share > 0.0
    enumerated = [testing.policy_value(other, part) for part in policy.parts]
    assert policy.weights @ enumerated == pytest.approx(value.mean)


def test_goes_on_after_what_its_model_thinks_impossible() -> None:
    policy = mixed(1)
    world = random_model(9, 3, 3, 2, 4)  # everything is possible
    logs = lm.simulate(world, policy, 500, rng=0)
    assert len(logs) == 500
    value = lm.evaluate(world, policy, 2_000, rng=0)
    assert not value.exact
    session = policy.session(world)
    session.observe(0)
    other = 1 - session.act()
    session.observe(1, 1.0, action=other)  # not the action of the graph
    assert session.act() in (0, 1)


@pytest.mark.parametrize("how", ["dense", "sparse", "transition", "many", "chart", "endings"])
def test_values_in_every_context_are_those_of_the_graph(how: str) -> None:
    """The search knows what its plans earn; following their links gives the same."""
    sizes = {"many": (5, 40, 2, 10), "chart": (3, 40, 2, 10)}.get(how, (4, 4, 2, 5))
    model = testing.random_model(
        3,
        **dict(zip(("contexts", "states", "actions", "horizon"), sizes)),
        zeros=0.5 if how == "sparse" else 0.0,
        reward_model="transition" if how == "transition" else "state-action",
        n_terminal=int(how == "endings"),
        forbidden=0.3 if how == "endings" else 0.0,
        discount=0.9 if how == "dense" else 1.0,
        bonus=how == "dense",
    )
    plan = lm.Robust("regret", gap=0.001, time_limit=2.0).plan(model)
    policy = plan.policy
    assert policy.stays.any()
    assert not policy.stays.all()
    exact = lm.evaluate(model, policy, method="exact")
    np.testing.assert_allclose(exact.by_context, plan.by_context, rtol=1e-10)
    played = lm.evaluate(model, policy, 20_000, rng=0, method="monte-carlo")
    # six standard errors
    assert abs(played.mean - exact.mean) < 6.0 * played.stderr
    if how in ("many", "chart"):
        return
    listed = all_listed(policy)
    again = lm.evaluate(model, listed, method="exact")
    np.testing.assert_allclose(again.by_context, exact.by_context, rtol=1e-12)
    assert lm.simulate(model, listed, 200, rng=1) == lm.simulate(model, policy, 200, rng=1)
    assert listed.reached_nodes().tolist() == policy.reached_nodes().tolist()


def all_listed(policy: lm.MixturePolicy) -> lm.MixturePolicy:
    """The same graph with all followers listed."""
    nodes, table = policy.nodes, policy.model.outcomes
    states = np.repeat(np.arange(nodes.offsets.size - 1), np.diff(nodes.offsets))
    rows = states % policy.model.n_states * policy.model.n_actions + nodes.actions
    links = [
        policy.follower(i, k)
        for i, row in enumerate(rows.tolist())
        for k in range(*table.starts[row : row + 2])
    ]
    return lm.MixturePolicy(nodes, links, policy.first, policy.weights)


def test_nodes_may_stay_where_there_is_no_end() -> None:
    """The optimal policies of the contexts as a graph without an end."""
    model = random_model(2, 3, 4, 2, 4).replace(horizon=None, discount=0.8)
    S, M = model.n_states, model.n_contexts
    q = lm.QMDP().plan(model).policy.vectors.reshape(S, model.n_actions, M)
    actions = q.argmax(axis=1)  # (S, M): of the contexts
    nodes = lm.AlphaVectorPolicy(
        np.zeros((S * M, M)), actions.ravel(), np.arange(0, S * M + 1, M), model
    )
    graph = lm.PolicyGraph(nodes, [], np.arange(0, S * M, M) + 1, np.ones(S * M, bool))
    alone = lm.MarkovPolicy(actions[None, :, 1])
    found, wanted = lm.evaluate(model, graph, method="exact"), lm.evaluate(model, alone)
    np.testing.assert_allclose(found.by_context, wanted.by_context, rtol=1e-9)
    assert graph.reached_nodes().reshape(S, M)[:, 1].all()
    assert graph.reached_nodes().sum() == S
    logs = lm.simulate(model, graph, 20, rng=0)
    assert all((actions[e.states[:-1], 1] == e.actions).all() for e in logs)


def test_refuses_links_that_lead_astray() -> None:
    policy = mixed(0)
    wrong, stays = policy.followers.astype(np.int64), policy.stays
    for astray in (-5, policy.n_nodes, 2**32):
        wrong[0] = astray
        with pytest.raises(ValueError, match=rf"followers\[0\] is {astray}"):
            lm.PolicyGraph(policy.nodes, wrong, policy.first[0], stays)
    unsigned = np.full(wrong.size, 2**63, np.uint64)
    with pytest.raises(ValueError, match=r"followers\[0\] is 9223372036854775808"):
        lm.PolicyGraph(policy.nodes, unsigned, policy.first[0], stays)
    with pytest.raises(ValueError, match="followers must have"):
        lm.PolicyGraph(policy.nodes, wrong[:-1], policy.first[0], stays)
    with pytest.raises(ValueError, match="first must have 3"):
        lm.PolicyGraph(policy.nodes, policy.followers, [0], stays)
    weights = [0.5, 0.2, 0.1, 0.2, 0.0]
    with pytest.raises(ValueError, match="weights must have"):
        lm.MixturePolicy(policy.nodes, policy.followers, policy.first, weights, stays)
    with pytest.raises(ValueError, match=r"stays must be \d+ flags, one for each node"):
        lm.PolicyGraph(policy.nodes, policy.followers, policy.first[0], stays[1:])
    model = random_model(0, 2, 2, 2, 2)
    nodes = lm.AlphaVectorPolicy(np.zeros((5, 2)), np.zeros(5, int), [0, 2, 3, 4, 5], model)
    with pytest.raises(ValueError, match=r"stays\[1\] is True: every state that may come next"):
        lm.PolicyGraph(nodes, [], [1, 2], np.ones(5, bool))


def test_a_limit_before_the_first_answer_still_mixes_the_contexts() -> None:
    """The plans of the single contexts are there before anything else."""
    model = random_model(0, 6, 40, 3, 30)
    plan = lm.Robust("worst-case", gap=0.0, time_limit=0.3).plan(model)
    assert "time limit" in plan.message
    assert plan.lower <= plan.upper < np.inf
    informed = [lm.QMDP().plan(model.context(m)).upper for m in range(6)]
    assert plan.upper <= min(informed) * (1.0 + 1e-9)


def test_a_graph_is_saved_and_loaded(tmp_path) -> None:
    part = mixed(0).parts[0]
    lm.save(part, tmp_path / "graph.npz")
    assert lm.load(tmp_path / "graph.npz") == part


def test_the_graph_keeps_to_the_memory_limit() -> None:
    """Rows of a hundred outcomes: links would take several times what the plans do."""
    model = random_model(0, 4, 50, 2, 20)
    sizes = []
    for limit in (16.0, 1024.0):
        plan = lm.Robust("regret", gap=0.0, time_limit=2.0, memory_limit=limit).plan(model)
        sizes.append(plan.policy.followers.nbytes / 2**20)
        assert sizes[-1] < limit
        assert np.isfinite(plan.lower)
    assert sizes[0] < sizes[1]


def chains(kind: str, n: int, M: int, rng: np.random.Generator) -> np.ndarray:
    """Transitions (M, n, n): that mix, that return after n steps, in two parts, or that may end."""
    P = np.zeros((M, n, n))
    for m in range(M):
        for i in range(n):
            if kind == "cycle":
                P[m, i, (i + 1) % n] = 1.0
            elif kind == "dense":
                P[m, i] = rng.dirichlet(np.ones(n))
            else:
                half = n // 2 * (i >= n // 2)
                to = (
                    half + rng.integers(n // 2, size=3)
                    if kind == "parts"
                    else rng.integers(n, size=3)
                )
                np.add.at(P[m, i], to, 0.3 if kind == "ends" else 1.0 / 3.0)
    return P


@pytest.mark.parametrize("kind", ["dense", "sparse", "parts", "cycle", "ends"])
@pytest.mark.parametrize("discount", [0.5, 0.99, 0.9999])
@pytest.mark.parametrize("n", [40, 100])
def test_values_without_an_end_are_enclosed_closely(kind: str, discount: float, n: int) -> None:
    """Against a direct solution, from no guess, from a wrong one and from the right one."""
    rng = np.random.default_rng(3)
    M = 3
    P, rewards = chains(kind, n, M, rng), rng.random((n, M)) * (rng.random((n, M)) < 0.2)
    true = np.stack(
        [np.linalg.solve(np.eye(n) - discount * P[m], rewards[:, m]) for m in range(M)], axis=1
    )
    if kind == "ends":  # what is left of a row leads to a terminal state
        P = np.pad(P, ((0, 0), (0, 1), (0, 1)))
        P[:, :, n] = 1.0 - P.sum(axis=2)
    states = P.shape[1]
    amounts = np.pad(rewards, ((0, states - n), (0, 0))).T[:, :, None]
    allowed = np.arange(states)[:, None] < n
    P[:, n:] = 0.0
    model = lm.LatentMDP.from_amounts(
        P[:, :, None], amounts, observed=False, allowed=allowed, horizon=None, discount=discount
    )
    table, offsets = model.outcomes, np.minimum(np.arange(states + 1), n)
    followers = np.where(model.terminal[table.next_state], -1, table.next_state).astype(np.int32)
    size = np.abs(true).max()
    for stays in (False, True):
        starts = np.zeros(n + 1, np.int64) if stays else table.starts[: n + 1]
        links = Links(starts, followers[: starts[-1]], np.full(n, stays))
        for guess in (None, rng.random((n, M)), true):
            lower, upper = node_bounds(model, np.zeros(n, np.int32), offsets, links, guess)
            slack = 1e-13 * size / (1.0 - discount)  # of the direct solution
            assert (lower <= true + slack).all()
            assert (upper >= true - slack).all()
            assert (upper - lower).max() <= 1.1e-10 * size + 3e-14 * size / (1.0 - discount)
