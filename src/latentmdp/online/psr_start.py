"""The path of the paper from nothing to a near-optimal policy [kwon2021, Thm. 3.5].

    n_0 short episodes of random actions, 2 l + 1 = 3 steps each     ->  a PSR  (Alg. 7)
    n_1 episodes of random actions and full length, clustered by it  ->  a start  (Alg. 4, 6)
    L-UCRL with inferred contexts from that start, to the end        ->  a policy  (Alg. 1, 3)

Repetitions of the clustering and a majority vote raise its probability of success.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Arrays
from latentmdp._util.random import philox_key
from latentmdp.errors import LatentMDPError
from latentmdp.fit import Fit
from latentmdp.logs import Trajectories
from latentmdp.model import RewardModel
from latentmdp.online.base import Learner, Learning
from latentmdp.online.lucrl import LUCRL
from latentmdp.online.run import RECORDS, Curve, Phase, Run
from latentmdp.planning import CertifiedPlanner, Planner
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import play
from latentmdp.spectral import SpectralPSR, recover
from latentmdp.worlds import World

_WINDOW = 3
"""Steps of a short episode: a history, an observation and a test of one step each."""


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
        """See `Learner`."""
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
        return _FromPSR(self, world, episodes, key, (n_0, n_1))


class _FromPSR(Learning[Any]):
    """One run: two batches of random episodes, then the rounds of L-UCRL."""

    learner: PSRStart

    def __init__(
        self, learner: PSRStart, world: World, episodes: int, key: int, sizes: tuple[int, int]
    ) -> None:
        super().__init__(learner, world, world.space, episodes, key)
        self.sizes = sizes
        self.parts: list[Trajectories] = []
        self.fit: Fit | None = None
        self._lucrl: Learning[Any] | None = None

    @property
    def explored(self) -> int:
        """n_0 + n_1."""
        return sum(self.sizes)

    def plan(self) -> None:
        """Nothing while it explores at random; then L-UCRL's plan."""
        if self._lucrl is not None:
            self._lucrl.plan()

    def next_stop(self) -> int:
        inner = self._lucrl
        return self.explored if inner is None else self.explored + inner.next_stop()

    def play(self, most: int) -> Any:
        """The short episodes, then the long ones, then L-UCRL's."""
        if self._lucrl is not None:
            return self._lucrl.play(most)
        long = bool(self.parts)
        number, steps = self.sizes[long], self.space.required_horizon() if long else _WINDOW
        chance = philox_key(self.key)
        return play(self.world, UniformPolicy(), number, chance, self.done, horizon=steps)

    def absorb(self, batch: Any) -> None:
        """Keep the episodes; after the long ones, recover a start."""
        if self._lucrl is not None:
            self._lucrl.absorb(batch)
            self.done = self.explored + self._lucrl.done
            return
        self.record(batch)
        self.parts.append(batch.without_contexts())
        if len(self.parts) == len(self.sizes):
            self._recover()

    def _recover(self) -> None:
        """A PSR from the short episodes, a start from the long ones, and L-UCRL from there."""
        M = self.learner.n_contexts
        few, full = self.parts
        psr = SpectralPSR(rank=M).fit(few)
        chance = np.random.SeedSequence((self.key, self.explored))
        rng = np.random.default_rng(chance.spawn(1)[0])
        self.fit = recover(psr, full, M, self.learner.variant, rng, self.learner.repeats)
        lucrl = dataclasses.replace(
            self.learner.lucrl,
            contexts="inferred",
            start=self.fit,
            reward_model=self.learner.reward_model,
        )
        remaining = self.episodes - self.explored
        self._lucrl = lucrl.begin(self.world, remaining, philox_key(chance))
        for name in RECORDS:  # L-UCRL writes to what the record has behind the exploration
            setattr(self._lucrl, name, getattr(self, name)[self.explored :])

    def end_here(self) -> None:
        """See `Learning`; refused before L-UCRL has a start, since nothing is learned by then."""
        if self._lucrl is None:
            raise LatentMDPError(
                f"the run ended after {self.done} random episodes, before a start was recovered"
            )
        super().end_here()
        self._lucrl.end_here()

    def arrays(self) -> Arrays:
        """See `Learning`: L-UCRL's arrays. Exploration follows from the key and is played again."""
        inner = {} if self._lucrl is None else self._lucrl.arrays()
        return {"explored": np.array(self._lucrl is not None), **inner}

    def restore(self, saved: Arrays) -> None:
        if bool(saved["explored"]):
            while self._lucrl is None:
                self.absorb(self.play(self.explored))
            self._lucrl.restore({k: v for k, v in saved.items() if k != "explored"})
            self.done = self.explored + self._lucrl.done

    def result(self, settings: dict[str, Any]) -> Run:
        """See `Learning`: a plan with a certificate in L-UCRL's estimate."""
        assert self._lucrl is not None
        run = self._lucrl.result(settings)
        plan = (self.learner.planner or CertifiedPlanner()).plan(run.model)
        curve = Curve(self.explored + run.error_curve.episodes, run.error_curve.values)
        return dataclasses.replace(
            run,
            returns=self.returns,
            beliefs=self.beliefs,
            contexts=self.contexts,
            error_curve=curve,
            policy=plan.policy,
            plan=plan,
            fit=self.fit,
            phases=tuple(self._phases(curve)),
            logs=Trajectories.concat(self.parts),
            seconds=self.seconds(),
        )

    def _phases(self, curve: Curve) -> Iterator[Phase]:
        """The random batches, then L-UCRL between the points at which its error is known."""
        assert self.fit is not None
        unknown, M, likelihood = float("nan"), self.learner.n_contexts, self.fit.log_likelihood
        errors = [unknown, unknown, self.model_error(self.fit.model), *curve.values.tolist()]
        stops = [0, self.sizes[0], self.explored, *curve.episodes.tolist()]
        for (first, stop), error in zip(pairwise(stops), errors):
            estimate = (M, likelihood) if first >= self.explored else (0, unknown)
            earned = float(self.returns[first:stop].mean())
            yield Phase(first, stop - first, *estimate, error, earned)
