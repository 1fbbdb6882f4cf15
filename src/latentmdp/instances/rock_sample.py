"""RockSample: a rover that samples rocks, of which a long-range sensor tells which are good.

A rover on a grid knows where it and the rocks are, but not which rocks are good [smith2004]. To
sample a good rock pays 10 and makes it bad, to sample a bad one costs 10, and to leave the grid in
the east pays 10 and ends the episode. Checking rock i from the Euclidean distance d reads its
quality right with probability

    (1 + 2^(-d / 20)) / 2,

which is 1 on the rock itself. As a latent MDP the context is the set of the rocks that are good at
the start, which never changes, and the state is the rover's cell and the set of the rocks that it
has sampled: those are bad in every context.

A reading is observed as the reward of a check, which needs no states: "good" pays `READING` and
"bad" costs as much. It is so little that no value moves by more than READING / (1 - discount),
2e-8 by default, yet far more than rounding, so that sessions, logs and files tell readings apart.
The exact way, large rewards that a hidden `bonus` takes back on average, would need an array
(M, S, A), far larger than the table of outcomes, and learners, who do not see it, would collect
readings.
"""

from collections.abc import Sequence

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.memory import require_memory
from latentmdp.instances._parts import sizes
from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP

READING = 1e-9
"""What a reading of "good" pays."""

HALF_EFFICIENCY = 20.0
"""The distance over which the sensor's lead over a coin halves."""

REWARDS = (-10.0, -READING, 0.0, READING, 10.0)
LOSS, READ_BAD, NOTHING, READ_GOOD, GAIN = range(len(REWARDS))

MOVES = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}
SAMPLE = len(MOVES)
CHECK = SAMPLE + 1

Cell = tuple[int, int]


