"""Diagnosis of logs: what they tell of the assumptions of the theory without a model.

Contexts are hidden in logs, so delta, alpha_2, alpha_3 and the diameter of each context cannot be
had from them: fit a model and diagnose that. What logs do show, whatever the contexts:

- coverage: which (s, a) were tried, and how often;
- the number of contexts that one step and the history before it can see. Given (s, a) and the
  context m, what follows, o = (s', r), does not depend on the history h, whoever chose a and why.
  So P(o, h | s, a) = sum_m P_m(o | s, a) P(m, h | s, a) has rank at most M, even if several
  policies made the logs or the logger knew the context. Singular values beyond sampling noise
  (`spectral.noise`) bound M from below: so many contexts at least differ here, and there may be
  more that differ little, or not along one step;
- connectedness of the states by observed transitions: necessary for Assumption 4, not sufficient.

Each episode counts once for (s, a), at its first visit after `length` steps: these are independent
draws. If one memoryless policy is known to have made the logs, all actions can be looked at
together, and longer tests too: P((a, o)_{1:length}, h | s) has rank at most M then.

Where a reward or a last state is missing, the windows around it are left out: what is lost may
depend on the context and on what was to be seen, but not on the history. Segments of one individual
show (s, a) once, like one episode.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from latentmdp._util import names
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.cycles import components
from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.results import Result
from latentmdp.logs import Logs, Trajectories, cell_counts, sizes_of
from latentmdp.policies import HistoryPolicy, MarkovPolicy, Policy, UniformPolicy
from latentmdp.spectral import Evidence, evident_rank

Row = tuple[str, str, str]
"""What was measured, its number, and what follows from it."""


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
        Of the balanced table of what follows and histories in each state, for the action that
        shows most contexts; the first is 1.
    noise : (S,)
        What the first singular value that is not counted would have to exceed.
    visible_contexts : (S,)
        Singular values beyond sampling noise.
    connected
        Whether the transitions seen connect all states that occur.
    lost_windows
        Windows that were left out because something in them is missing.
    state_names
        What states are called, if anything.
    """

    episodes: int
    steps: int
    visits: Integers
    end_state_probs: Floats
    singular_values: tuple[Floats, ...]
    noise: Floats
    visible_contexts: Integers
    connected: bool
    lost_windows: int = 0
    state_names: tuple[str, ...] | None = None

    @property
    def n_contexts_seen(self) -> int:
        """The largest number of contexts that is visible in any state: a lower bound on M."""
        return max(1, int(self.visible_contexts.max(initial=1)))

    def rows(self) -> list[Row]:
        """(what, number, verdict)."""
        S, A = self.visits.shape
        missing = int((self.visits == 0).sum())
        s = int(np.argmax(self.visible_contexts + np.isfinite(self.noise) / 2.0))
        values = ", ".join(f"{v:.2g}" for v in self.singular_values[s][: self.n_contexts_seen + 1])
        where = names.label("state", s, self.state_names)
        evidence = f"{where} has singular values {values} at noise {self.noise[s]:.2g}"
        if not np.isfinite(self.noise[s]):
            evidence = "no state was seen often enough to show more"
        tried = "every state and action was tried"
        if missing:
            tried = f"{missing} pairs of state and action were never tried"
        connected = "yes" if self.connected else "no"
        gaps = "left out, because a reward or a last state in them is missing"
        unknown = "need a model of each context: fit one and diagnose it"
        return [
            ("episodes, steps", f"{self.episodes}, {self.steps}", ""),
            *([("windows with gaps", str(self.lost_windows), gaps)] if self.lost_windows else []),
            ("coverage", f"{S * A - missing} of {S * A}", tried),
            ("contexts visible", str(self.n_contexts_seen), f"at least so many; {evidence}"),
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
    logged: Logs, policy: Policy | HistoryPolicy | None, length: int, rng: RNGLike
) -> LogDiagnosis:
    """See `diagnose`."""
    if len(logged) == 0:
        raise ValueError("logs must hold at least one episode")
    visits = cell_counts(logged, ("state", "action")).astype(np.int64)
    logs = logged.held()
    weights = logs.multiplicities()
    is_memoryless = policy is not None
    if is_memoryless:
        _require_memoryless(policy, visits.shape)
    needed = 2 * length if is_memoryless else length + 1
    windows = np.flatnonzero(logs.lengths >= needed)
    if windows.size == 0:
        raise ValueError(
            f"no episode has the {needed} steps of a history and a test of length {length}"
        )
    S = logged.n_states
    usable, lost = _windows(logs, length, length if is_memoryless else 1)
    evidence = _evidence(logs, usable, length, is_memoryless, as_generator(rng))
    ends = logs.states[logs.offsets[windows] + windows + length]
    return LogDiagnosis(
        episodes=logged.n_episodes,
        steps=int(visits.sum()),
        visits=visits,
        end_state_probs=np.bincount(ends, weights[windows], S) / weights[windows].sum(),
        singular_values=tuple(one.singular_values for one in evidence),
        noise=np.array([one.noise for one in evidence]),
        visible_contexts=np.array([one.rank for one in evidence]),
        connected=_connected(logs),
        lost_windows=lost,
        state_names=logs.state_names,
    )


