"""`model.reaching`: its value is the probability of reaching a goal."""

import numpy as np
import pytest

import latentmdp as lm
from latentmdp import testing
from latentmdp.errors import ModelError


def reach_probability(model, goals, avoided, policy, steps):
    """P(a goal is reached within some steps, before anything that is avoided), by recursion."""
    M = model.n_contexts
    T = model.transitions
    total = 0.0
    for m in range(M):
        mass = model.weights[m] * model.initial[m]
        for t in range(steps + 1):
            total += mass[goals].sum()
            mass = mass.copy()
            mass[[*goals, *avoided]] = 0.0
            if t < steps:
                mass = sum(mass[s] * T[m, s, policy[s]] for s in range(model.n_states))
    return total


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["plain", "rewards that tell", "table"])
def test_the_value_is_the_probability(seed, kind):
    rng = np.random.default_rng(seed)
    M, S, A = 2, 5, 2
    T = rng.dirichlet(np.full(S, 0.4), (M, S, A))
    R = rng.random((M, S, A)) if kind == "rewards that tell" else np.full((M, S, A), 0.3)
    model = lm.LatentMDP(T, R, horizon=4, initial=rng.dirichlet(np.ones(S), M))
    if kind == "table":
        model = model.replace(outcomes=model.outcomes)
    reaching = model.reaching([S - 1], avoid=0)
    assert reaching.terminal.tolist() == [True, *[False] * (S - 2), True]
    for _ in range(3):
        actions = rng.integers(A, size=S)
        value = lm.evaluate(reaching, lm.MarkovPolicy(np.tile(actions, (4, 1)))).mean
        expected = reach_probability(model, [S - 1], [0], actions, 4)
        assert value == pytest.approx(expected, rel=1e-9)
    if kind == "rewards that tell":  # the best policy listens to them
        blind = model.replace(rewards=np.zeros((M, S, A))).reaching([S - 1], avoid=0)
        assert testing.optimal_value(reaching) >= testing.optimal_value(blind) - 1e-12


def test_names_flags_quotes_and_another_duration():
    model = testing.small_models()["two contexts"]
    named = model.replace(state_names=[f"s{i}" for i in range(model.n_states)])
    last = model.n_states - 1
    flags = np.arange(model.n_states) == last
    for goal in (f"s{last}", f'"s{last}"', [f"s{last}"], last, [last], flags):
        assert named.reaching(goal).terminal.tolist() == flags.tolist()
    changed = named.reaching(last, horizon=None, discount=0.5)
    assert (changed.horizon, changed.discount) == (None, 0.5)


def test_bad_goals_are_refused():
    model = testing.small_models()["two contexts"]
    with pytest.raises(ValueError, match="state 1 is both a goal and to be avoided"):
        model.reaching([0, 1], avoid=1)
    with pytest.raises(ValueError, match="goal must name at least one state"):
        model.reaching([])
    with pytest.raises(ValueError, match="goal is 99"):
        model.reaching(99)
    with pytest.raises(ModelError, match="every state is terminal"):
        model.reaching(range(model.n_states))
