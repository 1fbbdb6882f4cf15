"""Acting on every kind of model: tables, forbidden actions, terminal states, no end, names.

Every claim is held against dictionaries and loops that know nothing of tables: `chain` below.
"""

import numpy as np
import pytest
from scipy import stats

import latentmdp as lm
from latentmdp import testing
from latentmdp.envs import LatentMDPEnv
from latentmdp.errors import ImpossibleObservationError, ModelError
from latentmdp.policies import History
from latentmdp.sessions import SessionError
from latentmdp.simulation import play
from latentmdp.worlds import ModelWorld, Space, World, from_callable, play_episode


def any_model(seed, *, terminals=True, endless=False, bonus=True, table=True, **changes):
    """A random model with gaps, forbidden actions, terminal states and hidden rewards."""
    g = np.random.default_rng(seed)
    M, S, A, Z = 3, 5, 3, 2
    T = g.dirichlet(np.full(S, 0.5), (M, S, A))
    T[T < 0.1] = 0.0
    T /= T.sum(axis=-1, keepdims=True)
    allowed = g.random((S, A)) < 0.7
    allowed[np.arange(S), g.integers(A, size=S)] = True
    if terminals:
        allowed[S - 1] = False
    given = {
        "initial": g.dirichlet(np.ones(S), M),
        "weights": g.dirichlet(np.ones(M)),
        "reward_values": (-1.0, 0.5),
        "allowed": allowed,
        "horizon": None if endless else 4,
        "discount": 0.8 if endless else 0.9,
        "bonus": g.normal(size=(M, S, A)) if bonus else None,
        "initial_bonus": g.normal(size=M) if bonus else None,
    }
    dense = lm.LatentMDP(T, g.dirichlet(np.ones(Z), (M, S, A)), **{**given, **changes})
    return as_table(dense) if table else dense


def as_table(dense):
    return dense.replace(outcomes=dense.outcomes)


def any_vectors(model, seed, vectors=2):
    """Alpha vectors of allowed actions only; none in terminal states."""
    g = np.random.default_rng(seed)
    labels, sizes = [], []
    for _ in range(model.n_layers):
        for s in range(model.n_states):
            known = np.flatnonzero(model.allowed[s])
            sizes.append(vectors if known.size else 0)
            labels += [] if known.size == 0 else g.choice(known, vectors).tolist()
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return lm.AlphaVectorPolicy(g.random((len(labels), model.n_contexts)), labels, offsets, model)


def joint_of(model):
    """P_m(s', z | s, a) as a dictionary, read from the table entry by entry."""
    table, found = model.outcomes, {}
    for row in range(table.starts.size - 1):
        for k in range(table.starts[row], table.starts[row + 1]):
            step = int(table.next_state[k]), int(table.reward[k])
            found[(*divmod(row, model.n_actions), *step)] = table.probs[k]
    return found


def value_by_hand(model, chances, horizon):
    """V_m of any rule chances(history) -> (A,), by enumeration of all histories."""
    joint, over = joint_of(model), model.terminal
    total = (
        np.zeros(model.n_contexts) if model.initial_bonus is None else model.initial_bonus.copy()
    )
    bonus = np.zeros((model.n_contexts, model.n_states, model.n_actions))
    bonus = bonus if model.bonus is None else model.bonus
    layer = [(History((s,), (), ()), model.initial[:, s]) for s in range(model.n_states)]
    for t in range(horizon):
        longer = []
        for history, mass in layer:
            s = history.states[-1]
            if over[s] or not mass.any():
                continue
            for a, p in enumerate(chances(history)):
                if p == 0.0:
                    continue
                total += model.discount**t * p * mass * bonus[:, s, a]
                for (s0, a0, n, z), probs in joint.items():
                    if (s0, a0) == (s, a):
                        after = mass * p * probs
                        total += model.discount**t * after * model.reward_values[z]
                        longer.append((history.then(a, n, z), after))
        layer = longer
    return total


