"""Lumping: pairs of a state and a context with the same future are one, and no others are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latentmdp as lm
from latentmdp import testing
from latentmdp.planning.hsvi.lumping import Lumping, lump
from latentmdp.planning.qmdp import best_of, q_values


def assert_faithful(model: lm.LatentMDP, lumping: Lumping) -> None:
    """Every pair earns what its class earns, and moves as its class does, outcome by outcome.

    An outcome k of the model is a share of one of the lumped row: P_m(k) = share P(class of m) with
    the same share for all contexts, so that both lead to the same belief. Then V* is the same.
    """
    problem, table, A = lumping.problem, model.outcomes, model.n_actions
    rewards = model.planning_rewards()
    for s, a in np.argwhere(model.allowed):
        x, own = lumping.state[s], lumping.classes(s)
        row, led = s * A + a, x * A + a
        assert problem.allowed[x].tolist() == model.allowed[s].tolist()
        earned = problem.earned[problem.pay[led] + own]
        np.testing.assert_allclose(earned, rewards[:, s, a], atol=1e-10)
        begin, end = problem.starts[led : led + 2]
        patterns = problem.probs[problem.pattern[begin:end, None] + own]
        sums = np.zeros_like(patterns)
        for k in range(table.starts[row], table.starts[row + 1]):
            n, p, pattern = table.next_state[k], table.probs[k], patterns[lumping.outcome[k]]
            j = begin + lumping.outcome[k]
            assert problem.next_state[j] == lumping.state[n]
            np.testing.assert_allclose(p * pattern.sum(), p.sum() * pattern, atol=1e-10)
            sums[lumping.outcome[k]] += p
            moved = own if problem.shift[j] < 0 else problem.target[problem.shift[j] + own]
            np.testing.assert_array_equal(moved[p > 0.0], lumping.classes(n)[p > 0.0])
        np.testing.assert_allclose(sums, patterns, atol=1e-10)


def assert_same_values(model: lm.LatentMDP, lumping: Lumping) -> None:
    """Q-MDP's values of the lumped MDP at pushed-forward weights are those of the model."""
    flat = lumping.flat()
    lumped, values = (best_of(which, q_values(which)) for which in (flat, model))
    weights = np.random.default_rng(0).dirichlet(np.ones(model.n_contexts))
    for s in range(model.n_states):
        first, stop = lumping.problem.first[lumping.state[s] :][:2]
        earned = lumped[:, first:stop, 0] @ lumping.push(s, weights)
        np.testing.assert_allclose(earned, values[:, s] @ weights, atol=1e-9)


def assert_same_optimum(model: lm.LatentMDP, lumping: Lumping) -> None:
    """V* by expectimax over the lumped problem, from the pushed-forward start, is the model's."""
    problem, A = lumping.problem, model.n_actions

    def value(t: int, x: int, mass: np.ndarray) -> float:
        if t == problem.layers or not problem.allowed[x].any():
            return 0.0
        return max(taken(t, x * A + a, mass) for a in np.flatnonzero(problem.allowed[x]))

    def taken(t: int, row: int, mass: np.ndarray) -> float:
        total = float(mass @ problem.earned[problem.pay[row] :][: mass.size])
        for k in range(problem.starts[row], problem.starts[row + 1]):
            y, moved = problem.next_state[k], np.arange(mass.size)
            if problem.shift[k] >= 0:
                moved = problem.target[problem.shift[k] :][: mass.size]
            after = mass * problem.probs[problem.pattern[k] :][: mass.size]
            if after.any():
                pushed = np.bincount(moved, after, problem.width[y])
                total += problem.discount * value(t + 1, y, pushed)
        return total

    joint = model.weights[:, None] * model.initial
    starts = [s for s in range(model.n_states) if joint[:, s].any()]
    earned = sum(value(0, lumping.state[s], lumping.push(s, joint[:, s])) for s in starts)
    optimum = testing.optimal_value(model)
    assert earned + model.initial_value() == pytest.approx(optimum, abs=1e-10)


