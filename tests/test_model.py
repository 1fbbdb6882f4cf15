"""LatentMDP: the arrays it holds, what it derives from them, and that it cannot change."""

import copy
import itertools
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from scipy.sparse import csr_array
from support import models, random_model

import latentmdp as lm
from latentmdp import testing
from latentmdp.errors import ModelError
from latentmdp.model import LatentMDP

T = np.full((2, 3, 2, 3), 1 / 3)
R = np.full((2, 3, 2), 0.25)


def test_bernoulli_means():
    model = LatentMDP(T, R, horizon=4)
    assert model.reward_probs.shape == (2, 3, 2, 2)
    assert model.reward_values.tolist() == [0.0, 1.0]
    np.testing.assert_array_equal(model.mean_rewards(), R)
    assert (model.n_contexts, model.n_states, model.n_actions, model.n_rewards) == (2, 3, 2, 2)
    np.testing.assert_array_equal(model.weights, [0.5, 0.5])
    np.testing.assert_array_equal(model.initial, np.full((2, 3), 1 / 3))


def test_fractions_where_all_moves_are_certain_are_doubted():
    """They are read as chances of 1; a bandit, or rewards of 0 and 1, give no reason to ask."""
    certain = np.zeros((2, 3, 2, 3))
    certain[..., 0] = 1.0
    with pytest.warns(UserWarning, match=r"rewards\[0, 0, 0\] is 0.25, taken as the probability"):
        LatentMDP(certain, R, horizon=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LatentMDP(T, R, horizon=4)
        LatentMDP(certain, np.ones((2, 3, 2)), horizon=4)
        LatentMDP(certain, np.stack([1.0 - R, R], axis=-1), horizon=4)
        LatentMDP(np.ones((2, 1, 2, 1)), R[:, :1], horizon=4)


def test_the_start_state_may_be_one_number_or_one_row():
    assert LatentMDP(T, R, initial=2, horizon=1).initial.tolist() == [[0, 0, 1]] * 2
    assert LatentMDP(T, R, initial=[0, 1, 0], horizon=1).initial.tolist() == [[0, 1, 0]] * 2


@given(models())
def test_observation_probs_by_their_definition(model):
    P = model.observation_probs()
    for m, s, a, n in itertools.product(
        range(model.n_contexts),
        range(model.n_states),
        range(model.n_actions),
        range(model.n_states),
    ):
        given_next = model.reward_probs[m, s, a]
        row = given_next[n] if model.reward_model == "transition" else given_next
        np.testing.assert_allclose(P[m, s, a, n], model.transitions[m, s, a, n] * row, rtol=1e-15)
    np.testing.assert_allclose(P.sum(axis=(3, 4)), 1.0, rtol=1e-14)
    np.testing.assert_allclose(
        model.mean_rewards(), P.sum(axis=3) @ model.reward_values, rtol=1e-13, atol=1e-15
    )
    np.testing.assert_array_equal(model.packed(), np.moveaxis(P, 0, -1))
    assert model.packed().flags.c_contiguous


@given(models())
def test_planning_rewards_count_the_bonus(model):
    extra = 0.0 if model.bonus is None else model.bonus
    np.testing.assert_allclose(model.planning_rewards(), model.mean_rewards() + extra)


@given(models())
def test_equality_hash_and_copies(model):
    again = model.replace()
    for twin in (again, copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin == model
        assert hash(twin) == hash(model)
        assert not twin.transitions.flags.writeable
    assert model != model.replace(horizon=model.horizon + 1)
    assert model != "a model"


def test_equal_models_have_equal_fingerprints_even_with_negative_zeros():
    one = LatentMDP(T, R, horizon=1, bonus=np.zeros((2, 3, 2)))
    other = one.replace(bonus=-np.zeros((2, 3, 2)))
    assert one == other
    assert one.fingerprint() == other.fingerprint()


def test_nothing_can_be_changed():
    transitions = T.copy()
    model = LatentMDP(transitions, R, horizon=4)
    transitions[:] = 0.0
    assert model.transitions[0, 0, 0, 0] == 1 / 3
    for array in (model.transitions, model.reward_probs, model.packed(), model.weights):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
    with pytest.raises(AttributeError, match=r"replace\(horizon="):
        model.horizon = 5
    with pytest.raises(AttributeError, match="immutable"):
        del model.horizon


def test_rows_within_the_tolerance_are_renormalised():
    off = T.copy()
    off[0, 0, 0] *= 1 + 5e-10
    model = LatentMDP(off, R, horizon=1)
    np.testing.assert_allclose(model.transitions.sum(-1), 1.0, rtol=0, atol=1e-15)
    assert model.replace() == model


def test_rows_of_single_precision_are_renormalised():
    rng = np.random.default_rng(0)
    T = rng.dirichlet(np.ones(7), size=(2, 7, 3)).astype(np.float32)
    R = rng.dirichlet(np.ones(3), size=(2, 7, 3)).astype(np.float32)
    w, nu = np.float32([0.1, 0.9]), rng.dirichlet(np.ones(7), size=2).astype(np.float32)
    assert np.abs(T.sum(axis=-1, dtype=float) - 1.0).max() > 1e-9
    model = LatentMDP(T, R, initial=nu, weights=w, horizon=3, reward_values=(0, 1, 2))
    np.testing.assert_allclose(model.transitions.sum(axis=-1), 1.0, atol=1e-14)
    np.testing.assert_allclose(model.transitions, T, atol=1e-6)
    np.testing.assert_allclose(model.reward_probs, R, atol=1e-6)
    T[1, 6, 2] *= 1.0 + 1e-5
    with pytest.raises(ModelError, match="context 1, state 6, action 2"):
        LatentMDP(T, R, horizon=3, reward_values=(0, 1, 2))


def test_replace_takes_every_form_of_rewards():
    model = LatentMDP(T, R, horizon=4)
    given_next = np.broadcast_to(model.reward_probs[:, :, :, None, :], (2, 3, 2, 3, 2))
    other = model.replace(rewards=given_next)
    assert other.reward_model == "transition"
    np.testing.assert_allclose(other.observation_probs(), model.observation_probs())
    with pytest.raises(TypeError, match="horizn"):
        model.replace(horizn=3)


@given(models())
def test_subset_of_contexts(model):
    order = list(range(model.n_contexts))[::-1]
    part = model.subset(order)
    np.testing.assert_array_equal(part.transitions, model.transitions[order])
    np.testing.assert_allclose(part.weights, model.weights[order], rtol=1e-14)
    single = model.context(model.n_contexts - 1)
    assert single.n_contexts == 1
    np.testing.assert_allclose(single.weights, [1.0], rtol=1e-15)
    assert single.context_names == (
        None if model.context_names is None else model.context_names[-1:]
    )


@pytest.mark.parametrize(
    ("contexts", "error", "message"),
    [
        ([], ValueError, "at least one"),
        ([0, 3], ValueError, r"\[0, 3\)"),
        ([1, -2], ValueError, "distinct"),
        ([0.7], TypeError, "integers"),
        ([True], TypeError, "integers"),
    ],
)
def test_subset_of_what_does_not_exist(contexts, error, message):
    with pytest.raises(error, match=message):
        random_model().subset(contexts)


def test_subset_of_weight_zero():
    model = random_model(weights=[0.5, 0.5, 0.0])
    with pytest.raises(ValueError, match="weight zero"):
        model.context(2)


@given(models())
def test_mixture_averages_the_contexts(model):
    mixed = model.mixture()
    assert mixed.n_contexts == 1
    w = model.weights
    np.testing.assert_allclose(
        mixed.transitions[0], np.tensordot(w, model.transitions, 1), rtol=1e-12
    )
    np.testing.assert_allclose(mixed.initial[0], w @ model.initial, rtol=1e-12)
    if model.reward_model == "transition":
        joint = np.tensordot(w, model.observation_probs(), 1)
        np.testing.assert_allclose(mixed.observation_probs()[0], joint, rtol=1e-12)
    if model.bonus is not None:
        np.testing.assert_allclose(mixed.bonus[0], np.tensordot(w, model.bonus, 1), atol=1e-12)


def test_mixture_of_a_model_with_unvisited_rows():
    transitions, rewards = T.copy(), np.stack([1 - R, R], axis=-1)
    transitions[0, 1, 1] = 0.0
    rewards[0, 1, 1] = 0.0
    transitions[:, 2, 0] = 0.0
    model = LatentMDP(transitions, rewards, horizon=2, allow_unvisited=True)
    mixed = model.mixture()
    np.testing.assert_allclose(mixed.transitions[0, 1, 1], T[1, 1, 1])
    np.testing.assert_allclose(mixed.reward_probs[0, 1, 1], [0.75, 0.25])
    np.testing.assert_array_equal(mixed.transitions[0, 2, 0], 0.0)


def test_unvisited_rows_need_permission():
    transitions = T.copy()
    transitions[1, 2, 0] = 0.0
    with pytest.raises(ModelError, match="context 1, state 2, action 0 sums to 0"):
        LatentMDP(transitions, R, horizon=2)
    assert LatentMDP(transitions, R, horizon=2, allow_unvisited=True).allow_unvisited


def test_rewards_of_impossible_next_states_may_be_missing():
    transitions = np.zeros((1, 2, 1, 2))
    transitions[..., 0] = 1.0
    rewards = np.zeros((1, 2, 1, 2, 2))
    rewards[..., 0, 1] = 1.0
    model = LatentMDP(transitions, rewards, horizon=2)
    np.testing.assert_array_equal(model.mean_rewards(), 1.0)
    rewards[0, 1, 0, 0] = 0.0
    with pytest.raises(ModelError, match="context 0, state 1, action 0, next state 0"):
        LatentMDP(transitions, rewards, horizon=2)


@pytest.mark.parametrize("seed", range(5))
def test_align_finds_the_best_of_all_orders(seed):
    rng = np.random.default_rng(seed)
    model = random_model(seed, M=4)
    shuffled = model.subset(rng.permutation(4))
    noisy = shuffled.replace(transitions=0.9 * shuffled.transitions + 0.1 / shuffled.n_states)
    aligned = noisy.align(to=model)

    def cost(candidate):
        return np.abs(candidate.observation_probs() - model.observation_probs()).sum()

    best = min(cost(noisy.subset(order)) for order in itertools.permutations(range(4)))
    assert cost(aligned) == pytest.approx(best, rel=1e-12)


def test_models_over_other_spaces_do_not_compare():
    with pytest.raises(ValueError, match="n_states: 4 and 5"):
        random_model(S=4).distances(random_model(S=5))
    with pytest.raises(ValueError, match="reward_values"):
        random_model(Z=2).distances(random_model(Z=2, reward_values=(0.0, 2.0)))
    with pytest.raises(ValueError, match="as many contexts"):
        random_model(M=2).align(to=random_model(M=3))


def test_repr_says_what_matters():
    shown = repr(random_model(discount=0.5, bonus=np.zeros((3, 4, 2))))
    for part in ("contexts=3", "states=4", "actions=2", "horizon=5", "discount=0.5", "bonus"):
        assert part in shown


def test_subclasses_survive_what_makes_new_models():
    class Ward(LatentMDP):
        """A model with a method of its own."""

        def beds(self):
            return self.n_states

    model = random_model()
    ward = Ward(model.transitions, model.reward_probs, horizon=5, reward_values=model.reward_values)
    others = (ward.replace(horizon=2), ward.subset([0]), ward.mixture(), ward.align(ward))
    assert all(other.beds() == ward.n_states for other in others)


def test_an_empty_row_of_an_allowed_action_stays_allowed() -> None:
    """As a learner has it: copies and files must not take it for a forbidden one."""
    model = LatentMDP.from_outcomes(
        [0, 1, 1, 2, 3],
        [1, 0, 1],
        [0, 1, 0],
        [[1.0]] * 3,
        n_states=2,
        horizon=3,
        allowed=np.ones((2, 2), bool),
        allow_unvisited=True,
    )
    for again in (model.replace(horizon=4), LatentMDP.from_fields(model.to_fields())):
        assert again.all_allowed
        assert (again.transitions[:, 0, 1] == 0.0).all()


def test_first_states_may_be_sparse_and_cost_what_they_contain():
    """A sparse matrix of first states is the dense one, and is never spread out."""
    rng = np.random.default_rng(0)
    model = testing.random_model(rng, contexts=3, states=5, bonus=True)
    dense = np.zeros((3, 5))
    dense[:, [1, 3]] = rng.dirichlet(np.ones(2), 3)
    first, second = model.replace(initial=dense), model.replace(initial=csr_array(dense))
    assert first == second
    assert first.fingerprint() == second.fingerprint()
    assert second.initial_vectors.distinct.shape == (3, 3)
    np.testing.assert_array_equal(second.initial, dense)
    assert second.replace(horizon=9).initial_vectors is second.initial_vectors
    plans = [lm.HSVI(gap=1e-6).plan(one.replace(horizon=3)) for one in (first, second)]
    assert plans[0].lower == plans[1].lower
    logs = [lm.simulate(one, plan.policy, 50, rng=1) for one, plan in zip((first, second), plans)]
    assert logs[0] == logs[1]
    with pytest.raises(ModelError, match="context 1"):
        model.replace(initial=csr_array(dense * [[1.0], [0.5], [1.0]]))
    with pytest.raises(ModelError, match="initial must have shape"):
        model.replace(initial=csr_array(dense[:, :4]))
