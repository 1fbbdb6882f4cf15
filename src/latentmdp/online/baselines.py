"""Baselines for learning by acting: fixed policies, a learner blind to contexts, no optimism.

- `uniform`: acts at random.
- `best_memoryless`, `qmdp_on_truth`: the best policy without memory, and Q-MDP, on the true model.
- `context_blind`: L-UCRL that believes in a single context, so UCRL on the average MDP.
- `em_without_optimism`: L-UCRL with inferred contexts and no bonus.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from latentmdp._util.fields import Fielded
from latentmdp.fit import Fit
from latentmdp.model import LatentMDP
from latentmdp.online.base import CountingLearning, Learner
from latentmdp.online.empirical_model import Counts, EmpiricalModel
from latentmdp.online.lucrl import LUCRL
from latentmdp.online.run import Run
from latentmdp.planning import QMDP, Memoryless, evaluate
from latentmdp.policies import HistoryPolicy, Policy, UniformPolicy
from latentmdp.simulation import play
from latentmdp.trajectories import Trajectories
from latentmdp.worlds import World

__all__ = [
    "FixedPolicy",
    "best_memoryless",
    "context_blind",
    "em_without_optimism",
    "qmdp_on_truth",
    "uniform",
]


@dataclass(frozen=True, eq=False)
class FixedPolicy(Learner):
    """Follows one policy whatever happens; episodes are counted where contexts are revealed.

    Parameters
    ----------
    policy
        A `Policy`, or a callable of a `History`.
    value
        What the policy is worth, if known: becomes `optimistic_value`.
    """

    policy: Policy | HistoryPolicy
    value: float = float("nan")

    def begin(self, world: World, episodes: int, key: int) -> CountingLearning[Trajectories]:
        """See `Learner`."""
        counts = Counts.zero(world.space, "state-action")
        empirical = EmpiricalModel.begin(
            world.space, counts, None, 0.0, 0.0, None, learn_weights=True
        )
        return _Following(self, world, empirical, episodes, key)

    def settings(self) -> dict[str, Any]:
        """See `Learner`."""
        if isinstance(self.policy, Fielded):
            return {"policy": f"{self.policy!r} {self.policy.fingerprint()}"}
        return {"policy": getattr(self.policy, "__qualname__", repr(self.policy))}


class _Following(CountingLearning[Trajectories]):
    """One run of a fixed policy: nothing depends on what was learned."""

    learner: FixedPolicy

    def plan(self) -> None:
        """There is nothing to plan."""

    def play(self, most: int) -> Trajectories:
        """Play as many episodes as are waited for."""
        return play(self.world, self.learner.policy, most, self.key, self.done)

    def absorb(self, batch: Trajectories) -> None:
        """Record them, and count them if their contexts are known."""
        self.record(batch)
        if batch.contexts is not None:
            seen = Counts.start(batch, self.space, 0.0, "state-action")
            self.empirical.add_counts(seen)
        self.note_error()

    def result(self, settings: dict[str, Any]) -> Run:
        return self.counted(self.learner.policy, self.learner.value, settings)


def uniform() -> FixedPolicy:
    """Act at random."""
    return FixedPolicy(UniformPolicy())


def qmdp_on_truth(model: LatentMDP) -> FixedPolicy:
    """Q-MDP with the true model known: what learning with Q-MDP can hope for."""
    plan = QMDP().plan(model)
    return FixedPolicy(plan.policy, float("nan") if plan.upper is None else plan.upper)


def best_memoryless(model: LatentMDP, **options: Any) -> FixedPolicy:
    """The best memoryless policy of the true model, by `latentmdp.Memoryless(**options)`."""
    plan = Memoryless(**options).plan(model)
    return FixedPolicy(plan.policy, evaluate(model, plan.policy).mean)


def context_blind(**options: Any) -> LUCRL:
    """UCRL that takes the latent MDP for a plain one; `options` as for `LUCRL`."""
    return LUCRL(**{"contexts": "inferred", "n_contexts": 1, **options})


def em_without_optimism(start: LatentMDP | Trajectories | Fit, **options: Any) -> LUCRL:
    """Online EM and greedy planning: Algorithm 3 without a bonus."""
    return replace(LUCRL(**{"contexts": "inferred", **options}), start=start, bonus=None)
