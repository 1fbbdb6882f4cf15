"""Worlds as others make them: copies side by side, dm_env, tables, float32 rewards, own names."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import latentmdp as lm
from latentmdp._util.spaces import FiniteSpace, element_of, known_as
from latentmdp.envs import LatentMDPEnv, adapt, from_dm_env, tabular_model
from latentmdp.errors import LatentMDPError, WorldError
from latentmdp.simulation import play
from latentmdp.testing import random_model


def model() -> lm.LatentMDP:
    drawn = random_model(3, contexts=2, states=4, horizon=6, forbidden=0.2, n_terminal=1)
    return drawn.replace(initial=int(np.flatnonzero(~drawn.terminal)[0]))


def copies(kind: Any, number: int) -> Any:
    return kind([lambda: LatentMDPEnv(model()) for _ in range(number)])


@pytest.mark.parametrize("policy", [lm.UniformPolicy(), lm.QMDP().plan(model()).policy])
@pytest.mark.parametrize("number", [1, 3])
def test_episodes_side_by_side_are_those_of_one_environment(policy: Any, number: int) -> None:
    one = play(adapt(LatentMDPEnv(model())), policy, 20, key=5)
    several = play(adapt(copies(SyncVectorEnv, number)), policy, 20, key=5)
    assert several == one
    assert several.contexts is not None


@pytest.mark.filterwarnings("ignore::latentmdp.online.warnings.LearnWarning")
def test_learning_side_by_side_is_learning_in_one() -> None:
    settings: dict[str, Any] = {"n_contexts": 2, "episodes": 40, "rng": 0, "planner": lm.QMDP()}
    env = copies(AsyncVectorEnv, 2)
    try:
        several = lm.learn(env, **settings)
    finally:
        env.close()
    one = lm.learn(LatentMDPEnv(model()), **settings)
    assert several.logs == one.logs
    assert several.policy == one.policy


def test_copies_in_processes_need_not_have_what_is_asked_for() -> None:
    """An environment without tables or attributes of ours: only its spaces and its time limit."""
    makes = [lambda: gymnasium.make("Blackjack-v1", max_episode_steps=9) for _ in range(2)]
    env, values = AsyncVectorEnv(makes), [-1.0, 0.0, 1.0]
    try:
        several = play(adapt(env, reward_values=values), lm.UniformPolicy(), 9, key=1)
    finally:
        env.close()
    one = play(adapt(makes[0](), reward_values=values), lm.UniformPolicy(), 9, key=1)
    assert several == one


def test_copies_that_begin_again_by_themselves_are_refused() -> None:
    env = SyncVectorEnv([lambda: LatentMDPEnv(model())], autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match="autoreset_mode"):
        adapt(env)


@dataclass
class Bandit:
    """A dm_env: two arms, one of which pays; a third of the episodes is cut short at once."""

    seed: int

    def observation_spec(self) -> Any:
        return SimpleNamespace(minimum=1, maximum=2, dtype=np.int32, shape=())

    def action_spec(self) -> Any:
        return SimpleNamespace(num_values=2)

    def reset(self) -> Any:
        self.good = int(np.random.default_rng(self.seed).integers(2))
        self.t = 0
        return SimpleNamespace(step_type=0, reward=None, discount=None, observation=1)

    def step(self, action: int) -> Any:
        self.t += 1
        last, cut = self.t == 4 or self.seed % 3 == 0, self.seed % 3 == 0
        reward = np.float32(0.3) if action == self.good else 0.0
        discount = 1.0 if cut or not last else 0.0
        step_type = 2 if last else 1
        return SimpleNamespace(
            step_type=step_type, reward=reward, discount=discount, observation=np.int32(2)
        )


def test_a_dm_env_is_a_world() -> None:
    world = from_dm_env(Bandit, horizon=4, reward_values=[0.0, 0.3])
    logs = play(world, lm.UniformPolicy(), 60, key=1)
    assert play(world, lm.UniformPolicy(), 60, key=1) == logs
    assert logs.first_states.tolist() == [0] * 60
    assert set(logs.lengths.tolist()) == {1, 4}
    ended = [part.states[-1] == 2 for part in (logs[i] for i in range(60))]  # the end, and the last
    assert ended == [length == 4 for length in logs.lengths]
    run = lm.learn(world, 2, 300, rng=0)
    assert run.returns[-60:].mean() > 0.6  # at random .5 of 4 and 1 steps: .45 on average
    spec = SimpleNamespace(minimum=0.0, maximum=1.0, dtype=np.float64, shape=(2,))
    real = SimpleNamespace(reset=0, observation_spec=lambda: spec)
    with pytest.raises(TypeError, match="observation_spec of integers within bounds"):
        from_dm_env(real, horizon=1)


def test_tables_are_models() -> None:
    env = gymnasium.make("FrozenLake-v1", is_slippery=True)
    table = env.unwrapped.P  # type: ignore[attr-defined]
    assert tabular_model([table], 9, initial=0) == tabular_model([env], 9)
    with pytest.raises(ValueError, match="initial: tables do not say where episodes begin"):
        tabular_model([table], 9)


def paying(*rewards: float) -> Any:
    def simulator(rng: np.random.Generator) -> Any:
        left = list(rewards)
        return 0, lambda action: (0, left.pop(0))

    return simulator


def test_rewards_are_equal_up_to_rounding() -> None:
    rewards = (0.1 + 0.2, float(np.float32(0.3)), float(np.float32(1e8)), 5e-17, -1e-13)
    world = lm.worlds.from_callable(
        paying(*rewards), n_states=1, n_actions=1, horizon=5, reward_values=[0.0, 0.3, 1e8]
    )
    assert play(world, lm.UniformPolicy(), 1, key=0).rewards.tolist() == [1, 1, 2, 0, 0]


@pytest.mark.parametrize("reward", [0.30001, float("nan"), float("inf")])
def test_an_error_names_the_world_the_episode_and_the_step(reward: float) -> None:
    world = lm.worlds.from_callable(
        paying(0.3, reward), n_states=1, n_actions=1, horizon=5, reward_values=[0.0, 0.3]
    )
    with pytest.raises(WorldError, match=r"simulator, episode 7, at step 1: the world gave"):
        play(world, lm.UniformPolicy(), 1, key=0, first_episode=7)

    def torn(rng: np.random.Generator) -> Any:
        return 0, lambda action: "ab"[action + 2.5]

    wrong = lm.worlds.from_callable(torn, n_states=1, n_actions=1, horizon=5, reward_values=[0.0])
    with pytest.raises(LatentMDPError, match="torn, episode 0, at step 0: string indices"):
        play(wrong, lm.UniformPolicy(), 1, key=0)

    class Breaking(gymnasium.Env[Any, Any]):
        observation_space = action_space = spaces.Discrete(1)

        def reset(self, **settings: Any) -> Any:
            raise RuntimeError("out of coffee")

    with pytest.raises(LatentMDPError, match="Breaking, episode 0, at its start: out of coffee"):
        lm.learn(adapt(Breaking(), horizon=3, reward_values=[0.0, 1.0]), 1, 10, rng=0)


class Parts(gymnasium.Env[Any, Any]):
    """Observations of several parts; the action that equals the second one pays."""

    observation_space = spaces.Dict(
        {"place": spaces.Discrete(2, start=1), "signs": spaces.MultiBinary(2)}
    )
    action_space = spaces.MultiBinary(1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._observation(), {}

    def _observation(self) -> Any:
        signs = self.np_random.integers(2, size=2).astype(np.int8)
        self.pays = int(signs[1])
        return {"place": 1 + int(signs[0]), "signs": signs}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        reward = float(action[0] == self.pays)
        return self._observation(), reward, False, False, {}


def test_a_session_takes_the_environments_own_observations() -> None:
    env = Parts()
    run = lm.learn(adapt(env, horizon=3, reward_values=[0.0, 1.0]), 1, 150, rng=0)
    policy, earned = run.policy, []
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        action, state = policy.predict(observation, model=run.model)
        session = policy.session(run.model)
        session.observe(observation)
        for t in range(3):
            assert session.act() == f"({action[0]})"
            observation, reward, *_ = env.step(action)
            earned.append(reward)
            if t < 2:
                session.observe(observation, reward)
                action, state = policy.predict(observation, state, reward=reward)
    assert earned == [1.0] * 15
    assert state.t == 2
    with pytest.raises(ValueError, match="which the model does not know"):
        policy.predict({"place": 5, "signs": [0, 0]}, model=run.model)


def test_names_of_elements_are_those_of_the_space() -> None:
    """Every element of a nested space, against the names that the space lists."""
    space = spaces.Dict(
        {
            "a": spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 3])]),
            "b": spaces.Dict({"c": spaces.MultiBinary(2)}),
        }
    )
    box = spaces.Box(np.array([-1, 2]), np.array([0, 4]), dtype=np.int8)
    for whole in (space, spaces.MultiDiscrete([3, 2]), box, spaces.Discrete(3, start=-1)):
        finite = FiniteSpace("observation_space", whole)
        for index, name in enumerate(finite.names() or ()):
            assert known_as(finite.element(index), finite.names()) == name
            taken = element_of(index, finite.names())
            expected = index if whole is space else finite.element(index)
            assert np.array_equal(np.hstack([taken]).ravel(), np.hstack([expected]).ravel())


class FromOne(gymnasium.Env[Any, Any]):
    """Observations from 1 on and actions from -2 on; the one that pays follows the observation."""

    observation_space, action_space = spaces.Discrete(2, start=1), spaces.Discrete(2, start=-2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seen = int(self.np_random.integers(2)) + 1
        return np.int64(self.seen), {}

    def step(self, action: int) -> Any:
        assert self.action_space.contains(action)
        reward = float(action == self.seen - 3)
        self.seen = 3 - self.seen
        return np.int64(self.seen), reward, False, False, {}


def test_spaces_need_not_begin_at_0() -> None:
    env = FromOne()
    policy = lm.learn(adapt(env, horizon=3, reward_values=[0.0, 1.0]), 1, 100, rng=0).policy
    for seed in range(4):
        (observation, _), state, reward, earned = env.reset(seed=seed), None, None, 0.0
        for _ in range(3):
            action, state = policy.predict(observation, state, reward=reward)
            observation, reward, *_ = env.step(action)
            earned += reward
        assert earned == 3.0


class Measured(gymnasium.Env):
    """Two arms that pay normal amounts, and a first arm that says which of them is better."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Discrete(3)
    horizon = 6
    MEANS = ((-1.0, 2.0, 0.0), (1.0, 0.0, 2.0))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.context = int(self.np_random.integers(2))
        return 0, {"context": self.context}

    def step(self, action):
        paid = self.MEANS[self.context][action] + 0.3 * self.np_random.standard_normal()
        return 0, paid, False, False, {"context": self.context}


