"""The value of a policy, sum_m w_m E_m^pi [sum_t discount^{t-1} r_t], hidden bonus counted."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, philox_key
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.enumeration import enumerated_value
from latentmdp.policies import HistoryPolicy, MarkovPolicy, Policy, UniformPolicy
from latentmdp.simulation import simulate
from latentmdp.trajectories import Trajectories

__all__ = ["Value", "evaluate", "hidden_returns", "markov_values"]


_METHODS = ("auto", "exact", "monte-carlo")
_BLOCK = 1 << 14


@dataclass(frozen=True)
class Value:
    """A policy's value.

    Attributes
    ----------
    mean
        The value, or its Monte Carlo estimate.
    stderr
        Standard error of the estimate; 0 if exact.
    exact
        Whether `mean` was computed rather than estimated.
    """

    mean: float
    stderr: float
    exact: bool

    def __str__(self) -> str:
        return f"{self.mean:.6g}" if self.exact else f"{self.mean:.6g} ± {self.stderr:.2g}"


def evaluate(
    model: LatentMDP,
    policy: Policy | HistoryPolicy,
    episodes: int = 100_000,
    rng: RNGLike = None,
    method: str = "auto",
    *,
    max_histories: int = 200_000,
    threads: int | None = None,
) -> Value:
    """Value of a policy in a model.

    Parameters
    ----------
    policy
        A `Policy` or a callable of a `History`.
    episodes, rng, threads
        For Monte Carlo.
    method
        "auto": dynamic programming for Markov policies, Monte Carlo for others. "exact": dynamic
        programming, or enumeration of all histories the policy can meet. "monte-carlo".
    max_histories
        Enumeration of more histories at one time step than this is refused.
    """
    require_model(model)
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(_METHODS)}, got {method!r}")
    markov = _as_markov(policy, model)
    if method != "monte-carlo" and markov is not None:
        first = markov_values(model, markov.action_probabilities(model))[0]
        expected = (model.initial * first).sum(axis=1)
        if model.initial_bonus is not None:
            expected = expected + model.initial_bonus
        return Value(float(model.weights @ expected), 0.0, exact=True)
    if method == "exact":
        return Value(enumerated_value(model, policy, max_histories), 0.0, exact=True)
    return _monte_carlo(model, policy, episodes, rng, threads)


def markov_values(model: LatentMDP, probabilities: Floats) -> Floats:
    """V_{t,m}(s) of a Markov policy pi_t(a | s) of shape (H or 1, S, A); shape (H + 1, M, S)."""
    H, M, S = model.horizon, model.n_contexts, model.n_states
    rewards = model.planning_rewards()
    values = np.zeros((H + 1, M, S))
    for t in range(H - 1, -1, -1):
        pi = probabilities[t if len(probabilities) > 1 else 0]
        follow = np.einsum("msan,mn->msa", model.transitions, values[t + 1])
        values[t] = np.einsum("sa,msa->ms", pi, rewards + model.discount * follow)
    return values


def hidden_returns(model: LatentMDP, logs: Trajectories) -> Floats:
    """Discounted return of each episode with its hidden rewards; needs the true contexts."""
    if logs.contexts is None:
        raise ValueError("logs must know their contexts")
    total = logs.returns(model.discount)
    if model.bonus is not None:
        states, actions, _ = logs.as_arrays()
        steps = model.discount ** np.arange(actions.shape[1])
        total = total + model.bonus[logs.contexts[:, None], states[:, :-1], actions] @ steps
    if model.initial_bonus is not None:
        total = total + model.initial_bonus[logs.contexts]
    return total


def _monte_carlo(
    model: LatentMDP, policy: Any, episodes: int, rng: RNGLike, threads: int | None
) -> Value:
    episodes = arrays.positive_integer("episodes", episodes)
    if episodes < 2:
        raise ValueError("episodes must be at least 2 for a standard error, got 1")
    seed = np.random.SeedSequence(philox_key(rng))
    block = max(_BLOCK, _BLOCK * 64 // model.horizon)
    parts = []
    for start in range(0, episodes, block):
        count = min(block, episodes - start)
        logs = simulate(model, policy, count, seed, first_episode=start, threads=threads)
        parts.append(hidden_returns(model, logs))
    returns = np.concatenate(parts)
    return Value(float(returns.mean()), float(returns.std(ddof=1) / np.sqrt(episodes)), exact=False)


def _as_markov(policy: Any, model: LatentMDP) -> MarkovPolicy | None:
    if isinstance(policy, MarkovPolicy):
        return policy
    if isinstance(policy, UniformPolicy):
        return MarkovPolicy(np.full((model.n_states, model.n_actions), 1.0 / model.n_actions))
    return None
