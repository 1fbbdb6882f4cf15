"""Many runs of L-UCRL: each is that of its seed."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp import testing


def world(**settings):
    return testing.random_model(3, **{"contexts": 3, "states": 5, "horizon": 4, **settings})


class Another:
    """A planner that is not Q-MDP by its type."""

    def plan(self, model):
        return lm.QMDP().plan(model)


@pytest.mark.parametrize("learner", [lm.LUCRL(replan="lazy"), lm.LUCRL(Another())])
def test_every_run_is_that_of_its_seed(learner):
    small = world(contexts=2, states=3, horizon=3)
    for place in (small, lm.envs.LatentMDPEnv(small)):
        runs = learner.run_many(place, 30, 3, first_seed=5)
        assert len(runs) == 3
        assert runs[2] == learner.run(place, 30, rng=7)


def test_threads_change_nothing_and_seeds_do():
    model, learner = world(), lm.LUCRL()
    one = learner.run_many(model, 20, 4, threads=1)
    assert learner.run_many(model, 20, 4, threads=3) == one
    assert not np.array_equal(one[0].returns, one[1].returns)
    assert learner.run_many(model, 20, 2, first_seed=2) == one[2:]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"episodes": 0}, "episodes"),
        ({"seeds": 0}, "seeds"),
        ({"first_seed": -1}, "first_seed"),
        ({"threads": 0}, "threads"),
    ],
)
def test_arguments_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        lm.LUCRL().run_many(world(), **{"episodes": 5, "seeds": 2, **settings})
