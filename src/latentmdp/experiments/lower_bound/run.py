"""Episodes that three ways of searching need on the hard instance.

- *exploration*: Algorithm 5 with failure probability 0.01, all its episodes.
- *blind*: random action sequences until one pays. One in A^M is right and it pays in one context of
  M, so M A^M episodes on average.
- *lucrl*: L-UCRL with inferred contexts and a start that knows nothing, until a window of 20 M
  episodes earns half of what the optimal policy would. Where that never happens within
  `limit` episodes, the run counts as that many, and as censored.

Run as a module it plays every setting and writes the table, the figure and the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentmdp.deterministic import explore
from latentmdp.experiments.lower_bound.settings import Setting
from latentmdp.instances import make
from latentmdp.model import LatentMDP
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import simulate

__all__ = ["Outcome", "limit", "run", "run_one"]


@dataclass(frozen=True)
class Outcome:
    """A setting, the episodes it needed, and whether the limit came first."""

    setting: Setting
    episodes: int
    censored: bool


def run(
    settings: Sequence[Setting], progress: Callable[[int, int], None] | None = None
) -> list[Outcome]:
    """Play every setting; `progress(done, total)` is called after each."""
    outcomes = []
    for setting in settings:
        outcomes.append(run_one(setting))
        if progress is not None:
            progress(len(outcomes), len(settings))
    return outcomes


def run_one(setting: Setting) -> Outcome:
    """Play one setting."""
    model = make("lower-bound", setting.seed, contexts=setting.contexts, actions=setting.actions)
    play = {"exploration": _exploration, "blind": _blind, "lucrl": _lucrl}[setting.arm]
    episodes = play(model, setting)
    if episodes is None:
        return Outcome(setting, limit(setting), censored=True)
    return Outcome(setting, episodes, censored=False)


def limit(setting: Setting) -> int:
    """Most episodes that are played: 200 times what blind search needs on average."""
    return 200 * setting.contexts * setting.sequences


def _exploration(model: LatentMDP, setting: Setting) -> int:
    found = explore(model, setting.contexts, failure_probability=0.01, rng=setting.seed + 1)
    return found.episodes


def _blind(model: LatentMDP, setting: Setting) -> int | None:
    played, block = 0, 4 * setting.sequences
    while played < limit(setting):
        logs = simulate(model, UniformPolicy(), block, setting.seed + 1, first_episode=played)
        paid = np.flatnonzero(logs.returns() > 0.0)
        if paid.size:
            return played + int(paid[0]) + 1
        played += block
    return None


def _lucrl(model: LatentMDP, setting: Setting) -> int | None:
    from latentmdp.experiments.starts import unrelated_model
    from latentmdp.learning import LUCRL

    start = unrelated_model(model, setting.seed + 1)
    learner = LUCRL(contexts="inferred", start=start)
    returns = learner.run(model, episodes=limit(setting), rng=setting.seed + 2).returns
    return first_success(np.asarray(returns), setting.contexts)


def first_success(returns: NDArray[np.float64], contexts: int) -> int | None:
    """Episodes before the first window of 20 M whose mean is half the optimum, 1/(2 M)."""
    window = 20 * contexts
    totals = np.concatenate([[0.0], np.cumsum(returns)])
    means = (totals[window:] - totals[:-window]) / window
    good = np.flatnonzero(means >= 0.5 / contexts)
    return int(good[0]) + window if good.size else None


if __name__ == "__main__":
    from latentmdp.experiments.lower_bound.analysis import reproduce

    print(reproduce())
