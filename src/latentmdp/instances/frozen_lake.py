"""FrozenLake with a hidden wind, on Gymnasium's own tables.

Gymnasium's FrozenLake gives P(s', r | s, a) on a map of safe ice, holes and a goal. In context m
the wind blows in direction m all episode long, and with probability `wind` a move goes where the
wind blows instead of where the walker wants to go:

    P_m(. | s, a) = (1 - wind) P(. | s, a) + wind P(. | s, direction m).

Holes and the goal are absorbing and pay nothing; stepping onto the goal pays 1, so rewards depend
on the next state.
"""

import numpy as np

from latentmdp._util.arrays import Floats, normalised
from latentmdp._util.validation import require_choice
from latentmdp.instances._parts import number
from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP
from latentmdp.worlds import table_entries

DIRECTIONS = ("left", "down", "right", "up")


@register("frozen-lake")
def frozen_lake(
    *, map_name: str = "4x4", wind: float = 0.3, slippery: bool = False, horizon: int = 40
) -> LatentMDP:
    """Gymnasium's FrozenLake where the hidden context is the direction of the wind.

    Parameters
    ----------
    map_name
        "4x4" or "8x8".
    wind
        The probability that the wind decides a move.
    slippery
        Whether Gymnasium's ice slips as well (a move goes astray two times in three).
    horizon
        H.

    Notes
    -----
    M = 4, S = 16 (or 64), A = 4, binary rewards that depend on the next state. Separation: 0 in
    holes and at the goal and wherever two directions lead to the same cell, up to 2 wind elsewhere.
    It is here as a problem everyone knows, built from Gymnasium's tables.
    """
    require_choice("map_name", map_name, ("4x4", "8x8"))
    wind = number("wind", wind, 0.0, 1.0)
    calm = _joint_table(map_name, bool(slippery))
    M, S = len(DIRECTIONS), len(calm)
    joint = np.stack([(1.0 - wind) * calm + wind * calm[:, m : m + 1] for m in range(M)])
    side = round(np.sqrt(S))
    return LatentMDP(
        joint.sum(axis=-1),
        normalised(joint),
        initial=0,
        horizon=horizon,
        context_names=[f"wind {direction}" for direction in DIRECTIONS],
        state_names=[f"row {s // side} column {s % side}" for s in range(S)],
        action_names=DIRECTIONS,
    )


def _joint_table(map_name: str, slippery: bool) -> Floats:
    """Gymnasium's P(s', r | s, a) as an array (S, A, S, 2)."""
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

    env = FrozenLakeEnv(map_name=map_name, is_slippery=slippery)
    S, A = len(env.P), len(env.P[0])
    entries, joint = table_entries([env]), np.zeros((S, A, S, 2))
    cells = (entries.state, entries.action, entries.next_state, entries.reward.astype(np.int64))
    np.add.at(joint, cells, entries.probability)  # slipping may lead to one cell in two ways
    return joint
