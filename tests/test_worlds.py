"""Worlds: a model, an environment and a function look the same to whoever acts."""

import os
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from small_worlds import Opaque, small

import latentmdp as lm
from latentmdp._util.random import philox_key
from latentmdp.envs import LatentMDPEnv, MixtureEnv, adapt, tabular_model
from latentmdp.online import PosteriorSampling
from latentmdp.online.baselines import uniform
from latentmdp.simulation import play
from latentmdp.worlds import from_callable


class Corridor(gymnasium.Env):
    """Three cells; the right way ends in the last one. A cut-off may come first."""

    def __init__(self, cut=None, tell=True, first=0):
        self.observation_space = spaces.Discrete(3, start=first)
        self.action_space = spaces.Discrete(2)
        self.cut, self.tell, self.first = cut, tell, first

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s, self.t = 0, 0
        self.context = int(self.np_random.integers(2))
        return self.s + self.first, {}

    def step(self, action):
        self.t += 1
        self.s += int(action == self.context)
        ended = self.s == 2
        cut = self.t == self.cut
        info = {"context": self.context} if self.tell and (ended or cut or self.t == 6) else {}
        return self.s + self.first, float(ended), ended, cut, info


def options(**changes):
    return {"n_contexts": 2, "horizon": 6, "reward_values": (0.0, 1.0)} | changes


def test_what_terminates_leads_to_the_end():
    """The end is one state more, terminal from the outset; nothing is counted beyond it."""
    world = adapt(Corridor(first=5), **options())
    assert world.space.n_states == 4
    np.testing.assert_array_equal(world.space.terminal, [False, False, False, True])
    run = lm.LUCRL().run(world, 300, rng=0)
    assert run.model.terminal.tolist() == [False, False, False, True]
    assert (run.counts.visits[:, 2:] == 0.0).all()
    ended = run.counts.transitions[..., 3].sum()
    assert ended == (run.returns == 1.0).sum() > 250
    assert run.counts.visits.sum() < 300 * 6
    assert run.trailing_return(100) > 0.95


def test_truncated_episodes_end_where_they_end():
    world = adapt(Corridor(cut=2), **options())
    run = lm.LUCRL().run(world, 50, rng=0)
    assert run.counts.visits.sum() == 2 * 50
    cut = 50 - (run.returns == 1.0).sum()
    assert run.counts.transitions[..., 3].sum() == 50 - cut


class Coin(gymnasium.Env):
    """One state; action 0 pays 1 and goes on, action 1 pays 2 and ends the episode."""

    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, float(action + 1), bool(action), False, {"context": 0}


def test_an_action_may_end_an_episode_in_a_state_that_goes_on():
    run = lm.LUCRL().run(adapt(Coin(), n_contexts=1, horizon=5, reward_values=(1, 2)), 60, rng=0)
    assert run.returns[-20:].tolist() == [6.0] * 20
    assert run.model.transitions[0, 0].tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_tables_tell_where_episodes_end_unless_a_wrapper_may_have_changed_it():
    lakes = [gymnasium.make("FrozenLake-v1", is_slippery=slip) for slip in (False, True)]
    world = adapt(MixtureEnv(lakes, horizon=9))
    model = tabular_model(lakes, 9)
    assert world.space == lm.worlds.Space.of(model)
    wrapped = gymnasium.wrappers.TransformAction(lakes[0], lambda a: a, lakes[0].action_space)
    assert adapt(MixtureEnv([wrapped, lakes[1]], horizon=9)).space.n_states == 17
    ending = adapt(LatentMDPEnv(small(8)))
    assert ending.space.n_states == small(8).n_states


def test_an_end_where_none_was_said_to_be_is_named():
    told = np.ones((4, 2), bool)
    told[3] = False
    sizes = {"n_states": 4, "n_actions": 2, "horizon": 8, "reward_values": (0.0, 1.0)}
    world = from_callable(shop, **sizes, allowed=told)
    with pytest.raises(ValueError, match="ended an episode in state 2, which is not among"):
        play(world, lm.UniformPolicy(), 20, key=0)


def test_an_adapted_latent_mdp_is_the_latent_mdp():
    model = small(8, horizon=20)
    run = lm.LUCRL().run(LatentMDPEnv(model), 600, rng=0)
    reference = lm.evaluate(model, lm.QMDP().plan(model).policy, episodes=20_000, rng=0).mean
    assert run.returns[-300:].mean() > 0.9 * reference
    assert run.error_curve.values[-1] == pytest.approx(lm.model_error(model, run.model))
    again = lm.LUCRL().run(LatentMDPEnv(model), 600, rng=0)
    np.testing.assert_array_equal(run.returns, again.returns)