@register("rock-sample")
def rock_sample(
    rng: np.random.Generator,
    *,
    size: int = 4,
    rocks: int = 4,
    positions: Sequence[Cell] | None = None,
    start: Cell | None = None,
    discount: float = 0.95,
    horizon: int | None = None,
) -> LatentMDP:
    """A rover checks rocks from afar, samples the good ones and leaves; which are good is hidden.

    Parameters
    ----------
    size
        Rows and columns of the grid.
    rocks
        Their number k.
    positions
        The (row, column) of every rock; by default distinct cells drawn at random.
    start
        The (row, column) where the rover begins; by default the middle of the west edge.
    discount
        Below 1, if there is no horizon.
    horizon
        H; None for no end but the one that the rover chooses.

    Notes
    -----
    M = 2^k, S = size^2 2^k + 1, A = 5 + k; the last state is terminal. State n is cell
    n mod size^2 (row by row) and set n // size^2 of sampled rocks, bit i being rock i; contexts are
    numbered like these sets. To move into a wall and to sample where no rock lies is forbidden; a
    sampled rock reads like a bad one. Separation: 0, since moves tell nothing. It is here as the
    standard test of point-based planners, with many contexts that factor.
    """
    size, k = sizes(size=size, rocks=rocks)
    cells, sets = size * size, 2**k
    rock_cells = _rock_cells(rng, size, k, positions)
    middle = (size // 2, 0)
    first = _cells("start", [middle if start is None else start], size)[0]
    require_memory(
        50.0 * cells * sets * (CHECK + k) + 64.0 * cells * k * sets,
        f"rock-sample with {k} rocks on a grid of {size} x {size}",
    )
    next_state, reward, law = _steps(size, rock_cells)
    possible = law >= 0
    starts = np.concatenate([[0], np.cumsum(possible.sum(axis=-1))])
    columns = (next_state[possible], reward[possible], _laws(size, rock_cells), law[possible])
    places = [f"row {cell // size} column {cell % size}" for cell in range(cells)]
    names = [f"{p}, sampled: {_listed(mask, k)}" for mask in range(sets) for p in places]
    return LatentMDP.from_outcomes(
        starts,
        *columns,
        n_states=cells * sets + 1,
        horizon=horizon,
        discount=discount,
        initial=first,
        reward_values=REWARDS,
        reward_model="state-action",
        context_names=[f"good: {_listed(m, k)}" for m in range(sets)],
        state_names=[*names, "left"],
        action_names=[*MOVES, "sample", *(f"check {i}" for i in range(k))],
    )


def _rock_cells(
    rng: np.random.Generator, size: int, k: int, positions: Sequence[Cell] | None
) -> Integers:
    """The cell of every rock, (k,)."""
    if positions is None:
        if k > size * size:
            raise ValueError(f"rocks must be at most the number of cells, {size * size}, got {k}")
        return rng.choice(size * size, size=k, replace=False)
    cells = _cells("positions", positions, size)
    if cells.size != k:
        raise ValueError(f"positions must be those of {k} rocks, got {cells.size}")
    if np.unique(cells).size < k:
        raise ValueError(f"positions must be distinct, got {positions}")
    return cells


def _cells(name: str, places: Sequence[Cell], size: int) -> Integers:
    """The numbers of cells, row by row."""
    pairs = arrays.to_array(name, places)
    if pairs.dtype.kind not in "iu" or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise TypeError(f"{name} must be given as (row, column), in integers, got {places}")
    outside = ((pairs < 0) | (pairs >= size)).any(axis=1)
    if outside.any():
        where = tuple(pairs[int(np.argmax(outside))].tolist())
        raise ValueError(f"{name}: {where} is not on a grid of {size} x {size}")
    return pairs @ np.array([size, 1])


def _steps(size: int, rock_cells: Integers) -> tuple[Integers, Integers, Integers]:
    """Next state, reward and law of up to two outcomes of each (s, a), (S, A, 2) each.

    The law is a row of `_laws`, -1 where there is no such outcome.
    """
    k, cells = rock_cells.size, size * size
    left = cells * 2**k
    state = np.arange(left)
    mask, cell = np.divmod(state, cells)
    row, column = np.divmod(cell, size)
    next_state = np.tile(np.arange(left + 1)[:, None, None], (1, CHECK + k, 2))
    reward, law = np.full_like(next_state, NOTHING), np.full_like(next_state, -1)
    for a, (down, right) in enumerate(MOVES.values()):
        to_row, to_column = row + down, column + right
        inside = (to_row >= 0) & (to_row < size) & (to_column >= 0) & (to_column < size)
        leaves = to_column == size
        next_state[:left, a] = np.where(leaves, left, state + down * size + right)[:, None]
        reward[:left, a] = np.where(leaves, GAIN, NOTHING)[:, None]
        law[:left, a, 0] = np.where(inside | leaves, 0, -1)
    for i in range(k):
        sampled, on_rock = (mask >> i & 1).astype(np.bool_), cell == rock_cells[i]
        known, open_ = state[on_rock & sampled], state[on_rock & ~sampled]
        next_state[open_, SAMPLE] += cells << i
        reward[known, SAMPLE], reward[open_, SAMPLE] = LOSS, (LOSS, GAIN)
        law[known, SAMPLE, 0], law[open_, SAMPLE] = 0, (1 + 2 * i, 2 + 2 * i)
        read_bad = 1 + 2 * k + 2 * (cell * k + i)
        reward[:left, CHECK + i] = (READ_BAD, READ_GOOD)
        law[:left, CHECK + i, 0] = read_bad + 2 * cells * k * sampled
        law[:left, CHECK + i, 1] = law[:left, CHECK + i, 0] + 1
        law[known, CHECK + i] = (0, -1)  # on the rock itself it is right
    return next_state, reward, law


def _laws(size: int, rock_cells: Integers) -> Floats:
    """The few distinct rows of probabilities that outcomes have, (1 + 2 k + 4 cells k, M).

    In this order: what is sure; that rock i is bad, and good; that from a cell it reads as bad,
    and as good; the same of one that was sampled.
    """
    k, cells = rock_cells.size, size * size
    good = (np.arange(2**k) >> np.arange(k)[:, None] & 1).astype(np.float64)  # (k, M)
    places = np.stack(np.divmod(np.arange(cells), size), axis=-1)
    distance = np.linalg.norm(places[:, None] - places[rock_cells], axis=-1)
    right = 0.5 * (1.0 + 2.0 ** (-distance / HALF_EFFICIENCY))[:, :, None]  # (cells, k, 1)
    reads_good = good * right + (1.0 - good) * (1.0 - right)
    of_bad = np.broadcast_to(1.0 - right, reads_good.shape)
    quality, readings, of_sampled = (
        np.stack([1.0 - chance, chance], axis=-2).reshape(-1, 2**k)
        for chance in (good, reads_good, of_bad)
    )
    return np.concatenate([np.ones((1, 2**k)), quality, readings, of_sampled])


def _listed(members: int, k: int) -> str:
    """The rocks of a set, by their numbers."""
    return " ".join(str(i) for i in range(k) if members >> i & 1) or "none"
