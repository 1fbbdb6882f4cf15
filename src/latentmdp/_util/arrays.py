"""Validation of array arguments: bad input becomes an error that names the culprit."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

ROW_TOLERANCE = 1e-9
"""How far a row of probabilities may be from summing to one before it is refused."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Indices = NDArray[np.int32]
Flags = NDArray[np.bool_]
Arrays = dict[str, NDArray[Any]]


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Mark `array` read-only and return it."""
    array.flags.writeable = False
    return array


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view, as compiled loops take arrays they share.

    numba compiles a loop once for arrays that may be written and once for others: with one kind
    there is one compilation.
    """
    return frozen(array.view())


def normalised(rows: Floats, fallback: Floats | None = None) -> Floats:
    """Rows along the last axis divided by their sums.

    A row without mass stays zero, or becomes `fallback`, normalised itself.
    """
    totals = rows.sum(axis=-1, keepdims=True)
    filled = totals > 0.0
    shares = np.divide(rows, totals, out=np.zeros(rows.shape), where=filled)
    return shares if fallback is None else np.where(filled, shares, fallback / fallback.sum())


def shares_of_logs(scores: Floats) -> Floats:
    """Rows exp(scores) divided by their sums: Bayes' rule for logarithms of joint probabilities.

    The largest of a row is taken off first, so that nothing underflows; a row of -inf becomes zero.
    """
    largest = scores.max(axis=-1, keepdims=True)
    return normalised(np.exp(scores - np.where(np.isfinite(largest), largest, 0.0)))


def segments(offsets: Integers, rows: Integers) -> tuple[Integers, Integers]:
    """The entries offsets[r] .. offsets[r + 1] - 1 of each of the rows r, one row after another.

    The position in `rows` that each entry belongs to, and the entry itself.
    """
    counts = np.diff(offsets)[rows]
    first = np.cumsum(counts) - counts
    position = np.repeat(np.arange(rows.size), counts)
    return position, np.arange(position.size) + (offsets[rows] - first)[position]


def to_array(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return `value` as an array; refuse ragged lists by name."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be a rectangular array: its rows differ in length") from None


def as_floats(name: str, value: ArrayLike) -> Floats:
    """Copy `value` into a contiguous float64 array; refuse what is not real and finite.

    A negative zero becomes zero, so that arrays that compare equal also have equal bytes.
    """
    array = to_array(name, value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    copy = np.array(array, dtype=np.float64, order="C")
    copy += 0.0
    bad = ~np.isfinite(copy)
    if bad.any():
        where = first_index(bad)
        raise ValueError(f"{name}{list(where)} is {float(copy[where])}: every entry must be finite")
    return copy


def as_integers(
    name: str, value: ArrayLike, dtype: type[np.integer[Any]], low: int = 0
) -> NDArray[Any]:
    """Copy a 1-d array of integers from `low` on into a contiguous array of `dtype`."""
    array = to_array(name, value)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got dtype {array.dtype}")
    if array.size and int(array.min()) < low:
        where = int(np.argmax(array < low))
        why = "must not be negative" if low == 0 else f"must be at least {low}"
        raise ValueError(f"{name}[{where}] is {array[where]}: {why}")
    if array.size and int(array.max()) > np.iinfo(dtype).max:
        where = int(np.argmax(array))
        raise ValueError(f"{name}[{where}] is {array[where]}: larger than {np.dtype(dtype)} holds")
    return np.array(array, dtype=dtype, order="C")


def require_instance(name: str, value: object, kind: type) -> None:
    """Raise `TypeError` unless `value` is of this kind, as where arguments are swapped."""
    if not isinstance(value, kind):
        article = "" if kind.__name__.endswith("s") else "a "
        raise TypeError(f"{name} must be {article}{kind.__name__}, got {type(value).__name__}")


def positive_integer(name: str, value: Any) -> int:
    """Return `value` as an int of at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def optional_integer(name: str, value: Any) -> int | None:
    """Return `value` as an int of at least one, or None where it is None."""
    return None if value is None else positive_integer(name, value)


def distributions(
    name: str,
    array: Floats,
    axes: Sequence[str],
    *,
    optional: Flags | None = None,
    source: ArrayLike = (),
) -> Floats:
    """Check that every last-axis row of `array` is a distribution, and renormalise it in place.

    Parameters
    ----------
    name, axes
        How the array and its leading axes are called in an error message.
    optional
        Rows that may also be all zero (a row never visited), as a mask over the leading axes.
    source
        What the user gave: with less precision a row may be further from summing to one.

    Notes
    -----
    Rows within rounding of one are left as they are, so that a second pass changes nothing and
    a saved array is read back bit for bit.
    """
    value = np.asarray(source)
    tolerance = ROW_TOLERANCE
    if value.dtype.kind == "f" and value.ndim:
        rounding = max(4, value.shape[-1]) * float(np.finfo(value.dtype).eps)
        tolerance = max(tolerance, rounding)
    outside = (array < 0) | (array > 1 + tolerance)
    if outside.any():
        where = first_index(outside)
        raise ValueError(f"{name}{list(where)} is {array[where]:.12g}: probabilities lie in [0, 1]")
    sums = array.sum(axis=-1)
    off = np.abs(sums - 1.0)
    wrong = off > tolerance
    if optional is not None:
        wrong &= ~(optional & (sums == 0.0))
    if wrong.any():
        where = first_index(wrong)
        row_name = ", ".join(f"{axis} {i}" for axis, i in zip(axes, where))
        total = float(sums[where])
        row = f"the row of {row_name} " if row_name else ""
        others = f" ({int(wrong.sum())} of {sums.size} rows are wrong)" if row_name else ""
        raise ValueError(
            f"{name}: {row}sums to {total:.12g}, off by {total - 1.0:+.3g}; must sum to 1 within "
            f"{tolerance:g}{others}"
        )
    rounding = max(4, array.shape[-1]) * np.finfo(np.float64).eps
    inexact = np.asarray((off > rounding) & (sums > 0.0))
    if inexact.any():
        array[inexact] /= np.asarray(sums)[inexact][..., None]
    return array


def first_index(mask: Flags) -> tuple[int, ...]:
    """Index of the first True entry in C order."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))


def store(owner: object, fields: Mapping[str, Any]) -> None:
    """Fill the fields of an immutable object; arrays become read-only."""
    for name, value in fields.items():
        owner.__dict__[name] = frozen(value) if isinstance(value, np.ndarray) else value


def same_content(first: Any, second: Any) -> bool:
    """Whether two values of one type are equal throughout, NaN equal to NaN."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        numbers = first.dtype.kind in "fc" and second.dtype.kind in "fc"
        return np.array_equal(first, second, equal_nan=numbers)
    if type(first) is not type(second):
        return False
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(map(same_content, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            same_content(value, second[name]) for name, value in first.items()
        )
    if isinstance(first, float) and first != first:
        return bool(second != second)
    return bool(first == second)


def nearest(values: Floats, amounts: ArrayLike) -> tuple[Integers, Flags]:
    """The index of the value nearest to each amount, and whether the two are equal to rounding.

    That is the rounding of the numbers themselves, relative 1e-6 as of those that were once 32 bits
    wide, or of larger ones that they were computed from. `values` must rise.
    """
    given = np.asarray(amounts, np.float64)
    above = np.minimum(np.searchsorted(values, given), values.size - 1)
    below = np.maximum(above - 1, 0)
    index = np.where(np.abs(values[below] - given) <= np.abs(values[above] - given), below, above)
    size = np.maximum(np.abs(values[index]), 1e-6 * np.abs(values).max())
    return index, np.abs(values[index] - given) <= 1e-6 * size
