"""Outcome tables and dense arrays are two forms of one model; tables against brute force."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import latentmdp as lm
from latentmdp.errors import ModelError, TooLargeError
from latentmdp.outcomes import (
    Outcomes,
    check_outcomes,
    dense_joint,
    outcomes_from_arrays,
    outcomes_from_matrices,
    row_sums,
    with_rewards,
)


@st.composite
def twins(draw):
    """The same model as dense arrays and as a table, sparse, with gaps, of either reward model."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    M, S, A, Z = (draw(st.integers(1, n)) for n in (3, 4, 3, 3))
    T = rng.dirichlet(np.full(S, 0.5), (M, S, A))
    T[T < 0.1] = 0.0
    T /= T.sum(axis=-1, keepdims=True)
    by_next = draw(st.booleans())
    R = rng.dirichlet(np.full(Z, 0.6), (M, S, A, S) if by_next else (M, S, A))
    R[R < 0.1] = 0.0
    R /= R.sum(axis=-1, keepdims=True)
    allowed = rng.random((S, A)) < 0.8
    allowed[0, 0] = True
    others = {
        "horizon": 4,
        "initial": rng.dirichlet(np.ones(S), M),
        "weights": rng.dirichlet(np.ones(M)),
        "reward_values": rng.permutation(np.arange(Z) - 1.0),
        "allowed": allowed,
    }
    if draw(st.booleans()):
        others["bonus"] = rng.normal(size=(M, S, A))
    dense = lm.LatentMDP(T, R, **others)
    table = lm.LatentMDP.from_outcomes(
        *dense.outcomes, n_states=S, reward_model=dense.reward_model, **others
    )
    return dense, table


def close(one, two):
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-14)


@given(twins())
def test_both_forms_say_the_same(pair):
    dense, table = pair
    assert (dense.is_table, table.is_table) == (False, True)
    assert dense.dimensions == table.dimensions
    assert dense.reward_model == table.reward_model
    close(table.transitions, dense.transitions)
    close(table.observation_probs(), dense.observation_probs())
    close(table.packed(), dense.packed())
    close(table.mean_rewards(), dense.mean_rewards())
    close(table.planning_rewards(), dense.planning_rewards())
    if dense.reward_model == "state-action":
        close(table.reward_probs, dense.reward_probs)
    assert not table.transitions[:, ~table.allowed].any()
    if table.bonus is not None:
        assert not table.bonus[:, ~table.allowed].any()
    np.testing.assert_array_equal(table.terminal, ~table.allowed.any(axis=1))


@given(twins(), st.data())
def test_what_is_derived_is_the_same(pair, data):
    dense, table = pair
    chosen = data.draw(st.permutations(range(dense.n_contexts)))
    chosen = chosen[: data.draw(st.integers(1, len(chosen)))]
    for one, two in (
        (dense.subset(chosen), table.subset(chosen)),
        (dense.mixture(), table.mixture()),
        (dense.context(0), table.context(0)),
    ):
        close(two.transitions, one.transitions)
        close(two.mean_rewards(), one.mean_rewards())
        close(two.initial, one.initial)
        np.testing.assert_array_equal(two.allowed, one.allowed)
    close(table.distances(dense), dense.distances(dense))
    close(table.distances(table), dense.distances(dense))
    mixed = (table.observation_probs() * table.weights[:, None, None, None, None]).sum(axis=0)
    close(table.mixture().observation_probs()[0], mixed)


@given(twins())
def test_copies_are_equal_and_others_are_not(pair):
    for model in pair:
        again = model.replace()
        assert again == model
        assert again.is_table == model.is_table
        assert pickle.loads(pickle.dumps(model)) == model
        assert again.fingerprint() == model.fingerprint()
        assert model.replace(horizon=5) != model
        assert model.replace(horizon=5).fingerprint() != model.fingerprint()
        endless = model.replace(horizon=None, discount=0.5)
        assert endless.horizon is None
        assert endless.n_layers == 1
        assert endless.fingerprint() != model.replace(discount=0.5).fingerprint()
        assert type(model).from_fields(model.to_fields()) == model
    close(pair[1].replace(transitions=pair[0].transitions).transitions, pair[0].transitions)


