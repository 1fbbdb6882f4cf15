"""Total rewards, with neither an end nor a discount, against linear programs and closed forms."""

import numpy as np
import pytest
from scipy.optimize import linprog

import latentmdp as lm
from latentmdp._util.cycles import end_components
from latentmdp.errors import ModelError
from latentmdp.planning.goals import quotient
from latentmdp.planning.limits import PlanningClock

MODELS = 30


def goal_problem(rng):
    """(T, w): outcomes are equally likely in all contexts in which they are possible.

    So the belief is w on the contexts that are left, and V* is the value of a finite MDP. The last
    state is the goal, the one before it a trap; half of the actions say nothing.
    """
    M, S, A = rng.integers(2, 4), rng.integers(4, 7), rng.integers(2, 4)
    T = np.zeros((M, S, A, S))
    for s in range(S - 2):
        for a in range(A):
            common = rng.choice(S, rng.integers(1, 3), replace=False)
            tells = rng.choice([0.0, 0.0, 0.5, 1.0])
            T[:, s, a, common] = (1.0 - tells) * rng.dirichlet(np.ones(common.size))
            others = np.setdiff1d(np.arange(S), common)
            T[np.arange(M), s, a, rng.choice(others, M)] += tells
    T[:, -1, :, -1] = T[:, -2, :, -2] = 1.0
    return T, rng.dirichlet(np.ones(M))


def reaching(T, w):
    M, S, A, _ = T.shape
    model = lm.LatentMDP(T, np.zeros((M, S, A)), initial=0, weights=w, horizon=1)
    return model.reaching(S - 1, horizon=None, discount=1)


def probability(T, w):
    """V* by the linear program of the MDP of pairs (state, contexts that are possible)."""
    M, S, A, _ = T.shape
    nodes, todo, rows = {(0, tuple(range(M))): 0}, [(0, tuple(range(M)))], []
    while todo:
        s, G = todo.pop()
        for a in range(A if s < S - 1 else 0):
            row = {}
            for n in range(S):
                H = tuple(m for m in G if T[m, s, a, n] > 0.0)
                if H:
                    if (n, H) not in nodes:
                        nodes[n, H] = len(nodes)
                        todo.append((n, H))
                    row[nodes[n, H]] = T[H[0], s, a, n]
            rows.append((nodes[s, G], row))
    bellman = np.zeros((len(rows), len(nodes)))
    for i, (x, row) in enumerate(rows):
        bellman[i, x] -= 1.0
        for y, p in row.items():
            bellman[i, y] += p
    ends = [(w[list(G)].sum(),) * 2 if s == S - 1 else (0.0, None) for s, G in nodes]
    answer = linprog(np.ones(len(nodes)), A_ub=bellman, b_ub=np.zeros(len(rows)), bounds=ends)
    assert answer.status == 0
    return answer.x[0]


@pytest.mark.parametrize("seed", range(MODELS))
def test_bounds_enclose_the_linear_program(seed):
    T, w = goal_problem(np.random.default_rng(seed))
    model, value = reaching(T, w), probability(T, w)
    plan = lm.HSVI(gap=0.0, absolute_gap=1e-6, time_limit=20, threads=1).plan(model)
    assert plan.lower - 1e-8 <= value <= plan.upper + 1e-8
    assert plan.upper - plan.lower <= 1e-6
    earned = lm.evaluate(model, plan.policy)
    assert earned.exact
    assert earned.mean == pytest.approx(plan.lower, abs=1e-8)
    assert lm.QMDP().plan(model).upper >= value - 1e-8


def test_the_graph_is_what_an_agent_does():
    model = reaching(*goal_problem(np.random.default_rng(0)))
    policy = lm.HSVI(gap=1e-6).plan(model).policy
    exact = lm.evaluate(model, policy)
    drawn = lm.evaluate(model, policy, method="monte-carlo", episodes=4000, rng=0)
    # Four standard errors: one false alarm in 16,000.
    assert abs(drawn.mean - exact.mean) <= 4.0 * drawn.stderr + 1e-9
    assert drawn.truncation <= 1.0 + 1e-9