def test_measured_rewards_become_levels_and_keep_their_means():
    run = lm.learn(Measured(), 2, 600, rng=0, reward_levels=6)
    model = run.model
    assert model.n_rewards <= 7
    assert model.reward_edges is not None
    # Means of what was paid, not of levels, up to a few standard errors of hundreds of steps.
    means = model.mean_rewards()[:, 0] + model.bonus[:, 0]
    order = np.argsort(means[:, 0])
    np.testing.assert_allclose(means[order], Measured.MEANS, atol=0.25)
    # The first step shows the context: 2 and 5 times 2, less the first step's loss of 1 or 2.
    assert run.returns[-100:].mean() > 10.0
    assert run.value.low < 11.0
    paid = run.logs.amounts
    np.testing.assert_allclose(run.returns, np.add.reduceat(paid, run.logs.offsets[:-1]))


def test_a_run_with_measured_rewards_goes_on_from_its_checkpoint(tmp_path):
    whole = lm.learn(Measured(), 2, 120, rng=1, reward_levels=5)
    path = tmp_path / "run.npz"

    class Interrupted(Measured):
        steps = 0

        def step(self, action):
            Interrupted.steps += 1
            if Interrupted.steps == 500:
                raise RuntimeError("the power went off")
            return super().step(action)

    Interrupted.__name__ = "Measured"  # a world is known by its name
    with pytest.raises(lm.errors.WorldError, match="went off"):
        lm.learn(Interrupted(), 2, 120, rng=1, reward_levels=5, checkpoint=path)
    resumed = lm.learn(Measured(), 2, 120, rng=1, reward_levels=5, checkpoint=path)
    np.testing.assert_array_equal(resumed.returns, whole.returns)
    np.testing.assert_array_equal(resumed.model.bonus, whole.model.bonus)


def test_a_reward_that_is_first_met_late_counts_for_what_it_is():
    class Late(Measured):
        episodes = 0

        def reset(self, **arguments):
            Late.episodes += 1
            return super().reset(**arguments)

        def step(self, action):
            pays = 1.0 if action == 1 else 0.0
            pays += 0.5 if Late.episodes > 60 and action == 1 else 0.0
            return 0, pays, False, False, {}

    run = lm.learn(lm.envs.adapt(Late(), open_rewards=True), 1, 200, rng=0)
    assert run.model.reward_values.tolist() == [0.0, 1.0]
    assert run.returns[-20:].mean() == pytest.approx(6 * 1.5)
    with pytest.raises(ValueError, match="LUCRL needs to know every reward"):
        lm.LUCRL().run(lm.envs.adapt(Late(), open_rewards=True, n_contexts=2), 5)
