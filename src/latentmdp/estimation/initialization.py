"""A latent MDP from logs alone: what is not given is found in the data.

Short episodes, of which there are many, and long ones, of which there are few, enter one
likelihood: EM over all of them, from pair-moment and random starts, with as many pseudo-counts of
the pooled model as predict held-out episodes best. What rewards depend on and whether contexts
share them is decided by BIC (`reward_model`), the number of contexts by held-out likelihood
(`n_contexts`). States in which episodes end are terminal (`termination`).

`method="psr"` is [kwon2021, Alg. 4 and 6]: a spectral PSR from the short episodes, then clustering
of the long ones by its predictions.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Literal

from latentmdp._util import arrays
from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.validation import require_choice
from latentmdp.estimation.em import EM
from latentmdp.estimation.episodes import checked_logs
from latentmdp.estimation.n_contexts import (
    FEW_CONTEXTS,
    MAX_CONTEXTS,
    choose_contexts,
    may_show_contexts,
)
from latentmdp.estimation.reward_model import require_reward_model, settle_rewards
from latentmdp.estimation.termination import final_states, restricted
from latentmdp.fit import Fit, shares_of
from latentmdp.model import RewardModel
from latentmdp.trajectories import Trajectories

__all__ = ["initialize"]

_FEWEST_STARTS, _STARTS_PER_CONTEXT = 4, 2
"""Starts of the final EM: more contexts have more poor maxima, and each start costs one climb."""


def initialize(
    short: Trajectories | None,
    long: Trajectories,
    n_contexts: int | Literal["auto"] = "auto",
    *,
    method: Literal["likelihood", "psr"] = "likelihood",
    shared_rewards: bool | Literal["auto"] = "auto",
    reward_model: RewardModel | Literal["auto"] = "auto",
    max_contexts: int = MAX_CONTEXTS,
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
        did, and where no action was ever logged, is final: terminal in the model.
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
    require_choice("method", method, ("likelihood", "psr"))
    require_reward_model(reward_model)
    if n_contexts == "auto":
        arrays.positive_integer("max_contexts", max_contexts)
    else:
        n_contexts = arrays.positive_integer("n_contexts", n_contexts)
    began = time.perf_counter()
    logs = checked_logs([long] if short is None else [short, long])
    if method == "psr":
        return _spectral(short, long, n_contexts, rng)
    if n_contexts == "auto" and not may_show_contexts(logs):
        n_contexts = 1
    generator, report = as_generator(rng), _say if progress else (lambda _: None)
    few = FEW_CONTEXTS if n_contexts == "auto" else n_contexts
    rewards = settle_rewards(
        logs, few, reward_model, shared_rewards, generator, threads=threads, report=report
    )
    selection = None
    if n_contexts == "auto":
        selection = choose_contexts(
            logs,
            max_contexts=max_contexts,
            reward_model=rewards.reward_model,
            shared_rewards=rewards.shared,
            assigned=logs[-1],
            rng=generator,
            threads=threads,
            report=report,
        )
        n_contexts = selection.n_contexts
    em = EM(
        n_contexts,
        restarts=max(_FEWEST_STARTS, _STARTS_PER_CONTEXT * n_contexts),
        shared_rewards=rewards.shared,
        reward_model=rewards.reward_model,
        threads=threads,
    )
    report(f"EM with {n_contexts} contexts from {em.restarts} starts")
    fit = em.fit(logs, rng=generator)
    report(f"log-likelihood {fit.log_likelihood:.1f}, pseudo-counts {fit.pseudo_counts:g}")
    lasting = ~final_states(logs)[:, None]
    if selection is not None:
        models = tuple(restricted(model, lasting) for model in selection.models)
        selection = dataclasses.replace(selection, models=models)
    return dataclasses.replace(
        fit,
        model=restricted(fit.model, lasting),
        responsibilities=shares_of(fit.model, logs[-1]),
        selection=selection,
        seconds=time.perf_counter() - began,
    )


def _spectral(
    short: Trajectories | None, long: Trajectories, n_contexts: int | str, rng: RNGLike
) -> Fit:
    if short is None or not isinstance(n_contexts, int):
        raise ValueError('method="psr" needs short episodes and a known n_contexts')
    from latentmdp.spectral import SpectralPSR, recover

    psr = SpectralPSR(rank=n_contexts).fit(short)
    return recover(psr, long, n_contexts=n_contexts, rng=rng)


def _say(message: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(f"initialize: {message}", highlight=False)
