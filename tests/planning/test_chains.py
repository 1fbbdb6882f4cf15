"""Equations of Markov chains: dense, iterated and factorised solutions are those of numpy."""

import numpy as np
import pytest

from latentmdp.planning import chains


def ragged(rng: np.random.Generator, states: int, contexts: int, most: int = 4):
    """Random rows, some empty, some with an entry twice; the matrices (M, S, S) they stand for."""
    counts = rng.integers(0, most + 1, states)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    following = rng.integers(0, states, offsets[-1])
    probs = rng.random((offsets[-1], contexts))
    state = np.repeat(np.arange(states), counts)
    sums = np.zeros((states, contexts))
    np.add.at(sums, state, probs)
    probs /= sums[state]
    matrices = np.zeros((contexts, states, states))
    for k, (s, n) in enumerate(zip(state, following)):
        matrices[:, s, n] += probs[k]
    return (offsets, following, probs), matrices


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("states", [1, 7, 64, 65, 200])
def test_solutions_are_those_of_numpy(states, transposed):
    rng = np.random.default_rng(states)
    rows, matrices = ragged(rng, states, 3)
    right = rng.normal(size=(states, 3))
    found = chains.solve_chains(*rows, right, 0.95, transposed)
    for m, P in enumerate(matrices):
        system = np.eye(states) - 0.95 * (P.T if transposed else P)
        wanted = np.linalg.solve(system, right[:, m])
        np.testing.assert_allclose(found[:, m], wanted, rtol=1e-9, atol=1e-9)


def test_a_periodic_chain_is_factorised():
    """A cycle, on which Krylov methods do not converge: values in closed form."""
    n, discount = 600, 0.999
    offsets, following = np.arange(n + 1), (np.arange(n) + 1) % n
    right = np.zeros((n, 1))
    right[-1] = 1.0
    found = chains.solve_chains(offsets, following, np.ones((n, 1)), right, discount)
    wanted = discount ** np.arange(n - 1, -1, -1) / (1.0 - discount**n)
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-9)


def test_a_guess_changes_nothing():
    rng = np.random.default_rng(1)
    rows, _ = ragged(rng, 100, 2)
    right = rng.normal(size=(100, 2))
    plain = chains.solve_chains(*rows, right, 0.9)
    guessed = chains.solve_chains(*rows, right, 0.9, guess=rng.normal(size=(100, 2)))
    np.testing.assert_allclose(guessed, plain, atol=1e-10)


def test_singular_equations_are_refused():
    with pytest.raises(np.linalg.LinAlgError):
        chains.solve_dense(np.eye(2), np.ones(2))
