"""Cassandra's .pomdp format: the latent MDP as a flat POMDP.

States are `begin`, then c{m}s{s}z{z}t{t}: context, state, index of the last reward and time, and
`end`. From `begin` any action leads to (m, s) at time 0 with probability w_m nu_m(s), so that the
first state is seen before the first real action; it earns the expected initial bonus. The agent
observes s{s}z{z}. In the discounted form there is no time and no `end`. The value of `begin` is V*.

An observation may depend on the action and the next state only, which is why the last reward is
part of the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from latentmdp.io.solver_files import Comments, number, read_model, solver_form, write_model
from latentmdp.model import LatentMDP

__all__ = ["read", "write"]

_COMMENTS = Comments(opening=b"# ")


def write(stream: BinaryIO, model: LatentMDP, *, discounted: bool = False) -> None:
    """Write a model, with its horizon or as a discounted problem without end."""
    write_model(stream, model, _COMMENTS, _Writer(model, discounted).lines())


def read(stream: BinaryIO) -> Any:
    """Read the model in a file that `write` wrote."""
    return read_model(stream, _COMMENTS)


class _Writer:
    def __init__(self, model: LatentMDP, discounted: bool) -> None:
        self.model, self.discounted = model, discounted
        self.form = solver_form(model, discounted=discounted, delay=1)
        self.times = 1 if discounted else model.horizon

    def lines(self) -> Iterator[str]:
        """The file, statement by statement."""
        yield from self._preamble()
        yield from self._beginning()
        yield from self._observations()
        for t in range(self.times):
            yield from self._transitions(t)
            yield from self._rewards(t)
        if not self.discounted:
            yield "T: * : end : end 1.0\n"

    def _name(self, m: int, s: int, z: int, t: int) -> str:
        return f"c{m}s{s}z{z}" + ("" if self.discounted else f"t{t}")

    def _last_rewards(self, t: int) -> range:
        """The last rewards that a state of time t may have; none was seen at time 0: index 0."""
        return range(1 if t == 0 and not self.discounted else self.model.n_rewards)

    def _states(self, t: int) -> Iterator[str]:
        for m, s in np.ndindex(self.model.n_contexts, self.model.n_states):
            for z in self._last_rewards(t):
                yield self._name(m, s, z, t)

    def _preamble(self) -> Iterator[str]:
        S, A, Z = self.model.n_states, self.model.n_actions, self.model.n_rewards
        states = [name for t in range(self.times) for name in self._states(t)]
        ends = [] if self.discounted else ["end"]
        seen = [f"s{s}z{z}" for s, z in np.ndindex(S, Z)]
        yield f"discount: {number(self.form.discount)}\nvalues: reward\n"
        yield f"states: {' '.join(['begin', *states, *ends])}\n"
        yield f"actions: {' '.join(f'a{a}' for a in range(A))}\n"
        yield f"observations: {' '.join([*seen, *ends])}\n"
        yield "start: begin\n"

    def _beginning(self) -> Iterator[str]:
        joint = self.model.weights[:, None] * self.model.initial
        for m, s in np.argwhere(joint > 0.0):
            yield f"T: * : begin : {self._name(m, s, 0, 0)} {number(joint[m, s])}\n"
        if self.model.initial_bonus is not None:
            bonus = float(self.model.weights @ self.model.initial_bonus)
            yield f"R: * : begin : * : * {number(bonus)}\n"

    def _observations(self) -> Iterator[str]:
        yield "O: * : begin : s0z0 1.0\n"
        for t in range(self.times):
            for name in self._states(t):
                seen = name[name.index("s") :].partition("t")[0]
                yield f"O: * : {name} : {seen} 1.0\n"
        if not self.discounted:
            yield "O: * : end : end 1.0\n"

    def _transitions(self, t: int) -> Iterator[str]:
        M, S, A = self.model.n_contexts, self.model.n_states, self.model.n_actions
        joint = self.model.observation_probs()
        last = not self.discounted and t == self.times - 1
        for m, s, a in np.ndindex(M, S, A):
            if last:
                arrivals = ["end 1.0"]
            else:
                arrivals = [
                    f"{self._name(m, n, z, t + 1)} {number(joint[m, s, a, n, z])}"
                    for n, z in np.argwhere(joint[m, s, a] > 0.0)
                ]
            for z in self._last_rewards(t):
                start = f"T: a{a} : {self._name(m, s, z, t)} : "
                yield from (f"{start}{arrival}\n" for arrival in arrivals)

    def _rewards(self, t: int) -> Iterator[str]:
        payoffs = self.form.payoffs[t]
        for m, s, a in np.argwhere(payoffs != 0.0):
            for z in self._last_rewards(t):
                name = self._name(m, s, z, t)
                yield f"R: a{a} : {name} : * : * {number(payoffs[m, s, a])}\n"
