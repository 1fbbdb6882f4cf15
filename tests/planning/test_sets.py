"""Upper bounds from sets of contexts: above V*, below Q-MDP, and what they are by hand."""

from functools import cache
from itertools import product

import numpy as np
import pytest

import latentmdp as lm
from latentmdp import testing
from latentmdp.outcomes import at_once
from latentmdp.planning.hsvi import kernels_sets as kernels
from latentmdp.planning.hsvi.lumping import lump
from latentmdp.planning.hsvi.sets import InformedSets
from latentmdp.planning.qmdp import best_of, q_values

MANY = 10_000


class Bound:
    """The bound of a model, at beliefs over its contexts."""

    def __init__(self, model, entries=MANY, work=0.0, run=at_once, reference=None) -> None:
        self.lumping = lump(model)
        self.problem, flat = self.lumping.problem, self.lumping.flat()
        self.best = np.ascontiguousarray(best_of(flat, q_values(flat))[:, :, 0])
        weights = model.weights if reference is None else reference
        by_state = [self.lumping.push(s, weights) for s in self.lumping.leaders]
        starts = np.unique(self.lumping.state[model.initial.any(axis=0)])
        informed = InformedSets(
            self.problem, np.concatenate(by_state), self.best, starts, 1e9, lambda: None, run,
            50, 1e5,
        )  # fmt: skip
        listed = informed._list(entries)
        self.sets, _ = informed._valued(listed, informed._grids(listed, work))
        self._room = informed.make_room(self.sets)

    def at(self, t: int, s: int, beliefs: np.ndarray) -> np.ndarray:
        masses, x = [self.lumping.push(s, belief) for belief in beliefs], self.lumping.state[s]
        each = (kernels.set_bound(self.sets, self.problem, t, x, m, self._room) for m in masses)
        return np.array(list(each))

    def known(self, t: int, s: int, beliefs: np.ndarray) -> np.ndarray:
        """Q-MDP's bound: the context is told at once."""
        first = self.problem.first[self.lumping.state[s]] + self.lumping.classes(s)
        return beliefs @ self.best[t, first]


def following(model: lm.LatentMDP) -> dict[tuple[int, int], list[tuple[int, np.ndarray]]]:
    """What may follow (s, a): the next state, and the probability in every context."""
    P = model.observation_probs()
    pairs = list(product(range(model.n_states), range(model.n_rewards)))
    return {
        (s, a): [(n, P[:, s, a, n, z]) for n, z in pairs if P[:, s, a, n, z].any()]
        for s, a in np.ndindex(model.allowed.shape)
    }


def optimum(model: lm.LatentMDP, steps: int, s: int, masses: np.ndarray) -> np.ndarray:
    """What is earned at most in so many steps from s, at unnormalised beliefs (n, M)."""
    outcomes, rewards = following(model), model.planning_rewards()

    def value(left: int, s: int, masses: np.ndarray) -> np.ndarray:
        values = [np.zeros(len(masses))] if not model.allowed[s].any() else []
        for a in np.flatnonzero(model.allowed[s]):
            values.append(masses @ rewards[:, s, a])
            for n, p in outcomes[s, a] if left > 1 else ():
                values[-1] += model.discount * value(left - 1, n, masses * p)
        return np.max(values, axis=0)

    return value(steps, s, masses)


def informed(model: lm.LatentMDP, steps: int, s: int) -> float:
    """U(s, all contexts), as the module defines it, with the model's weights as the reference."""
    outcomes, rewards, w = following(model), model.planning_rewards(), model.weights

    @cache
    def value(left: int, s: int, members: tuple[int, ...]) -> float:
        some, values = list(members), [0.0] if not model.allowed[s].any() else []
        for a in np.flatnonzero(model.allowed[s]):
            values.append(float(w[some] @ rewards[some, s, a]))
            for n, p in outcomes[s, a] if left > 1 else ():
                below = 0.0
                for level in np.unique(p[some][p[some] > 0.0]):
                    layer = tuple(m for m in members if p[m] >= level)
                    values[-1] += model.discount * (level - below) * value(left - 1, n, layer)
                    below = level
        return max(values)

    return value(steps, s, tuple(range(model.n_contexts)))


