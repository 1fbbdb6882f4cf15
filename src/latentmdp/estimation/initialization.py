"""The best start we know for a latent MDP of which only logs are available.

Short episodes, of which there are many, and long ones, of which there are few, enter one
likelihood: EM over all of them, from pair-moment and random starts, smoothed towards the pooled
model as strongly as predicts held-out episodes best. Whether rewards differ between contexts is
decided by BIC; if they do not, they are estimated once and carry no information on the context.

`method="psr"` is [kwon2021, Alg. 4 and 6]: a spectral PSR from the short episodes, then clustering
of the long ones by its predictions.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Literal

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.engines.threads import Team
from latentmdp.estimation.em import EM
from latentmdp.estimation.encoding import checked_logs
from latentmdp.estimation.n_contexts import ContextSelection, select_contexts
from latentmdp.estimation.parameters import SharedRewards
from latentmdp.estimation.reward_model import (
    RewardForm,
    preferred_reward_form,
    require_reward_form,
)
from latentmdp.estimation.termination import continued, final_states
from latentmdp.fit import Fit, FitWarning, shares_of
from latentmdp.trajectories import Trajectories, sizes_of

__all__ = ["choose_contexts", "initialize", "may_show_contexts"]

_FEWEST_STARTS, _STARTS_PER_CONTEXT = 4, 2
_FEW_CONTEXTS = 2


def initialize(
    short: Trajectories | None,
    long: Trajectories,
    n_contexts: int | Literal["auto"] = "auto",
    *,
    method: Literal["likelihood", "psr"] = "likelihood",
    shared_rewards: bool | Literal["auto"] = "auto",
    reward_model: Literal["state-action", "transition", "auto"] = "auto",
    max_contexts: int = 8,
    rng: RNGLike = None,
    threads: int | None = None,
    progress: bool = False,
) -> Fit:
    """Estimate a latent MDP from short and long episodes.

    Parameters
    ----------
    short : Trajectories or None
        Many short episodes (at least 3 steps for method="psr"); None if there are none.
    long : Trajectories
        Episodes long enough to tell contexts apart. A state where episodes ended before the longest
        did, and where no action was ever logged, is final: absorbing, and without reward.
    n_contexts : int or "auto"
        M; "auto" chooses it and reports the evidence in `Fit.selection`.
    method
        "likelihood", or "psr" for the paper's spectral way.
    shared_rewards
        Whether all contexts have the same rewards; "auto" decides by BIC.
    reward_model
        Whether a reward depends on (s, a), or on (s, a, s'); "auto" decides by BIC.
    max_contexts
        The largest number "auto" tries.
    progress
        Say on the standard error stream what is being done.

    Returns
    -------
    Fit
        With the responsibilities of the long episodes.
    """
    if method not in ("likelihood", "psr"):
        raise ValueError(f'method must be "likelihood" or "psr", got {method!r}')
    require_reward_form(reward_model)
    if n_contexts != "auto":
        n_contexts = arrays.positive_integer("n_contexts", n_contexts)
    began = time.perf_counter()
    logs = checked_logs([long] if short is None else [short, long])
    if method == "psr":
        return _spectral(short, long, n_contexts, rng)
    if n_contexts == "auto" and not may_show_contexts(logs):
        n_contexts = 1
    final = final_states(logs)
    whole = [continued(part, final) for part in logs]
    work = _Initialisation(whole, whole[-1], threads, as_generator(rng), progress)
    few = _FEW_CONTEXTS if n_contexts == "auto" else n_contexts
    shared_rewards = work.settle_rewards(few, reward_model, shared_rewards)
    selection = None
    if n_contexts == "auto":
        most = arrays.positive_integer("max_contexts", max_contexts)
        selection = work.choose(most, shared_rewards)
        n_contexts = selection.n_contexts
    fit = work.fit(n_contexts, shared_rewards)
    return dataclasses.replace(fit, selection=selection, seconds=time.perf_counter() - began)


def may_show_contexts(logs: Sequence[Trajectories]) -> bool:
    """Whether there are two episodes, one of them of two steps: with less, all look alike."""
    episodes = sum(part.n_episodes for part in logs)
    return episodes > 1 and any(part.lengths.max(initial=0) > 1 for part in logs)


def choose_contexts(
    logs: Trajectories, max_contexts: int, reward_model: RewardForm, rng: RNGLike = None
) -> ContextSelection:
    """The number of contexts in logs, with the evidence, and no more than that."""
    work = _Initialisation([logs], logs, None, as_generator(rng), False)
    shared = work.settle_rewards(_FEW_CONTEXTS, reward_model, "auto")
    return work.choose(max_contexts, shared)


def _spectral(
    short: Trajectories | None, long: Trajectories, n_contexts: int | str, rng: RNGLike
) -> Fit:
    if short is None or not isinstance(n_contexts, int):
        raise ValueError('method="psr" needs short episodes and a known n_contexts')
    spectral = import_module("latentmdp.spectral")
    psr = spectral.SpectralPSR(rank=n_contexts).fit(short)
    found: Fit = spectral.recover(psr, long, n_contexts=n_contexts, rng=rng)
    return found


class _Initialisation:
    """One call of `initialize`: what its steps share."""

    def __init__(
        self,
        logs: list[Trajectories],
        long: Trajectories,
        threads: int | None,
        rng: np.random.Generator,
        progress: bool,
    ) -> None:
        self.logs, self.long, self.threads = logs, long, threads
        self.rng, self.progress = rng, progress
        self.reward_model: RewardForm = "state-action"

    def say(self, message: str) -> None:
        if self.progress:
            from rich.console import Console

            Console(stderr=True).print(f"initialize: {message}", highlight=False)

    def em(self, n_contexts: int, shared: bool, **settings: object) -> EM:
        common = {"shared_rewards": shared, "reward_model": self.reward_model}
        return EM(n_contexts, threads=self.threads, **{**common, **settings})  # type: ignore[arg-type]

    def fit(self, n_contexts: int, shared: bool) -> Fit:
        starts = max(_FEWEST_STARTS, _STARTS_PER_CONTEXT * n_contexts)
        self.say(f"EM with {n_contexts} contexts from {starts} starts")
        fit = self.em(n_contexts, shared, restarts=starts).fit(self.logs, rng=self.rng)
        self.say(f"log-likelihood {fit.log_likelihood:.1f}, smoothing {fit.smoothing:g}")
        return dataclasses.replace(fit, responsibilities=shares_of(fit.model, self.long))

    def quick_fit(self, n_contexts: int, shared: bool, start: Fit | None = None) -> Fit:
        """Good enough to decide between forms of the model."""
        quick = {"restarts": 2, "smoothing": 1.0, "tolerance": 0.1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            return self.em(n_contexts, shared, **quick).fit(self.logs, rng=self.rng, start=start)

    def settle_rewards(
        self, n_contexts: int, reward_model: str, shared: bool | Literal["auto"]
    ) -> bool:
        """Settle what rewards depend on; return whether all contexts share them."""
        if reward_model == "transition":
            self.reward_model = "transition"
        if max(part.n_rewards for part in self.logs) == 1:
            return True
        own = None
        if reward_model == "auto":
            own = self.quick_fit(n_contexts, False)
            self.reward_model = preferred_reward_form(self.logs, own.responsibilities)
            self.say(f"rewards depend on the {self.reward_model.replace('-', ' and ')}")
        if shared == "auto":
            return n_contexts == 1 or self.rewards_are_shared(n_contexts, own)
        return shared

    def rewards_are_shared(self, n_contexts: int, own: Fit | None) -> bool:
        """Whether BIC prefers one table of rewards to one for each context."""
        if own is None or self.reward_model == "transition":
            own = self.quick_fit(n_contexts, False, own)
        one = self.quick_fit(n_contexts, True, own)
        price = 0.5 * np.log(sum(part.n_episodes for part in self.logs))
        gain = own.log_likelihood - one.log_likelihood
        shared = gain <= price * (own.n_parameters - one.n_parameters)
        self.say(f"rewards {'are shared' if shared else 'differ'}: own ones gain {gain:.1f} nats")
        return bool(shared)

    def choose(self, max_contexts: int, shared: bool) -> ContextSelection:
        """How many contexts there are."""
        joint = self.reward_model == "transition"
        with Team(self.threads) as team:
            selection = select_contexts(
                self.logs,
                self.long,
                self.rng,
                max_contexts=max_contexts,
                shared=SharedRewards(self.logs, sizes_of(self.logs), joint) if shared else None,
                joint=joint,
                team=team,
                report=self.say,
            )
        self.say(selection.statement)
        if selection.statement.startswith("Not sure"):
            warnings.warn(selection.statement, FitWarning, stacklevel=3)
        return selection
