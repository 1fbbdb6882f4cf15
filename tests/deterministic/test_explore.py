"""Algorithm 5 against brute force, on random deterministic LMDPs and on the lower bound."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

import latentmdp as lm
from latentmdp.deterministic import ExplorationError, episode_bound, explore
from latentmdp.testing import optimal_value, policy_value

SIZES = [(2, 6, 3, 6), (3, 5, 3, 5), (4, 4, 2, 6), (4, 6, 2, 5), (2, 3, 3, 4), (3, 6, 2, 6)]


def random_instance(seed):
    """One of the hundred: all sizes in turn, few to many differences, starts fixed or hidden."""
    M, S, A, H = SIZES[seed % len(SIZES)]
    return lm.make(
        "deterministic",
        contexts=M,
        states=S,
        actions=A,
        horizon=H,
        variation=(0.1, 0.3, 0.6)[seed % 3],
        reward_density=0.3,
        start=None if seed % 4 == 3 else 0,
        rng=seed,
    )


def brute_force(model):
    """V* by dynamic programming over (time, state, set of contexts left): all is deterministic."""
    P, values = model.observation_probs(), model.reward_values
    memo = {}

    def best(t, s, contexts):
        if t == model.horizon:
            return 0.0
        if (t, s, contexts) not in memo:
            totals = []
            for a in range(model.n_actions):
                groups = {}
                for m in contexts:
                    outcome = divmod(int(np.argmax(P[m, s, a])), model.n_rewards)
                    groups.setdefault(outcome, []).append(m)
                totals.append(
                    sum(
                        sum(model.weights[m] for m in group) * values[z]
                        + best(t + 1, following, tuple(group))
                        for (following, z), group in groups.items()
                    )
                )
            memo[t, s, contexts] = max(totals)
        return memo[t, s, contexts]

    starts = {}
    for m in range(model.n_contexts):
        starts.setdefault(int(np.argmax(model.initial[m])), []).append(m)
    return sum(best(0, s, tuple(contexts)) for s, contexts in starts.items())


@pytest.mark.parametrize("seed", range(40))
def test_optimal_on_forty_random_instances(seed):
    # failure probability 0.01 each: a miss or more in 40 has probability 0.33 for an algorithm
    # that just keeps it; the seeds are fixed, and the union bound is far from tight.
    model = random_instance(seed)
    found = explore(model, model.n_contexts, failure_probability=0.01, rng=seed)
    best = brute_force(model)
    assert found.exact
    assert found.stderr == 0.0
    assert found.value == pytest.approx(best, abs=1e-12)
    assert lm.evaluate(model, found.policy, method="exact").mean == pytest.approx(best, abs=1e-12)
    assert found.episodes <= found.bound == episode_bound(model, model.n_contexts)


def test_own_brute_force_agrees_with_the_oracles():
    for seed in range(6):
        model = lm.make("deterministic", contexts=3, states=4, horizon=4, rng=seed)
        assert brute_force(model) == pytest.approx(optimal_value(model), abs=1e-12)


@pytest.mark.parametrize(
    ("variant", "M", "A"),
    [("plain", 2, 2), ("plain", 3, 3), ("plain", 4, 3), ("plain", 5, 2), ("amplified", 3, 2)],
)
def test_lower_bound_instance(variant, M, A):
    model = lm.make("lower-bound", variant=variant, contexts=M, actions=A, rng=M)
    found = explore(model, M, rng=A)
    assert found.value == pytest.approx(1 / M, abs=1e-12)
    assert lm.evaluate(model, found.policy, method="exact").mean == pytest.approx(1 / M, abs=1e-12)
    assert A**M <= found.episodes <= found.bound


def test_the_policy_runs_in_simulate():
    model = random_instance(1)
    found = explore(model, model.n_contexts)
    logs = lm.simulate(model, found.policy, 2000, rng=0)
    assert logs.returns().mean() == pytest.approx(
        found.value, abs=4 * logs.returns().std() / np.sqrt(2000) + 1e-12
    )


def test_recorded_frequencies_match_the_probabilities():
    found = explore(random_instance(4), 4, rng=3)
    branching = [edge for edge in found.graph.edges if edge.probability < 1.0]
    assert branching
    z = [
        (e.frequency - e.probability) / np.sqrt(e.probability * (1 - e.probability) / e.visits)
        for e in branching
    ]
    assert np.abs(z).max() < 6.0
    for edge in found.graph.edges:
        assert edge.stderr == pytest.approx(
            np.sqrt(edge.frequency * (1 - edge.frequency) / edge.visits)
        )
    by_action = {}
    for edge in found.graph.edges:
        by_action.setdefault((edge.source, edge.action), []).append(edge.probability)
    assert all(sum(p) == pytest.approx(1.0, abs=1e-12) for p in by_action.values())


def test_nodes_merge_whatever_the_order_of_observations():
    # two switches that can be tried in either order, each telling one bit of four contexts apart
    T = np.zeros((4, 3, 2, 3))
    T[:, 0, :, 0] = 1.0
    T[:, 1:, :, 0] = 1.0
    R = np.zeros((4, 3, 2))
    for m in range(4):
        R[m, 0] = (m // 2, m % 2)
    model = lm.LatentMDP(T, R, initial=0, horizon=2)
    found = explore(model, 4, rng=0)
    full = [node for node in found.graph.nodes if len(node.observations) == 2]
    assert len(full) == 4  # not eight
    assert found.value == pytest.approx(optimal_value(model), abs=1e-12)


def test_a_discount_is_counted():
    model = random_instance(2).replace(discount=0.5)
    found = explore(model, model.n_contexts, rng=0)
    assert found.value == pytest.approx(policy_value(model, found.policy), abs=1e-12)
    assert found.value == pytest.approx(optimal_value(model), abs=1e-12)


def test_contexts_that_cannot_be_told_apart():
    model = random_instance(5)
    twins = lm.LatentMDP(
        model.transitions[[0, 0, 1, 2]],
        model.reward_probs[[0, 0, 1, 2]],
        initial=0,
        horizon=model.horizon,
    )
    found = explore(twins, 4, rng=0)
    assert found.exact
    assert found.value == pytest.approx(brute_force(twins), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_a_random_first_state(seed):
    model = random_instance(2 * seed).replace(initial=None)
    found = explore(model, model.n_contexts, rng=seed)
    value = lm.evaluate(model, found.policy, method="exact").mean
    assert value == pytest.approx(sum_over_starts(model), abs=1e-12)
    assert abs(found.value - value) <= 5 * found.stderr


def sum_over_starts(model):
    S = model.n_states
    return sum(brute_force(model.replace(initial=s)) for s in range(S)) / S


def test_weights_that_are_not_uniform():
    model = random_instance(3).replace(
        weights=[0.6, 0.25, 0.1, 0.05][: random_instance(3).n_contexts]
    )
    found = explore(model, model.n_contexts, min_weight=0.05, rng=0)
    value = lm.evaluate(model, found.policy, method="exact").mean
    assert not found.exact
    assert value >= brute_force(model) - 0.05 * model.horizon
    assert abs(found.value - value) <= 5 * found.stderr


def test_weights_that_are_not_uniform_and_not_declared_are_noticed():
    model = lm.make("deterministic", contexts=2, states=4, variation=0.5, rng=1)
    model = model.replace(weights=[0.9, 0.1])
    with pytest.warns(UserWarning, match="equally likely"):
        found = explore(model, 2, rng=0)
    assert not found.exact


@pytest.mark.parametrize("repeats", ["paper", 40])
def test_other_numbers_of_repeats(repeats):
    model = random_instance(0)
    found = explore(model, 2, repeats=repeats, rng=0)
    assert found.repeats == (int(np.ceil(6 * np.log(2))) if repeats == "paper" else 40)
    assert found.value == pytest.approx(brute_force(model), abs=1e-12)


def test_one_context_needs_no_repeats():
    model = random_instance(0).context(0)
    found = explore(model, 1, rng=0)
    assert found.value == pytest.approx(brute_force(model), abs=1e-12)


# -- when it is not what was told -----------------------------------------------------------------


def test_more_contexts_than_told():
    for seed in range(10):
        model = lm.make("deterministic", contexts=4, states=4, variation=0.6, rng=seed)
        with pytest.raises(ExplorationError, match="more than n_contexts=2") as caught:
            explore(model, 2, rng=seed)
        s, a = caught.value.state, caught.value.action
        assert len(caught.value.outcomes) > 1
        for (following, _), count in caught.value.outcomes.items():
            assert count > 0
            assert model.transitions[:, s, a, following].max() == 1.0


def test_fewer_contexts_than_told_are_no_harm():
    model = random_instance(1)
    with pytest.warns(UserWarning, match="equally likely"):
        found = explore(model, 5, rng=0)  # not multiples of one fifth
    value = lm.evaluate(model, found.policy, method="exact").mean
    assert value >= brute_force(model) - 0.2


def test_a_random_model_is_refused():
    with pytest.raises(ExplorationError, match="not deterministic"):
        explore(lm.make("separated", contexts=3, states=5, horizon=6, rng=0), 3)


@pytest.mark.parametrize("seed", range(5))
def test_one_random_row_is_noticed(seed):
    model = lm.make("deterministic", contexts=2, states=3, horizon=6, variation=0.5, rng=seed)
    T = model.transitions.copy()
    T[:, 0, 0] = 1.0 / 3.0  # a coin in the very first state
    with pytest.raises(ExplorationError):
        explore(model.replace(transitions=T), 2, rng=seed)


def guessing(p, weights=None, initial=None):
    """One step: guess the context, of which the first state tells something."""
    T = np.zeros((2, 2, 2, 2))
    T[..., 0] = 1.0
    R = np.stack([np.tile([1.0, 0.0], (2, 1)), np.tile([0.0, 1.0], (2, 1))])
    start = [[p, 1.0 - p], [1.0 - p, p]] if initial is None else initial
    return lm.LatentMDP(T, R, initial=start, horizon=1, weights=weights)


@pytest.mark.parametrize("p", [0.6, 0.8, 0.95])
@pytest.mark.parametrize("seed", range(4))
def test_a_random_first_state_that_depends_on_the_context_is_evidence(seed, p):
    # A frequency with a standard error of .02 is on the wrong side of 1/2 with probability
    # 3e-7 at p = .6; there are two first states and four seeds.
    model = guessing(p)
    found = explore(model, 2, rng=seed)
    assert not found.exact
    assert lm.evaluate(model, found.policy, method="exact").mean == pytest.approx(p, abs=1e-12)
    assert abs(found.value - p) <= 5 * found.stderr


def test_evidence_that_the_user_denies_is_refused():
    with pytest.raises(ValueError, match="initial distributions differ"):
        explore(guessing(0.6), 2, random_start=True)


class Guessing(gymnasium.Env):
    """`guessing` as an environment, which says nothing about its first state."""

    observation_space, action_space = Discrete(2), Discrete(2)
    horizon, reward_values = 1, (0.0, 1.0)

    def __init__(self, p):
        self.p = p

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.context = int(self.np_random.integers(2))
        told = self.np_random.random() < self.p
        return self.context if told else 1 - self.context, {}

    def step(self, action):
        return 0, float(action == self.context), False, False, {}


@pytest.mark.parametrize("p", [0.6, 0.97])
def test_evidence_in_an_environment(p):
    # At .97 the first seven episodes of a first state are alike with probability .8.
    found = explore(Guessing(p), 2, rng=0, max_noise=0.01)
    assert not found.exact
    assert [found.policy.action(0, found.policy.start(s)) for s in (0, 1)] == [0, 1]
    assert abs(found.value - p) <= 5 * found.stderr


class Noisy(gymnasium.Env):
    """A ring of four states; a share of the steps goes anywhere."""

    observation_space, action_space = Discrete(4), Discrete(2)
    horizon, reward_values = 6, (0.0, 1.0)

    def __init__(self, share):
        self.share = share

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.context, self.state = int(self.np_random.integers(2)), 0
        return 0, {}

    def step(self, action):
        self.state = (self.state + 1 + (action == self.context)) % 4
        if self.np_random.random() < self.share:
            self.state = int(self.np_random.integers(4))
        return self.state, float(self.state == 3), False, False, {}


@pytest.mark.parametrize("seed", range(4))
def test_rare_noise_is_found(seed):
    # One step in 1,000 deviates, and that is to be found with probability .99.
    with pytest.raises(ExplorationError):
        explore(Noisy(0.001 * 4 / 3), 2, rng=seed, max_noise=0.001)
    quiet = explore(Noisy(0.0), 2, rng=seed, max_noise=0.001)
    assert quiet.exact
    assert quiet.max_noise == 0.001


def test_noise_in_a_model_is_read():
    model = random_instance(1)
    T = 0.9999 * model.transitions + 0.0001 / model.n_states
    with pytest.raises(ExplorationError, match="model is not deterministic: in context 0, state 0"):
        explore(model.replace(transitions=T), model.n_contexts)


def test_a_weight_that_the_data_contradict():
    model = guessing(1.0, weights=[0.97, 0.03], initial=0)
    with pytest.warns(UserWarning, match="min_weight=0.2 is contradicted"):
        explore(model, 2, rng=1, min_weight=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explore(model, 2, rng=1, min_weight=0.03)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n_contexts": 2, "max_noise": 0.0}, "max_noise"),
        ({"n_contexts": 2, "random_start": "maybe"}, "random_start"),
        ({"n_contexts": 0}, "n_contexts"),
        ({"n_contexts": 2, "failure_probability": 0.0}, "failure_probability"),
        ({"n_contexts": 2, "min_weight": 2.0}, "min_weight"),
        ({"n_contexts": 2, "repeats": 0}, "repeats"),
        ({"n_contexts": 2, "horizon": 0}, "horizon"),
    ],
)
def test_bad_arguments(arguments, match):
    with pytest.raises(ValueError, match=match):
        explore(random_instance(0), **arguments)


# -- environments ---------------------------------------------------------------------------------


class Corridor(gymnasium.Env):
    """Five cells; the goal is at one end or at the other, and entering it ends the episode."""

    observation_space = Discrete(5, start=10)
    action_space = Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.goal = int(self.np_random.choice([0, 4]))
        self.cell = 2
        return 12, {}

    def step(self, action):
        self.cell += 1 if action == 2 else -1
        at_end = self.cell in (0, 4)
        reward = 2.5 if self.cell == self.goal else -0.5
        self.cell = min(4, max(0, self.cell))
        return self.cell + 10, reward, at_end and self.cell == self.goal, False, {}


def test_a_gymnasium_environment():
    found = explore(Corridor(), 2, horizon=6, rng=0)
    # two steps to one end (-0.5, then 2.5 or -0.5), and if that was wrong four to the other
    right = -0.5 + 2.5
    wrong = -0.5 - 0.5 - 3 * 0.5 + 2.5
    assert found.value == pytest.approx((right + wrong) / 2, abs=1e-12)
    env, policy = Corridor(), found.policy
    totals = []
    for seed in range(40):
        observation, _ = env.reset(seed=seed)
        node, total = policy.start(observation - 10), 0.0
        for t in range(6):
            action = policy.action(t, node)
            observation, reward, terminated, _, _ = env.step(action + 1)
            node = policy.follow(node, action, observation - 10, reward)
            total += reward
            if terminated:
                break
        totals.append(total)
    assert set(totals) == {right, wrong}


def test_an_environment_that_stops_early():
    env = gymnasium.wrappers.TimeLimit(Corridor(), 3)
    with pytest.raises(ValueError, match="cut the episode after 3 steps"):
        explore(env, 2, horizon=6)
    assert explore(env, 2, horizon=3).value == pytest.approx((2.0 - 1.5) / 2, abs=1e-12)


def test_what_is_not_an_environment():
    with pytest.raises(TypeError, match="Gymnasium"):
        explore(object(), 2)
    with pytest.raises(TypeError, match="Discrete"):
        explore(gymnasium.make("CartPole-v1"), 2, horizon=5)
    with pytest.raises(ValueError, match="horizon: the environment does not tell it"):
        explore(Corridor(), 2)


# -- parts ----------------------------------------------------------------------------------------


def test_sizes_of_classes_follow_from_splits():
    from latentmdp.deterministic.search import ClassSizes, ContradictionError

    sizes = ClassSizes(4)
    root, a, b, c, d = (sizes.add() for _ in range(5))
    sizes.split(root, "x", [a, b])
    assert (sizes.low[root], sizes.high[a], sizes.high[b]) == (2, 3, 3)
    sizes.split(a, "y", [c, d])
    assert (sizes.low[a], sizes.low[root], sizes.high[b], sizes.high[c]) == (2, 3, 2, 2)
    sizes.split(c, "z", [sizes.add(), sizes.add()])  # now a is three contexts, and b one
    assert (sizes.low[a], sizes.high[a], sizes.high[b], sizes.high[d]) == (3, 3, 1, 1)
    with pytest.raises(ContradictionError):
        sizes.split(b, "z", [sizes.add(), sizes.add()])


def test_rare_outcomes_that_were_missed_restart_the_search():
    # one try an action: misses are certain to happen, and are repaired when they show
    restarts, optimal = 0, 0
    for seed in range(30):
        model = random_instance(seed)
        found = explore(model, model.n_contexts, repeats=2, rng=seed)
        restarts += found.restarts
        value = lm.evaluate(model, found.policy, method="exact").mean
        optimal += value >= brute_force(model) - 1e-9
    assert restarts > 0
    assert optimal >= 20


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_optimal_with_forbidden_actions_and_a_terminal_state(seed, table):
    model = lm.make(
        "deterministic",
        contexts=2,
        states=5,
        actions=3,
        horizon=5,
        variation=0.3,
        start=0,
        rng=seed,
    )
    g = np.random.default_rng(seed)
    allowed = g.random((5, 3)) < 0.6
    allowed[np.arange(5), g.integers(3, size=5)] = True
    allowed[4] = False
    model = model.replace(allowed=allowed)
    if table:
        model = model.replace(outcomes=model.outcomes)
    found = explore(model, 2, rng=seed)
    best = optimal_value(model)
    assert found.value == pytest.approx(best, abs=1e-12)
    assert policy_value(model, found.policy) == pytest.approx(best, abs=1e-12)
    tried = {(found.graph.nodes[edge.source].state, edge.action) for edge in found.graph.edges}
    assert tried <= set(map(tuple, np.argwhere(allowed)))


def test_a_world_without_an_end_needs_a_horizon():
    model = lm.make("deterministic", contexts=2, states=3, actions=2, horizon=4, rng=0)
    endless = model.replace(horizon=None, discount=0.9)
    with pytest.raises(ValueError, match="explore needs a horizon"):
        explore(endless, 2)
    found = explore(endless, 2, horizon=3)
    cut = model.replace(horizon=3, discount=0.9)
    assert found.value == pytest.approx(optimal_value(cut), abs=1e-12)
