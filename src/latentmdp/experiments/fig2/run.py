"""One run of Figure 2: one instance, all methods on the same data.

`python -m latentmdp.experiments.fig2.run` runs them all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from latentmdp.belief import posterior
from latentmdp.errors import RecoveryError
from latentmdp.estimation import EM, SubspaceClustering, TrajectoryKMeans, initialize
from latentmdp.experiments.runner import Setting, reproduce
from latentmdp.instances import make
from latentmdp.metrics import model_error
from latentmdp.model import LatentMDP
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import simulate
from latentmdp.spectral import PSR, SpectralPSR, recover
from latentmdp.spectral.recovery import count_model
from latentmdp.trajectories import Trajectories

__all__ = ["METHODS", "work"]


class Data(NamedTuple):
    """What the methods see (the PSR is learned from `short`), and the truth for the floors."""

    model: LatentMDP
    short: Trajectories
    long: Trajectories
    psr: PSR


def work(setting: Setting) -> dict[str, Any]:
    """Every quantity of the figure; a method that reports its failure has the value NaN."""
    data = _simulated(setting)
    M = setting["contexts"]
    exact = SpectralPSR(rank=M).from_model(data.model.replace(horizon=setting["short_horizon"]))
    values = {
        "belief": _belief_error(data.model, data.long),
        "singular value": float(exact.singular_values[:, M - 1].mean()),
        "ratio": float(data.psr.singular_value_ratios().min()),
        **{name: _error(method, data) for name, method in METHODS.items()},
    }
    return {"quantity": list(values), "value": list(values.values())}


def _simulated(setting: Setting) -> Data:
    """The instance and the short episodes do not depend on the horizon of the long ones."""
    seeds = np.random.SeedSequence([round(1000 * setting["delta"]), setting["seed"]]).spawn(3)
    sizes = {name: setting[name] for name in ("contexts", "states", "actions", "delta")}
    model = make(
        "separated", horizon=setting["short_horizon"], rng=np.random.default_rng(seeds[0]), **sizes
    )
    longer = model.replace(horizon=setting["horizon"])
    short = simulate(model, UniformPolicy(), setting["short_episodes"], rng=seeds[1])
    long = simulate(longer, UniformPolicy(), setting["long_episodes"], rng=seeds[2])
    return Data(longer, short, long, SpectralPSR(rank=setting["contexts"]).fit(short))


def _belief_error(model: LatentMDP, logs: Trajectories) -> float:
    """1 - b(true context) at the end of an episode, under the true model, averaged."""
    assert logs.contexts is not None
    return float(1.0 - posterior(model, logs)[np.arange(len(logs)), logs.contexts].mean())


def _error(method: Callable[[Data], LatentMDP], data: Data) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return model_error(data.model, method(data))
        except RecoveryError:
            return float("nan")


def _paper(data: Data) -> LatentMDP:
    return recover(data.psr, data.long, variant="paper", rng=0).model


def _practical(data: Data) -> LatentMDP:
    return recover(data.psr, data.long, rng=0).model


def _refined(data: Data) -> LatentMDP:
    learner = SpectralPSR(rank=data.psr.rank, balanced=True, refinements=2)
    return recover(learner.fit(data.short), data.long, rng=0).model


def _initialize(data: Data) -> LatentMDP:
    return initialize(data.short, data.long, data.model.n_contexts, rng=0).model


def _embedding(data: Data) -> LatentMDP:
    return TrajectoryKMeans(data.model.n_contexts).fit(data.long, rng=0).model


def _subspace(data: Data) -> LatentMDP:
    return SubspaceClustering(data.model.n_contexts).fit(data.long, rng=0).model


def _from_truth(data: Data) -> LatentMDP:
    learner = EM(data.model.n_contexts, shared_rewards=True)
    return learner.fit([data.short, data.long], start=data.model, rng=0).model


def _known_labels(data: Data) -> LatentMDP:
    both = Trajectories.concat([data.short, data.long])
    assert both.contexts is not None
    return count_model(data.psr, both, np.eye(data.model.n_contexts)[both.contexts])


METHODS: dict[str, Callable[[Data], LatentMDP]] = {
    "PSR-clustering (paper)": _paper,
    "PSR-clustering (practical)": _practical,
    "PSR-clustering (refined)": _refined,
    "initialize": _initialize,
    "trajectory k-means": _embedding,
    "subspace clustering": _subspace,
    "EM from the truth": _from_truth,
    "known labels": _known_labels,
}
"""Initialisers by name; the last two know the truth and are floors."""


if __name__ == "__main__":
    print(reproduce("fig2", progress=True).page.read_text())
