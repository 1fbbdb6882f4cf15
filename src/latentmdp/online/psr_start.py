"""The path of the paper from nothing to a near-optimal policy [kwon2021, Thm. 3.5].

    n_0 short episodes of random actions, 2 l + 1 = 3 steps each     ->  a PSR  (Alg. 7)
    n_1 episodes of random actions and full length, clustered by it  ->  a start  (Alg. 4, 6)
    L-UCRL with inferred contexts from that start, to the end        ->  a policy  (Alg. 1, 3)

Repetitions of the clustering and a majority vote raise its probability of success.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats
from latentmdp._util.random import RNGLike, given_seed, philox_key
from latentmdp.fit import Fit
from latentmdp.logs import Trajectories
from latentmdp.model import RewardModel
from latentmdp.online.base import Learner, Learning, model_error
from latentmdp.online.lucrl import LUCRL
from latentmdp.online.run import Curve, Phase, Run
from latentmdp.planning import CertifiedPlanner, Planner
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import play
from latentmdp.spectral import SpectralPSR, recover
from latentmdp.worlds import World, as_world

_WINDOW = 3
"""Steps of a short episode: a history, an observation and a test of one step each."""


class _Start(NamedTuple):
    """What random episodes gave: themselves, short and long, the start, and who goes on from it."""

    logs: tuple[Trajectories, Trajectories]
    fit: Fit
    lucrl: LUCRL
    chance: np.random.SeedSequence

    @property
    def explored(self) -> int:
        """n_0 + n_1."""
        return sum(map(len, self.logs))


@dataclass(frozen=True, eq=False)
class PSRStart(Learner):
    """Learn a PSR, recover a start from it, and run L-UCRL with inferred contexts.

    Parameters
    ----------
    n_contexts
        M.
    short_episodes, long_episodes
        n_0 and n_1; half and a twentieth of the episodes by default.
    repeats, variant
        Of the recovery, see `latentmdp.spectral.recover`.
    reward_model
        By what L-UCRL counts rewards.
    lucrl
        L-UCRL's other settings; its contexts are inferred and its start is the recovered model.
    planner
        Makes the final plan; HSVI to a gap of 3 % within 10 seconds by default.

    Notes
    -----
    `run` raises `RecoveryError` where the clusters do not give a model: the PSR is too inaccurate.
    More short episodes help, and so does `learn` with method="likelihood".
    """

    n_contexts: int
    short_episodes: int | None = None
    long_episodes: int | None = None
    repeats: int = 3
    variant: str = "practical"
    reward_model: RewardModel = "state-action"
    lucrl: LUCRL = LUCRL()  # noqa: RUF009
    planner: Planner | None = None
    after_learning: ClassVar[tuple[str, ...]] = ("planner",)

    def __post_init__(self) -> None:
        arrays.positive_integer("n_contexts", self.n_contexts)

    def begin(self, world: World, episodes: int, key: int) -> Learning[Any]:
        """See `Learner`: L-UCRL from the start that random episodes give."""
        start = self._start(world, episodes, key)
        remaining = episodes - start.explored
        return start.lucrl.begin(world, remaining, philox_key(start.chance))

    def run(
        self,
        world: Any,
        episodes: int,
        rng: RNGLike = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool = False,
        time_limit: float | None = None,
    ) -> Run:
        """See `Learner`; a checkpoint is of L-UCRL, and what came before it is played again."""
        began, episodes = time.perf_counter(), arrays.positive_integer("episodes", episodes)
        source, key = as_world(world), philox_key(rng)
        source = source.for_states(episodes * (source.space.required_horizon() + 1))
        start = self._start(source, episodes, key)
        if time_limit is not None:
            time_limit = max(1e-9, time_limit - (time.perf_counter() - began))
        rest = (episodes - start.explored, start.chance, checkpoint, progress, time_limit)
        run = start.lucrl.run(source, *rest)
        plan = (self.planner or CertifiedPlanner()).plan(run.model)
        logs = Trajectories.concat([part.without_contexts() for part in start.logs])
        unknown = np.full(start.explored, np.nan)
        contexts = [
            np.full(len(part), -1, np.int32) if part.contexts is None else part.contexts
            for part in start.logs
        ]
        played = np.concatenate([logs.returns(source.space.discount), run.returns])
        curve = Curve(start.explored + run.error_curve.episodes, run.error_curve.values)
        return dataclasses.replace(
            run,
            returns=played,
            beliefs=np.concatenate([unknown, run.beliefs]),
            contexts=np.concatenate([*contexts, run.contexts]),
            error_curve=curve,
            settings=self._record_settings(source, episodes, seed=given_seed(rng), key=key),
            policy=plan.policy,
            plan=plan,
            fit=start.fit,
            phases=tuple(self._phases(start, played, curve, model_error(source, start.fit.model))),
            logs=logs,
            seconds=time.perf_counter() - began,
        )

    def _start(self, world: World, episodes: int, key: int) -> _Start:
        """A PSR from short random episodes, a start from long ones, and L-UCRL for the rest."""
        n_0 = episodes // 2 if self.short_episodes is None else self.short_episodes
        n_1 = episodes // 20 if self.long_episodes is None else self.long_episodes
        arrays.positive_integer("short_episodes", n_0)
        arrays.positive_integer("long_episodes", n_1)
        if n_0 + n_1 >= episodes:
            raise ValueError(
                f"short_episodes={n_0} and long_episodes={n_1} leave no episode for "
                f"L-UCRL: episodes is {episodes}"
            )
        if (H := world.space.required_horizon()) < _WINDOW:
            raise ValueError(f"a PSR needs episodes of {_WINDOW} steps, got {H}")
        random, of_world, M = UniformPolicy(), philox_key(key), self.n_contexts
        few = play(world, random, n_0, of_world, horizon=_WINDOW)
        full = play(world, random, n_1, of_world, n_0)
        psr = SpectralPSR(rank=M).fit(few.without_contexts())
        chance = np.random.SeedSequence((key, n_0 + n_1))
        rng = np.random.default_rng(chance.spawn(1)[0])
        fit = recover(psr, full.without_contexts(), M, self.variant, rng, self.repeats)
        own: dict[str, Any] = {
            "contexts": "inferred",
            "start": fit,
            "reward_model": self.reward_model,
        }
        return _Start((few, full), fit, dataclasses.replace(self.lucrl, **own), chance)

    def _phases(
        self, start: _Start, played: Floats, curve: Curve, first_error: float
    ) -> Iterator[Phase]:
        """The random batches, then L-UCRL between the points at which its error is known."""
        unknown, likelihood = float("nan"), start.fit.log_likelihood
        errors = [unknown, unknown, first_error, *curve.values.tolist()]
        stops = [0, len(start.logs[0]), start.explored, *curve.episodes.tolist()]
        for (first, stop), error in zip(pairwise(stops), errors):
            estimate = (self.n_contexts, likelihood) if first >= start.explored else (0, unknown)
            yield Phase(first, stop - first, *estimate, error, float(played[first:stop].mean()))
