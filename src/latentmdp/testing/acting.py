"""What a policy does after a history, worked out from its definition, one history at a time.

The library runs policies in compiled loops; this is the same in the plainest Python, so that the
two can be compared.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP
from latentmdp.policies import AlphaVectorPolicy, History, MarkovPolicy, Policy, UniformPolicy

__all__ = ["AnyPolicy", "action_probabilities"]

AnyPolicy = Policy | Callable[..., Any]
Acts = Callable[[History], Floats]


def action_probabilities(policy: AnyPolicy, n_actions: int) -> Acts:
    """A function from a history to the probabilities of the actions.

    Parameters
    ----------
    policy
        A policy of the library, or a callable `f(history)` or `f(t, history)` that returns an
        action or probabilities over actions.
    """
    if isinstance(policy, UniformPolicy):
        return lambda history: np.full(n_actions, 1.0 / n_actions)
    if isinstance(policy, MarkovPolicy):
        return lambda history: _markov(policy, history, n_actions)
    if isinstance(policy, AlphaVectorPolicy):
        return lambda history: _alpha(policy, history, n_actions)
    if not callable(policy):
        raise TypeError(f"policy must be a Policy or callable, got {type(policy).__name__}")
    if _takes_time(policy):
        return lambda history: _as_probabilities(policy(len(history.actions), history), n_actions)
    return lambda history: _as_probabilities(policy(history), n_actions)


def _markov(policy: MarkovPolicy, history: History, n_actions: int) -> Floats:
    t, s = len(history.actions) % policy.n_layers, history.states[-1]
    if policy.probabilities is not None:
        return np.asarray(policy.probabilities[t, s])
    assert policy.actions is not None
    return _as_probabilities(int(policy.actions[t, s]), n_actions)


def _alpha(policy: AlphaVectorPolicy, history: History, n_actions: int) -> Floats:
    t, s = len(history.actions) % policy.n_layers, history.states[-1]
    group = t * policy.model.n_states + s
    first, last = int(policy.offsets[group]), int(policy.offsets[group + 1])
    belief = _acting_belief(policy.model, history, policy.smoothing)
    scores = [float(sum(policy.vectors[k] * belief)) for k in range(first, last)]
    return _as_probabilities(int(policy.actions[first + int(np.argmax(scores))]), n_actions)


def _acting_belief(model: LatentMDP, history: History, smoothing: float) -> Floats:
    """The belief of an acting filter: an observation that is impossible changes nothing."""
    belief = model.weights
    first = belief * model.initial[:, history.states[0]]
    belief = first / first.sum() if first.sum() > 0.0 else belief
    for t, (a, z) in enumerate(zip(history.actions, history.rewards)):
        s, s_next = history.states[t], history.states[t + 1]
        rewards = model.reward_probs[:, s, a]
        rewards = rewards[:, s_next] if model.reward_model == "transition" else rewards
        likelihood = model.transitions[:, s, a, s_next] * rewards[:, z]
        observations = model.n_states * model.n_rewards
        after = belief * (smoothing + (1.0 - smoothing * observations) * likelihood)
        belief = after / after.sum() if after.sum() > 0.0 else belief
    return belief


def _as_probabilities(answer: Any, n_actions: int) -> Floats:
    array = np.asarray(answer)
    if array.ndim == 0:
        return np.asarray(np.eye(n_actions)[int(array)])
    return array.astype(np.float64)


def _takes_time(policy: Callable[..., Any]) -> bool:
    """Whether a callable wants (t, history): it has two positional parameters without default."""
    try:
        parameters = inspect.signature(policy).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters) >= 2
