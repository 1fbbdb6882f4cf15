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
from typing import Any

import numpy as np

from latentmdp import metrics
from latentmdp._util import arrays
from latentmdp._util.random import RNGLike, philox_key
from latentmdp.fit import Fit
from latentmdp.online.learned import Learned, Phase
from latentmdp.online.lucrl import LUCRL
from latentmdp.online.play_batch import play_batch
from latentmdp.online.run import Run
from latentmdp.online.worlds import World, as_world
from latentmdp.planning import Planner, certified_plan
from latentmdp.policies import UniformPolicy
from latentmdp.spectral import SpectralPSR, recover
from latentmdp.trajectories import Trajectories

__all__ = ["learn_from_psr"]

_WINDOW = 3


def learn_from_psr(
    world: Any,
    n_contexts: int,
    episodes: int,
    rng: RNGLike = None,
    *,
    short: int | None = None,
    long: int | None = None,
    repeats: int = 3,
    variant: str = "practical",
    learner: LUCRL | None = None,
    planner: Planner | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Learned:
    """Learn a PSR, recover a start from it, and run L-UCRL with inferred contexts.

    Parameters
    ----------
    world, n_contexts, planner, progress
        As for `learn`.
    episodes
        K in all: short ones, long ones and those of L-UCRL.
    short, long
        n_0 and n_1; half and a twentieth of the episodes by default.
    repeats, variant
        Of the recovery, see `latentmdp.spectral.recover`.
    learner
        L-UCRL's settings; its contexts are inferred and its start is the recovered model.
    checkpoint
        Where L-UCRL goes on after an interruption. Exploration, which follows from the seed, is
        played again.

    Raises
    ------
    RecoveryError
        The clusters did not give a model: the PSR is too inaccurate. More short episodes help, and
        so does `learn` with method="likelihood".
    """
    began = time.perf_counter()
    M, place = arrays.positive_integer("n_contexts", n_contexts), as_world(world)
    episodes = arrays.positive_integer("episodes", episodes)
    n_0 = arrays.positive_integer("short", episodes // 2 if short is None else short)
    n_1 = arrays.positive_integer("long", episodes // 20 if long is None else long)
    if n_0 + n_1 >= episodes:
        raise ValueError(
            f"short={n_0} and long={n_1} leave no episode for L-UCRL: episodes is {episodes}"
        )
    if place.space.horizon < _WINDOW:
        raise ValueError(f"a PSR needs episodes of {_WINDOW} steps, got {place.space.horizon}")
    seed = philox_key(rng)
    few = _explore(place, _WINDOW, n_0, seed, 0)
    full = _explore(place, place.space.horizon, n_1, seed, n_0)
    psr = SpectralPSR(rank=M).fit(few)
    chance = np.random.SeedSequence((seed, n_0 + n_1))
    fit = recover(psr, full, M, variant, np.random.default_rng(chance.spawn(1)[0]), repeats)
    run = _lucrl(learner, fit).run(
        place, episodes - n_0 - n_1, rng=chance, checkpoint=checkpoint, progress=progress
    )
    plan = certified_plan(run.model) if planner is None else planner.plan(run.model)
    explored = Trajectories.concat([few, full])
    return Learned(
        returns=np.concatenate([explored.returns(place.space.discount), run.returns]),
        policy=plan.policy,
        plan=plan,
        model=run.model,
        fit=fit,
        phases=(*_explored(place, [few, full]), *_played(place, fit, run, n_0 + n_1)),
        logs=explored,
        settings={"method": "psr", "short": n_0, "long": n_1, "seed": seed, "lucrl": run.settings},
        seconds=time.perf_counter() - began,
    )


def _explore(world: World, steps: int, episodes: int, seed: int, first: int) -> Trajectories:
    timed = world.space.uniform_model().replace(horizon=steps)
    return play_batch(world, UniformPolicy(), timed, episodes, seed, first)


def _lucrl(learner: LUCRL | None, fit: Fit) -> LUCRL:

    return dataclasses.replace(
        LUCRL() if learner is None else learner, contexts="inferred", start=fit
    )


def _explored(world: World, parts: list[Trajectories]) -> list[Phase]:
    unknown = float("nan")
    phases, first = [], 0
    for part in parts:
        earned = float(part.returns(world.space.discount).mean())
        phases.append(Phase(first, len(part), 0, unknown, unknown, earned))
        first += len(part)
    return phases


def _played(world: World, fit: Fit, run: Run, first: int) -> list[Phase]:
    """L-UCRL between the points at which its error is known, the first by the start's."""
    truth, M = world.model, fit.model.n_contexts
    error = float("nan")
    if truth is not None and truth.n_contexts == M:
        error = metrics.model_error(truth, fit.model)
    phases, done = [], 0
    for stop, after in zip(run.error_curve.episodes.tolist(), run.error_curve.values.tolist()):
        earned = float(run.returns[done:stop].mean())
        phases.append(Phase(first + done, stop - done, M, fit.log_likelihood, error, earned))
        done, error = stop, after
    return phases