def followed(policy):
    """An alpha-vector policy as a function of the history, its filter written out."""
    model, joint, S = policy.model, joint_of(policy.model), policy.model.n_states
    alpha, observations = policy.smoothing, policy.model.n_states * policy.model.n_rewards

    def chances(history):
        b = model.weights * model.initial[:, history.states[0]]
        b = b / b.sum() if b.any() else model.weights
        for t, (a, z) in enumerate(zip(history.actions, history.rewards)):
            key = (history.states[t], a, history.states[t + 1], z)
            likelihood = alpha + (1 - alpha * observations) * joint.get(key, np.zeros(b.size))
            b = b * likelihood / (b @ likelihood) if b @ likelihood > 0 else b
        t = len(history.actions) if policy.n_layers > 1 else 0
        group = slice(*policy.offsets[t * S + history.states[-1] :][:2])
        best = int(np.argmax(policy.vectors[group] @ b))
        return np.eye(model.n_actions)[policy.actions[group][best]]

    return chances


SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_and_its_dense_twin_are_one_model(seed):
    dense, table = (any_model(seed, table=kind) for kind in (False, True))
    for policy in (lm.UniformPolicy(), any_vectors(table, seed)):
        logs = lm.simulate(table, policy, 300, rng=seed)
        assert logs == lm.simulate(dense, policy, 300, rng=seed)
        for smoothing in (0.0, 0.02):
            one, two = (
                lm.posterior(model, logs, smoothing, along=True) for model in (table, dense)
            )
            np.testing.assert_array_equal(one, two)
        values = [lm.evaluate(model, policy, 500, rng=1) for model in (table, dense)]
        np.testing.assert_allclose(values[0].by_context, values[1].by_context, rtol=1e-12)
        assert values[0].stderr == values[1].stderr


@pytest.mark.parametrize("seed", SEEDS)
def test_posterior_is_that_of_the_oracle(seed):
    dense = any_model(seed, table=False)
    logs = lm.simulate(dense, lm.UniformPolicy(), 40, rng=seed)
    for smoothing in (0.0, 0.03):
        after = lm.posterior(as_table(dense), logs, smoothing)
        for i, (states, actions, rewards, _) in enumerate(logs):
            expected = testing.posterior(dense, states, actions, rewards, smoothing)
            np.testing.assert_allclose(after[i], expected, rtol=1e-12)


def test_what_the_table_does_not_list_leaves_the_belief_alone():
    model = any_model(0, terminals=False)
    table, S = model.outcomes, model.n_states
    listed = np.zeros((S, model.n_actions, S), bool)
    listed.reshape(-1, S)[table.rows(), table.next_state] = True
    s, a, n = (int(i) for i in np.argwhere(~listed & model.allowed[:, :, None])[0])
    logs = lm.Trajectories.from_lists([[s, n]], [[a]], [[0]])
    with pytest.raises(ImpossibleObservationError, match="step 0"):
        lm.posterior(model, logs)
    first, then = lm.posterior(model, logs, 0.01, along=True)
    np.testing.assert_array_equal(first, then)
    session = any_vectors(model, 0).session()
    session.observe(int(s))
    before = session.belief
    session.observe(n, -1.0, action=int(a))
    np.testing.assert_array_equal(session.belief, before)


