"""RockSample against the rules of the game, written out one step at a time."""

import math

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.instances.rock_sample import READING

MOVES = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}


def accuracy(cell, rock):
    return (1 + 2 ** (-math.dist(cell, rock) / 20)) / 2


def play(size, rocks, good, place, action):
    """{(next place, reward): probability} of a place (cell, sampled rocks); None if forbidden."""
    if place == "left":
        return None
    cell, sampled = place
    if action in MOVES:
        row, column = (x + dx for x, dx in zip(cell, MOVES[action]))
        if column == size:
            return {("left", 10): 1.0}
        inside = 0 <= row < size and 0 <= column < size
        return {(((row, column), sampled), 0): 1.0} if inside else None
    if action == "sample":
        if cell not in rocks:
            return None
        i = rocks.index(cell)
        pays = 10 if i in good and i not in sampled else -10
        return {((cell, sampled | {i}), pays): 1.0}
    i = int(action.removeprefix("check "))
    is_good = i in good and i not in sampled
    p = accuracy(cell, rocks[i]) if is_good else 1 - accuracy(cell, rocks[i])
    return {(place, READING): p, (place, -READING): 1 - p}


def members(number, k):
    return frozenset(i for i in range(k) if number >> i & 1)


@pytest.mark.parametrize(
    ("size", "rocks"), [(3, [(0, 1), (2, 2)]), (2, [(1, 0), (0, 0), (1, 1)]), (1, [(0, 0)])]
)
def test_every_step_is_the_rule(size, rocks):
    k, cells = len(rocks), size * size
    model = lm.make("rock-sample", size=size, rocks=k, positions=rocks)
    places = [(divmod(n % cells, size), members(n // cells, k)) for n in range(cells * 2**k)]
    places.append("left")
    assert model.n_states == len(places)
    P = model.observation_probs()
    for m in range(model.n_contexts):
        for s, place in enumerate(places):
            for a, action in enumerate(model.action_names):
                steps = play(size, rocks, members(m, k), place, action)
                assert model.allowed[s, a] == (steps is not None)
                expected = np.zeros(P.shape[3:])
                for (to, reward), probability in (steps or {}).items():
                    z = model.reward_values.tolist().index(reward)
                    expected[places.index(to), z] = probability
                np.testing.assert_allclose(P[m, s, a], expected, rtol=0.0, atol=1e-15)


def optimum_by_rocks(size, rocks, start, discount, horizon):
    """V* of the game as published: a chance of being good for each rock, rewards not observed."""
    memo = {}

    def best(left, cell, chances):
        key = left, cell, tuple(round(p, 12) for p in chances)
        if left == 0 or cell == "left":
            return 0.0
        if key not in memo:
            memo[key] = max(values(left - 1, cell, chances))
        return memo[key]

    def values(left, cell, chances):
        for down, right in MOVES.values():
            to = (cell[0] + down, cell[1] + right)
            if to[1] == size:
                yield 10.0
            elif min(to) >= 0 and max(to) < size:
                yield discount * best(left, to, chances)
        for i, (rock, p) in enumerate(zip(rocks, chances)):
            if rock == cell:
                sampled = (*chances[:i], 0.0, *chances[i + 1 :])
                yield 20.0 * p - 10.0 + discount * best(left, cell, sampled)
            total, right = 0.0, accuracy(cell, rock)
            for good, bad in ((right, 1 - right), (1 - right, right)):
                chance = p * good + (1 - p) * bad
                if chance > 0.0:
                    after = (*chances[:i], p * good / chance, *chances[i + 1 :])
                    total += chance * best(left, cell, after)
            yield discount * total

    return best(horizon, start, (0.5,) * len(rocks))


@pytest.mark.parametrize(
    ("size", "rocks", "start", "horizon"),
    [
        (2, [(0, 0)], (1, 0), 6),
        (2, [(0, 1), (1, 0)], None, 6),
        (3, [(0, 2), (2, 1)], None, 5),
        (3, [(1, 1), (1, 2), (0, 0)], (1, 0), 4),
    ],
)
def test_the_optimum_is_that_of_the_published_game(size, rocks, start, horizon):
    arguments = {"size": size, "rocks": len(rocks), "positions": rocks, "horizon": horizon}
    model = lm.make("rock-sample", start=start, discount=0.9, **arguments)
    expected = optimum_by_rocks(size, rocks, start or (size // 2, 0), 0.9, horizon)
    # A reading counts for no more than READING at each step.
    assert lm.Exact().plan(model).lower == pytest.approx(expected, abs=horizon * READING)


def test_without_an_end_the_bounds_enclose_a_game_that_is_solved_by_hand():
    # One rock under the rover, one column: check it (sure, at distance 0), sample it if it is good,
    # leave. Sampling unchecked earns 0 on average, so that it is best to check first.
    model = lm.make("rock-sample", size=1, rocks=1, positions=[(0, 0)])
    d = model.discount
    best = d * (0.5 * (10 + d * 10) + 0.5 * 10)
    assert best > 10
    plan = lm.HSVI(gap=1e-6, time_limit=None).plan(model)
    assert plan.lower - 1e-7 <= best <= plan.upper + 1e-7


def test_sizes_are_those_of_the_docstring():
    model = lm.make("rock-sample", size=5, rocks=3, rng=0)
    assert (model.n_contexts, model.n_states, model.n_actions) == (8, 25 * 8 + 1, 8)
    assert (model.horizon, model.discount) == (None, 0.95)
    assert model.terminal.tolist() == [False] * 200 + [True]
    np.testing.assert_array_equal(model.weights, 1 / 8)
    assert model.state_names[int(model.initial[0].argmax())] == "row 2 column 0, sampled: none"


def test_rocks_are_drawn_without_replacement():
    # All four cells have one rock each, in some order: sampling is allowed everywhere.
    model = lm.make("rock-sample", size=2, rocks=4, rng=1)
    assert model.allowed[:-1, model.action_names.index("sample")].all()


def test_a_session_tells_readings_apart():
    model = lm.make("rock-sample", size=1, rocks=1, positions=[(0, 0)])
    for reading, belief in ((READING, [0.0, 1.0]), (-READING, [1.0, 0.0])):
        session = lm.QMDP().plan(model).policy.session(model)
        session.observe("row 0 column 0, sampled: none")
        session.observe("row 0 column 0, sampled: none", reading, "check 0")
        np.testing.assert_array_equal(session.belief, belief)
