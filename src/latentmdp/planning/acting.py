"""The planner for acting by a fitted model: Q-MDP where it suffices, else one that pays for news.

Q-MDP is fast and, where acting well also informs, nearly optimal. Where information must be bought
with steps that earn nothing it may wait for ever; its own bound, which no policy can beat, then
stands far above what its policy earns. `planner_for` decides by that, once for a fitted model.

Whatever plans, a fitted model may be wrong: `ActingPlanner` gives the policy a filter that survives
what the model thinks impossible.
"""

from __future__ import annotations

import dataclasses

from latentmdp.model import LatentMDP
from latentmdp.planning.base import Plan, Planner
from latentmdp.planning.evaluation import Value, evaluate
from latentmdp.planning.hsvi import HSVI
from latentmdp.planning.pbvi import PBVI
from latentmdp.planning.qmdp import QMDP
from latentmdp.policies import AlphaVectorPolicy


def acting_smoothing(n_states: int, n_rewards: int) -> float:
    """Alpha of the filter that acts by a fitted model, min(1e-3, 0.1 / (S Z)).

    What the model thinks impossible may happen, and then the filter must survive it. At most a
    tenth of the probability is given to surprises, however many observations S Z there are.
    """
    return min(1e-3, 0.1 / (n_states * n_rewards))


@dataclasses.dataclass(frozen=True)
class ActingPlanner(Planner):
    """A planner for fitted models: its policies act by a filter with `acting_smoothing`.

    Parameters
    ----------
    planner
        Makes the plans. A policy without a filter stays as it is.
    """

    planner: Planner

    def plan(self, model: LatentMDP) -> Plan:
        """See `Planner`."""
        plan = self.planner.plan(model)
        if not isinstance(plan.policy, AlphaVectorPolicy):
            return plan
        smoothing = acting_smoothing(model.n_states, model.n_rewards)
        return dataclasses.replace(plan, policy=plan.policy.filtering(plan.policy.model, smoothing))


@dataclasses.dataclass(frozen=True)
class CertifiedPlanner(Planner):
    """HSVI; Q-MDP's policy under HSVI's bounds where HSVI ran out of time below it.

    Parameters
    ----------
    gap, time_limit
        Of HSVI. A fitted model is rarely right to 3 %: plans of models fitted at (7,15,3,30) to
        gaps of 5, 3 and 2 % earn the same in the world to .1 %, the last at three times the price
        of the second.
    """

    gap: float = 0.03
    time_limit: float = 10.0

    def plan(self, model: LatentMDP) -> Plan:
        """See `Planner`."""
        plan = HSVI(gap=self.gap, time_limit=self.time_limit).plan(model)
        if plan.converged:
            return plan
        q_mdp = QMDP(acting_smoothing(model.n_states, model.n_rewards))
        quick, earned = _earned(q_mdp, model)
        if plan.lower is not None and plan.lower >= earned.mean - 2.0 * earned.stderr:
            return plan
        return dataclasses.replace(
            plan, policy=quick.policy, message=f"{plan.message}; Q-MDP's policy is worth more"
        )


def planner_for(fitted: LatentMDP) -> Planner:
    """The planner for a fitted model and others of its sizes: Q-MDP, or PBVI where it earns more.

    PBVI is asked only where Q-MDP's policy misses more than a tenth of its bound: 2 to 5 % are
    missed where acting informs (the instances separated, random, treatment) and PBVI gains little,
    88 % where Q-MDP waits (wait-hub). Either acts by a filter with `acting_smoothing`.
    """
    q_mdp = QMDP(acting_smoothing(fitted.n_states, fitted.n_rewards))
    informed, earned = _earned(q_mdp, fitted)
    assert informed.upper is not None
    if informed.upper - earned.mean <= 0.1 * abs(informed.upper):
        return q_mdp
    points = PBVI(beliefs=100)  # half of its default, since it plans anew after every fit
    lower = points.plan(fitted).lower
    gains = lower is not None and lower > earned.mean + 2.0 * earned.stderr
    return ActingPlanner(points) if gains else q_mdp


def _earned(planner: Planner, model: LatentMDP) -> tuple[Plan, Value]:
    """A plan, and what its policy earns: simulated to 1.6 % of the spread of returns."""
    plan = planner.plan(model)
    return plan, evaluate(model, plan.policy, 4_000, rng=0)
