"""Reachability under a policy, connectivity and diameter of each context [kwon2021, App. D.2].

Assumption 3: P_m^pi(s_{H-1} = s) >= alpha_2 for all m, s under the exploration policy pi. The paper
counts from 1, so s_{H-1} is the state after H - 2 transitions. A terminal state, where there is
nothing to explore, need not be reached.

Assumption 4: the undirected graph G_m with an edge (s, s') wherever T_m(s' | s, a) >= alpha_3 for
some a is connected. The largest such alpha_3 is the smallest edge of a maximum spanning tree.

Remark 1: the diameter D_m = max_{s != s'} min_pi E_m^pi[steps from s to s']. A finite one makes
G_m connected for some alpha_3 > 0, but alpha_3 >= 1 / D_m, as the remark says, need not hold: a
group of states can be left towards many others at once, each with a small probability. Two groups
of four states, any state of one's own group at will and a uniform jump to the other group, have
D_m = 7 / 4 and alpha_3 = 1 / 4 < 4 / 7. What does hold is alpha_3 >= 2 / (S D_m): any group and
its complement are left by some state with probability at least 1 / D_m, and one of the two ways
leads to at most S / 2 states.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree

from latentmdp._util.arrays import Flags, Floats, Integers
from latentmdp._util.cycles import distances
from latentmdp.model import LatentMDP, require_horizon
from latentmdp.planning import solve_dense
from latentmdp.policies import HistoryPolicy, Policy, UniformPolicy
from latentmdp.theory.visitation import occupancy


def reach_probs(model: LatentMDP, policy: Policy | HistoryPolicy | None = None) -> Floats:
    """P_m^pi(s_{H-1} = s), shape (M, S); with a horizon of 1 the first state is meant.

    It counts those who act there: it is 0 in a terminal state.
    """
    steps = max(0, require_horizon(model, "reachability") - 2)
    return occupancy(model, policy or UniformPolicy(), steps + 1)[steps].sum(axis=-1)


def reachability(model: LatentMDP, policy: Policy | HistoryPolicy | None = None) -> float:
    """alpha_2 of Assumption 3 for a policy (uniform by default)."""
    return float(reach_probs(model, policy)[:, ~model.terminal].min())


def connectivity(model: LatentMDP) -> Floats:
    """alpha_3 of Assumption 4: the largest that keeps G_m connected, shape (M,); 0 if none does.

    A single state is connected whatever alpha_3: the value is 1.
    """
    trees = [minimum_spanning_tree(-graph).data for graph in _edges(model)]
    whole = model.n_states - 1
    return np.array([(-tree).min(initial=1.0) if tree.size == whole else 0.0 for tree in trees])


def _edges(model: LatentMDP) -> list[Any]:
    """For each context max_a T_m(s' | s, a), or what s' has to s if that is more, (S, S)."""
    S, table = model.n_states, model.successors()
    moves = table.rows() // model.n_actions * S + table.next_state
    pairs, index = np.unique(moves, return_inverse=True)
    strongest = np.zeros((pairs.size, model.n_contexts))
    np.maximum.at(strongest, index.ravel(), table.probs)
    ends = tuple(end.astype(np.int32) for end in divmod(pairs, S))  # what scipy's trees take
    graphs = [csr_array((column, ends), shape=(S, S)) for column in strongest.T]
    return [graph.maximum(graph.T.tocsr()) for graph in graphs]


def diameter(model: LatentMDP) -> Floats:
    """D_m of Remark 1, shape (M,); infinite if some state cannot be reached for sure.

    From a terminal state nobody goes anywhere, so only the way to it counts.
    """
    if model.n_states == 1:
        return np.zeros(model.n_contexts)
    return np.array([hitting_times(T)[~model.terminal].max() for T in model.transitions])


def hitting_times(transitions: Floats) -> Floats:
    """min_pi E[steps from s to g] in one MDP (S, A, S), shape (S, S); the diagonal is 0.

    A row without any probability is an action that cannot be taken.
    """
    return np.stack([_times_to(transitions, goal) for goal in range(len(transitions))], axis=1)


def _times_to(T: Floats, goal: int) -> Floats:
    """Policy iteration on the states that can reach the goal for sure.

    It begins with a proper policy, one that reaches the goal, and then improves strictly, so it
    ends at the optimum of this shortest-path problem; every evaluation solves linear equations.
    """
    S = len(T)
    policy, sure = _proper_policy(T, goal)
    others = np.flatnonzero(sure & (np.arange(S) != goal))
    times = np.full(S, np.inf)
    times[goal] = 0.0
    if others.size == 0:
        return times
    safe = (T[others][:, :, ~sure].sum(axis=-1) == 0.0) & (T[others].sum(axis=-1) > 0.0)
    within = T[others][:, :, others]
    actions = policy[others]
    rows = np.arange(others.size)
    ends = T[others][:, :, goal]
    while True:
        current = _expected_times(within[rows, actions], ends[rows, actions])
        endless = np.isinf(current)
        with np.errstate(over="ignore"):
            options = 1.0 + within @ np.where(endless, 0.0, current)
        options[~safe | (within[:, :, endless] > 0.0).any(axis=2)] = np.inf
        better = options.argmin(axis=1)
        improve = options[rows, better] < current * (1.0 - 1e-12)
        if not improve.any():
            times[others] = current
            return times
        actions = np.where(improve, better, actions)


def _expected_times(moves: Floats, ends: Floats) -> Floats:
    """Expected steps to the end of a chain with transitions (n, n) that ends with (n,).

    Times up to 1e8 come from solving equations, with half of a double's digits left. Those beyond
    the reach of the equations I - moves, which round away what is small, come from the slower
    elimination without subtraction [grassmann1985], exact for chances of any size; times that
    no double holds are infinite.
    """
    n = ends.size
    try:
        times = solve_dense(moves, np.ones(n))
        if times.min() >= 0.5 and times.max() <= 1e8:
            return times
    except np.linalg.LinAlgError:
        pass
    moves, ends, steps, out = moves.copy(), ends.copy(), np.ones(n), np.empty(n)
    with np.errstate(over="ignore", divide="ignore"):
        for k in range(n - 1, -1, -1):
            out[k] = max(moves[k, :k].sum() + ends[k], np.finfo(np.float64).smallest_subnormal)
            share = moves[:k, k] / out[k]
            moves[:k, :k] += np.outer(share, moves[k, :k])
            ends[:k] += share * ends[k]
            steps[:k] += share * steps[k]
        times = np.empty(n)
        for k in range(n):
            reached = moves[k, :k] > 0.0
            times[k] = (steps[k] + moves[k, :k][reached] @ times[:k][reached]) / out[k]
    return times


def _proper_policy(T: Floats, goal: int) -> tuple[Integers, Flags]:
    """States that reach the goal with probability 1 under some policy, and such a policy."""
    S = len(T)
    possible, goals = T > 0.0, np.arange(S) == goal
    sure = np.ones(S, dtype=bool)
    while True:
        inside = ~np.any(possible & ~sure, axis=-1)  # actions that cannot leave `sure`
        state, _, following = np.nonzero(possible & inside[:, :, None])
        steps = distances(S, state, following, goals)
        if ((steps >= 0) == sure).all():
            break
        sure = steps >= 0
    nearer = possible & sure & (steps < steps[:, None, None])
    return (inside & nearer.any(axis=-1)).argmax(axis=1), sure
