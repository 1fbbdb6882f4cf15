"""Checks of `LatentMDP` arguments: each returns a fresh array, or raises naming the culprit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays
from latentmdp._util.arrays import Flags, Floats

_AXES = ("context", "state", "action")


def require_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise unless `value` is one of the choices of the argument `name`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def require_inside(name: str, value: float) -> None:
    """Raise unless a probability lies in (0, 1), the ends excluded."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie in (0, 1), got {value}")


def require_non_negative(name: str, value: float) -> None:
    """Raise unless a number is finite and at least 0."""
    if not 0.0 <= value < np.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value}")


def transitions(value: Any, allowed_actions: ArrayLike | None, allow_unvisited: bool) -> Floats:
    T = arrays.as_floats("transitions", value)
    if T.ndim != 4 or T.shape[1] != T.shape[3]:
        raise ValueError(f"transitions must have shape (M, S, A, S), got {T.shape}")
    if T.size == 0:
        raise ValueError(f"transitions must not be empty, got shape {T.shape}")
    optional = np.full(T.shape[:-1], True) if allow_unvisited else None
    if allowed_actions is not None:
        possible = allowed(allowed_actions, *T.shape[1:3])
        T[:, ~possible] = 0.0
        optional = np.broadcast_to(~possible | allow_unvisited, T.shape[:-1])
    return arrays.distributions("transitions", T, _AXES, optional=optional, source=value)


def allowed(value: ArrayLike | None, S: int, A: int) -> Flags:
    if value is None:
        return np.full((S, A), True)
    flags = arrays.to_array("allowed", value)
    if flags.dtype.kind not in "b" and not np.isin(flags, (0, 1)).all():
        raise ValueError("allowed must hold flags: True where a state has an action")
    if flags.shape != (S, A):
        raise ValueError(f"allowed must have shape {(S, A)}, got {flags.shape}")
    if not flags.any():
        raise ValueError("allowed must leave some state an action: every state is terminal")
    return np.array(flags, dtype=np.bool_)


def reward_values(value: ArrayLike) -> Floats:
    values = arrays.as_floats("reward_values", value)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"reward_values must be a non-empty sequence, got shape {values.shape}")
    if np.unique(values).size < values.size:
        raise ValueError(f"reward_values must be distinct, got {values.tolist()}")
    return values


def reward_edges(value: ArrayLike, values: Floats) -> Floats:
    """Where measured rewards are cut into levels: Z - 1 rising numbers between the values."""
    edges = arrays.as_floats("reward_edges", value)
    if edges.shape != (values.size - 1,):
        raise ValueError(
            f"reward_edges must have shape {(values.size - 1,)}, one less than reward_values, got "
            f"{edges.shape}"
        )
    if (np.diff(values) <= 0.0).any():
        raise ValueError("reward_values must rise where they are the means of levels")
    outside = (edges <= values[:-1]) | (edges > values[1:])
    if outside.any():
        z = int(np.argmax(outside))
        raise ValueError(
            f"reward_edges[{z}] is {edges[z]:g}: must lie between the reward values {values[z]:g} "
            f"and {values[z + 1]:g}"
        )
    return edges


def rewards(
    value: ArrayLike,
    values: Floats,
    sizes: tuple[int, int, int],
    needed: Flags | None,
    T: Floats | None = None,
) -> Floats:
    """Reward probabilities (M, S, A, Z), or (M, S, A, S, Z) where dense transitions are given.

    Rows of actions that are not `needed` (S, A) become zero; None lets any row be all zero.
    """
    R = arrays.as_floats("rewards", value)
    M, S, A = sizes
    Z = values.size
    ignored = np.zeros((S, A), np.bool_) if needed is None else ~needed
    optional = np.full(sizes, True) if needed is None else np.broadcast_to(ignored, sizes)
    if R.shape == (M, S, A):
        if values.tolist() != [0.0, 1.0]:
            raise ValueError(
                "rewards of shape (M, S, A) are Bernoulli means and need reward_values (0, 1), got "
                f"{values.tolist()}; give probabilities of shape (M, S, A, {Z}) instead, or "
                "amounts to LatentMDP.from_amounts"
            )
        outside = ((R < 0) | (R > 1)) & ~ignored
        if outside.any():
            where = arrays.first_index(outside)
            raise ValueError(
                f"rewards{list(where)} is {R[where]:.12g}: a Bernoulli mean is in [0, 1]; give "
                "amounts that are paid for sure to LatentMDP.from_amounts, other rewards as "
                "probabilities over reward_values, shape (M, S, A, Z)"
            )
        R = np.stack([1.0 - R, R], axis=-1)
        R[:, ignored] = 0.0
        return R
    if R.shape == (M, S, A, Z):
        R[:, ignored] = 0.0
        return arrays.distributions("rewards", R, _AXES, optional=optional, source=value)
    if R.shape == (M, S, A, S, Z) and T is not None:
        axes = (*_AXES, "next state")
        R[:, ignored] = 0.0
        return arrays.distributions("rewards", R, axes, optional=T == 0.0, source=value)
    shapes = f"{(M, S, A)} or {(M, S, A, Z)}"
    if T is not None:
        shapes = f"{(M, S, A)}, {(M, S, A, Z)} or {(M, S, A, S, Z)}"
    raise ValueError(
        f"rewards must have shape {shapes} to fit transitions {(M, S, A, S)} and {Z} reward "
        f"values, got {R.shape}"
    )


def initial(value: ArrayLike | None, M: int, possible: Flags, allow_unvisited: bool) -> Floats:
    S, goes_on = len(possible), possible.any(axis=1)
    if value is None:
        return np.tile(goes_on / goes_on.sum(), (M, 1))
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if not 0 <= value < S:
            raise ValueError(f"initial state must lie in [0, {S}), got {value}")
        nu = np.zeros((M, S))
        nu[:, value] = 1.0
        return nu
    nu = arrays.as_floats("initial", value)
    if nu.ndim == 1 and nu.size == S:
        nu = np.tile(nu, (M, 1))
    if nu.shape != (M, S):
        raise ValueError(f"initial must have shape {(S,)} or {(M, S)}, got {nu.shape}")
    optional = np.full(M, True) if allow_unvisited else None
    return arrays.distributions("initial", nu, ("context",), optional=optional, source=value)


def weights(value: ArrayLike | None, M: int) -> Floats:
    if value is None:
        return np.full(M, 1.0 / M)
    checked = shaped("weights", value, (M,))
    return arrays.distributions("weights", checked, (), source=value)


def bonus(name: str, value: ArrayLike | None, shape: tuple[int, ...]) -> Floats | None:
    return None if value is None else shaped(name, value, shape)


def shaped(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Finite numbers of this shape."""
    array = arrays.as_floats(name, value)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return array


def discount(value: float) -> float:
    return number("discount", value, 0.0, 1.0, open_low=True)


def number(name: str, value: Any, low: float, high: float, *, open_low: bool = False) -> float:
    """Return `value` as a float of [low, high], or of (low, high] if `open_low`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not (low < value if open_low else low <= value) or not value <= high:
        bracket = "(" if open_low else "["
        raise ValueError(f"{name} must lie in {bracket}{low:g}, {high:g}], got {value}")
    return float(value)


def names(name: str, value: Sequence[str] | None, size: int) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(value)
    if isinstance(value, str) or not all(isinstance(n, str) for n in names):
        raise TypeError(f"{name} must be a sequence of strings")
    if len(names) != size or len(set(names)) != size:
        raise ValueError(f"{name} must be {size} distinct strings, got {list(names)}")
    return tuple(str(n) for n in names)  # strings of NumPy are written as plain ones
