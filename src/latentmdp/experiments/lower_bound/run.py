"""Episodes that three ways of searching need on the hard instance.

- *exploration*: Algorithm 5 with failure probability 0.01, all its episodes.
- *blind*: random action sequences until one pays. One in A^M is right and it pays in one context of
  M, so M A^M episodes on average.
- *lucrl*: L-UCRL with inferred contexts and a start that knows nothing, until a window of 20 M
  episodes earns half of what the optimal policy would. Where that does not happen within the
  limit, the run counts as that many episodes, and as censored.

`python -m latentmdp.experiments.lower_bound.run` runs them all.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp.deterministic import explore
from latentmdp.experiments.lower_bound.settings import limit, sequences
from latentmdp.experiments.runner import Setting, reproduce
from latentmdp.experiments.starts import unrelated_model
from latentmdp.instances import make
from latentmdp.model import LatentMDP
from latentmdp.online import LUCRL
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import simulate

__all__ = ["first_success", "work"]


def work(setting: Setting) -> dict[str, Any]:
    """Search one instance in one way."""
    M, A, seed = setting["contexts"], setting["actions"], setting["seed"]
    model = make("lower-bound", seed, contexts=M, actions=A)
    search = {"exploration": _exploration, "blind": _blind, "lucrl": _lucrl}[setting["arm"]]
    episodes = search(model, setting)
    return {
        "sequences": [sequences(setting)],
        "episodes": [limit(setting) if episodes is None else episodes],
        "censored": [episodes is None],
    }


def _exploration(model: LatentMDP, setting: Setting) -> int:
    return explore(model, model.n_contexts, rng=setting["seed"] + 1).episodes


def _blind(model: LatentMDP, setting: Setting) -> int | None:
    played, block = 0, 4 * sequences(setting)
    while played < limit(setting):
        logs = simulate(model, UniformPolicy(), block, setting["seed"] + 1, first_episode=played)
        paid = np.flatnonzero(logs.returns() > 0.0)
        if paid.size:
            return played + int(paid[0]) + 1
        played += block
    return None


def _lucrl(model: LatentMDP, setting: Setting) -> int | None:
    start = unrelated_model(model, setting["seed"] + 1)
    learner = LUCRL(contexts="inferred", start=start)
    run = learner.run(model, limit(setting), rng=setting["seed"] + 2)
    return first_success(np.asarray(run.returns), model.n_contexts)


def first_success(returns: NDArray[np.float64], contexts: int) -> int | None:
    """Episodes until the end of the first window of 20 M that earns half the optimum, 1/(2 M)."""
    window = 20 * contexts
    totals = np.concatenate([[0.0], np.cumsum(returns)])
    means = (totals[window:] - totals[:-window]) / window
    good = np.flatnonzero(means >= 0.5 / contexts)
    return int(good[0]) + window if good.size else None


if __name__ == "__main__":
    print(reproduce("lower_bound", progress=True).page.read_text())
