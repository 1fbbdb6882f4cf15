"""The one loop of learning by acting: plan when that is due, play, absorb what was seen.

    while episodes are left:
        plan       a policy, if what was learned since the last plan makes a new one due
        play       an episode, or several, by that policy
        absorb     what they showed

A `Learner` is a set of arguments; its `begin` makes a `Learning`, the state of one run, whose three
steps these are. Everything around them is written once, in `Learner.run`: the record of a run, its
checkpoint, its progress bar, its seed. A learner may also take many rounds at once in a compiled
loop, as its `play`; that changes how fast the rounds are, not what they are.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from latentmdp import metrics
from latentmdp._util import arrays
from latentmdp._util.arrays import Arrays, Floats, Integers
from latentmdp._util.checkpoint import read_checkpoint, whole, write_checkpoint
from latentmdp._util.fields import Fielded
from latentmdp._util.progress import progress_bar
from latentmdp._util.random import RNGLike, given_seed, philox_key
from latentmdp._util.storage import one_writer, require_writable
from latentmdp.fit import Fit
from latentmdp.logs import Episode, Trajectories
from latentmdp.model import LatentMDP
from latentmdp.online.empirical_model import Counts, EmpiricalModel
from latentmdp.online.run import RECORDS, Curve, Run
from latentmdp.planning import check_limit, held_interrupts
from latentmdp.policies import HistoryPolicy, Memory, Policy, Sized
from latentmdp.simulation import PolicyAgent
from latentmdp.worlds import Space, Transition, World, as_world

if TYPE_CHECKING:
    from latentmdp.online.kernels_lucrl import Played

Batch = TypeVar("Batch")
"""What `play` hands to `absorb`: an episode, or several."""

CHECKPOINT_SECONDS = 0.5
"""Between two checkpoints: the work that a killed run may lose."""

_HURRY = 0.6
"""Of a time limit, the share after which a run comes to its end: the rest is for the last fit, its
plan, and episodes that show what it earns."""


class Learner(ABC):
    """Base of everything that learns by acting: the arguments of a learner.

    Attributes
    ----------
    finds_rewards
        Whether it can act before it knows which rewards there are.
    after_learning
        Arguments that only matter once the run is over, so that it may go on with others.
    """

    finds_rewards: ClassVar[bool] = False
    after_learning: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def begin(self, world: World, episodes: int, key: int) -> Learning[Any]:
        """The state before the first episode; raises if the world does not suit the learner."""

    def settings(self) -> dict[str, Any]:
        """What tells this learner from another of its class, as JSON: by default its arguments.

        Plain values are as they are, other learners by their settings, and the rest by its `repr`
        and the digest of what it holds.
        """
        names = [n for n in signature(type(self)).parameters if n not in self.after_learning]
        return {name: _as_json(getattr(self, name)) for name in names}

    def _record_settings(self, world: World, episodes: int, **chance: Any) -> dict[str, Any]:
        """All that a run depends on, as its record has it."""
        settings = {
            "learner": type(self).__name__,
            **self.settings(),
            "world": world.fingerprint(),
            **chance,
            "episodes": episodes,
        }
        return dict(json.loads(json.dumps(settings)))

    def run(
        self,
        world: Any,
        episodes: int,
        rng: RNGLike = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool = False,
        time_limit: float | None = None,
    ) -> Run:
        """Act for a number of episodes, learning on the way.

        Ctrl-C ends the run when the learner is next between two rounds, and a second one at once.
        The run so far is returned then, with a warning; with a checkpoint it is saved there and
        `KeyboardInterrupt` is raised, so that the same call goes on from it.

        Parameters
        ----------
        world
            A `LatentMDP`, a Gymnasium environment (see `latentmdp.worlds.adapt`) or a `World`.
        episodes
            K. It is known in advance: a bonus may depend on it.
        rng
            Seed; what happens in an episode depends on it and on the episode's number alone.
        checkpoint
            A .npz file. The run is saved there about twice a second, and goes on from there if the
            file exists: it ends bit for bit as if it had never been interrupted, be it by Ctrl-C or
            by kill -9. Resuming needs the same learner, world, seed and number of episodes.
        progress
            Show a progress bar with the return so far.
        time_limit
            Seconds after which the run so far is returned, looked at between two rounds; what comes
            of it is not repeatable then. A checkpoint is written before.

        Raises
        ------
        CheckpointError
            The checkpoint is damaged or belongs to another run.
        LockedError
            Another process writes to the checkpoint.
        OSError
            The checkpoint cannot be written; nothing has been played then.
        """
        episodes = arrays.positive_integer("episodes", episodes)
        source, key = as_world(world), philox_key(rng)
        source = source.for_states(episodes * (source.space.required_horizon() + 1))
        if source.finding_rewards and not self.finds_rewards:
            raise ValueError(
                f"reward_values: {type(self).__name__} needs to know every reward; `learn` finds "
                "rewards that are open, or measured"
            )
        check_limit("time_limit", time_limit)
        if checkpoint is not None:
            require_writable(checkpoint)
        learning = self.begin(source, episodes, key)
        settings = self._record_settings(source, episodes, seed=given_seed(rng), key=key)
        # Planners and fits within a round would end early by an interrupt, and a resumed run would
        # differ from one that was never stopped: so it is held back until the round is over.
        interrupted = threading.Event()
        with (
            one_writer(checkpoint),
            progress_bar(progress, total=episodes) as move,
            held_interrupts(interrupted),
        ):
            if checkpoint is not None:
                learning.resume(checkpoint, settings)
                move(learning.done)
            chunk, saved, start = 1, time.monotonic(), time.monotonic()
            while learning.done < learning.episodes:
                began, first = time.monotonic(), learning.done
                learning.plan()
                batch = learning.play(min(chunk, learning.next_stop() - first))
                learning.absorb(batch)
                chunk = next_chunk(chunk, learning.done - first, time.monotonic() - began)
                if progress:
                    move(learning.done - first, learning.status())
                spent = math.inf if time_limit is None else (time.monotonic() - start) / time_limit
                ends = interrupted.is_set() or (time_limit is not None and spent >= 1.0)
                late = time.monotonic() - saved > CHECKPOINT_SECONDS
                if checkpoint is not None and (late or ends or learning.done == episodes):
                    write_checkpoint(checkpoint, settings, learning.arrays(), learning.seconds())
                    saved = time.monotonic()
                if interrupted.is_set() and checkpoint is not None and learning.done < episodes:
                    raise KeyboardInterrupt
                if ends:
                    break
                if time_limit is not None and checkpoint is None and spent >= _HURRY:
                    learning.hurry()
            if learning.done < episodes:
                learning.end_here()
                reason = "was interrupted" if interrupted.is_set() else "reached its time limit"
                message = f"the run {reason} after {learning.done} of {episodes} episodes"
                warnings.warn(message, UserWarning, stacklevel=3)
            return _named(learning.result(settings), source)


class Learning(ABC, Generic[Batch]):
    """One run in progress: what the learner knows, and the record so far.

    Attributes
    ----------
    space
        The world's, with the number of contexts that the learner assumes.
    key
        Of all chance in the run.
    done
        Number of episodes played.
    returns, beliefs, contexts
        As in `Run`, filled up to `done`.
    """

    def __init__(
        self, learner: Learner, world: World, space: Space, episodes: int, key: int
    ) -> None:
        self.learner, self.world, self.space = learner, world, space
        self.episodes, self.key = episodes, key
        self.done = 0
        self.returns = np.full(episodes, np.nan)
        self.beliefs = np.full(episodes, np.nan)
        self.contexts = np.full(episodes, -1, np.int32)
        self._began, self._earlier = time.perf_counter(), 0.0

    @abstractmethod
    def plan(self) -> None:
        """Make a policy, if a new one is due."""

    @abstractmethod
    def play(self, most: int) -> Batch:
        """Play by the current policy: at least one episode, and no more than the caller asks for,
        unless the learner's phases are longer.
        """

    @abstractmethod
    def absorb(self, batch: Batch) -> None:
        """Learn from what was played, and record it."""

    @abstractmethod
    def result(self, settings: dict[str, Any]) -> Run:
        """What came of it."""

    def next_stop(self) -> int:
        """The number of episodes that one round must not go beyond."""
        return self.episodes

    def hurry(self) -> None:
        """Leave out what can be left out, since the time is nearly over; by default nothing."""

    def end_here(self) -> None:
        """Make the episodes played so far all that there are."""
        self.episodes = self.done
        for name in RECORDS:
            setattr(self, name, getattr(self, name)[: self.done])

    def status(self) -> str:
        """A few words for the progress bar."""
        played = self.returns[: self.done]
        return f"trailing return {played[-metrics.last_tenth(played.size) :].mean():.4g}"

    def seconds(self) -> float:
        """Wall-clock time of the run so far, interruptions left out."""
        return self._earlier + time.perf_counter() - self._began

    def arrays(self) -> Arrays:
        """Everything that a run needs to go on."""
        records = {name: getattr(self, name)[: self.done] for name in RECORDS}
        met = np.array(list(self.world.met or ()), np.int64)
        return {"done": np.array(self.done), "met": met, **records, **self.fixed_arrays()}

    def fixed_arrays(self) -> Arrays:
        """Those of `arrays` whose shape never changes: the very arrays that the run writes to."""
        return {}

    def restore(self, saved: Arrays) -> None:
        """Go back to where `arrays` was taken."""
        k = int(saved["done"])
        if not 0 <= k <= self.episodes:
            raise ValueError(f"{k} of {self.episodes} episodes are done")
        self.done = k
        if self.world.met is not None:
            self.world.met.update((state, i) for i, state in enumerate(saved["met"].tolist()))
        for name in RECORDS:
            getattr(self, name)[:k] = saved[name]
        for name, array in self.fixed_arrays().items():
            array[...] = saved[name]

    def resume(self, checkpoint: str | os.PathLike[str], settings: dict[str, Any]) -> None:
        """Go on from a checkpoint, if there is one."""
        saved = read_checkpoint(checkpoint, settings, self.fixed_arrays())
        if saved is not None:
            with whole(checkpoint):
                self.restore(saved.arrays)
            self._earlier = saved.seconds

    def record(self, batch: Trajectories) -> slice:
        """Note what episodes earned, and their contexts if known; their places in the record."""
        now = slice(self.done, self.done + len(batch))
        self.returns[now] = batch.returns(self.space.discount)
        if batch.contexts is not None:
            self.contexts[now] = batch.contexts
        self.done += len(batch)
        return now

    def run_of(self, settings: dict[str, Any], **learned: Any) -> Run:
        """The result of the run: its record, with what was learned."""
        records = {name: getattr(self, name) for name in RECORDS}
        return Run(**records, settings=settings, seconds=self.seconds(), **learned)


def model_error(world: World, model: LatentMDP | None) -> float:
    """Of an estimate; NaN where the truth is unknown or has another number of contexts."""
    truth = world.model
    if truth is None or model is None or truth.n_contexts != model.n_contexts:
        return float("nan")
    return metrics.model_error(truth, model)


class CountingLearning(Learning[Batch]):
    """A run of a learner that adds episodes up in the belief-weighted counts of `empirical`."""

    def __init__(
        self, learner: Learner, world: World, empirical: EmpiricalModel, episodes: int, key: int
    ) -> None:
        super().__init__(learner, world, empirical.space, episodes, key)
        self.empirical = empirical
        self._points = milestones(episodes)
        self._errors = np.full(self._points.size, np.nan)

    def next_stop(self) -> int:
        """The first milestone not reached yet."""
        return int(self._points[np.searchsorted(self._points, self.done, side="right")])

    def end_here(self) -> None:
        """See `Learning`; later milestones are left out."""
        super().end_here()
        reached = self._points <= self.done
        self._points, self._errors = self._points[reached], self._errors[reached]

    def note_error(self) -> None:
        """Note the model error if a milestone has just been reached."""
        milestone = int(np.searchsorted(self._points, self.done))
        truth = self.world.model
        if self._points[milestone] != self.done or truth is None:
            return
        if truth.n_contexts == self.space.n_contexts:
            cost = self.empirical.distances(truth)
            self._errors[milestone] = cost[linear_sum_assignment(cost)].sum()

    def count(self, played: Episode, belief: Floats, inferred: Floats) -> None:
        """Add an episode to the counts of context m with weight belief[m], and to the record.

        `inferred` (M,) is what the learner's own filter believed in the end.
        """
        from latentmdp.online.kernels_lucrl import absorb_episode, discounted_return

        empirical, length, k = self.empirical, played.actions.size, self.done
        states, actions, rewards = (part.astype(np.int64) for part in played[:3])
        steps = (states, actions, rewards, length)
        empirical.make_room()
        absorb_episode(empirical.estimate, empirical.optimistic, belief, *steps)
        self.returns[k] = discounted_return(
            rewards, length, empirical.estimate.reward_values, self.space.discount
        )
        if played.context is not None:
            self.contexts[k] = played.context
            if played.context < belief.size:
                self.beliefs[k] = inferred[played.context]
        self.done = k + 1
        self.note_error()

    def count_all(self, batch: Trajectories) -> None:
        """Add episodes to the counts of their contexts, where those are known."""
        if batch.contexts is not None:
            self.empirical.add_counts(Counts.start(batch, self.space, 0.0, "state-action"))
        self.note_error()

    def arrays(self) -> Arrays:
        """See `Learning`; lists of counts grow."""
        return {**super().arrays(), **self.empirical.arrays()}

    def fixed_arrays(self) -> Arrays:
        """See `Learning`."""
        optimistic = self.empirical.optimistic
        return {"errors": self._errors, **{name: getattr(optimistic, name) for name in _VALUES}}

    def restore(self, saved: Arrays) -> None:
        """See `Learning`."""
        super().restore(saved)
        self.empirical.restore(saved)

    def counted(
        self,
        policy: Policy | HistoryPolicy,
        optimistic_value: float | None,
        settings: dict[str, Any],
    ) -> Run:
        """The result of a run, with its policy and what that is worth in the learner's model."""
        counts = self.empirical.counts()
        return self.run_of(
            settings,
            error_curve=Curve(self._points, self._errors),
            model=counts.model(self.space),
            policy=policy,
            counts=counts,
            optimistic_value=float("nan") if optimistic_value is None else float(optimistic_value),
        )


