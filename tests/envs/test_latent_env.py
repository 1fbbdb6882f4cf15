"""LatentMDPEnv keeps Gymnasium's contract and draws what the model says."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import latentmdp as lm
from latentmdp.envs import LatentMDPEnv, MixtureEnv
from latentmdp.testing import random_model


def test_gymnasium_accepts_it():
    env = gymnasium.make("latentmdp.envs:LatentMDP-v0", instance="river-swim", render_mode="ansi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    assert lm.envs.LatentMDPEnv is LatentMDPEnv


def test_the_context_is_told_in_the_last_step_only():
    env = LatentMDPEnv(random_model(0, horizon=4))
    _, info = env.reset(seed=3)
    assert info == {}
    for t in range(4):
        *_, terminated, truncated, info = env.step(np.int64(0))
        assert not terminated
        assert truncated == (t == 3)
        assert ("context" in info) == (t == 3)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))


def test_seeds_repeat_and_options_choose():
    env = LatentMDPEnv(random_model(0, contexts=3, horizon=5))

    def play(**reset):
        path = [env.reset(**reset)[0]]
        for _ in range(5):
            path += env.step(np.int64(1))[:2]
        return path

    assert play(seed=1) == play(seed=1)
    env.reset(seed=1, options={"context": 2})
    for _ in range(5):
        info = env.step(np.int64(0))[-1]
    assert info["context"] == 2
    with pytest.raises(ValueError, match="context must lie in"):
        env.reset(options={"context": 3})
    env.reset()
    with pytest.raises(ValueError, match="action must lie in"):
        env.step(np.int64(9))


def test_frequencies_are_those_of_the_model():
    """One step from each context: cells are within 5 standard errors, so a false alarm of any of
    the 12 has probability below 1e-5."""
    model = random_model(1, contexts=2, states=3, actions=1, horizon=1)
    env, n = LatentMDPEnv(model), 20_000
    seen = np.zeros((2, 3, 3, 2))
    env.reset(seed=0)
    for _ in range(n):
        s, _ = env.reset()
        x, r, *_, info = env.step(np.int64(0))
        seen[info["context"], s, x, int(r)] += 1
    joint = model.weights[:, None] * model.initial
    expected = joint[..., None, None] * model.observation_probs()[:, :, 0]
    error = np.sqrt(expected * (1 - expected) / n)
    assert (np.abs(seen / n - expected) <= 5 * error + 1e-12).all()


def test_text_tells_what_happened():
    env = LatentMDPEnv(lm.make("river-swim"), render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == "start in left bank"
    env.step(np.int64(1))
    assert env.render().startswith("step 1: left bank, inner channel -> ")
    assert LatentMDPEnv(random_model(0)).render() is None
    with pytest.raises(ValueError, match="render_mode"):
        LatentMDPEnv(render_mode="human")
    with pytest.raises(TypeError, match="is for an instance"):
        LatentMDPEnv(random_model(0), delta=0.5)


def test_mixtures_hide_the_environment_until_the_end():
    lakes = [gymnasium.make("FrozenLake-v1", is_slippery=s) for s in (False, True)]
    env = MixtureEnv(lakes, weights=[0.25, 0.75], horizon=7)
    contexts = []
    for seed in range(300):
        env.reset(seed=seed)
        for _ in range(7):
            *_, terminated, truncated, info = env.step(2)
            if terminated or truncated:
                break
            assert "context" not in info
        contexts.append(info["context"])
    share = np.mean(contexts)
    assert abs(share - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 300)
    with pytest.raises(ValueError, match="same Discrete space"):
        MixtureEnv([lakes[0], gymnasium.make("CliffWalking-v1")])
    with pytest.raises(ValueError, match="at least one"):
        MixtureEnv([])