@given(twins())
def test_successors_against_brute_force(pair):
    model = pair[1]
    found = model.outcomes.successors()
    _, S, A, _ = model.dimensions
    for row in range(S * A):
        here = slice(*found.starts[row : row + 2])
        states = found.next_state[here]
        assert (np.diff(states) > 0).all()
        expected = np.flatnonzero(model.transitions[:, row // A, row % A].any(axis=0))
        np.testing.assert_array_equal(states, expected)
        close(found.probs[here].T, model.transitions[:, row // A, row % A][:, states])
    assert not found.reward.any()


@given(twins())
def test_informative_outcomes_against_brute_force(pair):
    """Pairwise: two outcomes of a row and next state are one where they give one belief."""
    model = pair[1]
    table, found = model.outcomes, model.outcomes.informative()
    check_outcomes(found, model.n_states, model.allowed, model.n_rewards, False)
    for row in range(table.starts.size - 1):
        groups: dict[tuple, list] = {}
        for k in range(table.starts[row], table.starts[row + 1]):
            share = table.probs[k] / table.probs[k].sum()
            n = int(table.next_state[k])
            group = next(
                (g for g in groups if g[0] == n and np.abs(np.array(g[1]) - share).max() < 1e-9),
                (n, tuple(share)),
            )
            groups.setdefault(group, []).append(table.probs[k])
        here = slice(*found.starts[row : row + 2])
        assert len(groups) == here.stop - here.start
        merged = sorted((n, *np.sum(probs, axis=0)) for (n, _), probs in groups.items())
        mine = sorted(
            (int(n), *probs) for n, probs in zip(found.next_state[here], found.probs[here])
        )
        close(np.array(mine), np.array(merged))


def test_rewards_shared_by_contexts_are_merged():
    T = np.random.default_rng(0).dirichlet(np.ones(3), (2, 3, 2))
    model = lm.LatentMDP(T, np.full((2, 3, 2), 0.3), horizon=2)
    assert model.outcomes.size == 3 * 2 * 3 * 2
    assert model.outcomes.informative().size == 3 * 2 * 3


@given(twins())
def test_numbers_of_outcomes(pair):
    model = pair[1]
    S, Z = model.n_states, model.n_rewards
    table = model.outcomes
    keys = table.keys(S, Z)
    assert (np.diff(keys) > 0).all()
    np.testing.assert_array_equal(table.find(keys, S, Z), np.arange(table.size))
    others = np.setdiff1d(np.arange(S * model.n_actions * S * Z), keys)
    assert (table.find(others, S, Z) == -1).all()
    close(row_sums(table, table.probs)[model.allowed.ravel()], 1.0)
    close(dense_joint(table, model.dimensions), model.packed())


@settings(max_examples=25)
@given(twins())
def test_sparse_matrices_say_the_same(pair):
    dense = pair[0]
    M, S, A, Z = dense.dimensions
    T = dense.transitions
    matrices = [[sp.csr_array(T[m, :, a]) for a in range(A)] for m in range(M)]
    steps = outcomes_from_matrices(matrices, dense.allowed)
    expected = outcomes_from_arrays(T, np.ones((M, S, A, 1)))
    np.testing.assert_array_equal(steps.next_state, expected.next_state)
    close(steps.probs, expected.probs)
    if dense.reward_model == "state-action":
        R = np.moveaxis(dense.reward_probs, 0, -1).reshape(S * A, Z, M)
        close(dense_joint(with_rewards(steps, R), dense.dimensions), dense.packed())
        model = lm.LatentMDP(
            matrices,
            dense.reward_probs,
            horizon=4,
            reward_values=dense.reward_values,
            allowed=dense.allowed,
        )
        close(model.packed(), dense.packed())


def test_amounts_of_every_shape():
    rng = np.random.default_rng(0)
    M, S, A = 2, 3, 2
    T = rng.dirichlet(np.ones(S), (M, S, A))
    full = rng.integers(-2, 3, (M, S, A, S)).astype(float)
    for amounts in (full[0, :, :, 0], full[..., 0], full):
        spread = np.broadcast_to(amounts if amounts.ndim == 4 else amounts[..., None], (M, S, A, S))
        expected = (T * spread).sum(axis=-1)
        seen = lm.LatentMDP.from_amounts(T, amounts, horizon=3)
        unseen = lm.LatentMDP.from_amounts(T, amounts, horizon=3, observed=False)
        close(seen.mean_rewards(), expected)
        close(unseen.bonus, expected)
        assert unseen.n_rewards == 1
        assert seen.outcomes.size <= M * S * A * S
    matrices = [[sp.csr_array(full[m, :, a]) for a in range(A)] for m in range(M)]
    close(
        lm.LatentMDP.from_amounts(T, matrices, horizon=3).packed(),
        lm.LatentMDP.from_amounts(T, full, horizon=3).packed(),
    )


def test_a_large_table_is_never_made_dense(monkeypatch):
    monkeypatch.setattr("latentmdp._util.memory.free_memory", lambda: 2.0**30)
    model = lm.make("sparse", states=10_000, contexts=3, horizon=5, rng=0)
    for ask in (
        lambda: model.transitions,
        lambda: model.packed(),
        lambda: model.observation_probs(),
    ):
        with pytest.raises(TooLargeError, match=r"dense array.*model\.outcomes holds the same"):
            ask()
    assert model.mean_rewards().shape == (3, 10_000, 4)
    close(model.reward_probs @ model.reward_values, model.mean_rewards())
    assert model.subset([0, 2]).n_contexts == 2
    assert model.mixture().n_contexts == 1
    assert model.replace(horizon=7).horizon == 7


GOOD = Outcomes.each(
    np.array([0, 2, 3, 3, 4]),
    np.array([0, 1, 1, 0]),
    np.array([0, 1, 0, 1]),
    np.array([[0.5, 0.2], [0.5, 0.8], [1.0, 1.0], [1.0, 1.0]]),
)


def from_outcomes(table=GOOD, n_states=2, **others):
    return lm.LatentMDP.from_outcomes(*table, n_states=n_states, **{"horizon": 3, **others})


def test_a_table_by_hand():
    model = from_outcomes()
    assert model.allowed.tolist() == [[True, True], [False, True]]
    close(model.mean_rewards()[:, 0, 0], [0.5, 0.8])


S3 = np.eye(3)
MISTAKES = {
    "starts": (GOOD._replace(starts=np.array([0, 2, 3, 3, 5])), {}, "starts must rise from 0"),
    "starts fall": (GOOD._replace(starts=np.array([0, 3, 2, 3, 4])), {}, "starts must rise"),
    "starts begin": (GOOD._replace(starts=np.array([1, 2, 3, 3, 4])), {}, "starts must rise"),
    "a row too few": (GOOD._replace(starts=np.array([0, 2, 3, 4])), {}, "S A \\+ 1 entries"),
    "starts are floats": (GOOD._replace(starts=np.array([0.0, 4.0])), {}, "must hold integers"),
    "negative state": (
        GOOD._replace(next_state=np.array([0, -1, 1, 0])),
        {},
        r"next_state\[1\] is -1",
    ),
    "no such state": (
        GOOD._replace(next_state=np.array([0, 2, 1, 0])),
        {},
        r"next_state must lie in \[0, 2\)",
    ),
    "no such reward": (
        GOOD._replace(reward=np.array([0, 2, 0, 1])),
        {},
        r"reward must lie in \[0, 2\)",
    ),
    "short rewards": (GOOD._replace(reward=np.array([0, 1])), {}, "describe the same outcomes"),
    "two-dimensional": (GOOD._replace(reward=np.zeros((4, 1), int)), {}, "one-dimensional"),
    "flat probs": (GOOD._replace(distinct=np.ones(4)), {}, "describe the same outcomes"),
    "no contexts": (GOOD._replace(distinct=np.ones((4, 0))), {}, "describe the same outcomes"),
    "order": (
        GOOD._replace(next_state=np.array([1, 0, 1, 0])),
        {},
        "outcome 1: the outcomes of a row",
    ),
    "twice": (
        GOOD._replace(next_state=np.array([0, 0, 1, 0]), reward=np.array([0, 0, 0, 1])),
        {},
        "outcome 1: the outcomes of a row must rise",
    ),
    "negative": (GOOD._replace(distinct=GOOD.distinct - 0.5), {}, r"probs\[0, 1\] is -0.3"),
    "above one": (GOOD._replace(distinct=GOOD.distinct * 2), {}, "probabilities lie"),
    "NaN": (GOOD._replace(distinct=GOOD.distinct * np.nan), {}, "finite"),
    "a sum": (
        GOOD._replace(distinct=GOOD.distinct * 0.9),
        {},
        "context 0, state 0, action 0 sums to 0.9, must sum to 1",
    ),
    "forbidden but there": (
        GOOD,
        {"allowed": [[True, True], [True, False]]},
        "state 1, action (0 sums to 0|1 sums to 1, but the action is not allowed)",
    ),
    "allowed but empty": (
        GOOD,
        {"allowed": [[True, True], [True, True]]},
        "state 1, action 0 sums to 0",
    ),
    "flags of another shape": (GOOD, {"allowed": [[True]]}, "allowed must have shape"),
    "flags that are none": (GOOD, {"allowed": [[2, 1], [0, 1]]}, "allowed must hold flags"),
    "nothing allowed": (GOOD, {"allowed": np.zeros((2, 2))}, "every state is terminal"),
    "no end": (GOOD, {"horizon": None}, "discount below 1"),
    "horizon": (GOOD, {"horizon": 0}, "horizon must be at least 1"),
    "discount": (GOOD, {"discount": 1.5}, "discount must lie"),
    "states": (GOOD, {"n_states": 0}, "n_states must be at least 1"),
    "values": (GOOD, {"reward_values": (1.0, 1.0)}, "reward_values must be distinct"),
    "reward model": (GOOD, {"reward_model": "state"}, "reward_model must be one of"),
    "weights": (GOOD, {"weights": [0.5, 0.6]}, "weights: sums to 1.1"),
    "initial": (GOOD, {"initial": 2}, r"initial state must lie in \[0, 2\)"),
    "bonus": (GOOD, {"bonus": np.zeros((2, 2))}, "bonus must have shape"),
    "names": (GOOD, {"state_names": ["a", "a"]}, "2 distinct strings"),
    "unknown": (GOOD, {"wings": 2}, "unknown argument 'wings'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_tables_are_named(mistake):
    table, others, message = MISTAKES[mistake]
    with pytest.raises((ModelError, TypeError), match=message):
        from_outcomes(table, **{"n_states": 2, **others})


def test_sparse_amounts_of_an_action_that_no_state_has():
    stays = sp.csr_array(np.eye(2))
    model = lm.LatentMDP.from_amounts(
        [[stays, stays]], [[2.0 * stays, stays]], horizon=1, allowed=[[1, 0], [1, 0]]
    )
    assert model.planning_rewards()[0].tolist() == [[2.0, 0.0], [2.0, 0.0]]


def test_mistakes_in_sparse_matrices_are_named():
    good, short = sp.csr_array(S3), sp.csr_array(S3[:2, :2])
    half = sp.csr_array(S3 * 0.5)
    rewards = np.zeros((1, 3, 2))
    for matrices, message in (
        ([[good, half]], "context 0, state 0, action 1 sum to 0.5"),
        ([[good, short]], r"transitions\[0\]\[1\] must be a sparse matrix of shape \(3, 3\)"),
        ([[good, S3]], "sparse matrix of shape"),
        ([[good, -good]], r"transitions\[0\]\[1\]\[0, 0\] is -1"),
        ([[good, good], [good]], r"transitions\[1\] has 1 actions"),
    ):
        with pytest.raises(ModelError, match=message):
            lm.LatentMDP(matrices, rewards, horizon=2)
    with pytest.raises(ModelError, match="amounts must have shape"):
        lm.LatentMDP.from_amounts([[good, good]], np.zeros(3), horizon=2)
    with pytest.raises(ModelError, match=r"amounts\[0\]\[1\] must have shape"):
        lm.LatentMDP.from_amounts([[good, good]], [[good, short]], horizon=2)
    with pytest.raises(ModelError, match="lists of 2 sparse matrices"):
        lm.LatentMDP.from_amounts([[good, good]], [[good]], horizon=2)


@settings(max_examples=25)
@given(twins())
def test_the_same_outcomes_tell_contexts_apart(pair):
    from latentmdp.theory import telling_outcomes

    assume(pair[0].n_contexts > 1)
    for (_, one), (_, other) in zip(*map(telling_outcomes, pair)):
        close(np.ptp(one), np.ptp(other))


@pytest.mark.parametrize("at_once", [1, 40, 1 << 20])
def test_large_tables_are_checked_part_by_part(at_once, monkeypatch):
    monkeypatch.setattr("latentmdp.outcomes._CHECKED_AT_ONCE", at_once)
    model = lm.make("rock-sample", size=2, rocks=2, rng=0)
    table, sizes = model.outcomes, {"n_states": model.n_states, "n_rewards": model.n_rewards}
    sizes |= {"allowed": model.allowed, "optional": False}
    check_outcomes(table, **sizes)
    last, row = table.size - 1, int(table.rows()[-1])
    s, a = divmod(row, model.n_actions)
    for wrong, message in (
        (1.5, rf"probs\[{last}, 3\] is 1.5: probabilities lie in"),
        (0.9, rf"the row of context 3, state {s}, action {a} sums to .*, must sum to 1"),
    ):
        probs = table.probs.copy()
        probs[last, 3] = wrong
        with pytest.raises(ValueError, match=message):
            check_outcomes(table.having(probs), **sizes)
    forbidden = model.allowed.copy()
    forbidden[s, a] = False
    with pytest.raises(ValueError, match=f"state {s}, action {a} .* but the action is not allowed"):
        check_outcomes(table, **(sizes | {"allowed": forbidden}))
    cut = table.where(table.rows() < row)
    with pytest.raises(ValueError, match=f"state {s}, action {a} sums to 0, must sum to 1"):
        check_outcomes(cut, **sizes)