def test_it_learns_on_frozen_lake(tmp_path):
    maps = (["SFF", "HFF", "FFG"], ["SHF", "FFF", "FFG"])
    lakes = [gymnasium.make("FrozenLake-v1", desc=d, is_slippery=False) for d in maps]
    env = MixtureEnv(lakes, horizon=12)
    reference = lm.QMDP().plan(tabular_model(lakes, horizon=12))
    value = lm.evaluate(
        tabular_model(lakes, horizon=12), reference.policy, episodes=20_000, rng=0
    ).mean
    run = lm.LUCRL().run(env, 400, rng=0, checkpoint=tmp_path / "c.npz")
    assert run.returns[-200:].mean() >= 0.9 * value
    again = lm.LUCRL().run(env, 400, rng=0, checkpoint=tmp_path / "c.npz")
    np.testing.assert_array_equal(run.returns, again.returns)


def test_baselines_run_in_environments():
    """At random, the end is reached unless at most one of six actions is right: 57 of 64 times.

    A share of 400 has a standard error of 0.016. Whoever learns reaches the end in four steps.
    """
    world = adapt(Corridor(), **options())
    random, learned = (
        learner.run(world, 400, rng=0) for learner in (uniform(), PosteriorSampling())
    )
    for run in (random, learned):
        assert run.counts.transitions[..., 3].sum() == run.returns.sum()
    assert random.returns.mean() == pytest.approx(57 / 64, abs=5 * 0.016)
    assert learned.trailing_return(100) > 0.97
    hidden = uniform().run(adapt(Corridor(tell=False), **options()), 20, rng=0)
    assert (hidden.contexts == -1).all()
    assert hidden.counts.visits.sum() == 0.0


def test_contexts_that_are_not_told_are_missed():
    with pytest.raises(ValueError, match="info of the last step must hold it"):
        lm.LUCRL().run(adapt(Corridor(tell=False), **options()), 5, rng=0)


@pytest.mark.parametrize("contexts", ["revealed", "inferred"])
def test_a_learner_may_be_told_the_number_of_contexts_in_place_of_the_adapter(contexts):
    start = {} if contexts == "revealed" else {"start": adapt(Corridor(), **options()).space}
    if start:
        space = start["start"]
        M, S, A, Z = space.dimensions
        told = {"horizon": space.horizon, "reward_values": space.reward_values}
        uniform_rows = np.full((M, S, A, S), 1.0 / S), np.full((M, S, A, Z), 1.0 / Z)
        model = lm.LatentMDP(*uniform_rows, **told, allowed=space.allowed)
        T = model.transitions.copy()
        T[1] = T[1] * 0.5 + 0.5 * np.eye(4)[:, None]
        start["start"] = model.replace(transitions=T)
    told = lm.LUCRL(contexts=contexts, **start).run(adapt(Corridor(), **options()), 40, rng=0)
    world = adapt(Corridor(), **options(n_contexts=None))
    found = lm.LUCRL(contexts=contexts, n_contexts=2, **start).run(world, 40, rng=0)
    np.testing.assert_array_equal(found.returns, told.returns)
    np.testing.assert_array_equal(found.counts.transitions, told.counts.transitions)


def test_learning_from_nothing_needs_no_number_of_contexts():
    told = lm.learn(adapt(Corridor(), **options()), n_contexts=2, episodes=60, rng=0)
    world = adapt(Corridor(), **options(n_contexts=None))
    found = lm.learn(world, n_contexts=2, episodes=60, rng=0)
    np.testing.assert_array_equal(found.returns, told.returns)
    lake = lm.learn(gymnasium.make("FrozenLake-v1"), episodes=30, rng=0)
    assert lake.returns.shape == (30,)
    assert lake.model.horizon == 100


def test_a_time_limit_is_a_horizon():
    limited = gymnasium.wrappers.TimeLimit(Corridor(), 7)
    assert adapt(limited, reward_values=(0, 1)).space.horizon == 7
    outer = gymnasium.wrappers.OrderEnforcing(limited)
    assert adapt(outer, reward_values=(0, 1)).space.horizon == 7


def test_what_an_environment_does_not_tell_must_be_given():
    env = Corridor()
    with pytest.raises(ValueError, match="n_contexts: the environment"):
        lm.LUCRL().run(adapt(env, horizon=5, reward_values=(0, 1)), 5, rng=0)
    with pytest.raises(ValueError, match="horizon: the environment"):
        adapt(env, n_contexts=2, reward_values=(0, 1))
    with pytest.raises(ValueError, match="reward_values: the environment"):
        adapt(env, n_contexts=2, horizon=5)
    with pytest.raises(ValueError, match=r"gave reward 1\.0"):
        lm.LUCRL().run(adapt(env, n_contexts=2, horizon=6, reward_values=(0.0, 2.0)), 50, rng=0)
    with pytest.raises(TypeError, match="Discrete observation_space"):
        adapt(gymnasium.make("CartPole-v1"), n_contexts=2)
    lake = adapt(gymnasium.make("FrozenLake-v1"), n_contexts=2)
    assert lake.space.horizon == 100
    assert lake.space.reward_values == (0.0, 1.0)