def beliefs_over(contexts: int, rng: np.random.Generator, n: int = 12) -> np.ndarray:
    """Inner ones, some with contexts ruled out, and the corners."""
    beliefs = rng.dirichlet(np.ones(contexts), n)
    beliefs[::3] *= rng.random((len(beliefs[::3]), contexts)) < 0.6
    beliefs = beliefs[beliefs.any(axis=1)]
    return np.concatenate([beliefs / beliefs.sum(axis=1, keepdims=True), np.eye(contexts)])


FINITE = [
    {"contexts": 2, "horizon": 4, "states": 2},
    {"contexts": 3, "zeros": 0.5, "discount": 0.9},
    {"contexts": 4, "states": 2, "actions": 3, "reward_values": (-2.0, -0.5)},
    {"contexts": 3, "forbidden": 0.4, "n_terminal": 1, "bonus": True, "actions": 3},
    {"contexts": 4, "zeros": 0.6, "reward_values": (-1.0, 0.0, 1.0), "states": 2},
    {"contexts": 2, "zeros": 0.3, "reward_model": "transition", "discount": 0.5},
    {"contexts": 70, "states": 1, "horizon": 2},
    {"rocks": 1, "size": 2, "horizon": 4},
]
ENDLESS = [
    {"contexts": 2, "states": 1, "actions": 4},
    {"contexts": 3, "zeros": 0.5, "states": 2, "reward_values": (-1.0, 1.0)},
    {"contexts": 4, "forbidden": 0.4, "n_terminal": 1, "reward_values": (-2.0, -0.5)},
]


def model_of(kind: dict, rng: np.random.Generator) -> lm.LatentMDP:
    if "rocks" in kind:
        return lm.make("rock-sample", rng=rng, **kind)
    return testing.random_model(rng, **kind)


