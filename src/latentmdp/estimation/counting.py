"""Visits N_m(s, a) of logged episodes, each episode shared among the contexts."""

import numpy as np

from latentmdp._trajectory_parts import steps_of
from latentmdp._util.arrays import Floats
from latentmdp.space import Space
from latentmdp.trajectories import Trajectories

__all__ = ["visit_counts"]


def visit_counts(logs: Trajectories, responsibilities: Floats, space: Space) -> Floats:
    """Sum over episodes of p(m | episode) times its visits of (s, a), shape (M, S, A)."""
    cells = space.n_states * space.n_actions
    episode, before, _ = steps_of(logs)
    pair = before.astype(np.int64) * space.n_actions + logs.actions
    shares = responsibilities * logs.multiplicities()[:, None]
    counts = [np.bincount(pair, weights=share[episode], minlength=cells) for share in shares.T]
    return np.asarray(np.stack(counts).reshape(-1, space.n_states, space.n_actions), np.float64)