@pytest.mark.parametrize(
    "policy",
    [
        lm.UniformPolicy(),
        lm.MarkovPolicy([1, 0, 1, 1, 0]),
        lm.MarkovPolicy(np.random.default_rng(0).dirichlet(np.ones(2), size=(6, 5))),
        lm.QMDP(),
        lm.HSVI(gap=0.1),
    ],
    ids=["uniform", "actions", "probabilities", "q-mdp", "hsvi"],
)
def test_step_by_step_is_the_compiled_rollout(policy):
    """One loop in Python, one in compiled code, and the same chance in both."""
    model = small()
    if hasattr(policy, "plan"):  # here, so that nothing is compiled where tests are collected
        policy = policy.plan(model).policy
    compiled = lm.simulate(model, policy, 60, rng=3, first_episode=5)
    stepped = play(Opaque(model), policy, 60, philox_key(3), 5)
    assert stepped == compiled


def test_a_stochastic_callable_draws_as_the_table_would():
    """Not the same draws (one searches, the other has alias tables), but the same frequencies."""
    model = small()
    table = np.random.default_rng(1).dirichlet(np.ones(2), size=5)
    logs = lm.simulate(model, lambda history: table[history.states[-1]], 2_000, rng=0)
    taken = lm.logs.cell_counts(logs, ("state", "action"))
    total = taken.sum(axis=1, keepdims=True)
    error = np.sqrt(table * (1 - table) / total)
    assert (np.abs(taken / total - table) < 5 * error).all()  # false alarm: 1e-5
    assert logs == lm.simulate(model, lambda history: table[history.states[-1]], 2_000, rng=0)


def shop(rng):
    """Two hidden tastes; state 2 is final."""
    taste, state = rng.integers(2), 0

    def step(action):
        nonlocal state
        bought = rng.random() < (0.8 if action == taste else 0.1)
        state = 2 if bought and state == 1 else 1
        return state, float(bought), state == 2

    return state, step


def test_a_function_is_a_world():
    world = from_callable(
        shop, n_states=3, n_actions=2, horizon=8, reward_values=(0.0, 1.0), n_contexts=2
    )
    logs = play(world, lm.UniformPolicy(), 200, key=1)
    assert logs == play(world, lm.UniformPolicy(), 200, key=1)
    steps = logs.steps()
    assert logs.n_states == 4
    assert not np.isin(steps.state, (2, 3)).any()
    early = logs.lengths < 8
    assert early.any()
    assert (logs.last_states[early] == 3).all()


def test_learners_learn_in_a_function():
    def visit(rng):
        taste = rng.integers(2)

        def step(offer):
            bought = int(rng.random() < (0.8 if offer == taste else 0.1))
            return bought, float(bought)

        return 0, step

    world = from_callable(visit, n_states=2, n_actions=2, horizon=10, reward_values=(0, 1))
    run = lm.learn(world, n_contexts=2, episodes=400, rng=0, planner=lm.QMDP())
    assert run.trailing_return(100) > 6.5  # 4.5 at random, 8 if the taste were known


def test_a_function_that_leaves_its_space_is_named():
    def bad(state, reward):
        return lambda rng: (0, lambda action: (state, reward))

    sizes = {"n_states": 2, "n_actions": 2, "horizon": 3, "reward_values": (0.0, 1.0)}
    with pytest.raises(ValueError, match=r"gave state 2: not in Discrete\(2\)"):
        play(from_callable(bad(2, 0.0), **sizes), lm.UniformPolicy(), 1, key=0)
    with pytest.raises(ValueError, match=r"gave reward 0\.5, not one of"):
        play(from_callable(bad(1, 0.5), **sizes), lm.UniformPolicy(), 1, key=0)
    with pytest.raises(ValueError, match="gave state 7"):
        play(from_callable(lambda rng: (7, bad), **sizes), lm.UniformPolicy(), 1, key=0)
    with pytest.raises(TypeError, match=r"simulator\(rng\) must return .* got 3"):
        play(from_callable(lambda rng: 3, **sizes), lm.UniformPolicy(), 1, key=0)
    with pytest.raises(TypeError, match=r"step\(action\) must return .* got 1"):
        play(from_callable(lambda rng: (0, lambda a: 1), **sizes), lm.UniformPolicy(), 1, key=0)
    with pytest.raises(ValueError, match="discount must lie in"):
        from_callable(shop, **sizes, discount=0.0)


