"""Q-MDP against a textbook recursion and its bound against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp._util import memory
from latentmdp.errors import TooLargeError
from latentmdp.planning import qmdp
from latentmdp.planning.qmdp import best_actions, planning_rows, policy_values, q_values


def textbook_q_values(model: lm.LatentMDP) -> np.ndarray:
    H, S, A, M = model.horizon, model.n_states, model.n_actions, model.n_contexts
    P, values = model.observation_probs(), np.zeros((H + 1, S, A, M))
    bonus = np.zeros((M, S, A)) if model.bonus is None else model.bonus
    for t in reversed(range(H)):
        for s, a, m in np.ndindex(S, A, M):
            total = bonus[m, s, a]
            for n, z in np.ndindex(S, model.n_rewards):
                future = values[t + 1, n, :, m].max()
                total += P[m, s, a, n, z] * (model.reward_values[z] + model.discount * future)
            values[t, s, a, m] = total
    return values[:H]


@pytest.mark.parametrize("form", ["bernoulli", "values", "next-state"])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 3, 2, 5), (4, 9, 3, 4), (3, 6, 1, 3)])
def test_q_values_match_the_recursion(form: str, sizes: tuple[int, int, int, int]) -> None:
    model = random_model(0, *sizes, form=form, bonus=True, discount=0.9)
    np.testing.assert_allclose(q_values(model), textbook_q_values(model), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_informed_bound_is_at_least_the_optimum(seed: int) -> None:
    model = random_model(seed, form="values", bonus=True, discount=0.95)
    plan = lm.QMDP().plan(model)
    assert plan.upper >= testing.optimal_value(model) - 1e-12
    assert plan.lower is None
    assert plan.guarantee is None


def test_with_one_context_q_mdp_is_optimal_and_its_bound_tight() -> None:
    model = random_model(3, contexts=1, bonus=True, discount=0.9)
    plan = lm.QMDP().plan(model)
    value = lm.evaluate(model, plan.policy, method="exact").mean
    assert value == pytest.approx(plan.upper, rel=1e-12)
    assert value == pytest.approx(testing.optimal_value(model), rel=1e-12)


def test_a_row_never_visited_has_no_future_but_its_bonus() -> None:
    model = random_model(1, horizon=3)
    transitions, rewards = model.transitions.copy(), model.reward_probs.copy()
    transitions[0, 1, 1], rewards[0, 1, 1] = 0.0, 0.0
    bonus = np.zeros((3, 3, 2))
    bonus[0, 1, 1] = 3.0
    partial = model.replace(
        transitions=transitions, rewards=rewards, bonus=bonus, allow_unvisited=True
    )
    np.testing.assert_array_equal(q_values(partial)[:, 1, 1, 0], 3.0)


@pytest.mark.parametrize("models", [testing.small_models(), testing.endless_models()])
def test_conforms(models: dict) -> None:
    testing.check_planner(lm.QMDP(), models=models)


KINDS = st.fixed_dictionaries(
    {
        "contexts": st.integers(1, 6),
        "states": st.integers(2, 5),
        "actions": st.integers(1, 3),
        "zeros": st.sampled_from([0.0, 0.4]),
        "bonus": st.booleans(),
        "forbidden": st.sampled_from([0.0, 0.5]),
        "reward_model": st.sampled_from(["state-action", "transition"]),
    }
)


def masked_textbook(model: lm.LatentMDP) -> np.ndarray:
    """Q-values by the definition, 0 where an action is not allowed."""
    H, S, A, M = model.horizon, model.n_states, model.n_actions, model.n_contexts
    T, rewards = model.transitions, model.planning_rewards()
    values, later = np.zeros((H, S, A, M)), np.zeros((S, M))
    for t in reversed(range(H)):
        for s, a in np.argwhere(model.allowed):
            for m in range(M):
                values[t, s, a, m] = rewards[m, s, a] + model.discount * T[m, s, a] @ later[:, m]
        for s in np.flatnonzero(~model.terminal):
            later[s] = values[t, s, model.allowed[s]].max(axis=0)
    return values


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), kind=KINDS, terminal=st.integers(0, 1))
def test_over_possible_steps_as_by_the_definition(seed: int, kind: dict, terminal: int) -> None:
    for table in (False, True):
        model = testing.random_model(
            seed, **kind, n_terminal=terminal, as_table=table, horizon=4, discount=0.9
        )
        expected = masked_textbook(model)
        rows = planning_rows(model)
        found = qmdp._by_action(model, rows, qmdp._row_values(model, rows, model.discount))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(q_values(model), expected, rtol=1e-12, atol=1e-12)
        plan = lm.QMDP().plan(model)
        labels = set(zip(np.repeat(np.arange(4 * model.n_states) % model.n_states,
                                   np.diff(plan.policy.offsets)), plan.policy.actions))  # fmt: skip
        assert labels == set(map(tuple, np.argwhere(model.allowed)))
        best = testing.optimal_value(model.replace(horizon=2))
        assert lm.QMDP().plan(model.replace(horizon=2)).upper >= best - 1e-12


@pytest.mark.parametrize("contexts", [2, 5, 9])
def test_threads_change_no_bit(contexts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of states, of any number."""
    model = testing.random_model(
        4, contexts=contexts, states=23, actions=3, horizon=9, discount=0.9, zeros=0.8,
        forbidden=0.3, n_terminal=2, as_table=True,
    )  # fmt: skip
    plan = lm.QMDP(threads=1).plan(model)
    for work in (50.0, 200.0, 1000.0):
        monkeypatch.setattr(qmdp, "_BLOCK_WORK", work)
        for threads in (1, 2, 3, 7):
            again = lm.QMDP(threads=threads).plan(model)
            assert np.array_equal(again.policy.vectors, plan.policy.vectors)
            assert again.upper == plan.upper
            q = q_values(model, lambda: None, threads)
            assert np.array_equal(q[:, model.allowed].reshape(-1, contexts), plan.policy.vectors)


