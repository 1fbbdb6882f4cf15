"""`check_learner` accepts the library's learners and finds what is wrong with others."""

from dataclasses import replace

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.testing import ConformanceError, check_learner


def test_lucrl_conforms():
    check_learner(lm.LUCRL())


class Forgetful:
    """A learner that draws a fresh seed whatever it is given."""

    def run(self, world, episodes, rng=None, checkpoint=None):
        return lm.LUCRL().run(world, episodes)


class Boastful:
    """A learner that reports returns nobody can earn."""

    def run(self, world, episodes, rng=None, checkpoint=None):
        run = lm.LUCRL().run(world, episodes, rng=rng, checkpoint=checkpoint)
        return replace(run, returns=run.returns + 100.0)


def test_broken_rules_are_listed():
    with pytest.raises(ConformanceError, match="the same seed gave another run"):
        check_learner(Forgetful())
    with pytest.raises(ConformanceError, match="out of the range"):
        check_learner(Boastful())
    with pytest.raises(ConformanceError, match="raised AttributeError"):
        check_learner(np.zeros(3))