@pytest.mark.parametrize("seed", SEEDS)
def test_frequencies_are_those_of_the_table(seed):
    """A chi-square test over all outcomes; false-alarm probability 1e-5."""
    model = any_model(seed, horizon=6)
    logs = lm.simulate(model, lm.UniformPolicy(), 20_000, rng=seed)
    steps = logs.steps()
    assert model.allowed[steps.state, steps.action].all()
    assert not model.terminal[steps.state].any()
    short = logs.lengths < 6
    assert short.any()
    assert model.terminal[logs.last_states[short]].all()
    S, Z = model.n_states, model.n_rewards
    row = steps.state.astype(np.int64) * model.n_actions + steps.action
    place = model.outcomes.find((row * S + steps.next_state) * Z + steps.reward, S, Z)
    assert (place >= 0).all()
    M = model.n_contexts
    context = logs.contexts[steps.episode]
    seen = np.bincount(place * M + context, minlength=model.outcomes.size * M).reshape(-1, M)
    visits = np.bincount(row * M + context, minlength=S * model.n_actions * M).reshape(-1, M)
    expected = visits[model.outcomes.rows()] * model.outcomes.probs
    assert (seen[expected == 0.0] == 0).all()
    common = expected >= 5.0
    statistic = ((seen - expected)[common] ** 2 / expected[common]).sum()
    assert stats.chi2.sf(statistic, int(common.sum() - (visits > 0).sum())) > 1e-5


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("smoothing", [0.0, 0.05])
def test_exact_values_are_those_of_enumeration_by_hand(seed, smoothing):
    model = any_model(seed, horizon=3)
    policy = any_vectors(model, seed).filtering(any_vectors(model, seed).model, smoothing)
    found = lm.evaluate(model, policy, method="exact")
    expected = value_by_hand(model, followed(policy), 3)
    np.testing.assert_allclose(found.by_context, expected, rtol=1e-11, atol=1e-12)
    assert found.mean == pytest.approx(model.weights @ expected, rel=1e-11)
    uniform = lm.UniformPolicy().action_probabilities(model)[0]
    found = lm.evaluate(model, lm.UniformPolicy())
    expected = value_by_hand(model, lambda history: uniform[history.states[-1]], 3)
    np.testing.assert_allclose(found.by_context, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_monte_carlo_is_within_its_error(seed):
    """Each context and the whole within 5 standard errors; false alarm below 1e-5."""
    model = any_model(seed)
    policy = any_vectors(model, seed)
    exact = lm.evaluate(model, policy, method="exact")
    found = lm.evaluate(model, policy, 40_000, rng=seed)
    assert abs(found.mean - exact.mean) < 5 * found.stderr
    assert found == lm.evaluate(model, policy, 40_000, rng=seed, threads=1)
    assert found.mean == pytest.approx(model.weights @ found.by_context, rel=1e-12)
    assert np.abs(found.by_context - exact.by_context).max() < 0.2
    assert found.truncation == 0.0
    rule = lm.evaluate(model, followed(policy), 300, rng=0, method="monte-carlo")
    assert abs(rule.mean - exact.mean) < 5 * rule.stderr


def test_a_callable_earns_what_the_compiled_policy_earns():
    model = any_model(1)
    table = [int(np.argmax(row)) for row in model.allowed]
    compiled = lm.evaluate(model, lm.MarkovPolicy(table), 200, rng=3, method="monte-carlo")
    rule = lambda history: table[history.states[-1]]  # noqa: E731
    stepped = lm.evaluate(model, rule, 200, rng=3, method="monte-carlo")
    assert stepped.mean == pytest.approx(compiled.mean, rel=1e-12)
    assert stepped.stderr == pytest.approx(compiled.stderr, rel=1e-12)


def test_contexts_without_weight_have_values_too():
    model = any_model(2, weights=[1.0, 0.0, 0.0])
    policy = any_vectors(model, 0)
    exact = lm.evaluate(model, policy, method="exact")
    assert exact.mean == pytest.approx(exact.by_context[0])
    alone = [
        lm.evaluate(model.replace(weights=np.eye(3)[m]), policy, method="exact").mean
        for m in range(3)
    ]
    np.testing.assert_allclose(exact.by_context, alone)
    simulated = np.array([lm.evaluate(model, policy, 100, rng=i).by_context for i in range(100)])
    error = simulated.std(axis=0, ddof=1) / 10.0
    assert (np.abs(simulated.mean(axis=0) - alone) < 5.0 * error).all()  # alarm: below 1e-5
    few = lm.evaluate(model, policy, 2, rng=0)
    assert np.isfinite([*few.by_context, few.mean, few.stderr]).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_without_end_markov_policies_solve_linear_equations(seed):
    model = any_model(seed, endless=True)
    policy = lm.MarkovPolicy(np.argmax(model.allowed, axis=1))
    found = lm.evaluate(model, policy)
    far = lm.evaluate(model.replace(horizon=300), policy)
    np.testing.assert_allclose(found.by_context, far.by_context, rtol=1e-11, atol=1e-11)


def test_without_end_simulation_is_cut_off_where_nothing_is_left():
    model = any_model(0, endless=True)
    T = Space.of(model).longest_episode
    assert model.discount**T < 1e-4 <= model.discount ** (T - 1)
    for_ever = any_model(0, endless=True, terminals=False)
    assert (lm.simulate(for_ever, lm.UniformPolicy(), 20, rng=0).lengths == T).all()
    logs = lm.simulate(model, lm.UniformPolicy(), 200, rng=0)
    short = lm.simulate(model, lm.UniformPolicy(), 200, rng=0, horizon=5)
    assert short.lengths.max() == 5
    for i in range(200):
        length = short.lengths[i]
        np.testing.assert_array_equal(short[i].states, logs[i].states[: length + 1])
    with pytest.raises(ValueError, match="horizon is 9, but the model ends after 4"):
        lm.simulate(any_model(3), lm.UniformPolicy(), 1, horizon=9)


def test_without_end_monte_carlo_states_its_truncation():
    model = any_model(4, endless=True)
    policy = any_vectors(model, 0)
    found = lm.evaluate(model, policy, 20_000, rng=0)
    T = Space.of(model).longest_episode
    largest = np.abs(model.planning_rewards()).max()
    assert found.truncation == pytest.approx(model.discount**T * largest / (1 - model.discount))
    assert "cut off" in str(found)
    exact = lm.evaluate(model, lm.UniformPolicy())
    guess = lm.evaluate(model, lm.UniformPolicy(), 40_000, rng=0, method="monte-carlo")
    assert abs(guess.mean - exact.mean) < 5 * guess.stderr + guess.truncation
    with pytest.raises(ModelError, match="needs a horizon"):
        lm.evaluate(model, policy, method="exact")
    timed = any_vectors(any_model(4), 0)
    with pytest.raises(ValueError, match="the model has no end"):
        lm.evaluate(model, timed)
    assert lm.simulate(model, timed, 3, rng=0, horizon=4).lengths.max() <= 4


class Opaque(World):
    """A model that nobody recognises as one, so that it is played step by step."""

    def __init__(self, model):
        self._inner = ModelWorld(model)
        self.space = self._inner.space

    def begin(self, key, episode):
        return self._inner.begin(key, episode)

    def step(self, action):
        return self._inner.step(action)

    def context(self):
        return self._inner.context()

    def fingerprint(self):
        return "opaque"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("endless", [False, True])
def test_step_by_step_is_the_compiled_rollout(seed, endless):
    """Also where the policy's filter believes in another table than the world's."""
    model, believed = (
        any_model(seed, endless=endless),
        any_model(seed, endless=endless, bonus=False),
    )
    g = np.random.default_rng(seed)
    T = np.where(g.random(believed.transitions.shape) < 0.3, 0.0, believed.transitions) + 1e-3
    T[..., 0] += 1e-3
    other = believed.replace(
        transitions=T / T.sum(axis=-1, keepdims=True), rewards=believed.reward_probs
    )
    gaps = model.replace(initial=model.initial)
    for filtered in (model, other):
        policy = any_vectors(filtered, seed)
        for world, judge in ((gaps, filtered), (filtered, model)):
            acting = any_vectors(judge, seed)
            compiled = play(ModelWorld(world), acting, 40, key=5, first_episode=3)
            assert play(Opaque(world), acting, 40, key=5, first_episode=3) == compiled
        assert play(Opaque(model), policy, 20, key=1) == play(ModelWorld(model), policy, 20, key=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_make_the_decisions_of_a_simulation(seed):
    model = any_model(seed, horizon=8)
    policy = any_vectors(model, seed)
    logs = lm.simulate(model, policy, 100, rng=seed)
    crowd = policy.batch_session(100)
    crowd.observe(logs.first_states)
    for t in range(8):
        running = logs.lengths > t
        np.testing.assert_array_equal(~crowd.over, running)
        if not running.any():
            break
        steps = np.minimum(logs.offsets[:-1] + t, logs.n_steps - 1)
        expected = np.where(running, logs.actions[steps], -1)
        np.testing.assert_array_equal(crowd.act(), expected)
        states = np.where(
            running, logs.states[np.minimum(steps + np.arange(100) + 1, logs.states.size - 1)], 0
        )
        rewards = np.where(running, model.reward_values[logs.rewards[steps]], np.nan)
        crowd.observe(states, rewards, crowd.act() if t % 2 else None)
    np.testing.assert_array_equal(crowd.beliefs, lm.posterior(model, logs))


def test_forbidden_actions_are_refused_by_name():
    allowed = [[True, True], [True, False], [False, False]]
    model = shop(allowed=allowed)
    with pytest.raises(ValueError, match="time 1: action 'wait' is not allowed in state 'low'"):
        lm.simulate(model, lm.MarkovPolicy([[0, 0, 0], [0, 1, 1], [0, 0, 0]]), 1)
    with pytest.raises(ValueError, match="action 'wait' is not allowed in state 'low'"):
        lm.evaluate(model, lm.MarkovPolicy(np.full((3, 2), 0.5)))
    fine = lm.MarkovPolicy([[1, 0, 1]] * 3)
    assert fine.action_probabilities(model)[0].tolist() == [[0, 1], [1, 0], [0, 0]]
    with pytest.raises(ValueError, match="action 'wait' is not allowed in state 'low'"):
        lm.AlphaVectorPolicy(np.ones((3, 2)), [0, 1, 1], [0, 2, 3, 3], model)
    with pytest.raises(ValueError, match="time 0, state 'low' has no vector"):
        lm.AlphaVectorPolicy(np.ones((2, 2)), [0, 1], [0, 2, 2, 2], model)
    with pytest.raises(ValueError, match="action 1 is not allowed in state 1"):
        lm.simulate(model, lambda history: 1, 50, rng=0)
    world = ModelWorld(model)
    state = next(world.begin(0, i) for i in range(50) if world.begin(0, i) == 1)
    assert state == 1
    with pytest.raises(ValueError, match="action 'wait' is not allowed in state 'low'"):
        world.step(1)


def shop(**changes):
    """Three named states of a stock, two actions, one reward value."""
    T = np.array(
        [[[[0.5, 0.5, 0.0], [0.2, 0.4, 0.4]]] * 3, [[[0.1, 0.4, 0.5], [0.9, 0.1, 0.0]]] * 3]
    )
    given = {
        "horizon": 3,
        "initial": [0.5, 0.5, 0.0],
        "state_names": ["full", "low", "sold out"],
        "action_names": ["order", "wait"],
        "allowed": [[True, True], [True, True], [False, False]],
    }
    amounts = np.array([[[1.0, 2.0]] * 3, [[3.0, -1.0]] * 3])
    return lm.LatentMDP.from_amounts(T, amounts, observed=False, **{**given, **changes})


def test_names_go_in_and_come_out():
    model = shop()
    policy = any_vectors(model, 0)
    by_name, by_index = policy.session(), policy.session()
    by_name.observe("full")
    by_index.observe(0)
    action = by_name.act()
    assert action in model.action_names
    assert model.action_names[by_index.act_index()] == action
    assert by_name.act_index() == by_index.act_index()
    by_name.observe("low")  # one reward value: it may be left out
    by_index.observe(1, 0.0)
    np.testing.assert_array_equal(by_name.belief, by_index.belief)
    by_name.observe("sold out", action="wait")
    assert by_name.over
    with pytest.raises(SessionError, match="the episode is over: state 'sold out' is terminal"):
        by_name.act()
    with pytest.raises(SessionError, match="the episode is over"):
        by_name.observe("full")
    with pytest.raises(ValueError, match="'sold', which the model does not know; near: 'sold out'"):
        policy.session().observe("sold")
    fresh = policy.session()
    fresh.observe("full")
    with pytest.raises(ValueError, match=r"actions\[0\] is 'ordr'.* near: 'order'"):
        fresh.observe("low", action="ordr")
    limited = shop(allowed=[[True, False], [True, True], [False, False]])
    strict = any_vectors(limited, 0).session()
    strict.observe("full")
    with pytest.raises(ValueError, match="action 'wait' is not allowed in state 'full'"):
        strict.observe("low", action="wait")
    with pytest.raises(TypeError, match="an index or a name"):
        policy.session().observe(None)
    plain = any_vectors(any_model(0), 0).session()
    with pytest.raises(ValueError, match="the model has no names"):
        plain.observe("full")


def test_crowds_take_and_give_names():
    model = shop()
    crowd = any_vectors(model, 0).batch_session(3)
    crowd.observe(["full", "sold out", 1])
    actions = crowd.act()
    assert actions[1] is None
    assert {actions[0], actions[2]} <= set(model.action_names)
    assert crowd.act_indices()[1] == -1
    before = crowd.beliefs
    crowd.observe(["low", "full", "sold out"], actions=actions)
    np.testing.assert_array_equal(crowd.over, [False, True, True])
    np.testing.assert_array_equal(crowd.beliefs[1], before[1])
    crowd.observe(np.array(["sold out"] * 3), actions=["order"] * 3)
    with pytest.raises(SessionError, match="is over"):
        crowd.act()


def test_sessions_without_end_have_no_clock():
    model = any_model(0, endless=True, terminals=False)
    session = any_vectors(model, 0).session()
    session.observe(0)
    for t in range(200):
        assert session.t == t
        assert model.allowed[0, session.act()]
        session.observe(0, -1.0)
    assert not session.over


def test_a_space_says_what_is_allowed():
    model = any_model(0)
    space = Space.of(model)
    np.testing.assert_array_equal(space.allowed, model.allowed)
    np.testing.assert_array_equal(space.terminal, model.terminal)
    assert space == Space.of(as_table(model))
    assert space != Space.of(model.replace(allowed=None, **dense_rows(model)))
    assert Space.of(any_model(0, endless=True)).discounted_steps == pytest.approx(5.0)
    assert hash(space) == hash(Space.of(model))


def dense_rows(model):
    T, R = model.transitions.copy(), model.reward_probs.copy()
    T[:, ~model.allowed], R[:, ~model.allowed] = 1.0 / model.n_states, 1.0 / model.n_rewards
    return {"transitions": T, "rewards": R}


def test_episodes_of_a_function_end_where_its_space_says():
    def walk(rng):
        state = 0

        def step(action):
            nonlocal state
            state += 1
            return state, 1.0, state == 2

        return state, step

    sizes = {"n_states": 3, "n_actions": 2, "horizon": 6, "reward_values": (0.0, 1.0)}
    world = from_callable(walk, **sizes, allowed=[[1, 0], [1, 1], [0, 0]])
    logs = play(world, lm.UniformPolicy(), 20, key=0)
    assert (logs.lengths == 2).all()
    assert (logs.actions[::2] == 0).all()
    untold = play(from_callable(walk, **sizes), lm.UniformPolicy(), 5, key=0)
    assert (untold.lengths == 2).all()
    assert (untold.last_states == 3).all()  # the end, one state more than those shown


def test_an_episode_that_begins_in_a_terminal_state_has_no_steps():
    model = shop(initial=[0.0, 0.0, 1.0])
    logs = lm.simulate(model, lm.UniformPolicy(), 10, rng=0)
    assert (logs.lengths == 0).all()
    assert (logs.first_states == 2).all()
    assert lm.evaluate(model, any_vectors(model, 0), 10, rng=0).mean == 0.0
    assert lm.evaluate(model, any_vectors(model, 0), method="exact").mean == 0.0

    class Nobody:
        def begin(self, episode, state): ...
        def act(self, t):
            raise AssertionError("nobody acts in a terminal state")

        def observe(self, action, transition): ...

    assert play_episode(ModelWorld(model), Nobody(), 0, 0).actions.size == 0


def test_environments_end_and_mask():
    model = shop(horizon=None, discount=0.9, allowed=[[True, False], [True, True], [False, False]])
    env = LatentMDPEnv(model)
    for seed in range(20):
        state, info = env.reset(seed=seed)
        for _ in range(200):
            np.testing.assert_array_equal(info["action_mask"], model.allowed[state])
            action = env.action_space.sample(mask=info["action_mask"])
            state, _, terminated, truncated, info = env.step(action)
            assert not truncated
            assert terminated == model.terminal[state] == ("context" in info)
            if terminated:
                break
        assert terminated
    for seed in range(20):
        state, _ = env.reset(seed=seed)
        if state == 0:
            break
    with pytest.raises(ValueError, match="action 'wait' is not allowed in state 'full'"):
        env.step(np.int64(1))
    world = lm.envs.adapt(LatentMDPEnv(shop()))
    np.testing.assert_array_equal(world.space.allowed, shop().allowed)
    logs = play(world, lm.UniformPolicy(), 50, key=0)
    assert not model.terminal[logs.steps().state].any()
    assert (logs.lengths < 3).any()
