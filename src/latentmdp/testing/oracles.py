"""Brute-force oracles: values and probabilities by enumerating every history.

A history h_t = (s_1, a_1, r_1, ..., s_t) carries the unnormalised weights

    u_m(h_t) = w_m nu_m(s_1) prod_k P_m(s_{k+1}, r_k | s_k, a_k),

so that the optimal value is the expectimax over histories

    V(h_t) = max_a sum_m u_m bonus_m(s_t, a)
             + sum_{s', r} [ r sum_m u_m P_m(s', r | s_t, a) + discount V(h_t a r s') ].

What a policy does after a history is worked out from its definition, one history at a time. Nothing
here shares code with the library's kernels, and nothing is clever: that is what makes it an oracle.
Sizes are guarded, because the number of histories grows as (S A Z)^H.
"""

import inspect
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from latentmdp._util.arrays import Floats, Integers
from latentmdp.errors import ImpossibleObservationError, TooLargeError
from latentmdp.model import LatentMDP
from latentmdp.policies import AlphaVectorPolicy, History, MarkovPolicy, Policy, UniformPolicy

__all__ = [
    "action_probabilities",
    "count_histories",
    "optimal_memoryless_value",
    "optimal_value",
    "policy_value",
    "posterior",
    "trajectory_probability",
]

AnyPolicy = Policy | Callable[..., Any]


def optimal_value(model: LatentMDP, *, limit: int = 1_000_000) -> float:
    """V*: the value of the best history-dependent policy, bonuses and discount counted.

    Parameters
    ----------
    limit
        Refuse problems with more histories than this.
    """
    return _enumerated(model, limit, lambda _, act: max(map(act, range(model.n_actions))))


def policy_value(model: LatentMDP, policy: AnyPolicy, *, limit: int = 1_000_000) -> float:
    """The exact value of a policy, bonuses and discount counted.

    Parameters
    ----------
    policy
        A policy of the library, or a callable `f(history)` or `f(t, history)` that returns an
        action or probabilities over actions.
    limit
        Refuse problems with more histories than this.
    """
    chances = action_probabilities(policy, model.n_actions)

    def mean(history: History, act: Callable[[int], float]) -> float:
        return sum(float(p) * act(a) for a, p in enumerate(chances(history)) if p > 0.0)

    return _enumerated(model, limit, mean)


def _enumerated(
    model: LatentMDP, limit: int, choose: Callable[[History, Callable[[int], float]], float]
) -> float:
    """The value where `choose(history, act)` is made of the values `act(a)` of the actions."""
    _guard("histories", count_histories(model), limit)
    P, bonus = _joint(model), _bonus(model)

    def value(history: History, u: Floats) -> float:
        if len(history.actions) == model.horizon:
            return 0.0
        return choose(history, lambda a: taken(history, a, u))

    def taken(history: History, a: int, u: Floats) -> float:
        s = history.states[-1]
        total = float(u @ bonus[:, s, a])
        for next_state, z in product(range(model.n_states), range(model.n_rewards)):
            v = u * P[:, s, a, next_state, z]
            if v.any():
                total += float(model.reward_values[z]) * float(v.sum())
                total += model.discount * value(history.then(a, next_state, z), v)
        return total

    starts = (model.weights * model.initial[:, s] for s in range(model.n_states))
    total = sum(value(History((s,), (), ()), u) for s, u in enumerate(starts) if u.any())
    return float(total) + _initial_bonus(model)


def optimal_memoryless_value(
    model: LatentMDP, *, stationary: bool = False, limit: int = 100_000
) -> float:
    """The value of the best deterministic policy that sees the state, and the time, only.

    Parameters
    ----------
    stationary
        Whether the policy must be the same at every time. Then a stochastic policy may be better;
        if it may depend on time, none is.
    limit
        Refuse problems with more policies than this: A^S, or A^(H S).
    """
    S, A, H = model.n_states, model.n_actions, model.horizon
    layers = 1 if stationary else H
    _guard("memoryless policies", A ** (S * layers), limit)
    P, bonus = _joint(model), _bonus(model)
    T, means = P.sum(axis=-1), (P @ model.reward_values).sum(axis=-1) + bonus
    start = model.weights[:, None] * model.initial
    states = np.arange(S)

    def value(actions: Integers) -> float:
        mass, total, factor = start, 0.0, 1.0
        for t in range(H):
            chosen = actions[t % layers]
            total += factor * float((mass * means[:, states, chosen]).sum())
            mass = np.einsum("ms,msn->mn", mass, T[:, states, chosen])
            factor *= model.discount
        return total

    policies = product(range(A), repeat=S * layers)
    best = max(value(np.reshape(actions, (layers, S))) for actions in policies)
    return best + _initial_bonus(model)


