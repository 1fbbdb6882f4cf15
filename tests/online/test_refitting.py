"""Fits on a growing history: what is settled, and when it is looked at again."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.online.refitting import refit

SETTINGS = {"n_contexts": 2, "restarts": 2, "max_contexts": 3, "reward_model": "auto"}


def history(model: lm.LatentMDP, episodes: int) -> lm.Trajectories:
    return lm.simulate(model, lm.UniformPolicy(), episodes, rng=0).without_contexts()


@pytest.fixture(scope="module")
def world() -> lm.LatentMDP:
    return lm.make("separated", contexts=2, states=4, horizon=15, delta=1.0, rewards="own", rng=0)


def test_strengths_stand_until_the_data_have_doubled(world) -> None:
    rng = np.random.default_rng(0)
    fit, settled = refit(history(world, 100), None, None, SETTINGS, rng)
    assert (settled.episodes, settled.n_contexts) == (100, 2)
    assert settled[-2:] == (fit.pseudo_counts, fit.reward_pseudo_counts)
    later, kept = refit(history(world, 199), fit.model, settled, SETTINGS, rng)
    assert kept == settled
    assert (later.pseudo_counts, later.reward_pseudo_counts) == settled[-2:]
    _, anew = refit(history(world, 200), later.model, settled, SETTINGS, rng)
    assert anew.episodes == 200


def test_the_number_of_contexts_is_found(world) -> None:
    settings = {**SETTINGS, "n_contexts": "auto"}
    fit, settled = refit(history(world, 400), None, None, settings, np.random.default_rng(0))
    assert settled.n_contexts == fit.model.n_contexts == 2


def test_contexts_once_found_are_kept(world) -> None:
    """Episodes that show nothing of the contexts do not make them disappear."""
    rng, settings = np.random.default_rng(0), {**SETTINGS, "n_contexts": "auto"}
    fit, settled = refit(history(world, 400), None, None, settings, rng)
    same = world.replace(
        transitions=np.repeat(world.transitions[:1], 2, axis=0),
        rewards=np.repeat(world.reward_probs[:1], 2, axis=0),
    )
    alone, few = refit(history(same, 800), None, None, settings, rng)
    assert (settled.n_contexts, few.n_contexts, alone.model.n_contexts) == (2, 1, 1)
    _, kept = refit(history(same, 800), fit.model, settled, settings, rng)
    assert kept.n_contexts == 2


def test_the_form_of_the_rewards_is_found(world) -> None:
    rng = np.random.default_rng(0)
    for model, by_next_state in ((world, False), (lm.make("visitor"), True)):
        fit, settled = refit(history(model, 2_000), None, None, SETTINGS, rng)
        assert settled.rewards_by_next_state == by_next_state
        assert (fit.model.reward_model == "transition") == by_next_state
