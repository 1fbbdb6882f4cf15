"""Q-MDP [littman1995; kwon2021, Sec. 5.1]: act as if the context were revealed after one step.

    Q_{t,m}(s, a) = R_m(s, a) + R^hid_m(s, a)
                    + discount sum_s' T_m(s' | s, a) max_a' Q_{t+1,m}(s', a')
    pi(t, s, b)   = argmax_a sum_m b(m) Q_{t,m}(s, a)

Its informed bound sum_m w_m (R^hid_init(m) + sum_s nu_m(s) max_a Q_{1,m}(s, a)) is what an agent
that knows the context could earn, so it is at least V*.
"""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latentmdp.model import LatentMDP
from latentmdp.planning.base import Plan
from latentmdp.policies import AlphaVectorPolicy

__all__ = ["QMDP", "informed_bound", "q_values"]

Floats = NDArray[np.float64]


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
        start = time.perf_counter()
        values = q_values(model)
        policy = AlphaVectorPolicy.from_q_values(values, model, self.smoothing)
        return Plan(
            policy=policy,
            upper=informed_bound(model, values),
            seconds=time.perf_counter() - start,
            message="backward induction in each context",
        )


def q_values(model: LatentMDP) -> Floats:
    """Q_{t,m}(s, a) of every context, shape (H, S, A, M)."""
    from latentmdp._kernels import induction

    transitions = np.ascontiguousarray(model.transitions.transpose(0, 3, 2, 1))
    rewards = np.ascontiguousarray(model.planning_rewards().transpose(0, 2, 1))
    shape = (model.horizon, model.n_states, model.n_actions, model.n_contexts)
    values = np.empty(shape)
    induction.q_values(transitions, rewards, model.discount, values)
    return values


def informed_bound(model: LatentMDP, values: Floats) -> float:
    """What an agent that is told the context earns, from `q_values`."""
    best = values[0].max(axis=1)
    expected = np.einsum("ms,sm->m", model.initial, best)
    if model.initial_bonus is not None:
        expected = expected + model.initial_bonus
    return float(model.weights @ expected)
