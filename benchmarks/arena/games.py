"""Games and small services of the arena, each as one table for every context.

A table maps states and actions to lists of (probability, next state, reward, terminated), as those
of Gymnasium's toy-text environments do, and `envs.tabular_model` makes the latent MDP. Every game
is built from a seed, by which its variants differ: who plays how, where walls stand, which action
is which.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from latentmdp._util.arrays import Flags, Floats
from latentmdp.envs import tabular_model
from latentmdp.model import LatentMDP

Row = list[tuple[float, int, float, bool]]
Table = dict[int, dict[int, Row]]


def _table(n_states: int, n_actions: int, row: Callable[[int, int], Row]) -> Table:
    """The table whose rows a function gives."""
    return {s: {a: row(s, a) for a in range(n_actions)} for s in range(n_states)}


# -- ways -----------------------------------------------------------------------------------------


def corridor(seed: int, length: int = 6, horizon: int = 40) -> LatentMDP:
    """A goal at one end of a corridor, the sooner the better; contexts swap left and right.

    The start is in the middle, where neither direction is known. A third action stays.
    """
    sides = np.random.default_rng(seed).permutation([-1, 1])
    last = 2 * length

    def row_of(direction: int) -> Callable[[int, int], Row]:
        def row(s: int, a: int) -> Row:
            n = min(max(s + direction * (1, -1, 0)[a], 0), last)
            return [(1.0, n, float(n == last), n == last)]

        return row

    tables = [_table(last + 1, 3, row_of(int(side))) for side in sides]
    return tabular_model(tables, horizon, discount=0.95, initial=length)


def deep_sea(seed: int, depth: int = 10) -> LatentMDP:
    """The deep sea of bsuite: only the right action in every row leads to the treasure.

    The way right costs .01 in all, the treasure pays 1. Which action is right in a column is drawn
    by the seed, and reversed in the second context.
    """
    right = np.random.default_rng(seed).integers(2, size=depth)

    def row_of(reverse: int) -> Callable[[int, int], Row]:
        def row(s: int, a: int) -> Row:
            down, column = divmod(s, depth)
            goes_right = a == right[column] ^ reverse
            n = min(column + 1, depth - 1) if goes_right else max(column - 1, 0)
            found = goes_right and column == depth - 1
            pays = float(found) - 0.01 / depth * goes_right
            return [(1.0, min(down + 1, depth - 1) * depth + n, pays, down == depth - 1)]

        return row

    tables = [_table(depth * depth, 2, row_of(reverse)) for reverse in range(2)]
    return tabular_model(tables, depth, initial=0)


def grid_with_layouts(seed: int, size: int = 20, layouts: int = 4) -> LatentMDP:
    """A square of cells with walls, of which one in two stands in one layout only.

    An episode begins in a corner and ends with a reward of 1 in the opposite one; every layout has
    a way there of at most 3 `size` steps, and a step into a wall goes nowhere.
    """
    chance, goal = np.random.default_rng(seed), size * size - 1
    common = chance.random(size * size) < 0.12
    walls: list[Flags] = []
    while len(walls) < layouts:
        some = common | (chance.random(size * size) < 0.12)
        some[[0, goal]] = False
        if 0 <= _steps_to(goal, some, size) <= 3 * size:
            walls.append(some)

    def row_of(blocked: Flags) -> Callable[[int, int], Row]:
        def row(s: int, a: int) -> Row:
            n = _moved(s, a, size)
            n = s if blocked[n] else n
            return [(1.0, n, float(n == goal), n == goal)]

        return row

    tables = [_table(goal + 1, 4, row_of(blocked)) for blocked in walls]
    return tabular_model(tables, 4 * size, initial=0)


def _moved(cell: int, direction: int, size: int) -> int:
    """The cell up, right, down or left of one; itself at the edge."""
    x, y = cell % size, cell // size
    dx, dy = ((0, -1), (1, 0), (0, 1), (-1, 0))[direction]
    return min(max(y + dy, 0), size - 1) * size + min(max(x + dx, 0), size - 1)


def _steps_to(goal: int, blocked: Flags, size: int) -> int:
    """Steps from cell 0 to the goal, by breadth-first search; -1 if there is no way."""
    steps, queue = {0: 0}, deque([0])
    while queue and goal not in steps:
        cell = queue.popleft()
        for n in (_moved(cell, direction, size) for direction in range(4)):
            if not blocked[n] and n not in steps:
                steps[n] = steps[cell] + 1
                queue.append(n)
    return steps.get(goal, -1)


def umbrella(seed: int, steps: int = 10) -> LatentMDP:
    """The umbrella of bsuite: take it or not, as the first state tells; what follows is noise.

    Rewards on the way are +1 or -1 at random; the last step pays 1 if the umbrella was right for
    the weather, else it costs 1. The seed says which forecast is which.
    """
    wet = np.random.default_rng(seed).integers(2)

    def row_of(rain: int) -> Callable[[int, int], Row]:
        def row(s: int, a: int) -> Row:
            if s < 2:  # the forecast
                return [(1.0, 2 + a, 0.0, False)]
            t, taken = divmod(s - 2, 2)
            if t < steps - 2:
                return [(0.5, s + 2, pay, False) for pay in (-1.0, 1.0)]
            return [(1.0, s, 1.0 if taken == rain else -1.0, True)]

        return row

    tables = [_table(2 * steps, 2, row_of(rain)) for rain in range(2)]
    first = np.zeros((2, 2 * steps))
    first[[0, 1], [wet, 1 - wet]] = 1.0
    return tabular_model(tables, steps, initial=first)


# -- opponents ------------------------------------------------------------------------------------


def rock_paper_scissors(seed: int, horizon: int = 20) -> LatentMDP:
    """Five opponents: one plays a move always, or each of three, or answers to the last round.

    The state is the last round, my move and theirs, and at first there is none.
    """
    noise = np.random.default_rng(seed).uniform(0.05, 0.15)
    opponents: Sequence[Callable[[int, int], int]] = (
        lambda mine, theirs: 0,
        lambda mine, theirs: 1,
        lambda mine, theirs: (theirs + 1) % 3,
        lambda mine, theirs: (mine + 1) % 3,  # what would have won
        lambda mine, theirs: mine,
    )

    def row_of(opponent: Callable[[int, int], int]) -> Callable[[int, int], Row]:
        def row(s: int, a: int) -> Row:
            chances = np.full(3, 1.0 / 3.0)
            if s < 9:
                chances = np.full(3, noise / 2.0)
                chances[opponent(*divmod(s, 3))] = 1.0 - noise
            payment = (0.0, 1.0, -1.0)
            return [
                (float(p), 3 * a + b, payment[(a - b) % 3], False) for b, p in enumerate(chances)
            ]

        return row

    return tabular_model([_table(10, 3, row_of(one)) for one in opponents], horizon, initial=9)


def kuhn_poker(seed: int, hands: int = 10) -> LatentMDP:
    """Kuhn's poker, several hands against one of three players: honest, bluffing, calling.

    States are my card, 0 to 2, when I open (check or bet) and when a bet followed my check (fold or
    call). Their card is drawn anew with every hand.
    """
    spread = np.random.default_rng(seed).uniform(-0.05, 0.05, size=(3, 2, 3))
    bets = np.array([[0.05, 0.1, 0.95], [0.7, 0.5, 0.95], [0.05, 0.1, 0.9]])
    calls = np.array([[0.05, 0.3, 0.95], [0.1, 0.4, 0.95], [0.7, 0.95, 0.95]])
    bets, calls = bets + spread[:, 0], calls + spread[:, 1]

    def row_of(bet: Floats, call: Floats) -> Callable[[int, int], Row]:
        def row(s: int, a: int) -> Row:
            facing, mine = divmod(s, 3)
            others = [card for card in range(3) if card != mine]
            chances = np.array([bet[card] for card in others] if facing else [0.5, 0.5])
            chances = chances / chances.sum()
            paid: list[tuple[float, float]] = []
            raised = 0.0
            for card, p in zip(others, chances):
                wins = 1.0 if mine > card else -1.0
                if facing:
                    paid.append((p, 2.0 * wins if a else -1.0))
                elif a:
                    paid += [(p * call[card], 2.0 * wins), (p * (1.0 - call[card]), 1.0)]
                else:
                    paid.append((p * (1.0 - bet[card]), wins))
                    raised += p * bet[card]
            over = [(p / 3.0, card, pay, False) for p, pay in paid for card in range(3)]
            return [*over, *([(raised, 3 + mine, 0.0, False)] if raised else [])]

        return row

    tables = [_table(6, 2, row_of(*one)) for one in zip(bets, calls)]
    return tabular_model(tables, 2 * hands, initial=np.repeat([1 / 3, 0.0], 3))


# -- services -------------------------------------------------------------------------------------


def auction(seed: int, budget: int = 12, horizon: int = 15) -> LatentMDP:
    """Bids of 0 to 3 out of a budget, one auction after the other; how others bid is hidden."""
    chance = np.random.default_rng(seed)
    rivals = [chance.dirichlet(part) for part in ((8, 2, 1, 1), (1, 8, 2, 1), (1, 1, 4, 8))]

    def row_of(wins: Floats) -> Callable[[int, int], Row]:
        def row(s: int, a: int) -> Row:
            bid = min(s, a)
            p = float(wins[bid]) if bid else 0.0
            return [(p, s - bid, 1.0, False), (1.0 - p, s, 0.0, False)]

        return row

    tables = [_table(budget + 1, 4, row_of(np.cumsum(rival))) for rival in rivals]
    return tabular_model(tables, horizon, initial=budget)


def queue(seed: int, places: int = 8, horizon: int = 30) -> LatentMDP:
    """One to three servers, paid by the step, for a queue whose rate of arrivals is hidden.

    A step costs .1 for every one who waits and .15 for a server; a full queue turns away at a
    price of 1.
    """
    rates = np.random.default_rng(seed).uniform(-0.05, 0.05, size=3) + np.array((0.15, 0.45, 0.85))

    def row_of(rate: float) -> Callable[[int, int], Row]:
        def row(s: int, a: int) -> Row:
            served = 0.3 * (a + 1)
            outcomes: Row = []
            for arrives, p in ((0, 1.0 - rate), (1, rate)):
                for leaves, q in ((0, 1.0 - served), (1, served)):
                    n = s + arrives - leaves * (s > 0)
                    cost = round(0.1 * s + 0.15 * (a + 1) + float(n > places), 6)
                    outcomes.append((p * q, min(n, places), -cost, False))
            return outcomes

        return row

    tables = [_table(places + 1, 3, row_of(float(rate))) for rate in rates]
    return tabular_model(tables, horizon, initial=0)


def dose_finding(seed: int, doses: int = 5, horizon: int = 12) -> LatentMDP:
    """A patient whose sensitivity is hidden: a dose helps, does nothing, or is toxic.

    Help pays 1, toxicity costs 2 and ends the treatment; the state is the last response.
    """
    shifts = np.random.default_rng(seed).uniform(-0.3, 0.3, size=4) + np.arange(4)

    def row_of(shift: float) -> Callable[[int, int], Row]:
        def row(s: int, a: int) -> Row:
            helps, harms = _logistic(2.0 * (a - shift)), _logistic(2.0 * (a - shift - 2.5))
            rest = 1.0 - harms
            return [
                (harms, 2, -2.0, True), (rest * helps, 1, 1.0, False),
                (rest * (1.0 - helps), 0, 0.0, False),
            ]  # fmt: skip

        return row

    return tabular_model(
        [_table(3, doses, row_of(float(shift))) for shift in shifts], horizon, initial=0
    )


def _logistic(x: float) -> float:
    return float(1.0 / (1.0 + np.exp(-x)))
