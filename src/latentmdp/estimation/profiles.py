"""What each episode shows by itself: transition counts, for clustering episodes one by one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from latentmdp._util import arrays
from latentmdp.errors import TrajectoryError
from latentmdp.trajectories import Trajectories

__all__ = ["Profiles", "profiles"]


class Profiles(NamedTuple):
    """Counts of the transitions x = (s, a, s') that occur, per episode and half of it.

    `halves` are two (N, X) matrices, `row` (X,) numbers the (s, a) of each transition that occurs,
    and `following` (X,) is its s'.
    """

    halves: tuple[sp.csr_matrix, sp.csr_matrix]
    row: NDArray[np.int64]
    following: NDArray[np.int64]


def profiles(logs: Trajectories) -> Profiles:
    """Count transitions in the first and the second half of every episode."""
    arrays.require_instance("logs", logs, Trajectories)
    if logs.n_steps == 0:
        raise TrajectoryError("the logs hold no step to cluster episodes by")
    episode, codes = logs.steps().episode, logs.cells(("state", "action", "next_state"))
    cells, column = np.unique(codes, return_inverse=True)
    late = np.arange(logs.n_steps) - logs.offsets[episode] >= (logs.lengths // 2)[episode]
    shape = (len(logs), cells.size)
    halves = [
        sp.csr_matrix((np.ones(chosen.sum()), (episode[chosen], column[chosen])), shape=shape)
        for chosen in (~late, late)
    ]
    _, row = np.unique(cells // logs.n_states, return_inverse=True)
    return Profiles((halves[0], halves[1]), row, cells % logs.n_states)
