"""Learning to act from nothing: no initialisation, no hindsight.

    explore a little with uniformly random actions
    repeat, at growing intervals:
        fit a latent MDP to all episodes so far by maximum likelihood, from several starts
            (`refitting`)
        plan in the fitted model, optimistic where few observations support it (`optimism`)
        play that policy, whose filter infers the context within each episode

Online EM [kwon2021, Alg. 3] counts each episode once, under the labels believed at the time, and
never takes a wrong label back; it needs a good start. Refitting on the whole history relabels
every episode, so early mistakes do not stay. And since every fit is smoothed towards the pooled
model as strongly as predicts held-out episodes best, what one context shows of the world serves
the others, which counts kept apart by true labels cannot do.
"""

from __future__ import annotations

import os
import time
from typing import Any, Literal

import numpy as np

from latentmdp import metrics
from latentmdp._util import arrays
from latentmdp._util.lock import one_writer
from latentmdp._util.random import RNGLike, philox_key
from latentmdp.estimation.reward_model import require_reward_form
from latentmdp.fit import Fit
from latentmdp.model import LatentMDP
from latentmdp.online.learned import Learned, Phase
from latentmdp.online.lucrl import LUCRL
from latentmdp.online.optimism import optimistic_model
from latentmdp.online.play_batch import play_batch
from latentmdp.online.psr_start import learn_from_psr
from latentmdp.online.refit_progress import Progress
from latentmdp.online.refitting import refit
from latentmdp.online.saving import Saved, read_progress, write_progress
from latentmdp.online.worlds import World, as_world
from latentmdp.planning import Planner, acting_policy, certified_plan
from latentmdp.policies import Policy, UniformPolicy
from latentmdp.space import Space
from latentmdp.trajectories import cell_counts

__all__ = ["learn"]


_FEWEST = 10


