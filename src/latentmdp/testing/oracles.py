"""Brute-force oracles: values and probabilities by enumerating every history.

A history h_t = (s_1, a_1, r_1, ..., s_t) carries the unnormalised weights

    u_m(h_t) = w_m nu_m(s_1) prod_k P_m(s_{k+1}, r_k | s_k, a_k),

so that the optimal value is the expectimax over histories

    V(h_t) = max_a sum_m u_m bonus_m(s_t, a)
             + sum_{s', r} [ r sum_m u_m P_m(s', r | s_t, a) + discount V(h_t a r s') ]

over the actions that s_t allows; in a terminal state it is 0.

What a policy does after a history is worked out from its definition, one history at a time. Nothing
here shares code with the library's kernels, and nothing is clever: that is what makes it an oracle.
Sizes are guarded, because the number of histories grows as (S A Z)^H.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.arrays import Floats
from latentmdp.errors import ImpossibleObservationError, ModelError, TooLargeError
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.policies import (
    AlphaVectorPolicy,
    History,
    MarkovPolicy,
    MixturePolicy,
    Policy,
    PolicyGraph,
    UniformPolicy,
)

AnyPolicy = Policy | Callable[..., Any]

Following = dict[tuple[int, int], list[tuple[int, int, Floats]]]
"""What can follow each allowed (s, a): the next state, the reward's index, P_m of every context."""


def optimal_value(model: LatentMDP, *, limit: int = 1_000_000) -> float:
    """V*: the value of the best history-dependent policy, bonuses and discount counted.

    Parameters
    ----------
    limit
        Refuse problems with more histories than this.
    """
    allowed = _allowed_actions(model)

    def largest(history: History, act: Callable[[int], float]) -> float:
        return max(map(act, allowed[history.states[-1]]))

    return _enumerated(model, limit, largest)


def robust_value(
    model: LatentMDP, objective: str, level: float | None = None, *, limit: int = 100_000
) -> float:
    """The best worst value over weights of the contexts, see `latentmdp.planning.robust`.

    The linear program over the values by context of all deterministic history policies.

    Parameters
    ----------
    objective, level
        As for `Robust`.
    limit
        Refuse problems with more policies than this.
    """
    from scipy.optimize import linprog

    M = model.n_contexts
    values = _achievable(model, limit)
    if objective == "regret":
        values = values - values.max(axis=0)  # every V*_m is attained by some policy
    # Variables: weights w, distances d >= |w - weights|, and the value v, which is minimised.
    policies = [np.concatenate([row, np.zeros(M), [-1.0]]) for row in values]
    apart = [np.concatenate([sign * row, -row, [0.0]]) for row in np.eye(M) for sign in (1.0, -1.0)]
    beyond = [sign * weight for weight in model.weights for sign in (1.0, -1.0)]
    ball = 2.0 if objective != "ball" or level is None else level
    total = np.concatenate([np.zeros(M), np.ones(M), [0.0]])
    most = model.weights / level if objective == "cvar" and level else np.ones(M)
    answer = linprog(
        np.append(np.zeros(2 * M), 1.0),
        A_ub=np.array([*policies, *apart, total]),
        b_ub=np.array([*np.zeros(len(policies)), *beyond, ball]),
        A_eq=np.concatenate([np.ones(M), np.zeros(M + 1)])[None],
        b_eq=[1.0],
        bounds=[*((0.0, top) for top in most), *[(0.0, None)] * M, (None, None)],
        method="highs",
    )
    return float(np.asarray(answer.fun))


def _achievable(model: LatentMDP, limit: int) -> Floats:
    """What each deterministic history policy earns in every context, (policies, M)."""
    horizon = require_horizon(model, "enumerating policies")
    following, bonus, allowed = _following(model), _bonus(model), _allowed_actions(model)
    nothing = np.zeros((1, model.n_contexts))

    def combined(parts: Iterable[Floats]) -> Floats:
        """All sums of one row of each part."""
        sums = nothing
        for part in parts:
            _guard("policies", len(sums) * len(part), limit)
            sums = (sums[:, None] + part[None]).reshape(-1, model.n_contexts)
        return np.unique(sums, axis=0)

    def after(t: int, s: int, reached: Floats) -> Floats:
        """Of histories that end in s at time t, with probability `reached` in every context."""
        if t == horizon or model.terminal[s]:
            return nothing
        values = []
        for a in allowed[s]:
            rest, earned = [], bonus[:, s, a].copy()
            for n, z, chance in following[s, a]:
                earned = earned + chance * model.reward_values[z]
                rest.append(after(t + 1, n, reached * chance))
            values.append(reached * model.discount**t * earned + combined(rest))
        return np.concatenate(values)

    starts = combined(after(0, s, model.initial[:, s]) for s in range(model.n_states))
    return starts if model.initial_bonus is None else starts + model.initial_bonus