def waiting(p, q):
    """Wait for nothing, or ask: a door is right with p in context 0 and with q in context 1."""
    T = np.zeros((2, 4, 3, 4))
    T[:, 0, 0, 1] = T[:, 1, 0, 0] = 1.0  # to and fro
    T[0, 0, 1, [2, 3]] = T[1, 0, 2, [2, 3]] = [p, 1.0 - p]
    T[1, 0, 1, [2, 3]] = T[0, 0, 2, [2, 3]] = [q, 1.0 - q]
    T[:, 1, 1:, 1] = T[:, 2, :, 2] = T[:, 3, :, 3] = 1.0
    return reaching(T[:, [0, 1, 3, 2]][..., [0, 1, 3, 2]], [0.5, 0.5])


def test_a_promise_to_leave_later_is_not_believed():
    model = waiting(0.9, 0.2)
    plan = lm.HSVI(gap=1e-9).plan(model)
    assert (plan.lower, plan.upper) == pytest.approx((0.55, 0.55))


@pytest.mark.parametrize(("p", "q"), [(0.9, 0.2), (0.6, 0.5)])
def test_the_worst_context_is_met_by_a_mixture(p, q):
    """One door is drawn with probability 1/2: (p + q) / 2 in both contexts, and no more in both."""
    plan = lm.Robust(gap=1e-9).plan(waiting(p, q))
    assert (plan.lower, plan.upper) == pytest.approx((0.5 * (p + q),) * 2)
    np.testing.assert_allclose(plan.by_context, 0.5 * (p + q))


@pytest.mark.parametrize("planner", [lm.HSVI(), lm.Robust(), lm.PBVI(), lm.QMDP()])
def test_where_no_cycle_is_ever_left_nothing_is_earned(planner):
    T = np.broadcast_to(np.eye(3)[:, None], (2, 3, 2, 3))
    assert planner.plan(reaching(T, [0.5, 0.5])).upper == 0.0


def test_costs_until_an_end():
    """1 + E[1 / chance] + 1 steps; waiting for ever costs for ever."""
    T = np.zeros((2, 4, 2, 4))
    T[:, 0, 0, 0] = T[:, 0, 1, 1] = T[:, 1, 0, 0] = T[:, 2, 0, 3] = T[:, 2, 1, 0] = 1.0
    T[0, 1, 1, [2, 1]], T[1, 1, 1, [2, 1]] = [0.7, 0.3], [0.4, 0.6]
    T[:, 3, :, 3] = 1.0
    costs = np.array([[-1.0, -1.0], [-1.0, -1.0], [-1.0, -1.0], [0.0, 0.0]])
    model = lm.LatentMDP.from_amounts(T, costs, initial=0, horizon=None, discount=1)
    plan, value = lm.HSVI(gap=1e-7).plan(model), -(2.0 + 0.5 / 0.7 + 0.5 / 0.4)
    assert plan.lower <= value + 1e-9
    assert value - 1e-9 <= plan.upper
    assert plan.converged
    assert lm.evaluate(model, plan.policy).mean == pytest.approx(plan.lower)
    never = lm.MarkovPolicy(np.tile([1.0, 0.0], (4, 1)))
    assert lm.evaluate(model, never).mean == -np.inf
    with pytest.raises(ModelError, match="in context 0 no policy surely leads to one"):
        model.replace(bonus=np.full((2, 4, 2), -1.0))


def test_an_end_that_must_be_found():
    """Each context has its own way to the end; the wrong one leads back and tells: -3 in all."""
    T = np.zeros((2, 3, 2, 3))
    T[:, 0, 0, 0] = T[:, 0, 1, 1] = T[0, 1, 0, 2] = T[1, 1, 0, 0] = 1.0
    T[0, 1, 1, 0] = T[1, 1, 1, 2] = T[:, 2, :, 2] = 1.0
    costs = np.array([[-1.0, -1.0], [-1.0, -1.0], [0.0, 0.0]])
    model = lm.LatentMDP.from_amounts(T, costs, initial=0, horizon=None, discount=1)
    plan = lm.HSVI(gap=1e-8).plan(model)
    assert (plan.lower, plan.upper) == pytest.approx((-3.0, -3.0))
    assert lm.evaluate(model, plan.policy).mean == pytest.approx(-3.0)