def test_refuses_wrong_threads() -> None:
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        lm.QMDP(threads=0)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=KINDS,
    terminal=st.integers(0, 1),
    discount=st.sampled_from([0.2, 0.9]),
)
def test_without_an_end_as_with_a_long_horizon(
    seed: int, kind: dict, terminal: int, discount: float
) -> None:
    model = testing.random_model(
        seed, **kind, n_terminal=terminal, horizon=None, discount=discount, as_table=bool(seed % 2)
    )
    H = 400
    long = model.replace(horizon=H)
    left = discount**H * 2.0 / (1.0 - discount)  # rewards and bonus lie in [0, 2]
    q = q_values(model)
    own = policy_values(model, best_actions(model, q))
    size = max(1.0, float(np.abs(q).max()))
    exact = q_values(long)[0]
    assert q.shape == (1, *exact.shape)
    assert (q[0] >= exact - 1e-14 * size).all()
    np.testing.assert_allclose(q[0], exact, rtol=0.0, atol=left + 1e-10 * size)
    followed = policy_values(long, best_actions(model, q))[0]
    assert (own[0] <= followed + left + 1e-14 * size).all()
    np.testing.assert_allclose(own[0], followed, rtol=0.0, atol=left + 1e-10 * size)


def ring(n: int, discount: float) -> lm.LatentMDP:
    """A cycle on which only the last state pays, or one may step aside and earn a little."""
    starts = np.arange(2 * n + 1)
    ahead = (np.arange(n) + 1) % n
    next_state = np.column_stack([ahead, np.arange(n)]).ravel()
    reward = np.zeros(2 * n, int)
    reward[2 * (n - 1)] = 1
    return lm.LatentMDP.from_outcomes(
        starts, next_state, reward, np.ones((2 * n, 2)), n_states=n, horizon=None,
        discount=discount, bonus=np.tile([0.0, 1e-5], (2, n, 1)),
    )  # fmt: skip


@pytest.mark.parametrize("n", [10, 300])
def test_a_slow_cycle_has_its_closed_form(n: int) -> None:
    """Plain value iteration would need thirty thousand backups, and a Krylov method n steps."""
    discount = 0.999
    q = q_values(ring(n, discount))
    again = 1.0 / (1.0 - discount**n)
    expected = discount ** (n - 1.0 - np.arange(n)) * again
    np.testing.assert_allclose(q[0, :, 0, 0], expected, rtol=1e-9)
    assert (q[0, :, 0, 0] >= expected * (1.0 - 1e-14)).all()


def test_policies_are_followed_in_every_context() -> None:
    model = testing.random_model(5, states=4, actions=3, forbidden=0.4, n_terminal=1, bonus=True)
    actions = np.stack([model.allowed.argmax(axis=1)] * 2, axis=-1)[None]
    actions[0, :, 1] = 2 - model.allowed[:, ::-1].argmax(axis=1)
    found = policy_values(model, actions)
    assert found.shape == (3, 4, 2, 2)
    for k, m, s in np.ndindex(2, 2, 4):
        alone = model.context(m).replace(initial=s, initial_bonus=None)
        value = testing.policy_value(alone, lm.MarkovPolicy(actions[0, :, k]))
        assert found[0, s, k, m] == pytest.approx(value, abs=1e-12)
    forbidden = np.argwhere(~model.allowed & ~model.terminal[:, None])[0]
    actions[0, forbidden[0], 0] = forbidden[1]
    with pytest.raises(ValueError, match=f"not allowed in state {forbidden[0]}"):
        policy_values(model, actions)


def test_what_does_not_fit_is_refused_with_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    model = testing.random_model(0, states=4, horizon=10**6, as_table=True, forbidden=0.5)
    for module in (memory, qmdp):
        monkeypatch.setattr(module, "free_memory", lambda: 50_000.0)
    with pytest.raises(TooLargeError, match=r"a horizon of \d+ would fit"):
        lm.QMDP().plan(model)