_VALUES = ("values", "spread", "changes", "stale", "due")


class EstimateFilter:
    """The learner's smoothed filter along an episode [kwon2021, Alg. 3].

    Attributes
    ----------
    belief
        (3, M), as kernels keep it; the same array in all episodes.
    """

    def __init__(self, empirical: EmpiricalModel) -> None:
        self.empirical = empirical
        self.belief = np.empty((3, empirical.space.n_contexts))
        self._state = 0

    def begin(self, episode: int, state: int) -> None:
        """See the first state."""
        from latentmdp._kernels.belief import reset_belief

        estimate = self.empirical.estimate
        reset_belief(self.belief, estimate.prior, estimate.initial, state)
        self._state = state

    def observe(self, action: int, transition: Transition) -> None:
        """See what followed."""
        from latentmdp.online.kernels_lucrl import observe

        n, z = transition.next_state, transition.reward
        observe(self.empirical.estimate, self.belief, self._state, action, n, z)
        self._state = n

    def inferred(self) -> Floats:
        """What the learner's filter believes, (M,)."""
        from latentmdp._kernels.belief import AWAKE

        return self.belief[AWAKE].copy()


class EstimateAgent(PolicyAgent):
    """Follows a policy by the learner's filter."""

    def __init__(
        self, policy: Policy | HistoryPolicy, world: Sized, key: int, empirical: EmpiricalModel
    ) -> None:
        super().__init__(policy, world, key)
        self._filter = EstimateFilter(empirical)

    def begin(self, episode: int, state: int) -> None:
        """See the first state."""
        super().begin(episode, state)
        self._filter.begin(episode, state)

    def act(self, t: int) -> int:
        """The policy's action, by the learner's belief."""
        if isinstance(self._memory, Memory):
            # The filter's own array, not a copy: the policy reads it before the next step.
            self._memory = self._memory._replace(belief=self._filter.belief)
        return super().act(t)

    def observe(self, action: int, transition: Transition) -> None:
        """See what followed."""
        self._filter.observe(action, transition)
        super().observe(action, transition)

    def inferred(self) -> Floats:
        """What the learner's filter believes, (M,)."""
        return self._filter.inferred()


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic | list | tuple):
        return np.asarray(value).tolist()
    if isinstance(value, Learner):
        return value.settings()
    source = value.model if isinstance(value, Fit) else value
    if isinstance(source, Fielded):
        return f"{source!r} {source.fingerprint()}"
    plain = isinstance(value, int | float | str | None)
    return value if plain else getattr(value, "__qualname__", repr(value))


