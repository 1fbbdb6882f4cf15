"""The value of a policy: what it earns on average, hidden bonus counted.

    V = sum_m w_m ( R^hid_init(m) + E_m^pi [sum_t discount^{t-1} r_t] ),

by dynamic programming for Markov policies, for others by Monte Carlo or by enumeration of the
histories the policy can meet. A history is carried with the joint probability w_m P_m^pi(history)
of it and each context, so

    V = sum_m w_m R^hid_init(m) + sum_t discount^{t-1} sum_h sum_m w_m P_m^pi(h) R_m(s_t, pi(h)).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, philox_key
from latentmdp.belief import filter_tables
from latentmdp.engines.threads import blocks
from latentmdp.errors import LatentMDPError
from latentmdp.model import LatentMDP, require_model
from latentmdp.policies import AlphaVectorPolicy, History, HistoryPolicy, Policy, action_table
from latentmdp.simulation import simulate
from latentmdp.trajectories import Trajectories

__all__ = [
    "Controller",
    "HistoryTree",
    "TooManyHistoriesError",
    "Value",
    "action_table",
    "as_controller",
    "evaluate",
]

_METHODS = ("auto", "exact", "monte-carlo")
_BLOCK = 1 << 14
"""Episodes simulated at once, more if they are short: enough to keep all threads busy, few enough
to hold in memory."""


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
        A `Policy`, or a callable of a `History` that gives an action or A probabilities.
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
    table = None if method == "monte-carlo" else action_table(policy, model)
    if table is not None:
        expected = (model.initial * _markov_values(model, table)[0]).sum(axis=1)
        if model.initial_bonus is not None:
            expected = expected + model.initial_bonus
        return Value(float(model.weights @ expected), 0.0, exact=True)
    if method == "exact":
        return Value(_enumerated_value(model, policy, max_histories), 0.0, exact=True)
    return _monte_carlo(model, policy, episodes, rng, threads)


def _markov_values(model: LatentMDP, probabilities: Floats) -> Floats:
    """V_{t,m}(s) of a Markov policy pi_t(a | s) of shape (H or 1, S, A); shape (H + 1, M, S)."""
    H, M, S = model.horizon, model.n_contexts, model.n_states
    rewards = model.planning_rewards()
    values = np.zeros((H + 1, M, S))
    for t in range(H - 1, -1, -1):
        pi = probabilities[t if len(probabilities) > 1 else 0]
        follow = np.einsum("msan,mn->msa", model.transitions, values[t + 1])
        values[t] = np.einsum("sa,msa->ms", pi, rewards + model.discount * follow)
    return values


def _hidden_returns(model: LatentMDP, logs: Trajectories) -> Floats:
    """Discounted return of each simulated episode with its hidden rewards."""
    assert logs.contexts is not None
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
    for start, stop in blocks(episodes, block):
        logs = simulate(model, policy, stop - start, seed, first_episode=start, threads=threads)
        parts.append(_hidden_returns(model, logs))
    returns = np.concatenate(parts)
    return Value(float(returns.mean()), float(returns.std(ddof=1) / np.sqrt(episodes)), exact=False)


class TooManyHistoriesError(LatentMDPError, ValueError):
    """Enumeration would visit more histories than allowed."""


class Controller(NamedTuple):
    """A policy with an explicit memory in place of the history."""

    start: Callable[[int], Any]  # memory at the first state
    act: Callable[[int, int, Any], Floats]  # (t, s, memory): probabilities (A,) of the actions
    observe: Callable[[Any, int, int, int, int], Any]  # (memory, s, a, s', z): memory after a step


def as_controller(policy: Any, model: LatentMDP) -> Controller:
    """Any policy, with its memory made explicit; raises if it does not fit the model's sizes."""
    if isinstance(policy, AlphaVectorPolicy):
        return _belief_controller(policy, model)
    table = action_table(policy, model)
    if table is not None:
        return Controller(
            start=lambda state: None,
            act=lambda t, state, memory: table[t if len(table) > 1 else 0, state],
            observe=lambda memory, *step: None,
        )
    if isinstance(policy, Policy) or not callable(policy):
        raise TypeError(f"cannot enumerate the histories of a {type(policy).__name__}")
    return Controller(
        start=lambda state: History((state,), (), ()),
        act=lambda t, state, history: history.ask(policy, model.n_actions),
        observe=lambda history, s, a, next_state, z: history.then(a, next_state, z),
    )


def _belief_controller(policy: AlphaVectorPolicy, model: LatentMDP) -> Controller:
    """An alpha-vector policy; its memory is the belief of its own filter."""
    policy.acting(model)  # raises if the sizes do not fit
    table, prior, initial = filter_tables(policy.model, policy.smoothing)
    likelihood, certain = table.reshape(policy.model.packed().shape), np.eye(model.n_actions)

    def conditioned(belief: Floats, likelihood: Floats) -> Floats:
        """The belief after an observation; unchanged by one impossible in every context."""
        product = belief * likelihood
        total = product.sum()
        return product / total if total > 0.0 else belief

    return Controller(
        start=lambda state: conditioned(prior, initial[state]),
        act=lambda t, state, belief: certain[policy.action(t, state, belief)],
        observe=lambda belief, *step: conditioned(belief, likelihood[step]),
    )


class HistoryTree:
    """The histories of one length that a policy can meet; `grow` makes them a step longer.

    `histories` lists (last state, w_m P_m^pi(history) of shape (M,), memory of the controller).
    Beyond `most` of them `TooManyHistoriesError` is raised, with `advice`.
    """

    def __init__(
        self, model: LatentMDP, policy: Any, weights: Floats, most: int, advice: str
    ) -> None:
        self._model, self._controller = model, as_controller(policy, model)
        self._most, self._advice, self._length = most, advice, 0
        joint = weights * model.initial.T
        states = np.flatnonzero((joint > 0.0).any(axis=1)).tolist()
        self.histories = [(s, joint[s], self._controller.start(s)) for s in states]

    def decide(self) -> list[tuple[int, Floats, Floats]]:
        """(state, joint, probabilities (A,) of the next action) of each history."""
        act, t = self._controller.act, self._length
        self._decided = [(s, joint, act(t, s, memory)) for s, joint, memory in self.histories]
        return self._decided

    def grow(self) -> None:
        """Replace every history by those that can follow what was decided."""
        self._length += 1
        packed, observe = self._model.packed(), self._controller.observe
        longer = []
        for (s, joint, probabilities), (_, _, memory) in zip(self._decided, self.histories):
            for a in np.flatnonzero(probabilities).tolist():
                joints = packed[s, a] * (joint * probabilities[a])
                for n, z in np.argwhere((joints > 0.0).any(axis=-1)).tolist():
                    longer.append((n, joints[n, z], observe(memory, s, a, n, z)))
            if len(longer) > self._most:
                raise TooManyHistoriesError(
                    f"more than {self._most} histories at time {self._length} of "
                    f"{self._model.horizon}: {self._advice}"
                )
        self.histories = longer


def _enumerated_value(model: LatentMDP, policy: Any, max_histories: int) -> float:
    advice = "enumeration is for small problems, use method='monte-carlo'"
    tree = HistoryTree(model, policy, model.weights, max_histories, advice)
    rewards = np.moveaxis(model.planning_rewards(), 0, -1)
    value = model.initial_value()
    for t in range(model.horizon):
        if t > 0:
            tree.grow()
        scale = model.discount**t
        for s, joint, probabilities in tree.decide():
            for a in np.flatnonzero(probabilities):
                value += scale * float((joint * probabilities[a]) @ rewards[s, a])
    return value
