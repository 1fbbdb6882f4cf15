"""Checks of `LatentMDP` arguments: each returns a fresh array, or raises naming the culprit."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats

__all__ = [
    "bonus",
    "discount",
    "initial",
    "names",
    "require_choice",
    "reward_values",
    "rewards",
    "shaped",
    "transitions",
    "weights",
]

_AXES = ("context", "state", "action")


def require_choice(name: str, value: object, known: Sequence[str]) -> None:
    """Raise unless `value` is one of the words known for the argument `name`."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def transitions(value: ArrayLike, allow_unvisited: bool) -> Floats:
    T = arrays.as_floats("transitions", value)
    if T.ndim != 4 or T.shape[1] != T.shape[3]:
        raise ValueError(f"transitions must have shape (M, S, A, S), got {T.shape}")
    if T.size == 0:
        raise ValueError(f"transitions must not be empty, got shape {T.shape}")
    optional = np.full(T.shape[:-1], True) if allow_unvisited else None
    return arrays.distributions("transitions", T, _AXES, optional=optional, given=value)


def reward_values(value: ArrayLike) -> Floats:
    values = arrays.as_floats("reward_values", value)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"reward_values must be a non-empty sequence, got shape {values.shape}")
    if np.unique(values).size < values.size:
        raise ValueError(f"reward_values must be distinct, got {values.tolist()}")
    return values


def rewards(value: ArrayLike, values: Floats, T: Floats, allow_unvisited: bool) -> Floats:
    R = arrays.as_floats("rewards", value)
    M, S, A, _ = T.shape
    Z = values.size
    unvisited = np.full((M, S, A), True) if allow_unvisited else None
    if R.shape == (M, S, A):
        if values.tolist() != [0.0, 1.0]:
            raise ValueError(
                "rewards of shape (M, S, A) are Bernoulli means and need reward_values (0, 1), got "
                f"{values.tolist()}; give probabilities of shape (M, S, A, {Z}) instead"
            )
        outside = (R < 0) | (R > 1)
        if outside.any():
            where = arrays.first_index(outside)
            raise ValueError(
                f"rewards{list(where)} is {R[where]:.12g}: a Bernoulli mean is in [0, 1]; give "
                "other rewards as probabilities over reward_values, shape (M, S, A, Z)"
            )
        return np.stack([1.0 - R, R], axis=-1)
    if R.shape == (M, S, A, Z):
        return arrays.distributions("rewards", R, _AXES, optional=unvisited, given=value)
    if R.shape == (M, S, A, S, Z):
        axes = (*_AXES, "next state")
        return arrays.distributions("rewards", R, axes, optional=T == 0.0, given=value)
    raise ValueError(
        f"rewards must have shape {(M, S, A)}, {(M, S, A, Z)} or {(M, S, A, S, Z)} to fit "
        f"transitions {T.shape} and {Z} reward values, got {R.shape}"
    )


def initial(value: ArrayLike | None, M: int, S: int, allow_unvisited: bool) -> Floats:
    if value is None:
        return np.full((M, S), 1.0 / S)
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
    return arrays.distributions("initial", nu, ("context",), optional=optional, given=value)


def weights(value: ArrayLike | None, M: int) -> Floats:
    if value is None:
        return np.full(M, 1.0 / M)
    checked = shaped("weights", value, (M,))
    return arrays.distributions("weights", checked, (), given=value)


def bonus(name: str, value: ArrayLike | None, shape: tuple[int, ...]) -> Floats | None:
    return None if value is None else shaped(name, value, shape)


def shaped(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Finite numbers of this shape."""
    array = arrays.as_floats(name, value)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return array


def discount(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"discount must be a number, got {type(value).__name__}")
    if not 0.0 < value <= 1.0:
        raise ValueError(f"discount must lie in (0, 1], got {value}")
    return float(value)


def names(name: str, value: Sequence[str] | None, size: int) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(value)
    if isinstance(value, str) or not all(isinstance(n, str) for n in names):
        raise TypeError(f"{name} must be a sequence of strings")
    if len(names) != size or len(set(names)) != size:
        raise ValueError(f"{name} must be {size} distinct strings, got {list(names)}")
    return names
