"""The demonstration: the whole story on two instances, computed.

For each instance: what is hidden; what acting at random, the best memoryless policy and the best
policy with memory earn where the model is known; what a learner that starts from nothing finds and
earns, over several seeds; how its belief in the true context grows within an episode; and the
planner's certificate. `latentmdp.report.story` makes a page of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.instances import make
from latentmdp.model import LatentMDP
from latentmdp.online import Learned, learn
from latentmdp.planning import HSVI, QMDP, Memoryless, Plan, Value, evaluate
from latentmdp.policies import Policy, UniformPolicy
from latentmdp.report.beliefs import growth
from latentmdp.theory import separation

__all__ = ["INSTANCES", "QUICK", "Chapter", "Sizes", "steps_of", "tell"]

Report = Callable[[str], None]

_BELIEF_EPISODES = 2_000


@dataclass(frozen=True)
class Sizes:
    """An instance of the demonstration and how much is played on it."""

    arguments: dict[str, Any]
    contexts: int | Literal["auto"]
    episodes: int
    seeds: int
    plan_seconds: float
    value_episodes: int = 400_000


_SEPARATED = {
    "contexts": 3,
    "states": 7,
    "actions": 2,
    "horizon": 20,
    "delta": 0.8,
    "rewards": "own",
}
INSTANCES = {
    "visitor": Sizes({}, contexts=5, episodes=20_000, seeds=2, plan_seconds=3.0),
    "separated": Sizes(_SEPARATED, contexts="auto", episodes=800, seeds=3, plan_seconds=3.0),
}
"""What `latentmdp demo` plays."""

QUICK = {
    "visitor": Sizes({}, contexts=5, episodes=150, seeds=2, plan_seconds=0.5, value_episodes=2_000),
    "separated": Sizes(
        {**_SEPARATED, "states": 5, "horizon": 12},
        contexts=3,
        episodes=150,
        seeds=2,
        plan_seconds=0.5,
        value_episodes=2_000,
    ),
}
"""A small version, in seconds."""


@dataclass(frozen=True, eq=False)
class Chapter:
    """What was found on one instance.

    Attributes
    ----------
    delta
        Separation: the least L1 distance between two contexts over all (s, a).
    random, memoryless, best : Value
        What policies earn per episode, the context hidden: uniformly random actions, the memoryless
        one found by coordinate ascent, the plan for the true model.
    informed
        The value if the context were known: no policy earns more.
    plan
        The certificate for the true model.
    told
        The number of contexts as the learner was told it; "auto" if it had to find out.
    runs, learned
        The runs of the learner, and what the final policy of each earns in the true model.
    growth
        Belief in the true context along episodes (N, H + 1), by whose filter.
    """

    name: str
    model: LatentMDP
    delta: float
    random: Value
    memoryless: Value
    best: Value
    informed: float
    plan: Plan
    told: int | Literal["auto"]
    runs: tuple[Learned, ...]
    learned: tuple[Value, ...]
    growth: dict[str, Floats]

    @property
    def found(self) -> LatentMDP:
        """The model that the first run learned."""
        return self.runs[0].model

    @property
    def learned_mean(self) -> float:
        """What the learned policies earn per episode, averaged over the runs."""
        return float(np.mean([value.mean for value in self.learned]))


def steps_of(sizes: Sizes) -> int:
    """How often `tell` reports."""
    return 3 + sizes.seeds


def tell(name: str, sizes: Sizes, seed: int, report: Report) -> Chapter:
    """Play one instance; `report` is called with what is done next."""
    report(f"{name}: planning with the true model")
    model = make(name, rng=seed, **sizes.arguments)
    plan = HSVI(gap=0.01, time_limit=sizes.plan_seconds).plan(model)
    informed = QMDP().plan(model).upper
    assert informed is not None, "Q-MDP always gives its informed bound"
    report(f"{name}: the best policy without memory")
    memoryless = Memoryless(method="cadp").plan(model).policy
    runs = []
    for k in range(sizes.seeds):
        report(f"{name}: learning from nothing, {sizes.episodes:,} episodes, run {k + 1}")
        planner = HSVI(gap=0.01, time_limit=sizes.plan_seconds)
        runs.append(learn(model, sizes.contexts, sizes.episodes, rng=seed + k, planner=planner))
    report(f"{name}: watching beliefs and counting returns")

    def worth(policy: Policy) -> Value:
        return evaluate(model, policy, episodes=sizes.value_episodes, rng=seed)

    return Chapter(
        name=name,
        model=model,
        delta=float(separation(model)),
        random=worth(UniformPolicy()),
        memoryless=worth(memoryless),
        best=worth(plan.policy),
        informed=informed,
        plan=plan,
        told=sizes.contexts,
        runs=tuple(runs),
        learned=tuple(worth(run.policy) for run in runs),
        growth=_growth(model, plan.policy, runs[0], seed),
    )


def _growth(model: LatentMDP, policy: Policy, run: Learned, seed: int) -> dict[str, Floats]:
    """By the true model's filter and, where it has as many contexts, the learned one's."""
    curves = {"filter with the true model": growth(model, policy, model, _BELIEF_EPISODES, seed)}
    if run.model.n_contexts == model.n_contexts:
        own = growth(model, run.policy, run.model, _BELIEF_EPISODES, seed)
        curves["filter with the learned model"] = own
    return curves
