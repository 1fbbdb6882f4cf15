"""The exact value of any policy by enumeration of the histories it can meet.

A history is carried with the joint probability w_m P_m^pi(history) of it and each context, so

    V = sum_m w_m R^hid_init(m) + sum_t discount^{t-1} sum_h sum_m w_m P_m^pi(h) R_m(s_t, pi(h)).
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.belief import filter_tables
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP
from latentmdp.policies import AlphaVectorPolicy, History, MarkovPolicy, Policy, UniformPolicy

__all__ = ["Agent", "TooManyHistoriesError", "as_agent", "enumerated_value"]


class TooManyHistoriesError(LatentMDPError, ValueError):
    """Enumeration would visit more histories than allowed."""


class _Node(NamedTuple):
    state: int
    joint: Floats
    memory: Any


class Agent(Protocol):
    """A policy with an explicit memory in place of the history."""

    def start(self, state: int) -> Any:
        """Memory at the first state."""
        ...

    def act(self, t: int, state: int, memory: Any) -> Floats:
        """Probabilities of the actions."""
        ...

    def observe(self, memory: Any, s: int, a: int, following: int, z: int) -> Any:
        """Memory after a step."""
        ...


def enumerated_value(model: LatentMDP, policy: Any, max_histories: int) -> float:
    """Exact value; raises `TooManyHistoriesError` beyond `max_histories` at one time step."""
    agent = as_agent(policy, model)
    rewards = np.moveaxis(model.planning_rewards(), 0, -1)
    nodes = [
        _Node(s, model.weights * model.initial[:, s], agent.start(s))
        for s in range(model.n_states)
        if (model.weights * model.initial[:, s] > 0.0).any()
    ]
    value = 0.0 if model.initial_bonus is None else float(model.weights @ model.initial_bonus)
    for t in range(model.horizon):
        scale = model.discount**t
        children: list[_Node] = []
        for node in nodes:
            probabilities = agent.act(t, node.state, node.memory)
            for a in np.flatnonzero(probabilities):
                joint = node.joint * probabilities[a]
                value += scale * float(joint @ rewards[node.state, a])
                if t + 1 < model.horizon:
                    children += _successors(model, agent, node, int(a), joint)
            if len(children) > max_histories:
                raise TooManyHistoriesError(
                    f"more than {max_histories} histories at time {t + 1} of {model.horizon}: "
                    "enumeration is for small problems, use method='monte-carlo'"
                )
        nodes = children
    return value


def _successors(model: LatentMDP, agent: Agent, node: _Node, a: int, joint: Floats) -> list[_Node]:
    following = model.packed()[node.state, a] * joint
    possible = np.argwhere((following > 0.0).any(axis=-1))
    return [
        _Node(int(n), following[n, z], agent.observe(node.memory, node.state, a, int(n), int(z)))
        for n, z in possible
    ]


class _AlphaAgent:
    """An alpha-vector policy; its memory is the belief of its own filter."""

    def __init__(self, policy: AlphaVectorPolicy, model: LatentMDP) -> None:
        policy.acting(model)  # raises if the sizes do not fit
        self.policy, self.n_actions = policy, model.n_actions
        table, self.prior, self.initial = filter_tables(policy.model, policy.smoothing)
        self.likelihood = table.reshape(policy.model.packed().shape)

    def start(self, state: int) -> Floats:
        return _conditioned(self.prior, self.initial[state])

    def act(self, t: int, state: int, memory: Floats) -> Floats:
        chosen = np.zeros(self.n_actions)
        chosen[self.policy.action(t, state, memory)] = 1.0
        return chosen

    def observe(self, memory: Floats, s: int, a: int, following: int, z: int) -> Floats:
        return _conditioned(memory, self.likelihood[s, a, following, z])


class _MarkovAgent:
    """A Markov policy; it remembers nothing."""

    def __init__(self, policy: MarkovPolicy, model: LatentMDP) -> None:
        self.probabilities = policy.action_probabilities(model)

    def start(self, state: int) -> None:
        return None

    def act(self, t: int, state: int, memory: None) -> Floats:
        return self.probabilities[t if len(self.probabilities) > 1 else 0, state]

    def observe(self, memory: None, s: int, a: int, following: int, z: int) -> None:
        return None


class _CallableAgent:
    """A callable; its memory is the history itself."""

    def __init__(self, policy: Any, model: LatentMDP) -> None:
        self.policy, self.n_actions = policy, model.n_actions

    def start(self, state: int) -> History:
        return History((state,), (), ())

    def act(self, t: int, state: int, memory: History) -> Floats:
        action = self.policy(memory)
        if not isinstance(action, int | np.integer) or not 0 <= action < self.n_actions:
            raise ValueError(
                f"after {memory} the policy returned {action!r}, not an action in "
                f"[0, {self.n_actions})"
            )
        return np.asarray(np.eye(self.n_actions)[action])

    def observe(self, memory: History, s: int, a: int, following: int, z: int) -> History:
        states, actions, rewards = memory
        return History((*states, following), (*actions, a), (*rewards, z))


def _conditioned(belief: Floats, likelihood: Floats) -> Floats:
    product = belief * likelihood
    total = product.sum()
    return product / total if total > 0.0 else belief


def as_agent(policy: Any, model: LatentMDP) -> Agent:
    """Any policy, with its memory made explicit."""
    if isinstance(policy, AlphaVectorPolicy):
        return _AlphaAgent(policy, model)
    if isinstance(policy, UniformPolicy):
        policy = MarkovPolicy(np.full((model.n_states, model.n_actions), 1.0 / model.n_actions))
    if isinstance(policy, MarkovPolicy):
        return _MarkovAgent(policy, model)
    if isinstance(policy, Policy) or not callable(policy):
        raise TypeError(f"cannot enumerate the histories of a {type(policy).__name__}")
    return _CallableAgent(policy, model)