def checked(model: lm.LatentMDP) -> Lumping:
    """The lumping of a model, which must have its rows and values."""
    lumping = lump(model)
    assert_faithful(model, lumping)
    assert_same_values(model, lumping)
    if model.horizon is not None:
        assert_same_optimum(model, lumping)
    return lumping


def classes_of(lumping: Lumping) -> np.ndarray:
    """The classes of all contexts in all states, (S, M)."""
    return lumping.classes(np.arange(lumping.state.size))


def n_distinct(*arrays: np.ndarray) -> int:
    """How many values there are, side by side: as many as of each if they are one partition."""
    return len(np.unique(np.stack([array.ravel() for array in arrays]), axis=1).T)


def copied(base: lm.LatentMDP, rng: np.random.Generator, copies: int, of: list[int]):
    """`base` with every state copied, context m a copy of of[m], and states and actions shuffled.

    A step goes to one of the copies of its next state, which one depends on where it begins.
    Returns the model and the state of `base` that every state is.
    """
    S, A = base.n_states, base.n_actions
    origin, action = rng.permutation(np.repeat(np.arange(S), copies)), rng.permutation(A)
    T = np.zeros((len(of), S * copies, A, S * copies))
    for u, a, n in np.ndindex(S * copies, A, S):
        v = rng.choice(np.flatnonzero(origin == n))
        T[:, u, a, v] = base.transitions[of, origin[u], action[a], n]

    def spread(array: np.ndarray) -> np.ndarray:
        return array[of][:, origin][:, :, action]

    model = lm.LatentMDP(
        T, spread(base.reward_probs), reward_values=base.reward_values, horizon=base.horizon,
        discount=base.discount, bonus=None if base.bonus is None else spread(base.bonus),
        allowed=base.allowed[origin][:, action], weights=rng.dirichlet(np.ones(len(of))),
        initial=rng.dirichlet(np.ones(S * copies), len(of)),
    )  # fmt: skip
    return model, origin


def small(rng, **changes: object) -> lm.LatentMDP:
    kind = {"contexts": 2, "states": 3, "horizon": 2, "reward_values": (-1.0, 0.0, 2.0), **changes}
    return testing.random_model(rng, **kind)


def two_bets(readings: list[list[float]], pays: list[float], weights: list[float]) -> lm.LatentMDP:
    """One state: action 0 reads, in context m by readings[m]; 1 earns pays[m] for sure, 2 loses it.

    Readings are worth 0, 1, 2 and 3, so that several have the same mean.
    """
    values = np.array([-3.0, 0.0, 1.0, 2.0, 3.0])
    rewards = np.zeros((len(pays), 1, 3, 5))
    rewards[:, 0, 0, 1:] = readings
    rewards[:, 0, 1] = values == np.array(pays)[:, None]
    rewards[:, 0, 2] = values == -np.array(pays)[:, None]
    T = np.ones((len(pays), 1, 3, 1))
    return lm.LatentMDP(T, rewards, reward_values=values, horizon=2, weights=weights)


