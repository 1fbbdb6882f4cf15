"""Diagnosis of logs: what they tell of the assumptions of the theory without a model.

Contexts are hidden in logs, so delta, alpha_2, alpha_3 and the diameter of each context cannot be
had from them: fit a model and diagnose that. What logs do show, whatever the contexts:

- coverage: which (s, a) were tried, and how often;
- the number of contexts that short tests and histories can see. P_{T,H_s}, the joint probabilities
  of tests and histories, has rank at most M. Its singular values above the sampling noise are
  contexts that are really there. The noise is measured by halves of the logs: if D is the
  difference of their two estimates, ||D||_2 / 2 estimates the error of the whole;
- connectedness of the states by observed transitions: necessary for Assumption 4, not sufficient.

Histories are the first `length` transitions of an episode and tests the `length` after them. The
actions of tests are made as if forced by dividing by their probability under the policy.
"""

from dataclasses import dataclass

import numpy as np

from latentmdp._util.arrays import Floats, Integers, normalised
from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.results import Result
from latentmdp.policies import HistoryPolicy, MarkovPolicy, Policy, UniformPolicy
from latentmdp.trajectories import Trajectories, cell_counts

__all__ = ["LogDiagnosis", "Row", "Verdicts", "diagnose_logs"]

Row = tuple[str, str, str]
"""What was measured, its number, and what follows from it."""

CLEAR = 2.0
"""A singular value this many times the noise is taken for real: the noise is only an estimate,
and one context too many misleads more than one too few."""


class Verdicts(Result):
    """A result that reads as rows of text."""

    def rows(self) -> list[Row]:
        """(what, number, verdict)."""
        raise NotImplementedError

    def table(self) -> str:
        """The rows as aligned text, to be printed."""
        first, second = (max(len(row[k]) for row in self.rows()) for k in (0, 1))
        return "\n".join(f"{a:<{first}}  {b:<{second}}  {c}" for a, b, c in self.rows())

    def __str__(self) -> str:
        return self.table()


@dataclass(frozen=True, eq=False)
class LogDiagnosis(Verdicts):
    """What can be said of logs.

    Attributes
    ----------
    episodes, steps
        How many (repeated episodes counted).
    visits : (S, A)
        How often each action was taken in each state.
    end_state_probs : (S,)
        Share of the windows whose history ends in s.
    singular_values : tuple of (k,) arrays
        Of the estimated P_{T,H_s} for each state.
    noise : (S,)
        Estimated error of that matrix, in operator norm.
    visible_contexts : (S,)
        Singular values above twice the noise.
    connected
        Whether the transitions seen connect all states that occur.
    """

    episodes: int
    steps: int
    visits: Integers
    end_state_probs: Floats
    singular_values: tuple[Floats, ...]
    noise: Floats
    visible_contexts: Integers
    connected: bool

    @property
    def n_contexts_seen(self) -> int:
        """The largest number of contexts that is visible in any state: a lower bound on M."""
        return max(1, int(self.visible_contexts.max()))

    def rows(self) -> list[Row]:
        """(what, number, verdict)."""
        S, A = self.visits.shape
        missing = int((self.visits == 0).sum())
        s = int(np.argmax(self.visible_contexts))
        kept = self.singular_values[s][: self.n_contexts_seen + 1]
        values = ", ".join(f"{v:.2g}" for v in kept)
        seen = f"at least so many; state {s} has singular values {values} at noise "
        tried = "every state and action was tried"
        if missing:
            tried = f"{missing} pairs of state and action were never tried"
        connected = "yes" if self.connected else "no"
        unknown = "need a model of each context: fit one and diagnose it"
        return [
            ("episodes, steps", f"{self.episodes}, {self.steps}", ""),
            ("coverage", f"{S * A - missing} of {S * A}", tried),
            ("contexts visible", str(self.n_contexts_seen), f"{seen}{self.noise[s]:.2g}"),
            ("states connected", connected, "by the transitions seen, all contexts together"),
            ("delta, alpha_2, alpha_3, diameter", "-", unknown),
        ]

    def __repr__(self) -> str:
        tried, pairs = int((self.visits > 0).sum()), self.visits.size
        return (
            f"LogDiagnosis(episodes={self.episodes}, steps={self.steps}, "
            f"pairs tried={tried} of {pairs}, contexts seen={self.n_contexts_seen}, "
            f"connected={self.connected})"
        )


