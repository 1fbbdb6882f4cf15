"""The demonstration: what hiding the context costs, and how much of it a belief wins back.

For an instance it compares three values per episode: of acting at random, of the Q-MDP policy,
which acts on its belief over contexts, and of full information, sum_m w_m V*_m, which no policy
that must find the context out can exceed [kwon2021, Sec. 5.1].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentmdp.belief import posterior
from latentmdp.instances import make
from latentmdp.model import LatentMDP
from latentmdp.planning import QMDP, Value, evaluate
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import simulate
from latentmdp.theory import separation

__all__ = ["INSTANCES", "Comparison", "compare", "demo_models"]

INSTANCES = {
    "visitor": {},
    "separated": {"contexts": 5, "states": 10, "actions": 3, "horizon": 30, "delta": 0.5},
}
"""The instances of the demonstration, with their arguments."""

BELIEF_EPISODES = 2_000


@dataclass(frozen=True)
class Comparison:
    """What was found on one instance.

    Attributes
    ----------
    delta
        Separation: the least L1 distance between two contexts over all (s, a).
    random, qmdp
        Values of the two policies.
    informed
        The value with the context known: an upper bound.
    belief
        Mean posterior of the true context after 0, 1, ..., H steps of the Q-MDP policy.
    """

    name: str
    model: LatentMDP
    delta: float
    random: Value
    qmdp: Value
    informed: float
    belief: NDArray[np.float64]


def demo_models(seed: int) -> Iterator[tuple[str, LatentMDP]]:
    """The models of the demonstration by name."""
    for name, arguments in INSTANCES.items():
        yield name, make(name, rng=seed, **arguments)


def compare(name: str, model: LatentMDP, episodes: int, seed: int) -> Comparison:
    """Compare acting at random, on the belief, and with full information."""
    plan = QMDP().plan(model)
    informed = plan.upper
    assert informed is not None, "Q-MDP always gives its informed bound"
    logs = simulate(model, plan.policy, BELIEF_EPISODES, rng=seed)
    along = posterior(model, logs, along=True).reshape(len(logs), -1, model.n_contexts)
    contexts = np.asarray(logs.contexts)
    true = np.take_along_axis(along, contexts[:, None, None], axis=2)[..., 0]
    return Comparison(
        name=name,
        model=model,
        delta=float(separation(model)),
        random=evaluate(model, UniformPolicy(), episodes=episodes, rng=seed),
        qmdp=evaluate(model, plan.policy, episodes=episodes, rng=seed),
        informed=informed,
        belief=true.mean(axis=0),
    )
