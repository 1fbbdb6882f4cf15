"""Q-MDP [littman1995; kwon2021, Sec. 5.1]: act as if the context were revealed after this step.

    Q_{t,m}(s, a) = R_m(s, a) + R^hid_m(s, a)
                    + discount sum_s' T_m(s' | s, a) max_a' Q_{t+1,m}(s', a')
    pi(t, s, b)   = argmax_a sum_m b(m) Q_{t,m}(s, a)

Its informed bound sum_m w_m (R^hid_init(m) + sum_s nu_m(s) max_a Q_{1,m}(s, a)) is what an agent
that knows the context could earn, so it is at least V*.
"""

import time
from dataclasses import dataclass

import numpy as np

from latentmdp._kernels import induction
from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.base import Plan
from latentmdp.policies import AlphaVectorPolicy

__all__ = ["QMDP", "least_values", "q_values"]


@dataclass(frozen=True)
class QMDP:
    """The Q-MDP planner.

    Parameters
    ----------
    smoothing
        alpha of the filter of the policy it returns.
    """

    smoothing: float = 0.0

    def plan(self, model: LatentMDP) -> Plan:
        """Plan by backward induction in each context; `upper` is the informed bound."""
        require_model(model)
        start = time.perf_counter()
        values = _lane_values(model)
        informed = induction.informed_value(values, model.weights, model.initial)
        return Plan(
            policy=AlphaVectorPolicy.from_lanes(values, model, self.smoothing),
            upper=float(informed) + model.initial_value(),
            seconds=time.perf_counter() - start,
            message="backward induction in each context",
        )


def q_values(model: LatentMDP) -> Floats:
    """Q_{t,m}(s, a) of every context, shape (H, S, A, M)."""
    return _context_last(model, _lane_values(model))


def least_values(model: LatentMDP) -> Floats:
    """Value of the worst policy of every context, shape (H, S, M): the best one for costs."""
    return -_context_last(model, _lane_values(model, costs=True)).max(axis=2)


def _lane_values(model: LatentMDP, costs: bool = False) -> Floats:
    """Q-values in lanes (M, H, n), see `latentmdp._kernels.induction`; of costs if asked."""
    transitions, rewards = model.lanes()
    values = np.empty((model.n_contexts, model.horizon, rewards.shape[1]))
    induction.q_values(
        transitions, -rewards if costs else rewards, model.n_actions, model.discount, values
    )
    return values


def _context_last(model: LatentMDP, lanes: Floats) -> Floats:
    """Values in lanes (M, H, n) as (H, S, A, M)."""
    values = np.empty((model.horizon, model.n_states, model.n_actions, model.n_contexts))
    induction.interleave(lanes, values)
    return values