def test_gains_and_costs_where_all_comes_to_an_end():
    T = np.zeros((2, 4, 2, 4))
    T[0, 0, 0, [1, 2]], T[1, 0, 0, [1, 2]] = [0.6, 0.4], [0.2, 0.8]
    T[:, 0, 1, 3] = T[:, 1, :, 3] = T[:, 2, :, 3] = 1.0
    paid = np.array([[0.0, 0.1], [2.0, 1.0], [-3.0, -1.0], [0.0, 0.0]])
    allowed = np.array([[1, 1], [1, 1], [1, 1], [0, 0]], bool)
    model = lm.LatentMDP.from_amounts(T, paid, initial=0, horizon=None, discount=1, allowed=allowed)
    plan = lm.HSVI(gap=1e-9).plan(model)
    assert (plan.lower, plan.upper) == pytest.approx((0.4 * 2.0 - 0.6,) * 2)


def test_an_unbounded_total_names_its_cycle():
    T = np.zeros((1, 3, 2, 3))
    T[0, 0, 0, 1] = T[0, 1, 0, 0] = T[0, :2, 1, 2] = T[0, 2, :, 2] = 1.0
    names = {"state_names": ["home", "shop", "end"], "action_names": ["walk", "stop"]}
    paid = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    with pytest.raises(
        ModelError, match="'shop', action 'walk', state 'home', action 'walk' can go on for ever"
    ):
        lm.LatentMDP.from_amounts(T, paid, initial=0, horizon=None, discount=1, **names)
    paid[1], paid[0, 1] = [0.0, -1.0], 1.0
    with pytest.raises(ModelError, match="some rewards are positive, others negative"):
        lm.LatentMDP.from_amounts(T, paid, initial=0, horizon=None, discount=1, **names)


def test_who_needs_an_end_says_so(tmp_path):
    model = waiting(0.9, 0.2)
    plan = lm.HSVI().plan(model)
    for act in (
        lambda: lm.Memoryless().plan(model),
        lambda: lm.PBVI(spacing=0.5).plan(model),
        lambda: plan.compact(3),
        lambda: lm.Exact().plan(model),
        lambda: lm.learn(model, n_contexts=2, episodes=5, rng=0),
    ):
        with pytest.raises(ModelError, match="needs a horizon"):
            act()
    with pytest.raises(lm.errors.FormatError, match="discount below 1"):
        lm.io.export(model, tmp_path / "model.pomdpx")
    for name in ("model.npz", "model.json", "model.csv"):
        lm.save(model, tmp_path / name)
        again = lm.load(tmp_path / name)
        assert (again.horizon, again.discount) == (None, 1.0)
        assert lm.HSVI().plan(again).lower == pytest.approx(plan.lower)


def test_end_components_by_hand():
    """0 and 1 lead to each other, and both may leave for 2, which is never left."""
    first, starts = np.array([0, 2, 4, 5]), np.array([0, 1, 2, 3, 5, 6])
    found = end_components(first, starts, np.array([1, 2, 0, 0, 2, 2]), np.ones(6, bool))
    assert found.of_state[0] == found.of_state[1] != found.of_state[2]
    assert found.inside.tolist() == [True, False, True, False, True]


@pytest.mark.parametrize("seed", [*range(6), 23])
def test_what_is_reached_surely_needs_no_search(seed):
    """The graph that heads for the goal in one context after the other reaches it in all."""
    rng = np.random.default_rng(seed)
    M, S, A = 3, 6, 3
    T = np.zeros((M, S, A, S))
    for s, a, m in np.ndindex(S - 1, A, M):
        reached = rng.choice(S, rng.integers(1, 3), replace=False)
        T[m, s, a, reached] = rng.dirichlet(np.ones(reached.size))
    T[:, -1, :, -1] = 1.0
    model = lm.LatentMDP(T, np.zeros((M, S, A)), initial=0, horizon=1)
    goal = model.reaching(S - 1, horizon=None, discount=1)
    found = quotient(goal, 2.0**30, PlanningClock(60.0))
    is_one_step = found.model.n_states == 2
    assert is_one_step == lm.theory.almost_surely(model, S - 1).holds == (seed != 23)
    if is_one_step:
        plan = lm.HSVI(threads=1).plan(goal)
        np.testing.assert_allclose(lm.evaluate(goal, plan.policy).by_context, 1.0, atol=1e-9)
        assert plan.lower >= 1.0 - 1e-12  # a certificate leaves room for rounding
        assert (plan.upper, plan.n_iter) == (1.0, 0)
