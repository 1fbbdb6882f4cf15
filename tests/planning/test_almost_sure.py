"""Goals that are reached with probability one in every context: against the whole fixpoint."""

import itertools

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.errors import TooLargeError


def random_model(rng, M, S, A):
    """Sparse rows, so that contexts can be ruled out and traps occur."""
    T = np.zeros((M, S, A, S))
    for index in np.ndindex(M, S, A):
        reached = rng.choice(S, rng.integers(1, 3), replace=False)
        T[(*index, reached)] = rng.dirichlet(np.ones(reached.size))
    return lm.LatentMDP(T, np.zeros((M, S, A)), horizon=None, discount=0.9, initial=0)


def winning(model, goal):
    """Every pair (s, J) from which the goal is reached surely, as the greatest fixpoint."""
    M, S, A, _ = model.dimensions
    T = model.transitions
    sets = [J for r in range(1, M + 1) for J in itertools.combinations(range(M), r)]

    def after(s, J, a):
        reached = {}
        for m in J:
            for n in np.flatnonzero(T[m, s, a]).tolist():
                reached.setdefault(n, []).append(m)
        return {n: tuple(contexts) for n, contexts in reached.items()}

    follows = {
        (s, J): [after(s, J, a) for a in range(A)] for s in range(S) if s != goal for J in sets
    }
    won = set(follows)
    while True:
        safe = {
            node: [step for step in follows[node] if all(n == goal or (n, J) in won
                                                         for n, J in step.items())]
            for node in won
        }  # fmt: skip
        reach = set()
        while True:
            more = {
                (s, J, m)
                for (s, J), steps in safe.items()
                for m in J
                if any(
                    m in K and (n == goal or (n, K, m) in reach)
                    for step in steps
                    for n, K in step.items()
                )
            }
            if more == reach:
                break
            reach = more
        still = {(s, J) for s, J in won if all((s, J, m) in reach for m in J)}
        if still == won:
            return won
        won = still


@pytest.mark.parametrize("seed", range(80))
def test_verdicts_agree_with_the_fixpoint_over_all_pairs(seed):
    rng = np.random.default_rng(seed)
    M, S, A = (int(rng.integers(*sizes)) for sizes in ((1, 4), (3, 6), (1, 4)))
    model = random_model(rng, M, S, A)
    found = lm.theory.almost_surely(model, S - 1)
    assert found.holds == ((0, tuple(range(M))) in winning(model, S - 1))
    assert (found.policy is None) == (not found.holds)


def test_the_policy_reaches_the_goal_in_every_context():
    """A policy that does so surely misses it within 400 steps with probability below 1e-9."""
    rng = np.random.default_rng(1)
    checked = 0
    while checked < 6:
        model = random_model(rng, 3, 5, 2)
        found = lm.theory.almost_surely(model, 4)
        if not found.holds:
            continue
        reaching = model.reaching(4, horizon=400, discount=1.0)
        for m in range(3):
            logs = lm.simulate(reaching.subset([m]), _played(found.policy), 5, rng=0)
            assert logs.returns().tolist() == [1.0] * 5
        checked += 1


def _played(policy):
    """The policy of all contexts in a world where only one of them occurs."""
    return lambda history: policy(history)


def coin(*, both):
    """Two contexts: `left` pays in one, `right` in the other; a wrong guess is the end or not."""
    T = np.zeros((2, 3, 2, 3))
    T[:, 1:, :, [1, 2]] = np.eye(2)[:, None]
    T[0, 0, 0, 2] = T[1, 0, 1, 2] = 1.0
    T[0, 0, 1, 0 if both else 1] = T[1, 0, 0, 0 if both else 1] = 1.0
    names = {"state_names": ["start", "lost", "won"], "context_names": ["heads", "tails"]}
    return lm.LatentMDP(T, np.zeros((2, 3, 2)), horizon=9, initial=0, **names)


def test_guessing_again_is_safe_and_guessing_once_is_not():
    again = lm.theory.almost_surely(coin(both=True), "won")
    assert again.holds
    once = lm.theory.almost_surely(coin(both=False), "won")
    assert not once.holds
    assert "context 'heads'" in once.reason
    assert "in each of 2 contexts" in once.reason


def test_a_context_in_which_it_is_hopeless_is_named():
    model = coin(both=True)
    T = model.transitions.copy()
    T[1, 0] = np.eye(3)[1]
    found = lm.theory.almost_surely(model.replace(transitions=T), ["won"])
    assert not found.holds
    assert found.reason == "in context 'tails' no policy reaches the goal surely from state 'start'"


def test_more_than_64_contexts():
    """A target among 70: each guess tells right or wrong; a wrong one may be repeated or not."""
    M = 70
    for wrong, holds in ((0, True), (1, False)):
        T = np.zeros((M, 3, M, 3))
        T[:, 1, :, 1] = T[:, 2, :, 2] = 1.0
        T[:, 0, :, wrong] = 1.0
        T[range(M), 0, range(M)] = np.eye(3)[2]
        model = lm.LatentMDP(T, np.zeros((M, 3, M)), horizon=5, initial=0)
        assert lm.theory.almost_surely(model, 2).holds == holds


def test_bad_goals_and_limits():
    model = coin(both=True)
    with pytest.raises(ValueError, match="goal is 'wun', which the model does not know; near"):
        lm.theory.almost_surely(model, "wun")
    with pytest.raises(ValueError, match="goal is 7"):
        lm.theory.almost_surely(model, 7)
    rng = np.random.default_rng(0)
    big = random_model(rng, 12, 200, 3)
    with pytest.raises(TooLargeError, match="more than 1,000 pairs"):
        lm.theory.almost_surely(big, 199, max_nodes=1000)
