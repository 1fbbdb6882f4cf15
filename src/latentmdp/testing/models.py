"""Small random models of every kind a planner or an estimator must cope with."""

from typing import Any

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.model import LatentMDP, RewardModel


def random_model(
    rng: RNGLike = None,
    *,
    contexts: int = 2,
    states: int = 3,
    actions: int = 2,
    horizon: int | None = 3,
    reward_values: tuple[float, ...] = (0.0, 1.0),
    reward_model: RewardModel = "state-action",
    zeros: float = 0.0,
    bonus: bool = False,
    discount: float = 1.0,
    forbidden: float = 0.0,
    n_terminal: int = 0,
    as_table: bool = False,
) -> LatentMDP:
    """A model small enough to enumerate, with random tables, weights and initial states.

    Parameters
    ----------
    contexts, states, actions, horizon, reward_values, discount
        As in `LatentMDP`.
    reward_model
        Whether a reward depends on (s, a), or on (s, a, s').
    zeros
        The probability that a transition or a first state is impossible; each row keeps one.
    bonus
        Whether to add hidden rewards, `bonus` and `initial_bonus`.
    forbidden
        The probability that an action is not allowed; each state keeps one.
    n_terminal
        How many states, the last ones, are terminal.
    as_table
        Whether the model is given as an outcome table.
    """
    g = as_generator(rng)
    M, S, A, Z = contexts, states, actions, len(reward_values)
    shape = (M, S, A, S) if reward_model == "transition" else (M, S, A)
    model = LatentMDP(
        _rows(g, (M, S, A), S, zeros),
        g.dirichlet(np.ones(Z), size=shape),
        initial=_rows(g, (M,), S, zeros),
        weights=g.dirichlet(np.ones(M)),
        horizon=horizon,
        discount=discount,
        reward_values=reward_values,
        bonus=g.uniform(0.0, 1.0, size=(M, S, A)) if bonus else None,
        initial_bonus=g.uniform(0.0, 1.0, size=M) if bonus else None,
    )
    if forbidden or n_terminal:
        allowed = g.random((S, A)) >= forbidden
        allowed[np.arange(S), g.integers(A, size=S)] = True
        allowed[S - n_terminal :] = False
        model = model.replace(allowed=allowed)
    if as_table:
        model = model.replace(outcomes=model.outcomes, reward_model=reward_model)
    return model


def small_models(rng: RNGLike = 0) -> dict[str, LatentMDP]:
    """One model of each kind, by a name that says what is special about it."""
    g = as_generator(rng)
    kinds = {
        "two contexts": random_model(g),
        "three contexts, impossible transitions": random_model(g, contexts=3, zeros=0.4),
        "one state, three actions": random_model(g, states=1, actions=3, horizon=4),
        "rewards -1, 0.5, 2 given the next state": random_model(
            g, states=2, reward_values=(-1.0, 0.5, 2.0), reward_model="transition"
        ),
        "hidden bonus and discount": random_model(g, bonus=True, discount=0.7),
        "single context, hidden bonus": random_model(g, contexts=1, bonus=True),
        "single context, discount, negative rewards": random_model(
            g, contexts=1, reward_values=(-2.0, 1.0), discount=0.5
        ),
    }
    base = random_model(g, bonus=True)
    kinds["a context of weight zero"] = base.replace(weights=[1.0, 0.0])
    kinds["unvisited rows"] = _with_unvisited_rows(base)
    limits: dict[str, Any] = {"states": 4, "actions": 3, "forbidden": 0.5, "n_terminal": 1}
    kinds["forbidden actions and a terminal state"] = random_model(g, **limits, bonus=True)
    kinds["an outcome table with forbidden actions"] = random_model(
        g, states=3, actions=3, forbidden=0.5, zeros=0.3, as_table=True, reward_model="transition"
    )
    kinds["unseen costs, a terminal state"] = _unseen_costs(random_model(g, n_terminal=1))
    return kinds


def endless_models(rng: RNGLike = 0) -> dict[str, LatentMDP]:
    """Models without an end whose discount leaves little to what comes after a few steps."""
    g = as_generator(rng)
    kind: dict[str, Any] = {"horizon": None, "discount": 0.1, "states": 2}
    return {
        "no end": random_model(g, **kind),
        "no end, forbidden actions, negative rewards": random_model(
            g, **kind, actions=3, forbidden=0.5, reward_values=(-1.0, 1.0)
        ),
        "no end, a terminal state, a table": random_model(
            g, **kind | {"states": 3}, n_terminal=1, as_table=True, bonus=True
        ),
        "no end, a single context": random_model(g, **kind, contexts=1),
    }


def _rows(g: np.random.Generator, shape: tuple[int, ...], size: int, zeros: float) -> Floats:
    rows = g.dirichlet(np.ones(size), size=shape)
    impossible = g.random(rows.shape) < zeros
    likeliest = rows.argmax(axis=-1)[..., None]
    np.put_along_axis(impossible, likeliest, False, axis=-1)
    rows[impossible] = 0.0
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))


def _with_unvisited_rows(model: LatentMDP) -> LatentMDP:
    """An empirical model in which no data support action 0 of state 0 in the first context."""
    T, R = model.transitions.copy(), model.reward_probs.copy()
    T[0, 0, 0] = 0.0
    R[0, 0, 0] = 0.0
    return model.replace(transitions=T, rewards=R, allow_unvisited=True)


def _unseen_costs(model: LatentMDP) -> LatentMDP:
    """The same transitions with a cost of each (s, a, s') that is paid but not seen."""
    M, S, A, _ = model.dimensions
    amounts = -np.arange(1.0, 1.0 + M * S * A * S).reshape(M, S, A, S) / (M * S * A * S)
    same = {name: getattr(model, name) for name in ("horizon", "initial", "weights", "allowed")}
    return LatentMDP.from_amounts(model.transitions, amounts, observed=False, **same)