def _require_memoryless(policy: Policy | HistoryPolicy | None, shape: tuple[int, ...]) -> None:
    """Raise unless the policy chooses by the state alone and fits the sizes (S, A)."""
    if isinstance(policy, UniformPolicy):
        return
    if not isinstance(policy, MarkovPolicy) or not policy.stationary:
        raise TypeError("for logs the policy must be uniform, stationary Markov, or None")
    if policy.probabilities is None or policy.probabilities.shape[1:] != shape:
        raise ValueError(
            f"policy must give probabilities of {shape[1]} actions in {shape[0]} states"
        )


def _windows(logs: Trajectories, length: int, ahead: int) -> tuple[Integers, int]:
    """Steps with `length` before them and `ahead` from them on, all known; how many were not."""
    episode, _, _, reward, next_state = logs.steps()
    t = np.arange(logs.n_steps) - logs.offsets[episode]
    inside = np.flatnonzero((t >= length) & (t + ahead <= logs.lengths[episode]))
    gaps = np.concatenate([[0], np.cumsum((reward < 0) | (next_state < 0))])
    whole = gaps[inside + ahead] == gaps[inside - length]
    return inside[whole], int((~whole).sum())


def _evidence(
    logs: Trajectories, usable: Integers, length: int, memoryless: bool, rng: np.random.Generator
) -> list[Evidence]:
    """For each state, the table of it that shows most contexts, 16 at most.

    The 300 most visited pairs of state and action are looked at: each takes some milliseconds, and
    a rare one shows nothing.
    """
    S, A, _ = sizes_of(logs)
    episode, state, action, *_ = logs.steps()
    ahead = length if memoryless else 1
    cell = state.astype(np.int64) if memoryless else state.astype(np.int64) * A + action
    visit = logs.individuals()[episode[usable]] * np.int64(S * A) + cell[usable]
    first = usable[np.unique(visit, return_index=True)[1]]  # the first visit of each individual
    group = cell[first]
    history = _numbered(logs, first, range(-length, 0))
    follows = _numbered(logs, first, range(ahead), with_next=True)
    weights = logs.multiplicities()[episode[first]].astype(np.float64)
    order = np.argsort(group, kind="stable")
    groups, starts = np.unique(group[order], return_index=True)
    parts = np.split(order, starts)[1:]
    sizes = np.array([weights[part].sum() for part in parts])
    best = [Evidence(0, np.zeros(1), np.inf)] * S
    for k in np.argsort(-sizes, kind="stable")[:300]:
        part, s = parts[k], int(groups[k] if memoryless else groups[k] // A)
        rows, row = np.unique(follows[part], return_inverse=True)
        columns, column = np.unique(history[part], return_inverse=True)
        table = coo_array((weights[part], (row, column)), shape=(rows.size, columns.size))
        evidence = evident_rank(csr_array(table), 16, rng)
        if evidence.rank > best[s].rank:
            best[s] = evidence
    return best


def _numbered(
    logs: Trajectories, first: Integers, around: range, with_next: bool = False
) -> Integers:
    """The steps `around` each first one as one number: (s, a, r) of each, or (a, r, s')."""
    _, state, action, reward, next_state = logs.steps()
    S, A, Z = sizes_of(logs)
    number = np.zeros(first.size, np.int64)
    for k in around:
        step = first + k
        column = (next_state if with_next else state)[step].astype(np.int64)
        number = ((number * S + column) * A + action[step]) * Z + reward[step]
        number = np.unique(number, return_inverse=True)[1]  # small again: no overflow
    return number


def _connected(logs: Trajectories) -> bool:
    steps, S = logs.steps(), logs.n_states
    whole = steps.next_state >= 0
    ways = np.stack([steps.state[whole], steps.next_state[whole]]).astype(np.int64)
    labels = components(S, ways.ravel(), ways[::-1].ravel())  # either way
    return bool(np.unique(labels[logs.states[logs.states >= 0]]).size <= 1)
