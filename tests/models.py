"""Small random models for the tests."""

import numpy as np

import latentmdp as lm


def random_model(
    seed: int,
    contexts: int = 3,
    states: int = 3,
    actions: int = 2,
    horizon: int = 3,
    *,
    form: str = "bernoulli",
    sparse: bool = False,
    bonus: bool = False,
    discount: float = 1.0,
) -> lm.LatentMDP:
    """A model with every probability random; `form` is bernoulli, values or next-state."""
    rng = np.random.default_rng(seed)
    M, S, A = contexts, states, actions
    concentration = 0.3 if sparse else 1.0
    transitions = rng.dirichlet(np.full(S, concentration), (M, S, A))
    if sparse:  # exact zeros, as in real tables
        transitions[transitions < 0.05] = 0.0
        transitions /= transitions.sum(axis=-1, keepdims=True)
    arguments: dict[str, object] = {}
    if form == "bernoulli":
        rewards = rng.random((M, S, A))
    else:
        arguments["reward_values"] = (-1.0, 0.5, 2.0)
        shape = (M, S, A) if form == "values" else (M, S, A, S)
        rewards = rng.dirichlet(np.ones(3), shape)
    if bonus:
        arguments["bonus"] = rng.random((M, S, A))
        arguments["initial_bonus"] = rng.random(M)
    return lm.LatentMDP(
        transitions,
        rewards,
        initial=rng.dirichlet(np.ones(S), M),
        weights=rng.dirichlet(np.ones(M)),
        horizon=horizon,
        discount=discount,
        **arguments,
    )


def random_alpha_policy(model: lm.LatentMDP, seed: int, vectors: int = 3) -> lm.AlphaVectorPolicy:
    """Random vectors with random labels, `vectors` for every time and state."""
    rng = np.random.default_rng(seed)
    groups = model.horizon * model.n_states
    return lm.AlphaVectorPolicy(
        rng.random((groups * vectors, model.n_contexts)),
        rng.integers(model.n_actions, size=groups * vectors),
        np.arange(0, groups * vectors + 1, vectors),
        model,
    )
