"""Progress of `learn` on disk: its episodes, its last estimate and the phases behind it.

Everything else follows from the seed, so a run that goes on from here ends as if it had never
stopped. Files are replaced whole, never edited.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.checkpoint import read_checkpoint, whole, write_checkpoint
from latentmdp.model import LatentMDP
from latentmdp.online.learned import Phase
from latentmdp.online.refitting import Settled
from latentmdp.space import Space
from latentmdp.trajectories import Trajectories

__all__ = ["Saved", "read_progress", "write_progress"]

_LOGS = ("states", "actions", "rewards", "offsets")
_MODEL = ("transitions", "reward_probs", "initial", "weights")


@dataclass(frozen=True)
class Saved:
    """What a run carries from phase to phase, and the seconds it took before it was stopped."""

    logs: Trajectories
    phases: tuple[Phase, ...]
    model: LatentMDP | None
    settled: Settled | None
    seconds: float = 0.0

    @classmethod
    def fresh(cls, space: Space) -> Saved:
        """Nothing played yet."""
        return cls(_logs(space, [], [], [], [0]), (), None, None)

    def extended(self, new: Trajectories, phase: Phase) -> Saved:
        """After one more phase."""
        logs = Trajectories.concat([self.logs, new])
        return replace(self, logs=logs, phases=(*self.phases, phase))

    def fitted(self, model: LatentMDP, settled: Settled) -> Saved:
        """After a fit."""
        return replace(self, model=model, settled=settled)


def write_progress(
    path: str | os.PathLike[str], identity: dict[str, Any], saved: Saved, seconds: float
) -> None:
    """Replace the file at `path`; `seconds` is what the run has taken in all."""
    arrays = {name: getattr(saved.logs, name) for name in _LOGS}
    arrays["phases"] = np.array(saved.phases, dtype=np.float64)
    if saved.settled is not None:
        arrays["settled"] = np.array(saved.settled, dtype=np.float64)
    if saved.model is not None:
        arrays |= {f"model_{name}": getattr(saved.model, name) for name in _MODEL}
    write_checkpoint(path, identity, arrays, seconds)


def read_progress(path: str | os.PathLike[str], identity: dict[str, Any], space: Space) -> Saved:
    """What the file at `path` holds, or a fresh start; a foreign file is refused."""
    found = read_checkpoint(path, identity, {})
    if found is None:
        return Saved.fresh(space)
    with whole(path):
        return _decode(found.arrays, found.seconds, space)


def _decode(arrays: dict[str, NDArray[Any]], seconds: float, space: Space) -> Saved:
    model = None
    if "model_transitions" in arrays:
        T, R, nu, w = (arrays[f"model_{name}"] for name in _MODEL)
        model = LatentMDP(
            T, R, initial=nu, weights=w, horizon=space.horizon, reward_values=space.rewards
        )
        if (model.n_states, model.n_actions) != (space.n_states, space.n_actions):
            raise ValueError("the model has other sizes than the world")
    phases = tuple(
        Phase(int(first), int(count), int(M), *map(float, rest))
        for first, count, M, *rest in arrays["phases"]
    )
    settled = None
    if "settled" in arrays:
        episodes, M, by_next_state, k_T, k_R = arrays["settled"]
        if not (episodes >= 1 and M >= 1 and 0 <= k_T < np.inf and 0 <= k_R < np.inf):
            raise ValueError("what was settled is out of range")
        settled = Settled(int(episodes), int(M), bool(by_next_state), float(k_T), float(k_R))
    logs = _logs(space, *(arrays[name] for name in _LOGS))
    return Saved(logs, phases, model, settled, seconds)


def _logs(space: Space, states: Any, actions: Any, rewards: Any, offsets: Any) -> Trajectories:
    return Trajectories(
        states,
        actions,
        rewards,
        offsets,
        n_states=space.n_states,
        n_actions=space.n_actions,
        reward_values=space.rewards,
    )
