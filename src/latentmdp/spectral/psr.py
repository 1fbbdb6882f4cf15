"""Predictive state representations of latent MDPs [kwon2021, Sec. 2.2 and App. D.1].

The state b_t, a vector of length k, stands for the history (s, a, r)_{1:t-1}, s_t:

    b_1 = b_{1,s_1},    b_{t+1} = B_{o,a,s} b_t / (b_inf,s' · B_{o,a,s} b_t),    o = (s', r)
    P(o | history || do a) = b_inf,s' · B_{o,a,s} b_t
    P(s_1, o_1 .. o_L || do a_1 .. a_L) = b_inf,s_{L+1} · B_{o_L,a_L,s_L} .. B_{o_1,a_1,s_1} b_1

An estimated PSR may predict values that are no probabilities, and dividing by one that is close to
zero ruins the state. With `safeguards` the state is normalised at the start too; a step whose
predicted probability is not within a factor of 5 of the pooled one (that of the averaged MDP) is
taken with the operator pooled over actions and rewards instead, or, if that fails as well, forgets
the history; and predictions are clipped at zero and renormalised. Without it the formulas are used
as printed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from latentmdp._util.arrays import Flags, Floats, Indices, Integers, frozen
from latentmdp._util.fields import Fielded, float_field, integer_field
from latentmdp.engines import blocks, run_blocks
from latentmdp.errors import ImpossibleObservationError
from latentmdp.logs import Episode, Sizes, Trajectories
from latentmdp.policies import History
from latentmdp.spectral.kernels import filter_states

AnyHistory = History | Episode | Sequence[Sequence[int]]

TRUSTED_RATIO = 2.0
"""sigma_M / sigma_{M+1} below this: the M-th direction is mostly noise. Recovery fails about where
the ratio falls below it (`docs/spectral.md`)."""

_TINY = 1e-300
"""Totals up to this are taken for zero: dividing by them might overflow."""


@dataclass(frozen=True, eq=False)
class PSR(Fielded):
    """A PSR of a latent MDP; see the module's docstring for the formulas.

    Attributes
    ----------
    sizes : (S, A, Z)
    operators : (S, A, S, Z, k, k)
        B_{(s',z),a,s}, indexed by [s, a, s', z].
    normalisers : (S, k)
        b_inf,s.
    starts : (S, k)
        b_{1,s}, not normalised: b_inf,s · b_{1,s} = P(s_1 = s).
    homes : (S, k)
        The normalised state of an average history that ends in s.
    pooled : (S, A, S, Z)
        P(s', z | s, a) of the averaged MDP.
    singular_values : (S, n)
        Of P_{T,H_s}, falling; n is at least k + 1 where the matrix has as many.
    visited : (S,)
        Whether any history ended in s. Where episodes only begin, there is nothing to remember and
        one direction suffices; from the other states nothing can be predicted.
    visible_contexts : (S,)
        How many directions, k at most, the data show beyond sampling noise, see `spectral.noise`.
    safeguards : bool
        Whether state updates and predictions are protected against noise.
    reward_values : (Z,) or None
    """

    sizes: Sizes
    operators: Floats
    normalisers: Floats
    starts: Floats
    homes: Floats
    pooled: Floats
    singular_values: Floats
    visited: Flags
    visible_contexts: Integers
    safeguards: bool = True
    reward_values: Floats | None = None

    @property
    def rank(self) -> int:
        """k, the dimension of the state."""
        return self.normalisers.shape[1]

    def singular_value_ratios(self) -> Floats:
        """sigma_k / sigma_{k+1} of each state: how far the k-th direction stands out of noise."""
        k = self.rank
        largest, last = self.singular_values[:, 0], self.singular_values[:, k - 1]
        beyond = self.singular_values[:, k : k + 1].sum(axis=1)  # zero where there is none
        floor = np.finfo(np.float64).eps * largest
        return np.where(last > 100.0 * floor, last / np.maximum(beyond, floor + _TINY), 0.0)

    @property
    def sufficient(self) -> bool:
        """Whether tests and histories look sufficient in every state.

        All k directions must be visible beyond sampling noise, and every ratio be at least 2.
        """
        ratios = self.singular_value_ratios()[self.visited]
        enough = bool(ratios.size and ratios.min() >= TRUSTED_RATIO)
        return enough and bool((self.visible_contexts[self.visited] >= self.rank).all())

    def verdict(self) -> str:
        """A sentence on whether the data support a PSR of this rank."""
        if not self.visited.any():
            return "No history ends in any state: nothing can be predicted."
        ratios = np.where(self.visited, self.singular_value_ratios(), np.inf)
        s, k = int(np.argmin(ratios)), self.rank
        low, number = int((ratios < TRUSTED_RATIO).sum()), int(self.visited.sum())
        lacking = "longer tests and histories" if ratios[s] == 0.0 else "more short episodes"
        evidence = (
            f"sigma_{k} / sigma_{k + 1} is {ratios[s]:.3g} at its smallest (state {s}) and below "
            f"{TRUSTED_RATIO:g} in {low} of {number} states"
        )
        if ratios[s] > 1e9:  # ten digits: what is left is rounding
            evidence = f"sigma_{k + 1} is zero up to rounding in every state"
        if self.sufficient:
            return f"Rank {k} stands out of the noise: {evidence}."
        visible = np.where(self.visited, self.visible_contexts, k)
        if ratios[s] >= TRUSTED_RATIO:
            s = int(np.argmin(visible))
            evidence = (
                f"no more than {visible[s]} of its directions can be told from sampling noise in "
                f"state {s}, and fewer than {k} in {int((visible < k).sum())} of {number} states"
            )
        return f"Do not trust rank {k}: {evidence}; {lacking} or a smaller rank would help."

    def filter(self, logs: Trajectories, threads: int | None = None) -> tuple[Floats, int]:
        """Normalised PSR states along every episode, and the number of steps safeguarded.

        Returns
        -------
        states : (logs.states.size, k)
            Row offsets[i] + i + t is the state at time t of episode i, as in `logs.states`.
        guarded : int
            Steps that did not follow the bare formula.

        Raises
        ------
        TrajectoryError
            The logs do not fit the sizes of the PSR.
        ImpossibleObservationError
            Without safeguards: an observation has probability zero, or a state was never visited.
        """
        logs.require_sizes(*self.sizes)
        logs.require_complete("the filter of a PSR")
        if not self.safeguards:
            self._require_visited(logs.states)
        out = np.empty((logs.states.size, self.rank))
        # A small gate forgets what well separated contexts show, a large one lets noise into the
        # state: at delta = 1 a gate of 2 raises the error of recovery by 30%, at delta = 0.35 a
        # gate of 20 by 14%.
        gate = 5.0 if self.safeguards else 0.0
        columns = (logs.states, logs.actions, logs.rewards, logs.offsets)
        common = (self._tables, self._normal_starts, gate, self.sizes, *columns, out)
        # So many episodes at a time are worth handing over to a thread.
        parts = run_blocks(filter_states, blocks(len(logs), 1 << 12), threads, None, *common)
        for _, episode, step in parts:
            if episode >= 0:
                raise ImpossibleObservationError(
                    f"episode {episode}, step {step}: the PSR gives the observation probability "
                    "zero; safeguards=True tolerates it"
                )
        return out, sum(part[0] for part in parts)

    def state(self, history: AnyHistory) -> Floats:
        """The normalised PSR state after (states, actions, reward indices), or an `Episode`."""
        states, actions, rewards = (list(part) for part in history[:3])
        logs = Trajectories.from_lists([states], [actions], [rewards])
        logs.require_sizes(*self.sizes)
        self._require_visited(logs.states[-1:])
        return self.filter(logs, threads=1)[0][-1]

    def predict(self, history: AnyHistory, action: int) -> Floats:
        """P(s', r | history || do action), shape (S, Z)."""
        return self.predict_tests(history, [action])

    def predict_tests(self, history: AnyHistory, actions: Sequence[int]) -> Floats:
        """P(o_1 .. o_L | history || do a_1 .. a_L) of every sequence, shape (S, Z) L times."""
        if len(actions) == 0:
            raise ValueError("actions must not be empty")
        for a in actions:
            if not isinstance(a, int | np.integer) or not 0 <= a < self.sizes[1]:
                raise ValueError(f"action must be an integer in [0, {self.sizes[1]}), got {a!r}")
        states = self.state(history)[None]
        ends = np.array([int(history[0][-1])])
        S, _, Z = self.sizes
        for a in actions:
            states = np.einsum("xnzij,xj->xnzi", self.operators[ends, a], states)
            states = states.reshape(-1, self.rank)
            ends = np.tile(np.repeat(np.arange(S), Z), len(ends))
        values = np.einsum("xi,xi->x", self.normalisers[ends], states)
        return self._as_distributions(values[None]).reshape((S, Z) * len(actions))

    def predictions(self, s: int, states: Floats) -> Floats:
        """P(s', r | b || do a) for each row of PSR states at s, shape (n, A, S, Z)."""
        S, A, Z = self.sizes
        values = states @ self._observables[s].reshape(A * S * Z, -1).T
        return self._as_distributions(values.reshape(-1, S * Z)).reshape(-1, A, S, Z)

    def sequence_probability(
        self, states: Sequence[int], actions: Sequence[int], rewards: Sequence[int]
    ) -> float:
        """P(s_1, o_1 .. o_L || do a_1 .. a_L) by the bare product of operators.

        An estimated PSR may give values slightly outside [0, 1].
        """
        logs = Trajectories.from_lists([states], [actions], [rewards])
        logs.require_sizes(*self.sizes)
        state = self.starts[int(states[0])]
        for _, s, a, z, n in zip(*logs.steps()):
            state = self.operators[s, a, n, z] @ state
        return float(self.normalisers[int(states[-1])] @ state)

    @cached_property
    def _observables(self) -> Floats:
        """b_inf,s' · B_{(s',z),a,s}, shape (S, A, S, Z, k)."""
        return np.einsum("ni,sanzij->sanzj", self.normalisers, self.operators)

    @cached_property
    def _normal_starts(self) -> Floats:
        """b_{1,s} normalised; the average state where no episode began."""
        totals = np.einsum("sk,sk->s", self.normalisers, self.starts)
        is_defined = (totals if self.safeguards else np.abs(totals)) > _TINY
        scaled = self.starts / np.where(is_defined, totals, 1.0)[:, None]
        return np.where(is_defined[:, None], scaled, self.homes)

    @cached_property
    def _tables(self) -> tuple[Floats, ...]:
        """What the filter reads: operators, pooled operators, normalisers, pooled, homes."""
        S, k = self.sizes[0], self.rank
        reach = self.pooled.sum(axis=(1, 3))
        total = self.operators.sum(axis=(1, 3))
        pooled_operators = total / np.where(reach > 0.0, reach, 1.0)[:, :, None, None]
        operators = self.operators.reshape(-1, k, k), pooled_operators.reshape(S * S, k, k)
        tables = (*operators, self.normalisers, self.pooled.ravel(), self.homes)
        return tuple(map(np.ascontiguousarray, tables))

    def to_fields(self) -> dict[str, Any]:
        """Every array and flag by name; the sizes are those of the operators."""
        names = (name for name in self.__dataclass_fields__ if name != "sizes")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """The PSR with these fields; raises where their shapes do not fit each other."""
        S, A, _, Z, k, _ = float_field(fields, "operators", *[None] * 6).shape
        values = fields.get("reward_values")
        flags = np.asarray(fields["visited"])
        if flags.shape != (S,) or flags.dtype != np.bool_:
            raise ValueError(f"visited must be {S} flags, got {flags.dtype} of {flags.shape}")
        singular_values = float_field(fields, "singular_values", S, None)
        if not 1 <= k <= singular_values.shape[1]:
            raise ValueError(f"rank {k} with {singular_values.shape[1]} singular values")
        shapes = {"operators": (S, A, S, Z, k, k), "pooled": (S, A, S, Z)}
        shapes |= dict.fromkeys(("normalisers", "starts", "homes"), (S, k))
        return cls(
            sizes=(S, A, Z),
            **{name: float_field(fields, name, *shape) for name, shape in shapes.items()},
            singular_values=singular_values,
            visited=frozen(flags.copy()),
            visible_contexts=integer_field(fields, "visible_contexts", S),
            safeguards=bool(fields["safeguards"]),
            reward_values=None if values is None else float_field(fields, "reward_values", Z),
        )

    def _as_distributions(self, values: Floats) -> Floats:
        """Rows clipped at zero and renormalised, with safeguards; hopeless rows become uniform."""
        if not self.safeguards:
            return values
        clipped = np.maximum(values, 0.0)
        totals = clipped.sum(axis=1, keepdims=True)
        hopeless = ~(totals > _TINY)
        return np.where(hopeless, 1.0 / values.shape[1], clipped / np.where(hopeless, 1.0, totals))

    def _require_visited(self, states: Indices) -> None:
        strange = ~self.normalisers[states].any(axis=1)
        if strange.any():
            raise ImpossibleObservationError(
                f"no history of the data behind this PSR ends in state {states[strange][0]}, so "
                "nothing can be predicted from there"
            )

    def __repr__(self) -> str:
        S, A, Z = self.sizes
        smallest = float(self.singular_value_ratios()[self.visited].min(initial=np.inf))
        return (
            f"PSR(rank={self.rank}, states={S}, actions={A}, rewards={Z}, "
            f"smallest sigma_{self.rank}/sigma_{self.rank + 1}={smallest:.3g})"
        )