@pytest.mark.parametrize(("size", "rocks", "horizon"), [(2, 1, 6), (2, 2, 4), (3, 1, 5), (3, 2, 4)])
def test_rock_sample_is_its_grid_with_rocks_that_may_be_bad(size, rocks, horizon) -> None:
    for steps in (None, horizon):
        model = lm.make("rock-sample", rng=0, size=size, rocks=rocks, horizon=steps)
        lumping, cells = checked(model), size**2
        assert lumping.problem.width.tolist() == [2**rocks] * cells + [1]
        place, context = np.arange(model.n_states - 1), np.arange(2**rocks)
        np.testing.assert_array_equal(lumping.state, [*(place % cells), cells])
        good = context & ~(place // cells)[:, None]  # the rocks that are good and not sampled
        np.testing.assert_array_equal(classes_of(lumping)[:-1], good)


def test_what_states_share_is_kept_once() -> None:
    """Which rocks may still be good says what a state tells of its contexts, wherever the rover is.

    And a reading says the same of them wherever it is as far from its rock.
    """
    model = lm.make("rock-sample", rng=0, size=3, rocks=4)
    lumping, table = lump(model), model.outcomes
    assert len(np.unique(lumping.member)) == len(lumping.members) == 2**4
    problem = lumping.problem
    assert problem.probs.size <= len(table.distinct) * 2**4 < problem.next_state.size * 2**4
    assert problem.earned.size <= 2**4 * len(model.row_rewards().distinct) + 2


@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from([0.0, 0.6]), st.booleans())
@settings(max_examples=20)
def test_a_model_without_pairs_alike_stays_as_it_is(seed, contexts, zeros, bonus) -> None:
    model = small(seed, contexts=contexts, zeros=zeros, forbidden=0.3, bonus=bonus, discount=0.9)
    lumping, table = checked(model), model.outcomes.informative()
    problem, identity = lumping.problem, np.arange(contexts)
    np.testing.assert_array_equal(lumping.state, np.arange(3))
    np.testing.assert_array_equal(classes_of(lumping), np.tile(identity, (3, 1)))
    np.testing.assert_array_equal(lumping.contexts, np.tile(identity, 3))
    assert (problem.shift == -1).all()
    assert (problem.width == contexts).all()
    np.testing.assert_array_equal(problem.starts, table.starts)
    np.testing.assert_array_equal(problem.next_state, table.next_state)
    np.testing.assert_array_equal(problem.probs[problem.pattern[:, None] + identity], table.probs)


@given(
    st.integers(0, 10**6), st.integers(1, 3), st.sampled_from([[0, 1], [0, 1, 0], [1, 0, 0, 1]]),
    st.sampled_from([0.0, 0.5]), st.booleans(), st.integers(0, 1), st.sampled_from([2, None]),
)  # fmt: skip
@settings(max_examples=30)
def test_copies_of_states_and_contexts_are_one(
    seed, copies, of, zeros, bonus, n_terminal, horizon
) -> None:
    rng = np.random.default_rng(seed)
    base = small(
        rng, zeros=zeros, bonus=bonus, n_terminal=n_terminal, forbidden=0.3, horizon=horizon,
        discount=0.8,
    )  # fmt: skip
    model, origin = copied(base, rng, copies, of)
    lumping = checked(model)
    assert n_distinct(lumping.state, origin) == lumping.leaders.size == base.n_states
    expected = origin[:, None] * 2 + np.where(model.terminal[:, None], 0, np.array(of))
    found = lumping.problem.first[lumping.state][:, None] + classes_of(lumping)
    assert n_distinct(found, expected) == n_distinct(found) == n_distinct(expected)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("of", [[0, 1, 2], [0, 0]])
