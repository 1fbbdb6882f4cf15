"""Many runs of L-UCRL in one world, one a seed, on the cores of this machine.

Run i has the seed `first_seed` + i and is the run that `LUCRL.run` makes with this seed, bit for
bit, whichever core makes it.

What is kept of a run is little: its returns, or their means over windows of episodes, and its
counts. Whoever wants all of one run plays it again by its seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.results import Result
from latentmdp._util.words import plural
from latentmdp.metrics import last_tenth
from latentmdp.online.empirical_model import Counts
from latentmdp.worlds import Space


@dataclass(frozen=True, eq=False)
class ManyRuns(Result):
    """Many runs of one learner in one world.

    Attributes
    ----------
    returns : (R, K / window)
        The mean return of every `window` episodes in a row, exploration included; of what is left
        at the end. With a window of 1, the return of each episode.
    beliefs : (R, K / window)
        The same of the belief in the true context at the end of an episode.
    counts
        What each run had counted in the end; `counts[i].model(space)` is its empirical model.
    space
        Sizes, reward values, horizon and discount, as the learner knew them.
    episodes
        K, of each run.
    window
        Number of episodes that an entry of `returns` is the mean of.
    first_seed
        Run i has the seed first_seed + i.
    settings
        Of the learner and its world, as in `Run`.
    seconds
        Wall-clock time of all runs.
    """

    returns: Floats
    beliefs: Floats
    counts: tuple[Counts, ...]
    space: Space
    episodes: int
    window: int
    first_seed: int
    settings: dict[str, Any]
    seconds: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        for array in (self.returns, self.beliefs):
            arrays.frozen(array)

    def __len__(self) -> int:
        return len(self.counts)

    def trailing_return(self) -> float:
        """Mean return at the end: of the windows that hold the last tenth of the episodes."""
        first = (self.episodes - last_tenth(self.episodes)) // self.window
        sizes = _window_sizes(self.episodes, self.window)[first:]
        return float(np.average(self.returns[:, first:].mean(axis=0), weights=sizes))

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know first, by name."""
        return {
            "learner": self.settings.get("learner"),
            "runs": len(self),
            "episodes": self.episodes,
            "trailing_return": self.trailing_return(),
            "seconds": self.seconds,
        }

    def __repr__(self) -> str:
        learner = self.settings.get("learner", "a learner")
        return f"ManyRuns({plural(len(self), 'run')} of {learner}, {self.episodes} episodes each)"


def window_means(values: Floats, window: int) -> Floats:
    """Means of every `window` entries of a row in their order, the last of what is left."""
    K = values.shape[-1]
    return np.add.reduceat(values, np.arange(0, K, window), axis=-1) / _window_sizes(K, window)


def _window_sizes(episodes: int, window: int) -> Floats:
    return np.minimum(window, episodes - np.arange(0.0, episodes, window))
