"""Exact occupancies and history probabilities of a policy in each context.

    P_m^pi(s_t = s, a_t = a),    P_m^pi(h) for every history h of a given length,

by forward recursion for Markov policies, by enumeration of histories for others. Times are counted
in transitions from the start of the episode: the paper's s_1 is time 0. In a terminal state no
action is taken, and nothing follows.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.model import LatentMDP
from latentmdp.policies import HistoryPolicy, Policy, action_table

MAX_ENTRIES = 50_000_000
"""Numbers in a table of tests or histories, 400 MB."""


def table_entries(model: LatentMDP, length: int) -> int:
    """S (A S Z)^l M: numbers that describe all tests, or all histories, of l transitions."""
    S, A, Z, M = model.n_states, model.n_actions, model.n_rewards, model.n_contexts
    return S * (A * S * Z) ** length * M


def occupancy(model: LatentMDP, policy: Policy | HistoryPolicy | Floats, steps: int) -> Floats:
    """P_m^pi(s_t = s, a_t = a) for t = 0..steps-1, shape (steps, M, S, A).

    A Markov policy may be its table (steps or 1, S, A), or (steps or 1, M, S, A).
    """
    M, S, A = model.n_contexts, model.n_states, model.n_actions
    table = policy if isinstance(policy, np.ndarray) else action_table(policy, model)
    if table is None:
        assert not isinstance(policy, np.ndarray)
        visits = np.zeros((steps, M, S, A))
        for visited, met in zip(visits, _histories_met(model, policy)):
            for state, mass, chances in met:
                visited[:, state, :] += mass[:, None] * chances
        return visits
    visits, rows, probs = np.empty((steps, M, S, A)), model.outcomes.rows(), model.outcomes.probs
    states = model.initial
    for t in range(steps):
        visits[t] = states[:, :, None] * table[t if len(table) > 1 else 0] * model.allowed
        mass = visits[t].reshape(M, -1)[:, rows] * probs.T  # that comes to the next states
        states = np.stack([np.bincount(model.outcomes.next_state, row, S) for row in mass])
    return visits


def histories(model: LatentMDP, policy: Policy | HistoryPolicy, length: int) -> list[Floats]:
    """P_m^pi(h) of the histories of `length` transitions, one array (M, number) per end state.

    With a Markov policy all histories are listed, also impossible ones; with others only those
    that some context can produce.
    """
    table = action_table(policy, model)
    if table is not None:
        return _markov_histories(model, table, length)
    ending: list[list[Floats]] = [[] for _ in range(model.n_states)]
    for state, mass, _ in next(islice(_histories_met(model, policy), length, None)):
        ending[state].append(mass)
    empty = np.zeros((model.n_contexts, 0))
    return [np.array(columns).T if columns else empty for columns in ending]


def _markov_histories(model: LatentMDP, table: Floats, length: int) -> list[Floats]:
    S, M = model.n_states, model.n_contexts
    if table_entries(model, length) > MAX_ENTRIES:
        raise ValueError(f"there are S (A S Z)^{length} histories of length {length}: too many")
    steps = model.packed()
    masses = model.initial.T[None]  # (history before its last state, last state, context)
    for t in range(length):
        rule = table[t if len(table) > 1 else 0]
        masses = np.einsum("hsm,sa,sanzm->hsaznm", masses, rule, steps, optimize=True)
        masses = masses.reshape(-1, S, M)
    return [np.ascontiguousarray(masses[:, s].T) for s in range(S)]


def _histories_met(
    model: LatentMDP, policy: Policy | HistoryPolicy
) -> Iterator[list[tuple[int, Floats, Floats]]]:
    """The histories of a policy with a memory, length by length."""
    # Planners take a while to import, and only policies with a memory need this.
    from latentmdp.planning import histories_met

    advice = "only Markov policies can be followed that far"
    # 50,000 histories at a time take some seconds of Python a step.
    return histories_met(model, policy, 50_000, advice)