def policy_value(model: LatentMDP, policy: AnyPolicy, *, limit: int = 1_000_000) -> float:
    """The exact value of a policy, bonuses and discount counted.

    Without an end, that of a Markov policy only.

    Parameters
    ----------
    policy
        A policy of the library, or a callable `f(history)` or `f(t, history)` that returns an
        action or probabilities over actions.
    limit
        Refuse problems with more histories than this.
    """
    if model.horizon is None:
        return _endless_value(model, policy)
    chances = action_probabilities(policy, model.n_actions, model)

    def mean(history: History, act: Callable[[int], float]) -> float:
        return sum(float(p) * act(a) for a, p in enumerate(chances(history)) if p > 0.0)

    return _enumerated(model, limit, mean)


def _enumerated(
    model: LatentMDP, limit: int, choose: Callable[[History, Callable[[int], float]], float]
) -> float:
    """The value where `choose(history, act)` is made of the values `act(a)` of the actions."""
    _guard("histories", count_histories(model), limit)
    following, bonus, terminal = _following(model), _bonus(model), model.terminal

    def value(history: History, u: Floats) -> float:
        if len(history.actions) == model.horizon or terminal[history.states[-1]]:
            return 0.0
        return choose(history, lambda a: taken(history, a, u))

    def taken(history: History, a: int, u: Floats) -> float:
        s = history.states[-1]
        if not model.allowed[s, a]:
            raise ValueError(f"the policy takes action {a} in state {s}, where it is not allowed")
        total = float(u @ bonus[:, s, a])
        for next_state, z, chance in following[s, a]:
            v = u * chance
            if v.any():
                total += float(model.reward_values[z]) * float(v.sum())
                total += model.discount * value(history.then(a, next_state, z), v)
        return total

    starts = (model.weights * model.initial[:, s] for s in range(model.n_states))
    total = sum(value(History((s,), (), ()), u) for s, u in enumerate(starts) if u.any())
    return float(total) + model.initial_value()


def optimal_memoryless_value(
    model: LatentMDP, *, stationary: bool = False, limit: int = 100_000
) -> float:
    """The value of the best deterministic policy that sees the state, and the time, only.

    Parameters
    ----------
    stationary
        Whether the policy must be the same at every time, as it is where there is no end. Then a
        stochastic policy may be better; if it may depend on time, none is.
    limit
        Refuse problems with more policies than this: A^S, or A^(H S), if every action is allowed.
    """
    layers = 1 if stationary else model.n_layers
    choices = [actions or [0] for actions in _allowed_actions(model)] * layers
    _guard("memoryless policies", int(np.prod([len(c) for c in choices], dtype=object)), limit)
    chains = _chains(model)
    policies = (np.reshape(actions, (layers, -1)) for actions in product(*choices))
    return max(_memoryless_value(model, chains, actions) for actions in policies)


def _memoryless_value(
    model: LatentMDP, chains: tuple[Floats, Floats], actions: NDArray[Any]
) -> float:
    """The value of rules: actions (L, S), or probabilities (L, S, A)."""
    T, means = chains
    start = model.weights[:, None] * model.initial
    if actions.ndim == 2:
        actions = np.eye(model.n_actions)[actions]
    rules = [(np.einsum("sa,msan->msn", p, T), np.einsum("sa,msa->ms", p, means)) for p in actions]
    total, factor = 0.0, 1.0
    if model.horizon is None:
        P, earned = rules[0]
        systems = np.eye(model.n_states) - model.discount * P
        values = np.linalg.solve(systems, earned[..., None])[..., 0]
        return float((start * values).sum()) + model.initial_value()
    mass = start
    for t in range(model.horizon):
        P, earned = rules[t % len(rules)]
        total += factor * float((mass * earned).sum())
        mass = np.einsum("ms,msn->mn", mass, P)
        factor *= model.discount
    return total + model.initial_value()


