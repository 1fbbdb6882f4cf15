"""States joined with what came before them, so that a model of logs may remember.

The state at time t becomes (s_t; s_{t-1}, .., s_{t-j}; a_{t-1}, .., a_{t-k}), as one number in
mixed radix; where an episode, or a segment, is not so long yet, what came before is "nothing". Only
the combinations that occur become states, in the order of these numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from latentmdp._util import arrays, names
from latentmdp._util.arrays import Integers

if TYPE_CHECKING:
    from latentmdp.logs.base import Logs
    from latentmdp.logs.trajectories import Trajectories


class JoinedStates(NamedTuple):
    """How many actions and states before are joined to a state, and the combinations that occur."""

    actions: int
    states: int
    sizes: tuple[int, int]  # S and A of the logs as they were
    numbers: Integers  # of the combinations, rising
    names: tuple[str, ...]

    @classmethod
    def of(cls, logs: Logs, actions: int, states: int) -> JoinedStates:
        """Those of some logs."""
        for name, number in (("actions", actions), ("states", states)):
            if arrays.positive_integer(name, number + 1) == 1 and not actions + states:
                raise ValueError("with_history needs actions or states to remember: both are 0")
        S, A = logs.n_states, logs.n_actions
        if np.log2(S) + actions * np.log2(A + 1) + states * np.log2(S + 1) >= 62.0:
            raise ValueError(f"{actions} actions and {states} states before are too many to number")
        empty = cls(actions, states, (S, A), np.zeros(0, np.int64), ())
        every = [empty._numbers(batch.read()) for batch in logs.batches()]
        numbers = np.unique(np.concatenate([np.unique(one) for one in every]))
        numbers = numbers[numbers >= 0]
        states_called = names.labels("state", logs.state_names, S)
        actions_called = names.labels("action", logs.action_names, A)
        called = tuple(empty._called(numbers, states_called, actions_called))
        return empty._replace(numbers=numbers, names=called)

    def applied(self, logs: Trajectories) -> Trajectories:
        """The same logs with these states."""
        numbers = self._numbers(logs)
        joined = np.where(numbers < 0, -1, np.searchsorted(self.numbers, numbers))
        return logs._with(
            states=joined.astype(np.int32), n_states=self.numbers.size, state_names=self.names
        )

    def _lags(self) -> Iterator[tuple[str, int, int]]:
        """What is joined: states and then actions, how long before, and how many there are."""
        S, A = self.sizes
        yield from (("state", k, S) for k in range(1, self.states + 1))
        yield from (("action", k, A) for k in range(1, self.actions + 1))

    def _numbers(self, logs: Trajectories) -> Integers:
        """The number of every state of the logs; -1 where it is missing."""
        episode = np.repeat(np.arange(len(logs)), logs.lengths + 1)
        place = np.arange(logs.states.size)
        t = place - logs.offsets[episode] - episode
        number = logs.states.astype(np.int64)
        for what, k, size in self._lags():
            column, index = (
                (logs.states, place) if what == "state" else (logs.actions, place - episode)
            )
            before = np.where(t >= k, column[np.maximum(index - k, 0)], -1) if column.size else -1
            number = number * (size + 1) + before + 1
        return np.where(logs.states < 0, -1, number)

    def _called(self, numbers: Integers, states: list[str], actions: list[str]) -> Iterator[str]:
        """What the combinations are called."""
        for number in numbers.tolist():
            parts = []
            for what, _, size in reversed(list(self._lags())):
                number, before = divmod(number, size + 1)
                called = states if what == "state" else actions
                parts.append(called[before - 1] if before else "nothing")
            at_first = all(part == "nothing" for part in parts)
            after = "at first" if at_first else f"after {', '.join(reversed(parts))}"
            yield f"{states[number]}, {after}"
