"""Construction and checks of `Trajectories`: what users hold becomes the flat layout.

What does not fit is refused by an error that names the array, or the episode and the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import arrays, validation
from latentmdp.errors import TrajectoryError

if TYPE_CHECKING:
    from latentmdp.model import LatentMDP
    from latentmdp.trajectories import Trajectories

__all__ = ["check_model", "check_sizes", "flat_arrays", "flat_fields", "flat_lists", "size"]

Flat = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[np.int64]]
"""States, actions, rewards and offsets."""

_DTYPES: dict[str, type[np.integer[Any]]] = {
    "states": np.int32,
    "actions": np.int32,
    "rewards": np.int32,
    "offsets": np.int64,
    "contexts": np.int32,
    "counts": np.int64,
}
_OPTIONAL = ("contexts", "counts")


def flat_fields(reward_values: ArrayLike | None, **given: Any) -> dict[str, Any]:
    """Copies of the arguments of `Trajectories`, of the right types and sizes."""
    try:
        fields: dict[str, Any] = {
            name: None
            if name in _OPTIONAL and given[name] is None
            else arrays.as_integers(name, given[name], dtype)
            for name, dtype in _DTYPES.items()
        }
        fields["reward_values"] = (
            None if reward_values is None else validation.reward_values(reward_values)
        )
        _check_layout(fields)
    except ValueError as error:
        raise TrajectoryError(str(error)) from None
    return fields


def _check_layout(fields: dict[str, Any]) -> None:
    offsets = fields["offsets"]
    if offsets.size == 0 or offsets[0] != 0:
        raise ValueError("offsets must begin with 0")
    falling = np.diff(offsets) < 0
    if falling.any():
        i = int(np.argmax(falling))
        raise ValueError(f"offsets must not fall: episode {i} ends before it begins")
    N, total = offsets.size - 1, int(offsets[-1])
    expected = {"states": total + N, "actions": total, "rewards": total, "contexts": N, "counts": N}
    for name, size in expected.items():
        array = fields[name]
        if array is not None and array.size != size:
            raise ValueError(
                f"{name} has {array.size} entries, but offsets describe {N} episodes with "
                f"{total} steps, which need {size}"
            )


def flat_arrays(states: ArrayLike, actions: ArrayLike, rewards: ArrayLike) -> Flat:
    """The layout of episodes of equal length L, from (N, L+1), (N, L) and (N, L)."""
    named = {"states": states, "actions": actions, "rewards": rewards}
    s, a, r = (arrays.to_array(name, value) for name, value in named.items())
    if a.ndim != 2 or r.shape != a.shape or s.shape != (a.shape[0], a.shape[1] + 1):
        raise TrajectoryError(
            "states, actions and rewards must have shapes (N, L+1), (N, L) and (N, L), got "
            f"{s.shape}, {a.shape} and {r.shape}"
        )
    offsets = np.arange(a.shape[0] + 1, dtype=np.int64) * a.shape[1]
    return s.ravel(), a.ravel(), r.ravel(), offsets


def flat_lists(
    states: Sequence[Sequence[int]],
    actions: Sequence[Sequence[int]],
    rewards: Sequence[Sequence[int]],
) -> Flat:
    """The layout of episodes of any length, from one list per episode."""
    if not len(states) == len(actions) == len(rewards):
        raise TrajectoryError(
            "states, actions and rewards must hold as many episodes, got "
            f"{len(states)}, {len(actions)} and {len(rewards)}"
        )
    for i, (s, a, r) in enumerate(zip(states, actions, rewards)):
        if len(s) != len(a) + 1 or len(r) != len(a):
            raise TrajectoryError(
                f"episode {i} has {len(s)} states, {len(a)} actions and {len(r)} rewards: "
                "L actions need L rewards and L+1 states"
            )
    offsets = np.cumsum([0, *map(len, actions)], dtype=np.int64)
    return _chained(states), _chained(actions), _chained(rewards), offsets


def _chained(parts: Sequence[Sequence[int]]) -> NDArray[Any]:
    flat = [x for part in parts for x in part]
    return np.asarray(flat if flat else np.zeros(0, dtype=np.int32))


def size(name: str, declared: int | None, array: NDArray[np.int32]) -> int:
    """A declared size of the space, or what the data show."""
    seen = int(array.max()) + 1 if array.size else 1
    return seen if declared is None else arrays.positive_integer(name, declared)


def check_sizes(logs: Trajectories, n_states: int, n_actions: int, n_rewards: int) -> None:
    """Raise `TrajectoryError` unless every index is below its size, naming episode and step."""
    bounds = (("state", n_states), ("action", n_actions), ("reward index", n_rewards))
    for (what, limit), array in zip(bounds, (logs.states, logs.actions, logs.rewards)):
        if array.size and int(array.max()) >= limit:
            place = int(np.argmax(array >= limit))
            starts = logs.offsets + (np.arange(len(logs) + 1) if what == "state" else 0)
            episode = int(np.searchsorted(starts, place, side="right")) - 1
            raise TrajectoryError(
                f"episode {episode}, step {place - int(starts[episode])}: {what} "
                f"{array[place]} is out of range, must be below {limit}"
            )


def check_model(logs: Trajectories, model: LatentMDP) -> None:
    """Raise `TrajectoryError` unless every index and the reward values fit the model."""
    check_sizes(logs, model.n_states, model.n_actions, model.n_rewards)
    contexts, M = logs.contexts, model.n_contexts
    if contexts is not None and contexts.size:
        worst = int(np.argmax(contexts >= M))
        if contexts[worst] >= M:
            raise TrajectoryError(
                f"episode {worst}: context {contexts[worst]} is not below the model's "
                f"n_contexts={M}"
            )
    known = logs.reward_values
    if known is not None and not np.array_equal(known, model.reward_values):
        raise TrajectoryError(
            f"the logs' reward_values {known.tolist()} are not the model's "
            f"{model.reward_values.tolist()}"
        )