def learn(
    world: Any,
    n_contexts: int | Literal["auto"] = "auto",
    episodes: int = 10_000,
    rng: RNGLike = None,
    *,
    method: Literal["likelihood", "psr"] = "likelihood",
    explore: int = 20,
    growth: float = 1.15,
    restarts: int = 3,
    bonus: float = 0.15,
    max_contexts: int = 10,
    reward_model: Literal["state-action", "transition", "auto"] = "auto",
    planner: Planner | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Learned:
    """Learn to act in a world whose contexts are never shown.

    Parameters
    ----------
    world
        A `LatentMDP`, a Gymnasium environment with Discrete spaces, or `lm.envs.adapt(env, ...)`.
    n_contexts
        M; "auto" chooses it by held-out likelihood, again each time the data have doubled.
    episodes
        K, exploration included.
    method
        "likelihood" refits on all episodes at growing intervals. "psr" is the path of [kwon2021,
        Thm. 3.5]: a PSR from short random episodes, recovery by clustering, then L-UCRL with
        inferred contexts; it needs `n_contexts`, and of what follows it takes `reward_model`
        (for L-UCRL), `planner` and `checkpoint`; `online.learn_from_psr` has settings of its own.
    explore
        Episodes of uniformly random actions at the beginning.
    growth
        The data grow by this factor between two fits.
    restarts
        Fresh starts of each fit, beside the one from the fit before.
    bonus
        Optimism about rows that few observations support, in ranges of the rewards.
    reward_model
        Whether a reward depends on (s, a), or on (s, a, s') as in most Gymnasium tables; "auto"
        decides by BIC, again each time the data have doubled.
    planner
        Makes the final plan; HSVI to a gap of 1 % within 10 seconds by default. While learning,
        plans are Q-MDP's, or PBVI's where Q-MDP falls short of its own bound.
    checkpoint
        A file to go on from after an interruption; the result is the same to the bit.

    Returns
    -------
    Learned
    """
    if n_contexts != "auto":
        n_contexts = arrays.positive_integer("n_contexts", n_contexts)
    require_reward_form(reward_model)
    if method not in ("likelihood", "psr"):
        raise ValueError(f'method must be "likelihood" or "psr", got {method!r}')
    if method == "psr":
        if n_contexts == "auto":
            raise ValueError('method="psr" needs a known n_contexts')
        return learn_from_psr(
            world,
            n_contexts,
            episodes,
            rng,
            learner=None if reward_model == "auto" else LUCRL(reward_model=reward_model),
            planner=planner,
            checkpoint=checkpoint,
            progress=progress,
        )
    if not 1.0 < growth < np.inf:
        raise ValueError(f"growth must be above 1 and finite, got {growth}")
    if not (np.isfinite(bonus) and bonus >= 0.0):
        raise ValueError(f"bonus must be finite and not negative, got {bonus}")
    settings = {
        "n_contexts": n_contexts,
        "episodes": arrays.positive_integer("episodes", episodes),
        "explore": arrays.positive_integer("explore", explore),
        "growth": float(growth),
        "restarts": arrays.positive_integer("restarts", restarts),
        "bonus": float(bonus),
        "max_contexts": arrays.positive_integer("max_contexts", max_contexts),
        "reward_model": reward_model,
        "seed": philox_key(rng),
    }
    place = as_world(world)
    _require_enough(place.space, n_contexts, episodes)
    with one_writer(checkpoint):
        return _Learning(place, settings, checkpoint, progress).run(planner)


def _require_enough(space: Space, n_contexts: int | str, episodes: int) -> None:
    """Refuse what no fit could do, before any episode is played."""
    if n_contexts in (1, "auto"):
        return
    if space.horizon < 2:
        raise ValueError(f"episodes of one step cannot show n_contexts={n_contexts}")
    if episodes < int(n_contexts):
        raise ValueError(f"episodes={episodes} cannot show n_contexts={n_contexts}")


class _Learning:
    """One run of `learn`: the episodes so far, the current fit and what led there."""

    def __init__(
        self,
        world: World,
        settings: dict[str, Any],
        checkpoint: str | os.PathLike[str] | None,
        progress: bool,
    ) -> None:
        self.world, self.settings, self.checkpoint = world, settings, checkpoint
        self.progress = progress
        self.began = time.perf_counter()
        self.state = Saved.fresh(world.space)
        self.fit: Fit | None = None

    @property
    def played(self) -> int:
        return len(self.state.logs)

    def run(self, planner: Planner | None) -> Learned:
        episodes = self.settings["episodes"]
        if self.checkpoint is not None:
            self.state = read_progress(self.checkpoint, self.identity(), self.world.space)
            self.began -= self.state.seconds
        with Progress(episodes, shown=self.progress) as bar:
            if self.played == 0:
                blank = self.world.space.uniform_model()
                self.play(UniformPolicy(), blank, min(self.exploration(), episodes))
            while self.played < episodes:
                bar.update(self.played, self.state.phases)
                fit = self.refit()
                believed = self.optimistic(fit)
                policy = acting_policy(self.sized(fit.model), believed)
                longer = int(self.played * (self.settings["growth"] - 1.0))
                length = min(max(_FEWEST, longer), episodes - self.played)
                self.play(policy, believed, length)
            bar.update(self.played, self.state.phases)
            fit = self.refit()
        model = self.sized(fit.model)
        plan = certified_plan(model) if planner is None else planner.plan(model)
        logs = self.state.logs
        return Learned(
            returns=logs.returns(self.world.space.discount),
            policy=plan.policy,
            plan=plan,
            model=model,
            fit=fit,
            phases=self.state.phases,
            logs=logs,
            settings=self.identity(),
            seconds=time.perf_counter() - self.began,
        )

    def exploration(self) -> int:
        """Episodes before the first fit: as many as asked for, and one for each context."""
        number = self.settings["n_contexts"]
        return max(int(self.settings["explore"]), 1 if number == "auto" else int(number))

    def identity(self) -> dict[str, Any]:
        """What tells this run from others."""
        return {**self.settings, "world": self.world.fingerprint()}

    def play(self, policy: Policy, believed: LatentMDP, episodes: int) -> None:
        """Play a phase, and save."""
        new = play_batch(self.world, policy, believed, episodes, self.settings["seed"], self.played)
        phase = Phase(
            first_episode=self.played,
            episodes=episodes,
            n_contexts=0 if self.fit is None else self.fit.model.n_contexts,
            log_likelihood=float("nan") if self.fit is None else self.fit.log_likelihood,
            model_error=self.error(),
            mean_return=float(new.returns(self.world.space.discount).mean()),
        )
        self.state = self.state.extended(new, phase)
        if self.checkpoint is not None:
            taken = time.perf_counter() - self.began
            write_progress(self.checkpoint, self.identity(), self.state, taken)

    def refit(self) -> Fit:
        """Fit all episodes so far."""
        rng = np.random.default_rng([self.settings["seed"], len(self.state.phases)])
        state = self.state
        self.fit, settled = refit(state.logs, state.model, state.settled, self.settings, rng)
        self.state = state.fitted(self.fit.model, settled)
        return self.fit

    def optimistic(self, fit: Fit) -> LatentMDP:
        """The fitted model with what it does not know made attractive."""
        space = self.world.space
        visits = cell_counts(self.state.logs, ("state", "action"), shares=fit.responsibilities)
        return optimistic_model(
            self.sized(fit.model), visits, fit, self.settings["bonus"], space.largest_return
        )

    def sized(self, model: LatentMDP) -> LatentMDP:
        """The fitted model with the world's horizon and discount."""
        space = self.world.space
        return model.replace(horizon=space.horizon, discount=space.discount)

    def error(self) -> float:
        """Model error where the truth is known and has as many contexts."""
        truth = self.world.model
        if truth is None or self.fit is None or truth.n_contexts != self.fit.model.n_contexts:
            return float("nan")
        return metrics.model_error(truth, self.fit.model)