def trajectory_probability(
    model: LatentMDP, states: Sequence[int], actions: Sequence[int], rewards: Sequence[int]
) -> float:
    """P(s_1.., r_1.. || do a_1..): the probability of what is seen if these actions are played."""
    _require_lengths(states, actions, rewards)
    P = _joint(model)
    total = 0.0
    for m in range(model.n_contexts):
        p = float(model.weights[m]) * float(model.initial[m, states[0]])
        for t, (a, z) in enumerate(zip(actions, rewards)):
            p *= float(P[m, states[t], a, states[t + 1], z])
        total += p
    return total


def posterior(
    model: LatentMDP,
    states: Sequence[int],
    actions: Sequence[int],
    rewards: Sequence[int],
    smoothing: float = 0.0,
) -> Floats:
    """The belief over contexts after an episode, shape (M,).

    b_1 ∝ w_m nu_m(s_1), then b ∝ b (alpha + (1 - alpha S Z) P_m(s', r | s, a)) at every step.
    With smoothing, a first state that is impossible in every context carries no information.

    Raises
    ------
    ImpossibleObservationError
        If an observation has probability zero in every context still possible.
    """
    _require_lengths(states, actions, rewards)
    P = _joint(model)
    observations = model.n_states * model.n_rewards
    likelihood = smoothing + (1.0 - smoothing * observations) * P
    belief = [float(w) * float(nu) for w, nu in zip(model.weights, model.initial[:, states[0]])]
    if smoothing > 0.0 and not any(belief):
        belief = [float(w) for w in model.weights]
    belief = _normalised(belief, 0)
    for t, (a, z) in enumerate(zip(actions, rewards)):
        row = likelihood[:, states[t], a, states[t + 1], z]
        belief = _normalised([b * float(p) for b, p in zip(belief, row)], t + 1)
    return np.array(belief)


def action_probabilities(policy: AnyPolicy, n_actions: int) -> Callable[[History], Floats]:
    """A function from a history to the probabilities of the actions.

    Parameters
    ----------
    policy
        As in `policy_value`.
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


def count_histories(model: LatentMDP) -> int:
    """The number of histories of length up to H that some context can produce."""
    possible = (_joint(model) > 0.0).any(axis=0)
    branches: list[list[list[int]]] = np.asarray(possible.sum(axis=-1)).tolist()
    starts = (model.weights[:, None] * model.initial > 0.0).any(axis=0)
    alive: list[int] = np.asarray(starts, dtype=np.int64).tolist()
    total = sum(alive)
    for _ in range(model.horizon):
        alive = [
            sum(number * row[s] for number, rows in zip(alive, branches) for row in rows)
            for s in range(model.n_states)
        ]
        total += sum(alive)
    return total


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
        s, next_state = history.states[t], history.states[t + 1]
        rewards = model.reward_probs[:, s, a]
        rewards = rewards[:, next_state] if model.reward_model == "transition" else rewards
        likelihood = model.transitions[:, s, a, next_state] * rewards[:, z]
        observations = model.n_states * model.n_rewards
        updated = belief * (smoothing + (1.0 - smoothing * observations) * likelihood)
        belief = updated / updated.sum() if updated.sum() > 0.0 else belief
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


def _joint(model: LatentMDP) -> Floats:
    """P_m(s', r | s, a), shape (M, S, A, S, Z), from the two tables."""
    R = model.reward_probs
    rule = "msan,msaz->msanz" if R.ndim == 4 else "msan,msanz->msanz"
    return np.asarray(np.einsum(rule, model.transitions, R))


def _bonus(model: LatentMDP) -> Floats:
    return np.zeros(model.transitions.shape[:3]) if model.bonus is None else model.bonus


def _initial_bonus(model: LatentMDP) -> float:
    return 0.0 if model.initial_bonus is None else float(model.weights @ model.initial_bonus)


def _normalised(weights: list[float], t: int) -> list[float]:
    total = sum(weights)
    if total == 0.0:
        raise ImpossibleObservationError(
            f"what is seen at time {t} has probability zero in every context still possible"
        )
    return [x / total for x in weights]


def _require_lengths(states: Sequence[int], actions: Sequence[int], rewards: Sequence[int]) -> None:
    if len(states) != len(actions) + 1 or len(rewards) != len(actions):
        raise ValueError(
            f"L actions need L rewards and L+1 states, got {len(states)} states, "
            f"{len(actions)} actions and {len(rewards)} rewards"
        )


def _guard(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise TooLargeError(
            f"brute force would enumerate {count:.3g} {what}, more than limit={limit:.3g}: "
            "use a smaller model or a shorter horizon"
        )
