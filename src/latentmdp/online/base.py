"""What every learner shares: the run, its record, checkpoints and progress."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from latentmdp._util import arrays
from latentmdp._util.checkpoint import read_checkpoint, whole, write_checkpoint
from latentmdp._util.random import RNGLike, philox_key
from latentmdp._util.storage import one_writer
from latentmdp.online.empirical_model import LearnerState
from latentmdp.online.run import Curve, Run
from latentmdp.online.session import Session
from latentmdp.online.worlds import World, as_world
from latentmdp.policies import Policy

__all__ = ["Learner"]

CHUNK_SECONDS = 0.2
CHECKPOINT_SECONDS = 0.5
TRAILING = 1_000


class Learner:
    """Base of the learners: subclasses say how to begin, to play and to summarise."""

    def _begin(self, world: World, episodes: int) -> LearnerState:
        """The state before the first episode; raises if the world does not suit the learner."""
        raise NotImplementedError

    def _advance(self, session: Session, stop: int) -> None:
        """Play episodes session.done .. stop - 1 and record them."""
        raise NotImplementedError

    def _outcome(self, session: Session) -> tuple[Policy, float]:
        """The current policy and what it promises in the learner's own model."""
        raise NotImplementedError

    def _settings(self) -> dict[str, Any]:
        """What tells this learner from another, as JSON."""
        raise NotImplementedError

    def run(
        self,
        world: Any,
        episodes: int,
        rng: RNGLike = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool = False,
    ) -> Run:
        """Act for a number of episodes, learning on the way.

        Parameters
        ----------
        world
            A `LatentMDP`, or a Gymnasium environment (see `latentmdp.envs.adapt`).
        episodes
            K. It is known in advance: the bonus depends on it.
        rng
            Seed; what happens in an episode depends on it and on the episode's number alone.
        checkpoint
            A .npz file. The run is saved there about twice a second, and goes on from there if the
            file exists: it ends bit for bit as if it had never been interrupted, be it by Ctrl-C or
            by kill -9. Resuming needs the same learner, world, seed and number of episodes.
        progress
            Show a progress bar with the trailing return.

        Raises
        ------
        CheckpointError
            The checkpoint is damaged or belongs to another run.
        LockedError
            Another process writes to the checkpoint.
        """
        episodes = arrays.positive_integer("episodes", episodes)
        place = as_world(world)
        key = philox_key(rng)
        session = Session(place, self._begin(place, episodes), key, episodes)
        settings = self._run_settings(session)
        with one_writer(checkpoint):
            if checkpoint is not None:
                saved = read_checkpoint(checkpoint, settings, session.fixed_arrays())
                if saved is not None:
                    with whole(checkpoint):
                        session.restore(saved.arrays)
                    session.earlier = saved.seconds
            with _progress(session, progress) as tick:
                self._play(session, settings, checkpoint, tick)
        return self._result(session, settings)

    def _play(
        self,
        session: Session,
        settings: dict[str, Any],
        checkpoint: str | os.PathLike[str] | None,
        tick: Any,
    ) -> None:
        """Play in chunks of a fraction of a second, between which a run can be interrupted."""
        chunk, saved = 1, time.monotonic()
        while session.done < session.episodes:
            start = time.monotonic()
            first = session.done
            self._advance(session, min(first + chunk, session.next_point()))
            session.record_error()
            now = time.monotonic()
            if now - start < CHUNK_SECONDS and session.done - first == chunk:
                chunk *= 2
            elif now - start > 2.0 * CHUNK_SECONDS:
                chunk = max(1, chunk // 2)
            tick()
            last = session.done == session.episodes
            if checkpoint is not None and (last or now - saved > CHECKPOINT_SECONDS):
                write_checkpoint(checkpoint, settings, session.arrays(), session.seconds())
                saved = time.monotonic()

    def _run_settings(self, session: Session) -> dict[str, Any]:
        settings = {
            "learner": type(self).__name__,
            **self._settings(),
            "world": session.world.fingerprint(),
            "key": session.key,
            "episodes": session.episodes,
        }
        return dict(json.loads(json.dumps(settings)))

    def _result(self, session: Session, settings: dict[str, Any]) -> Run:
        policy, value = self._outcome(session)
        state = session.state
        for array in (session.returns, session.beliefs, session.contexts, session.errors):
            arrays.frozen(array)
        return Run(
            returns=session.returns,
            beliefs=session.beliefs,
            contexts=session.contexts,
            error_curve=Curve(arrays.frozen(session.points), session.errors),
            counts=state.counts(),
            model=state.model(),
            policy=policy,
            optimistic_value=value,
            space=state.space,
            settings=settings,
            seconds=session.seconds(),
        )


@contextmanager
def _progress(session: Session, shown: bool) -> Iterator[Any]:
    """A function to call after each chunk; it moves the bar, if one is shown."""
    if not shown:
        yield lambda: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[trailing]}"))
    with Progress(*columns, TimeRemainingColumn()) as bar:
        task = bar.add_task("", total=session.episodes, trailing="", completed=session.done)

        def tick() -> None:
            mean = session.returns[max(0, session.done - TRAILING) : session.done].mean()
            bar.update(task, completed=session.done, trailing=f"trailing return {mean:.4g}")

        yield tick