def diagnose_logs(
    logs: Trajectories, policy: Policy | HistoryPolicy | None, length: int, rng: RNGLike
) -> LogDiagnosis:
    """See `diagnose`."""
    if len(logs) == 0:
        raise ValueError("logs must hold at least one episode")
    weights = logs.multiplicities()
    visits = cell_counts(logs, ("state", "action")).astype(np.int64)
    windows = np.flatnonzero(logs.lengths >= 2 * length)
    if windows.size == 0:
        raise ValueError(
            f"no episode has the {2 * length} steps of a history and a test of length {length}"
        )
    behaviour = _behaviour(policy, visits)
    one = as_generator(rng).binomial(weights[windows], 0.5)
    halves = [one, weights[windows] - one]
    estimates = [_joint(logs, windows, half, length, behaviour) for half in halves]
    S = logs.n_states
    total = weights[windows].sum()
    sizes = [half.sum() / total for half in halves]
    whole = [sizes[0] * a + sizes[1] * b for a, b in zip(*estimates)]
    values = tuple(np.linalg.svd(P, compute_uv=False) for P in whole)
    noise = np.array([np.linalg.norm(a - b, 2) / 2.0 for a, b in zip(*estimates)])
    visible = np.array(
        [int((v > CLEAR * e).sum()) if e > 0.0 else 0 for v, e in zip(values, noise)]
    )
    ends = logs.states[logs.offsets[windows] + windows + length]
    return LogDiagnosis(
        episodes=int(weights.sum()),
        steps=int((weights * logs.lengths).sum()),
        visits=visits,
        end_state_probs=np.bincount(ends, weights[windows], S) / total,
        singular_values=values,
        noise=noise,
        visible_contexts=visible,
        connected=_connected(logs),
    )


def _behaviour(policy: Policy | HistoryPolicy | None, visits: Integers) -> Floats:
    """pi(a | s), shape (S, A)."""
    S, A = visits.shape
    if isinstance(policy, UniformPolicy):
        return np.full((S, A), 1.0 / A)
    if isinstance(policy, MarkovPolicy) and policy.stationary:
        if policy.probabilities is not None and policy.probabilities.shape[1:] == (S, A):
            return policy.probabilities[0]
        raise ValueError(f"policy must give probabilities of {A} actions in {S} states")
    if policy is not None:
        raise TypeError("for logs the policy must be uniform, stationary Markov, or None")
    return normalised(visits.astype(np.float64))


def _joint(
    logs: Trajectories, windows: Integers, weights: Integers, length: int, behaviour: Floats
) -> list[Floats]:
    """Estimate of P_{T,H_s} for every state from some of the windows."""
    S, A, Z = logs.n_states, logs.n_actions, logs.n_rewards
    begin, states = logs.offsets[windows], logs.offsets[windows] + windows
    n_tests = (A * Z * S) ** length
    n_histories = n_tests  # as many: they have a first state, and their last one is given
    if n_histories * n_tests * S > 1 << 26:
        raise ValueError(f"too many tests and histories of length {length} for {S} states")
    history, test = logs.states[states].astype(np.int64), np.zeros(windows.size, np.int64)
    weight = weights.astype(np.float64)
    for k in range(2 * length):
        s, a = logs.states[states + k], logs.actions[begin + k]
        z, n = logs.rewards[begin + k], logs.states[states + k + 1]
        if k < length:
            history = (history * A + a) * Z + z
            history = history * S + n if k < length - 1 else history
        else:
            test = ((test * A + a) * Z + z) * S + n
            weight = weight / behaviour[s, a]
    end = logs.states[states + length].astype(np.int64)
    cell = (end * n_tests + test) * n_histories + history
    joint = np.bincount(cell, weight, S * n_tests * n_histories) / max(1, weights.sum())
    return list(joint.reshape(S, n_tests, n_histories))


def _connected(logs: Trajectories) -> bool:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    steps, S = logs.steps(), logs.n_states
    edges = (steps.state, steps.next_state)
    graph = coo_array((np.ones(logs.n_steps), edges), shape=(S, S))
    _, labels = connected_components(graph, directed=False)
    return bool(np.unique(labels[np.unique(logs.states)]).size <= 1)
