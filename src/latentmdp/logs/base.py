"""The protocol of logged episodes, in memory or on disk, and what is known of them as a whole.

`Trajectories` hold all episodes in memory, `LogFiles` leave them on disk. Whatever reads all of
them reads them in *batches*, in memory as on disk. Individual j, with b_j steps logged before its
first, is in batch b_j // 2^21. So batches follow from the logs alone, and sums that are added up
batch by batch are the same to the last bit wherever the logs lie.

What needs episodes side by side asks for `held()`: all of them, or of logs on disk that are very
long a part, spread evenly over them. So nobody else asks where logs lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from latentmdp._util.arrays import Flags, Floats, Integers
from latentmdp._util.results import Factual
from latentmdp._util.words import plural
from latentmdp.errors import TrajectoryError
from latentmdp.logs.covariates import Covariates
from latentmdp.logs.history import JoinedStates
from latentmdp.outcomes import row_sums

if TYPE_CHECKING:  # a model reads its own table with this room's help
    from latentmdp.logs.trajectories import Trajectories
    from latentmdp.model import LatentMDP

BATCH_STEPS = 1 << 21
"""Steps of a batch, about: some 150 MB while it is read, and enough work that handing it to another
machine costs nothing beside it."""

HELD_STEPS = 1 << 24
"""Steps that are held in memory, however long logs are: what needs episodes side by side reads so
many of them, spread evenly over the logs, or all where there are no more."""

NO_END = 1 << 62
"""Steps after which no episode ends."""

END = "(end)"
"""Name of the state to which a step leads that ended its episode for good without a next state."""

Sizes = tuple[int, int, int]
"""(S, A, Z)."""


class MissingCells(NamedTuple):
    """How many cells of a table were empty, and what that did.

    `lost_steps` are rows without a state or an action; they split episodes into `segments`, counted
    here where one continues another. `ends` are last steps of which the next state is unknown.
    """

    states: int = 0
    actions: int = 0
    rewards: int = 0
    next_states: int = 0
    lost_steps: int = 0
    segments: int = 0
    ends: int = 0

    def __str__(self) -> str:
        nouns = [
            (self.rewards, "missing reward", "missing rewards"),
            (self.states, "missing state", "missing states"),
            (self.actions, "missing action", "missing actions"),
            (self.lost_steps, "lost step", "lost steps"),
            (self.segments, "split of an episode", "splits of episodes"),
            (self.ends, "last step without a next state", "last steps without a next state"),
        ]
        return (
            ", ".join(plural(number, one, many) for number, one, many in nouns if number) or "none"
        )

    @classmethod
    def total(cls, parts: Iterable[MissingCells]) -> MissingCells:
        """Those of several tables together."""
        return cls(*map(sum, zip(*parts)))


class MissingKinds(NamedTuple):
    """What is missing somewhere in logs: rewards, last states, first states, steps in between."""

    rewards: bool = False
    ends: bool = False
    beginnings: bool = False
    steps: bool = False


class Endings(NamedTuple):
    """Where episodes end: by state, (S,).

    `shortest` is the number of steps of the shortest episode that ends there, `NO_END` where none
    does; one that is continued does not end. `acted_in` says where actions were taken.
    """

    shortest: Integers
    acted_in: Flags

    def padded(self, size: int) -> Endings:
        """The same for `size` states, of which the last are not known yet."""
        more = size - self.shortest.size
        shortest = np.pad(self.shortest, (0, more), constant_values=NO_END)
        return Endings(shortest, np.pad(self.acted_in, (0, more)))

    def joined(self, other: Endings) -> Endings:
        """Those of both together; states that only one of them knows included."""
        size = max(self.shortest.size, other.shortest.size)
        one, two = self.padded(size), other.padded(size)
        return Endings(np.minimum(one.shortest, two.shortest), one.acted_in | two.acted_in)


class Summary(NamedTuple):
    """What is known of some episodes as a whole.

    The first four fields are numbers of what is stored, `counted` with multiplicities; `longest` is
    a number of steps; `states` to `contexts` are one more than the largest index.
    """

    episodes: int
    individuals: int
    counted: int
    steps: int
    longest: int
    states: int
    actions: int
    rewards: int
    contexts: int
    lacks: MissingKinds
    missing: MissingCells
    endings: Endings

    @classmethod
    def of(cls, logs: Trajectories) -> Summary:
        """That of episodes in memory."""
        numbers = (len(logs), logs.n_individuals, logs.n_episodes, logs.n_steps, logs.longest)
        indices = (logs.states, logs.actions, logs.rewards, logs.contexts)
        sizes = [0 if array is None else int(array.max(initial=-1)) + 1 for array in indices]
        missing = logs.missing or MissingCells()
        return cls._make([*numbers, *sizes, logs.lacks, missing, logs.endings()])

    def joined(self, other: Summary) -> Summary:
        """That of the episodes of both."""
        sums = [a + b for a, b in zip(self[:4], other[:4])]
        largest = [max(a, b) for a, b in zip(self[4:9], other[4:9])]
        lacks = MissingKinds(*(a or b for a, b in zip(self.lacks, other.lacks)))
        missing = MissingCells.total([self.missing, other.missing])
        endings = self.endings.joined(other.endings)
        return Summary._make([*sums, *largest, lacks, missing, endings])


class Batch(Protocol):
    """Some neighbouring individuals of logs: episodes start .. stop - 1."""

    @property
    def start(self) -> int:
        """Number of its first episode."""

    @property
    def stop(self) -> int:
        """Number of the episode after its last."""

    def read(self) -> Trajectories:
        """The episodes themselves."""


def batch_edges(steps_before: Integers) -> list[int]:
    """The individuals with which batches begin, and their number, by the steps before each."""
    if steps_before.size and steps_before[-1] < BATCH_STEPS:  # the usual case, and much quicker
        return [0, steps_before.size]
    number = steps_before // BATCH_STEPS
    return [*np.flatnonzero(np.diff(number, prepend=-1)).tolist(), number.size]


def spread(number: int, steps: int, held_steps: int | None = None) -> list[int]:
    """Which of so many batches, spread evenly, have `held_steps` together, about; at least one.

    By default `HELD_STEPS`.
    """
    held_steps = HELD_STEPS if held_steps is None else held_steps
    sampled = number if steps <= held_steps else max(1, int(number * held_steps / steps))
    return [(2 * k + 1) * number // (2 * sampled) for k in range(sampled)]


class Logs(Factual):
    """Logged episodes that are read batch by batch: `Trajectories`, or `LogFiles` on disk.

    Attributes
    ----------
    n_states, n_actions, reward_values, state_names, action_names, reward_edges, covariates, missing
        As for `Trajectories`.
    """

    n_states: int
    n_actions: int
    reward_values: Floats | None
    covariates: Covariates | None
    state_names: tuple[str, ...] | None
    action_names: tuple[str, ...] | None
    reward_edges: Floats | None
    missing: MissingCells | None

    @property
    def summary(self) -> Summary:
        """What is known of the episodes as a whole."""
        raise NotImplementedError

    @property
    def pays_amounts(self) -> bool:
        """Whether the amounts paid are known beside the rewards that are seen, or levels."""
        raise NotImplementedError

    @property
    def fits_memory(self) -> bool:
        """Whether `read` may bring all episodes into memory at once."""
        raise NotImplementedError

    def batches(self) -> Sequence[Batch]:
        """The episodes in batches of about `BATCH_STEPS` steps, whole individuals each."""
        raise NotImplementedError

    def read(self) -> Trajectories:
        """All episodes, in memory."""
        raise NotImplementedError

    def held(self) -> Trajectories:
        """All episodes in memory or, of very long logs on disk, batches spread evenly over them."""
        raise NotImplementedError

    def without_contexts(self) -> Logs:
        """The same episodes with their contexts hidden."""
        raise NotImplementedError

    def with_history(self, actions: int = 1, states: int = 0) -> Self:
        """The same logs, each state joined with the last actions and states before it.

        A fitted model then knows what the previous `actions` and `states` do. States are called
        "fair, after drug", the most recent first, and "fair, at first" where nothing came before;
        a session of a policy found in these logs is told states by these names.
        """
        return self._joined(JoinedStates.of(self, actions, states))

    def _joined(self, history: JoinedStates) -> Self:
        raise NotImplementedError

    def require_sizes(
        self, n_states: int, n_actions: int, n_rewards: int, n_contexts: int | None = None
    ) -> None:
        """Raise `TrajectoryError` unless every index is below its size."""
        limits = (n_states, n_actions, n_rewards, n_contexts)
        for what, size, limit in zip(_INDICES, self.summary[5:9], limits):
            if limit is not None and size > limit:
                raise TrajectoryError(
                    f"{what} {size - 1} occurs in the logs, must be below {limit}"
                )

    def __len__(self) -> int:
        return self.summary.episodes

    @property
    def n_rewards(self) -> int:
        """Z: the number of reward values, or one more than the largest index in the data."""
        return self.summary.rewards if self.reward_values is None else self.reward_values.size

    @property
    def n_steps(self) -> int:
        """Number of stored transitions, multiplicities not counted."""
        return self.summary.steps

    @property
    def n_episodes(self) -> int:
        """Number of episodes, multiplicities counted."""
        return self.summary.counted

    @property
    def n_individuals(self) -> int:
        """Number of stored individuals, multiplicities not counted."""
        return self.summary.individuals

    @property
    def longest(self) -> int:
        """Number of actions in the longest episode."""
        return self.summary.longest

    @property
    def lacks(self) -> MissingKinds:
        """What is missing somewhere."""
        return self.summary.lacks

    @property
    def complete(self) -> bool:
        """Whether nothing is missing: no reward, no last state, no lost steps."""
        return not any(self.lacks)

    def endings(self) -> Endings:
        """Where episodes end, and where actions were taken."""
        return self.summary.endings.padded(self.n_states)

    def pair(self, state: int, action: int) -> tuple[str | int, str | int]:
        """A state and an action as people call them: by name where they have one."""
        states, actions = self.state_names or (), self.action_names or ()
        return (
            states[state] if state < len(states) else state,
            actions[action] if action < len(actions) else action,
        )

    def validate(self, model: LatentMDP) -> None:
        """Raise `TrajectoryError` unless every index fits the model."""
        self.require_sizes(model.n_states, model.n_actions, model.n_rewards, model.n_contexts)
        values = self.reward_values
        if values is not None and not np.array_equal(values, model.reward_values):
            raise TrajectoryError(
                f"the logs' reward_values {values.tolist()} are not the model's "
                f"{model.reward_values.tolist()}"
            )

    def mean_amounts(self, n_states: int | None = None, n_actions: int | None = None) -> Floats:
        """The mean amount paid in each (s, a), (S, A); the least of them where nothing was paid."""
        totals, counts = self._amounts((n_states or self.n_states, n_actions or self.n_actions, 1))
        totals, counts = totals[..., 0], counts[..., 0]
        means = np.divide(totals, counts, out=np.full(totals.shape, np.nan), where=counts > 0.0)
        least = float(np.nanmin(means)) if (counts > 0.0).any() else 0.0
        return np.where(np.isnan(means), least, means)

    def _amounts(self, sizes: Sizes) -> tuple[Floats, Floats]:
        """Sums and numbers of the amounts paid in each (s, a, z), (S, A, Z); Z = 1 adds over z."""
        if not self.pays_amounts:
            raise TrajectoryError("the logs hold no amounts")
        (S, A, Z), cells = sizes, int(np.prod(sizes))
        totals, counts = np.zeros(cells), np.zeros(cells)
        for part in (batch.read() for batch in self.batches()):
            assert part.amounts is not None
            steps, paid = part.steps(), ~np.isnan(part.amounts)
            rows = (steps.state.astype(np.int64) * A + steps.action)[paid]
            rows = rows * Z + (steps.reward[paid] if Z > 1 else 0)
            weights = part.multiplicities()[steps.episode][paid].astype(np.float64)
            totals += np.bincount(rows, weights * part.amounts[paid], cells)
            counts += np.bincount(rows, weights, cells)
        return totals.reshape(S, A, Z), counts.reshape(S, A, Z)

    def describe(self, model: LatentMDP) -> LatentMDP:
        """The model with what these logs know besides: names, reward edges, and mean amounts.

        Names that the model has stay. Where the logs hold `amounts`, what they pay beyond the
        model's rewards on average becomes its `bonus`: counted by a planner, never seen by an
        agent. A level z has the mean of its own amounts in (s, a), so that E_m[r | s, a] is that of
        the amounts, whatever the levels are.
        """
        details: dict[str, Any] = {}
        for name, size in (("state_names", model.n_states), ("action_names", model.n_actions)):
            names = getattr(self, name)
            if names is not None and getattr(model, name) is None and len(names) == size:
                details[name] = names
        if self.reward_edges is not None and model.n_rewards == self.reward_edges.size + 1:
            details["reward_edges"] = self.reward_edges
        if self.pays_amounts:
            details["bonus"] = np.where(model.allowed, self._bonus(model), 0.0)
        return model.replace(**details) if details else model

    def _bonus(self, model: LatentMDP) -> Floats:
        """What amounts pay on average beyond the rewards of a model, (M, S, A)."""
        M, S, A, Z = model.dimensions
        if Z == 1:
            return np.repeat(self.mean_amounts(S, A)[None], M, axis=0) - model.mean_rewards()
        totals, counts = self._amounts((S, A, Z))
        values = np.broadcast_to(model.reward_values, totals.shape)
        means = np.divide(totals, counts, out=values.copy(), where=counts > 0.0)
        table = model.outcomes
        beyond = (means - values).reshape(S * A, Z)[table.rows(), table.reward]
        return row_sums(table, table.probs * beyond[:, None]).T.reshape(M, S, A)


_INDICES = ("state", "action", "reward index", "context")


def require_logs(name: str, logs: object) -> None:
    """Raise `TypeError` unless an argument is logs."""
    if not isinstance(logs, Logs):
        raise TypeError(
            f"{name} must be Trajectories or LogFiles, got {type(logs).__name__}: read a file with "
            "load(path), columns with Trajectories.from_table(table), or what is larger than "
            "memory with open_logs(paths)"
        )


def listed_logs(logs: Logs | Sequence[Logs]) -> list[Logs]:
    """One log or several as a list."""
    return [logs] if isinstance(logs, Logs) else list(logs)


def sizes_of(logs: Logs | Sequence[Logs]) -> Sizes:
    """(S, A, Z) of one log or of several together, no larger than they say."""
    parts = listed_logs(logs)
    return (
        max(part.n_states for part in parts),
        max(part.n_actions for part in parts),
        max(part.n_rewards for part in parts),
    )