def _endless_value(model: LatentMDP, policy: AnyPolicy) -> float:
    """The value of a Markov policy that goes on for ever."""
    rules = _table(policy, model.n_actions, model)
    if rules is None or len(rules) > 1:
        raise ModelError(
            "brute force values only stationary Markov policies of a model without a horizon: "
            "model.replace(horizon=...) cuts its episodes off"
        )
    return _memoryless_value(model, _chains(model), rules)


def _chains(model: LatentMDP) -> tuple[Floats, Floats]:
    """T (M, S, A, S) and the mean rewards with bonus (M, S, A), from the list of outcomes."""
    M, S, A, _ = model.dimensions
    T, means = np.zeros((M, S, A, S)), _bonus(model).copy()
    for (s, a), outcomes in _following(model).items():
        for n, z, chance in outcomes:
            T[:, s, a, n] += chance
            means[:, s, a] += chance * model.reward_values[z]
    return T, means


def trajectory_probability(
    model: LatentMDP, states: Sequence[int], actions: Sequence[int], rewards: Sequence[int]
) -> float:
    """P(s_1.., r_1.. || do a_1..): the probability of what is seen if these actions are played."""
    history, joint = _history(states, actions, rewards), model.weights
    for likelihood in _likelihoods(model, _following(model), history, 0.0):
        joint = joint * likelihood
    return float(joint.sum())


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
    history = _history(states, actions, rewards)
    return _belief(model, _following(model), history, smoothing, impossible=False)


def _belief(
    model: LatentMDP, following: Following, history: History, smoothing: float, impossible: bool
) -> Floats:
    """The belief after a history; what is `impossible` changes nothing if it is put up with."""
    belief = model.weights
    for t, likelihood in enumerate(_likelihoods(model, following, history, smoothing)):
        updated = belief * likelihood
        if updated.any():
            belief = updated / updated.sum()
        elif not impossible and (t > 0 or smoothing == 0.0):
            raise ImpossibleObservationError(
                f"what is seen at time {t} has probability zero in every context still possible"
            )
    return np.array(belief)


def _likelihoods(
    model: LatentMDP, following: Following, history: History, smoothing: float
) -> Iterator[Floats]:
    """Of the first state and of every step of a history, in every context (M,)."""
    yield model.initial[:, history.states[0]]
    observations = model.n_states * model.n_rewards
    for t, (a, z) in enumerate(zip(history.actions, history.rewards)):
        chance = _likelihood(following, model, history.states[t], a, history.states[t + 1], z)
        yield smoothing + (1.0 - smoothing * observations) * chance


def action_probabilities(
    policy: AnyPolicy, n_actions: int, model: LatentMDP | None = None
) -> Callable[[History], Floats]:
    """A function from a history to the probabilities of the actions.

    Parameters
    ----------
    policy
        As in `policy_value`.
    model
        Whose allowed actions `UniformPolicy` draws from; all actions by default.
    """
    table = _table(policy, n_actions, model)
    if table is not None:
        return lambda history: table[len(history.actions) % len(table), history.states[-1]]
    if isinstance(policy, UniformPolicy):
        return lambda history: np.full(n_actions, 1.0 / n_actions)
    if isinstance(policy, AlphaVectorPolicy):
        following = _following(policy.model)
        return lambda history: _alpha(policy, following, history, n_actions)
    if isinstance(policy, PolicyGraph):
        return lambda history: _graph(policy, history, n_actions)
    if not callable(policy):
        raise TypeError(f"policy must be a Policy or callable, got {type(policy).__name__}")
    if _takes_time(policy):
        return lambda history: _as_probabilities(policy(len(history.actions), history), n_actions)
    return lambda history: _as_probabilities(policy(history), n_actions)