def test_a_probability_that_is_slightly_off_keeps_a_copy_apart(of: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    model, origin = copied(small(rng, contexts=3), rng, 2, of)
    m, u, a = rng.integers(len(of)), rng.integers(6), rng.integers(2)
    T = model.transitions.copy()
    most, second = np.argsort(-T[m, u, a])[:2]
    T[m, u, a, [most, second]] += [-1e-3, 1e-3]
    before, after = lump(model), checked(model.replace(transitions=T))
    twin = next(v for v in range(6) if v != u and origin[v] == origin[u])
    assert before.state[twin] == before.state[u]
    if of == [0, 0]:  # the copy may be the state with one of its contexts ruled out
        assert before.classes(u)[0] == before.classes(u)[1]
        assert after.classes(u)[0] != after.classes(u)[1]
    else:
        assert after.state[twin] != after.state[u]


def test_a_reward_that_differs_in_one_context_keeps_it_apart() -> None:
    base = small(5, contexts=1, states=2)
    same, _ = copied(base, np.random.default_rng(5), 1, [0, 0, 0])
    assert checked(same).problem.width.tolist() == [1, 1]
    bonus = np.zeros((3, 2, 2))
    bonus[2, 1, 0] = 1e-3
    model = same.replace(bonus=bonus)
    np.testing.assert_array_equal(classes_of(checked(model)), [[0, 0, 1], [0, 0, 1]])
    forbidden = model.replace(allowed=[[True, True], [False, True]])
    assert checked(forbidden).problem.width.tolist() == [1, 1]


def test_contexts_are_one_where_their_difference_is_past() -> None:
    T = np.zeros((2, 3, 1, 3))
    T[:, 0, 0, 1] = T[:, 1, 0, 2] = T[:, 2, 0, 2] = 1.0
    model = lm.LatentMDP(T, [[[0.2], [0.5], [0.1]], [[0.7], [0.5], [0.1]]], horizon=4, initial=0)
    assert checked(model).problem.width.tolist() == [2, 1, 1]


def test_a_state_whose_readings_say_something_else_leads_itself() -> None:
    """Two states in which each context earns and goes on alike, but only one tells them apart."""
    inner, outer = [0.0, 0.5, 0.5, 0.0], [0.5, 0.0, 0.0, 0.5]
    one = two_bets([inner, outer], [3.0, -3.0], [0.5, 0.5])
    rewards = np.repeat(one.reward_probs, 2, axis=1)
    rewards[1, 1, 0] = rewards[0, 1, 0]
    T = np.tile(np.eye(2)[None, :, None], (2, 1, 3, 1))
    model = one.replace(transitions=T, rewards=rewards, initial=1, horizon=3)
    assert checked(model).state.tolist() == [0, 1]


def test_contexts_whose_readings_differ_stay_apart() -> None:
    """Contexts 0 and 1 earn and go on alike, but the reading of one tells it from context 2."""
    inner, outer = [0.0, 0.5, 0.5, 0.0], [0.5, 0.0, 0.0, 0.5]
    model = two_bets([inner, outer, inner], [3.0, 3.0, -3.0], [0.0, 0.5, 0.5])
    assert classes_of(checked(model)).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("hint", [0.0, 0.1])
def test_contexts_that_swap_what_follows_stay_apart(hint: float) -> None:
    """A bet wins behind the left door in one context and behind the right one in the other.

    The rooms are one, with the contexts swapped; before the doors, the contexts are two, whether
    or not one earns more there, unseen.
    """
    T = np.zeros((2, 3, 2, 3))
    T[:, 0, :, 1:] = 0.5
    T[:, 1, :, 1] = T[:, 2, :, 2] = 1.0
    amounts = np.zeros((2, 3, 2))
    amounts[0, 1, 1] = amounts[1, 2, 1] = 1.0
    amounts[0, 2, 1] = amounts[1, 1, 1] = -1.0
    bonus = np.zeros((2, 3, 2))
    bonus[0, 0] = hint
    model = lm.LatentMDP.from_amounts(T, amounts, horizon=2, initial=0, bonus=bonus)
    lumping = checked(model)
    assert lumping.classes(0).tolist() == [0, 1]
    if hint:
        assert lumping.state.tolist() == [0, 1, 1]
        assert classes_of(lumping)[1:].tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_sum_to_less_than_one_lose_the_rest(seed: int) -> None:
    """Optimistic models of learners have such rows: they plan as if the rest were a bare end."""
    model = testing.random_model(seed, contexts=2, states=3, actions=2, horizon=4)
    kept = np.random.default_rng(seed).uniform(0.3, 1.0, model.transitions.shape[:3])
    short = lm.LatentMDP._trusted(model, transitions=model.transitions * kept[..., None])
    padded = np.zeros((2, 4, 2, 4))
    padded[:, :3, :, :3], padded[:, :3, :, 3] = short.transitions, 1.0 - kept
    padded[:, 3, :, 3] = 1.0
    rewards = np.zeros((2, 4, 2, 4, 2))
    rewards[..., 0] = 1.0  # what is lost pays nothing
    rewards[:, :3, :, :3] = model.reward_probs[:, :, :, None]
    ends = np.repeat([[True, True], [False, False]], [3, 1], axis=0)
    with_end = lm.LatentMDP(
        padded,
        rewards,
        initial=np.pad(model.initial, ((0, 0), (0, 1))),
        weights=model.weights,
        horizon=4,
        allowed=ends,
    )
    first, second = (lm.HSVI(gap=1e-6).plan(one) for one in (short, with_end))
    assert first.upper == pytest.approx(second.upper, abs=1e-5)
    assert lm.PBVI().plan(short).lower <= second.upper + 1e-9