@pytest.mark.parametrize("order", ["latentmdp, gymnasium", "gymnasium, latentmdp"])
def test_importing_the_package_registers_the_environment(order):
    code = f"import {order}; print(gymnasium.make('LatentMDP-v0', instance='wait-hub').unwrapped)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "LatentMDPEnv" in done.stdout


class Dials(gymnasium.Env):
    """Two dials to be set to a hidden number, seen as a Dict; an action turns both."""

    observation_space = spaces.Dict(left=spaces.Discrete(2, start=1), right=spaces.Discrete(3))
    action_space = spaces.MultiDiscrete([2, 2])
    n_contexts, horizon, reward_values = 2, 4, (0.0, 1.0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.context = int(self.np_random.integers(2))
        self.dials, self.t = [0, 0], 0
        return self._seen(), {}

    def _seen(self):
        return {"left": self.dials[0] + 1, "right": self.dials[1]}

    def step(self, action):
        assert self.action_space.contains(action)
        self.dials = [(d + a) % n for d, a, n in zip(self.dials, action, (2, 3))]
        self.t += 1
        paid = self.dials == ([1, 2] if self.context else [0, 1])
        info = {"context": self.context} if self.t == self.horizon else {}
        return self._seen(), float(paid), False, False, info


def test_spaces_of_several_parts():
    """Context 0 pays 1 at (0, 1) in every step; context 1 at (1, 2), two steps away, in three."""
    run = lm.LUCRL().run(Dials(), 400, rng=0)
    assert run.model.dimensions == (2, 7, 4, 2)  # the last one is the end
    assert run.model.state_names[6] == "(end)"
    assert run.model.state_names[5] == "left 2, right 2"
    assert run.model.action_names[2] == "(1, 0)"
    assert run.trailing_return() > 2.0
    again = lm.envs.MixtureEnv([Dials(), Dials()], horizon=4)
    assert adapt(again, reward_values=(0.0, 1.0)).space.n_states == 7


class Switches(gymnasium.Env):
    """Sixteen switches, of which the first two are ever moved; the context says which one pays."""

    observation_space = gymnasium.spaces.MultiBinary(16)
    action_space = gymnasium.spaces.Discrete(2)
    horizon, reward_values, stop_after = 6, (0.0, 1.0), -1

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.context, self.switches = int(self.np_random.integers(2)), np.zeros(16, np.int8)
        return self.switches.copy(), {}

    def step(self, action):
        self.switches[action] ^= 1
        self.stop_after -= 1
        if self.stop_after == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return self.switches.copy(), float(action == self.context), False, False, {}


def test_only_states_that_are_met_cost(tmp_path):
    """Of 65,536 states four are met; and a run that was stopped goes on with their numbers."""
    settings = {"n_contexts": 2, "episodes": 60, "rng": 0, "planner": lm.QMDP()}
    run = lm.learn(Switches(), **settings)
    assert run.model.n_states == 60 * 7 + 2
    assert len({name for name in run.model.state_names if name.startswith("(0")}) <= 2
    assert run.returns[-12:].mean() > 5.0  # one step to find out; whoever guesses earns 3
    stopped, env = tmp_path / "run.npz", Switches()
    env.stop_after = 150
    with pytest.raises(KeyboardInterrupt):
        lm.learn(env, **settings, checkpoint=stopped)
    assert stopped.exists()
    again = lm.learn(Switches(), **settings, checkpoint=stopped)
    np.testing.assert_array_equal(again.returns, run.returns)
    assert again.model.fingerprint() == run.model.fingerprint()
    action, session = run.policy.predict(np.zeros(16, np.int8))
    for seen in (np.eye(16, dtype=np.int8)[action], np.ones(16, np.int8)):  # the last was never met
        action, session = run.policy.predict(seen, session, reward=1.0)
        assert action in (0, 1)


def test_blackjack():
    world = adapt(gymnasium.make("Blackjack-v1"), horizon=12, reward_values=(-1, 0, 1))
    assert world.space.n_states == 32 * 11 * 2 + 1
    assert world.state_names[(20 * 11 + 10) * 2] == "(20, 10, 0)"
    logs = play(world, lm.MarkovPolicy(np.zeros(705, int)), 300, philox_key(0))  # always stick
    assert set(np.unique(logs.reward_values[logs.rewards])) == {-1.0, 0.0, 1.0}
    assert -0.45 < logs.returns().mean() < 0.15  # about -.15, standard error .055