def count_histories(model: LatentMDP) -> int:
    """The number of histories of length up to H that some context can produce."""
    horizon = require_horizon(model, "counting histories")
    following = _following(model)
    starts = (model.weights[:, None] * model.initial > 0.0).any(axis=0)
    alive: list[int] = np.asarray(starts, dtype=np.int64).tolist()
    total = sum(alive)
    for _ in range(horizon):
        arrived = [0] * model.n_states
        for (s, _a), outcomes in following.items():
            for n, _z, _chance in outcomes:
                arrived[n] += alive[s]
        alive = arrived
        total += sum(alive)
    return total


def _table(policy: AnyPolicy, n_actions: int, model: LatentMDP | None) -> Floats | None:
    """pi_t(a | s), (L, S, A), of a Markov policy, or of the uniform one in a model; else None."""
    if isinstance(policy, UniformPolicy) and model is not None:
        return (model.allowed / np.maximum(model.allowed.sum(axis=1, keepdims=True), 1))[None]
    if not isinstance(policy, MarkovPolicy):
        return None
    table = policy.probabilities
    return np.asarray(np.eye(n_actions)[policy.actions] if table is None else table)


def _alpha(
    policy: AlphaVectorPolicy, following: Following, history: History, n_actions: int
) -> Floats:
    first, last = policy.group(len(history.actions), history.states[-1])
    belief = _belief(policy.model, following, history, policy.smoothing, impossible=True)
    scores = [float(sum(policy.vectors[k] * belief)) for k in range(first, last)]
    return _as_probabilities(int(policy.actions[first + int(np.argmax(scores))]), n_actions)


def _graph(policy: PolicyGraph, history: History, n_actions: int) -> Floats:
    """Of a policy graph in its own model: each part is followed from its first node."""
    model, nodes = policy.model, policy.nodes
    table, chances = model.outcomes, np.zeros(n_actions)
    shares = policy.weights if isinstance(policy, MixturePolicy) else [1.0]
    # What was done before says which parts are still possible.
    for share, first in zip(shares, np.atleast_2d(policy.first)):
        node = int(first[history.states[0]])
        for t, (a, z) in enumerate(zip(history.actions, history.rewards)):
            if node < 0 or int(nodes.actions[node]) != a:
                node = -1
                break
            s, n = history.states[t], history.states[t + 1]
            begin, end = table.starts[s * model.n_actions + a :][:2].tolist()
            follows = (table.next_state[begin:end] == n) & (table.reward[begin:end] == z)
            node = policy.follower(node, begin + int(np.argmax(follows)))
        if node >= 0:
            chances[int(nodes.actions[node])] += share
    return chances / chances.sum() if chances.sum() > 0.0 else np.full(n_actions, 1.0 / n_actions)


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


def _following(model: LatentMDP) -> Following:
    """The outcomes of every allowed (s, a) that are possible in some context, one by one."""
    P = model.observation_probs()
    observations = list(product(range(model.n_states), range(model.n_rewards)))
    return {
        (s, a): [(n, z, P[:, s, a, n, z]) for n, z in observations if P[:, s, a, n, z].any()]
        for s, a in np.argwhere(model.allowed).tolist()
    }


def _likelihood(following: Following, model: LatentMDP, s: int, a: int, n: int, z: int) -> Floats:
    """P_m(n, z | s, a) of every context."""
    for next_state, reward, chance in following.get((s, a), ()):
        if next_state == n and reward == z:
            return chance
    return np.zeros(model.n_contexts)


def _allowed_actions(model: LatentMDP) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in model.allowed]


def _bonus(model: LatentMDP) -> Floats:
    M, S, A, _ = model.dimensions
    return np.zeros((M, S, A)) if model.bonus is None else model.bonus


def _history(states: Sequence[int], actions: Sequence[int], rewards: Sequence[int]) -> History:
    if len(states) != len(actions) + 1 or len(rewards) != len(actions):
        raise ValueError(
            f"L actions need L rewards and L+1 states, got {len(states)} states, "
            f"{len(actions)} actions and {len(rewards)} rewards"
        )
    return History(tuple(states), tuple(actions), tuple(rewards))


def _guard(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise TooLargeError(
            f"brute force would enumerate {count:.3g} {what}, more than limit={limit:.3g}: "
            "use a smaller model or a shorter horizon"
        )
