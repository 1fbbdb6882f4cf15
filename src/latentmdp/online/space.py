"""What a learner must know of a world's space: when episodes end, and which actions there are."""

import numpy as np

from latentmdp._util.arrays import Flags
from latentmdp.errors import ModelError
from latentmdp.worlds import Space

__all__ = ["allowed_actions", "required_horizon"]


def required_horizon(space: Space) -> int:
    """H; `ModelError` where episodes have no end, since learners count episodes."""
    H: int | None = space.horizon
    if H is None:
        raise ModelError(
            "learning needs episodes that end, and this world has no horizon: "
            "model.replace(horizon=...) cuts its episodes off"
        )
    return H


def allowed_actions(space: Space) -> Flags:
    """Which actions each state has, (S, A)."""
    given = getattr(space, "allowed", None)
    shape = (space.n_states, space.n_actions)
    return np.ones(shape, np.bool_) if given is None else np.asarray(given, np.bool_).reshape(shape)