def milestones(episodes: int) -> Integers:
    """1, 2, ..., 9, 10, 20, ..., 90, 100, 200, ... up to and with the last episode."""
    powers = 10 ** np.arange(len(str(episodes)), dtype=np.int64)
    grid = np.outer(powers, np.arange(1, 10)).ravel()
    return np.unique(np.append(grid[grid < episodes], episodes))


def played_logs(played: Played, contexts: NDArray[Any], space: Space) -> Trajectories:
    """Episodes of a compiled loop, a row each, as logs; what is behind an episode's end is cut."""
    inside = np.arange(played.states.shape[1]) <= played.lengths[:, None]
    steps = inside[:, 1:]
    return Trajectories(
        played.states[inside],
        played.actions[steps],
        played.rewards[steps],
        np.concatenate([[0], np.cumsum(played.lengths)]),
        contexts,
        n_states=space.n_states,
        n_actions=space.n_actions,
        reward_values=space.reward_array,
    )


def _named(run: Run, world: World) -> Run:
    """The run with the world's own names of states and actions in its models."""
    names = {"state_names": world.state_names, "action_names": world.action_names}
    names = {name: value for name, value in names.items() if value is not None}
    if not names:
        return run
    policy: Any = run.policy
    if isinstance(getattr(policy, "model", None), LatentMDP):  # that of its filter
        fields = policy.to_fields() | {"model": policy.model.replace(**names)}
        policy = type(policy).from_fields(fields)
    plan = run.plan
    if plan is not None and plan.policy is run.policy:
        plan = replace(plan, policy=policy)
    return replace(run, model=run.model.replace(**names), policy=policy, plan=plan)


def next_chunk(chunk: int, played: int, seconds: float) -> int:
    """How many episodes to play until the next look at the clock, if `played` took `seconds`.

    Between two looks lie 0.2 to 0.4 seconds: often enough for the bar and for Ctrl-C, and rare
    enough that compiled rounds are not slowed down.
    """
    if seconds < 0.2 and played >= chunk:
        return 2 * chunk
    return max(1, chunk // 2) if seconds > 0.4 else chunk
