import numpy as np
import pytest
from models import random_alpha_policy, random_model

import latentmdp as lm


def test_alpha_vector_policy_acts_by_the_best_vector() -> None:
    model = random_model(0)
    policy = random_alpha_policy(model, 1)
    rng = np.random.default_rng(2)
    for _ in range(50):
        t, s = int(rng.integers(model.horizon)), int(rng.integers(model.n_states))
        belief = rng.dirichlet(np.ones(model.n_contexts))
        begin = policy.offsets[t * model.n_states + s]
        products = [float(policy.vectors[begin + k] @ belief) for k in range(3)]
        assert policy.value(t, s, belief) == pytest.approx(max(products), rel=1e-14)
        assert policy.action(t, s, belief) == policy.actions[begin + int(np.argmax(products))]


def test_stationary_alpha_vectors_serve_at_every_time() -> None:
    model = random_model(0, horizon=4)
    rng = np.random.default_rng(1)
    vectors = rng.random((2 * model.n_states, model.n_contexts))
    labels = np.tile([0, 1], model.n_states)
    offsets = np.arange(0, 2 * model.n_states + 1, 2)
    stationary = lm.AlphaVectorPolicy(vectors, labels, offsets, model)
    repeated = lm.AlphaVectorPolicy(
        np.tile(vectors, (4, 1)), np.tile(labels, 4), np.arange(0, 8 * model.n_states + 1, 2), model
    )
    assert lm.simulate(model, stationary, 200, rng=0) == lm.simulate(model, repeated, 200, rng=0)


def test_markov_policy_forms_agree() -> None:
    """One rule written as actions and as probabilities has the same value."""
    model = random_model(3, horizon=4)
    actions = np.random.default_rng(0).integers(2, size=(4, 3))
    one_hot = np.eye(2)[actions]
    forms = (actions, one_hot, one_hot.astype(int), one_hot.astype(bool), one_hot.tolist())
    values = [lm.evaluate(model, lm.MarkovPolicy(form)).mean for form in forms]
    assert len(set(values)) == 1
    assert lm.MarkovPolicy(actions[0]).stationary
    assert not lm.MarkovPolicy(actions).stationary


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros((2, 2, 2), int), "sums to 0"),
        (np.zeros((1, 2, 2, 2)), "integers of shape"),
        (np.zeros(3), "integers of shape"),
        (np.full((3, 2), 0.4), "sums to 0.8"),
        ([0, -1, 0], "must not be negative"),
        ([], "must not be empty"),
        (["a"], "integers of shape"),
    ],
)
def test_malformed_markov_policies_are_refused(actions: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lm.MarkovPolicy(actions)


def test_policies_that_do_not_fit_the_world_are_refused() -> None:
    model = random_model(0, horizon=3)
    with pytest.raises(ValueError, match="policy has 2 states, the model 3"):
        lm.simulate(model, lm.MarkovPolicy([0, 0]), 1, rng=0)
    with pytest.raises(ValueError, match="covers 2 steps, the model's horizon is 3"):
        lm.simulate(model, lm.MarkovPolicy(np.zeros((2, 3), int)), 1, rng=0)
    with pytest.raises(ValueError, match=r"actions\[0, 2\] is 7: must be below n_actions=2"):
        lm.simulate(model, lm.MarkovPolicy([0, 0, 7]), 1, rng=0)
    with pytest.raises(ValueError, match="n_actions=3, the world 2"):
        lm.simulate(model, random_alpha_policy(random_model(0, actions=3), 0), 1, rng=0)


def test_malformed_alpha_vector_policies_are_refused() -> None:
    model = random_model(0, horizon=1)
    labels, offsets = np.zeros(3, int), np.arange(4)
    with pytest.raises(ValueError, match=r"vectors must have shape \(3, 3\)"):
        lm.AlphaVectorPolicy(np.zeros((3, 2)), labels, offsets, model)
    with pytest.raises(ValueError, match="offsets must cut"):
        lm.AlphaVectorPolicy(np.zeros((3, 3)), labels, [0, 1, 3], model)
    with pytest.raises(ValueError, match="time 0, state 1 has no vector"):
        lm.AlphaVectorPolicy(np.zeros((3, 3)), labels, [0, 1, 1, 3], model)
    with pytest.raises(ValueError, match="below n_actions=2"):
        lm.AlphaVectorPolicy(np.zeros((3, 3)), labels + 2, offsets, model)


def test_policies_are_equal_by_content() -> None:
    model = random_model(0)
    alpha = random_alpha_policy(model, 1)
    again = lm.AlphaVectorPolicy(alpha.vectors, alpha.actions, alpha.offsets, model)
    softer = lm.AlphaVectorPolicy(alpha.vectors, alpha.actions, alpha.offsets, model, 1e-3)
    elsewhere = lm.AlphaVectorPolicy(alpha.vectors, alpha.actions, alpha.offsets, random_model(1))
    lanes = lm.QMDP().plan(model).policy
    copied = lm.AlphaVectorPolicy(lanes.vectors, lanes.actions, lanes.offsets, model)
    fixed, other, chance = (lm.MarkovPolicy(rule) for rule in ([0, 1], [1, 0], np.eye(2)))
    same = [(alpha, again), (lanes, copied), (fixed, lm.MarkovPolicy(np.array([0, 1])))]
    same += [(chance, lm.MarkovPolicy(np.eye(2))), (lm.UniformPolicy(), lm.UniformPolicy())]
    for first, second in same:
        assert first == second
        assert hash(first) == hash(second)
        assert first.fingerprint() == second.fingerprint()
    different = [alpha, softer, elsewhere, lanes, fixed, other, chance, lm.UniformPolicy()]
    assert len({policy.fingerprint() for policy in different}) == len(different)
    assert len(set(different)) == len(different)
    assert all(a != b for i, a in enumerate(different) for b in different[:i])
    assert fixed != "fixed"