@pytest.mark.parametrize("seed", [8, 10])
@pytest.mark.parametrize("kind", FINITE)
def test_the_bound_lies_between_the_optimum_and_the_informed_value(kind: dict, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = model_of(kind, rng)
    beliefs = beliefs_over(model.n_contexts, rng)
    other = rng.dirichlet(np.ones(model.n_contexts))
    bounds = [
        Bound(model, 0), Bound(model), Bound(model, MANY, 1e6), Bound(model, 30),
        Bound(model, 30, 1e5), Bound(model.replace(initial=0), MANY, 1e4),
        Bound(model, MANY, 1e4, reference=other),
    ]  # fmt: skip
    gaps = np.zeros((len(bounds), 0))
    for t, s in np.ndindex(model.horizon, model.n_states):
        lowest = optimum(model, model.horizon - t, s, beliefs)
        values = np.array([bound.at(t, s, beliefs) for bound in bounds])
        known = bounds[0].known(t, s, beliefs)
        assert (values >= lowest - 1e-9).all()
        assert (values <= known + 1e-9).all()
        np.testing.assert_allclose(values[0], known, atol=1e-12)
        gaps = np.concatenate([gaps, values - lowest], axis=1)
    nothing, coarse, fine = gaps[:3].mean(axis=1)
    assert fine <= coarse < nothing
    if model.n_contexts < 70:  # all sets have grids, of a mesh of 1 / 28 or less
        assert fine < 0.01 * nothing


@pytest.mark.parametrize("kind", [*FINITE, {"rocks": 2, "size": 2, "horizon": 4}])
def test_at_the_reference_it_is_the_value_of_the_sets(kind: dict) -> None:
    model = model_of(kind, np.random.default_rng(8))
    bound = Bound(model, 1_000_000)
    for t, s in product(range(model.horizon), np.flatnonzero(model.initial.any(axis=0))):
        expected = informed(model, model.horizon - t, s)
        assert bound.at(t, s, model.weights[None]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("kind", ENDLESS)
def test_without_an_end_the_bound_lies_between_them_too(kind: dict) -> None:
    rng = np.random.default_rng(4)
    model = testing.random_model(rng, **kind, horizon=None, discount=0.3)
    beliefs = beliefs_over(model.n_contexts, rng)
    least = min(0.0, model.planning_rewards().min())
    bounds = [Bound(model, 0), Bound(model), Bound(model, MANY, 1e6), Bound(model, 30, 1e5)]
    means = []
    for s in range(model.n_states):
        lowest = optimum(model, 4, s, beliefs) + 0.3**4 * least / 0.7
        values = np.array([bound.at(0, s, beliefs) for bound in bounds])
        assert (values >= lowest - 1e-9).all()
        assert (values <= bounds[0].known(0, s, beliefs) + 1e-9).all()
        means.append(values.mean(axis=1))
    nothing, coarse, fine, _ = np.mean(means, axis=0)
    assert fine < coarse < nothing


READ, LEFT, RIGHT = range(3)


def two_boxes(right: float, cost: float, horizon: int | None, discount: float) -> lm.LatentMDP:
    """A box pays 1 and the other costs 2; a reading says which is which, mostly.

    States are what was read, nothing or one of the boxes, and the end.
    """
    T = np.zeros((2, 4, 3, 4))
    T[:, :3, READ, 1:3] = np.array([[right, 1.0 - right], [1.0 - right, right]])[:, None]
    T[:, :3, LEFT:, 3] = 1.0
    amounts = np.zeros((2, 4, 3))
    amounts[:, :, READ] = -cost
    amounts[0, :, LEFT] = amounts[1, :, RIGHT] = 1.0
    amounts[1, :, LEFT] = amounts[0, :, RIGHT] = -2.0
    return lm.LatentMDP.from_amounts(
        T, amounts, horizon=horizon, discount=discount, initial=0, weights=[0.4, 0.6],
        allowed=np.arange(4)[:, None] < np.full(3, 3),
    )  # fmt: skip


@pytest.mark.parametrize("right", [0.6, 0.75, 0.95, 1.0])
@pytest.mark.parametrize("horizon", [1, 5, None])
def test_a_noisy_reading_becomes_one_that_is_sometimes_sure(right: float, horizon) -> None:
    """By hand: a reading is sure with probability 2 q - 1, and says nothing otherwise."""
    cost, discount, weights = 0.05, 0.9, np.array([0.4, 0.6])
    bound = Bound(two_boxes(right, cost, horizon, discount))
    open_now = max(weights @ [1.0, -2.0], weights @ [-2.0, 1.0])
    both, sure = [max(open_now, -cost)], 2.0 * right - 1.0  # with one step left, then with more
    for _ in range((horizon or 400) - 1):
        later = sure + (1.0 - sure) * both[-1]  # who knows the box opens it: 1
        both.append(max(open_now, -cost + discount * later))
    for t in range(bound.problem.layers):
        for b in np.linspace(0.0, 1.0, 9):
            shared = min(b / weights[0], (1.0 - b) / weights[1])  # the rest is known: 1
            expected = shared * both[-1 - t] + 1.0 - shared
            assert bound.at(t, 0, np.array([[b, 1.0 - b]])) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("contexts", [2, 3, 4])
def test_a_grid_interpolates(contexts: int) -> None:
    """Linear functions as they are, all functions at its points, convex ones from above."""
    rng = np.random.default_rng(contexts)
    model = testing.random_model(rng, contexts=contexts, states=1, horizon=1)
    bound = Bound(model, 0, 3e4 if contexts == 4 else 1e3)
    sets, n = bound.sets, int(bound.sets.cells[0])
    assert n > contexts
    sums = [(n, *x, 0) for x in product(range(n + 1), repeat=contexts - 1)]  # in the grid's order
    points = np.array([-np.diff(x) for x in sums if (np.diff(x) <= 0).all()]) / n
    assert sets.value.shape[1] == 1 + len(points)

    def at(values: np.ndarray, beliefs: np.ndarray) -> np.ndarray:
        sets.value[0, sets.grid[0] :] = values
        return bound.at(0, 0, beliefs)

    beliefs, inner = rng.dirichlet(np.ones(contexts), 200), (points > 0.0).all(axis=1)
    slope, anything = rng.normal(size=contexts), rng.normal(size=len(points))
    np.testing.assert_allclose(at(points @ slope, beliefs), beliefs @ slope, atol=1e-12)
    np.testing.assert_allclose(at(anything, points[inner]), anything[inner], atol=1e-9)
    np.testing.assert_allclose(at(anything, 3.0 * points[inner]), 3.0 * anything[inner], atol=1e-9)
    above = at((points**2).sum(axis=1), beliefs) - (beliefs**2).sum(axis=1)
    assert (above >= -1e-12).all()
    # Of the corners of a simplex each coordinate has two values, 1 / n apart.
    assert above.max() <= contexts / (4.0 * n**2) + 1e-12
    if contexts == 2:
        expected = np.interp(beliefs[:, 1], points[:, 1], anything)
        np.testing.assert_allclose(at(anything, beliefs), expected, atol=1e-12)


def test_blocks_of_work_in_any_order_give_the_same() -> None:
    def one_by_one(kernel, total, *arguments) -> None:
        for i in range(total - 1, -1, -1):
            kernel(i, i + 1, *arguments)

    for horizon in (3, None):
        model = testing.random_model(1, contexts=3, zeros=0.3, horizon=horizon, discount=0.8)
        values = [Bound(model, MANY, 1e5, run).sets.value for run in (at_once, one_by_one)]
        np.testing.assert_array_equal(*values)


def test_a_class_may_weigh_more_in_the_next_state() -> None:
    """Context 3 is like 0 in the first state and in the last, and like 2 in that between them."""
    T, of = np.zeros((4, 3, 2, 3)), np.array([[0, 1, 2, 0], [0, 1, 2, 2], [0, 1, 2, 0]])
    T[[1, 2], 0, :, 1] = T[[0, 3], 0, :, 2] = T[:, 1, :, 1] = T[:, 2, :, 2] = 1.0
    rng = np.random.default_rng(2)
    costs = np.moveaxis(-rng.random((3, 2, 3)), 2, 1)[np.arange(3)[:, None], of]  # (S, M, A)
    model = lm.LatentMDP.from_amounts(T, costs.swapaxes(0, 1), observed=False, horizon=3, initial=0)
    bound, beliefs = Bound(model), beliefs_over(4, rng)
    np.testing.assert_array_equal(bound.lumping.classes(np.arange(bound.lumping.state.size)), of)
    for b in (beliefs, model.weights[None]):
        assert (bound.at(0, 0, b) >= optimum(model, 3, 0, b) - 1e-9).all()


def test_an_end_is_worth_nothing_where_nothing_was_lumped() -> None:
    """A corridor so long that it is left as it is: its end has a class for every context."""
    S = 71
    T = np.zeros((2, S, 2, S))
    T[:, np.arange(S - 1), 0, np.arange(1, S)] = T[:, np.arange(S - 1), 1, np.arange(S - 1)] = 1.0
    pays = np.zeros((2, S, 2))
    pays[:, S - 2, 0] = 1.0, 0.5
    allowed = np.arange(S)[:, None] < np.full(2, S - 1)
    model = lm.LatentMDP(T, pays, horizon=None, discount=0.9, allowed=allowed, initial=0)
    bound = Bound(model, MANY, 1e5)
    assert np.isfinite(bound.sets.value).all()
    belief = np.array([[0.3, 0.7]])
    assert bound.at(0, S - 2, belief) == pytest.approx(0.65, abs=1e-9)  # 0.3 + 0.7 / 2, at once
