"""Estimation of a latent MDP from logs alone: what is not given is learned from the data.

Short episodes, of which there are many, and long ones, of which there are few, enter one
likelihood: EM over all of them, from pair-moment and random starts, with as many pseudo-counts of
the pooled model as predict held-out episodes best. What rewards depend on is decided by BIC
(`reward_model`); what contexts share (`held_out`) and how many there are (`n_contexts`) by the
likelihood of held-out individuals. States in which episodes end are terminal (`termination`).

`method="psr"` is [kwon2021, Alg. 4 and 6]: a spectral PSR from the short episodes, then clustering
of the long ones by its predictions.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Literal, cast

from latentmdp._util import arrays
from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.validation import require_choice
from latentmdp.engines import Engine, as_engine
from latentmdp.errors import DeviceError
from latentmdp.estimation.em import EM, decided_em
from latentmdp.estimation.episodes import checked_logs
from latentmdp.estimation.n_contexts import (
    FEW_CONTEXTS,
    MAX_CONTEXTS,
    ContextSearch,
    may_show_contexts,
)
from latentmdp.estimation.reward_model import choose_reward_model, require_reward_model
from latentmdp.estimation.termination import final_states, restricted
from latentmdp.fit import ContextSelection, Fit
from latentmdp.logs import Logs, require_trajectories
from latentmdp.model import RewardModel


def initialize(
    short: Logs | None,
    long: Logs,
    n_contexts: int | Literal["auto"] = "auto",
    *,
    method: Literal["likelihood", "psr"] = "likelihood",
    behaviour: Literal["shared", "by-context", "auto"] = "auto",
    shared_rewards: bool | Literal["auto"] = "auto",
    shared_transitions: bool | Literal["auto"] = "auto",
    shared_initial: bool | Literal["auto"] = "auto",
    covariates: bool | Literal["auto"] = "auto",
    start: Fit | None = None,
    reward_model: RewardModel | Literal["auto"] = "auto",
    max_contexts: int = MAX_CONTEXTS,
    rng: RNGLike = None,
    threads: int | None = None,
    engine: Engine | None = None,
    progress: bool = False,
    device: str = "cpu",
) -> Fit:
    """Estimate a latent MDP from short and long episodes.

    Parameters
    ----------
    short : Trajectories, LogFiles or None
        Many short episodes (at least 3 steps for method="psr"); None if there are none.
    long : Trajectories or LogFiles
        Episodes long enough to tell contexts apart. A state where episodes ended before the longest
        did, and where no action was ever logged, is final: terminal in the model.
    n_contexts : int or "auto"
        M; "auto" chooses it and reports the evidence in `Fit.selection`.
    method
        "likelihood", or "psr" for the paper's spectral way.
    behaviour
        Whether the logger acted by a policy of its own for each context: its actions are then
        evidence about the context. "auto" decides by held-out likelihood.
    shared_rewards, shared_transitions, shared_initial
        Whether all contexts have the same rewards, transitions, initial states; "auto" decides by
        held-out likelihood.
    covariates
        Whether the weights of the contexts depend on the covariates of an individual, if the logs
        have any; "auto" decides by held-out likelihood.
    start
        A fit of earlier logs of the same world: its number of contexts, and what they share, are
        kept where `n_contexts` is "auto", and EM goes on from it.
    reward_model
        Whether a reward depends on (s, a), or on (s, a, s'); "auto" decides by BIC.
    max_contexts
        The largest number "auto" tries.
    engine
        Where the passes over the episodes run; `threads` of this process by default.
    progress
        Say on the standard error stream what is being done.
    device
        "cuda" is short for `engine=engines.Cuda()`: a GPU makes the passes, see `EM.fit`.

    Returns
    -------
    Fit
        With the responsibilities of the long episodes.

    Raises
    ------
    DeviceError
        There is no GPU, or it cannot make this fit; nothing has been done then.
    """
    require_choice("method", method, ("likelihood", "psr"))
    require_reward_model(reward_model)
    if n_contexts == "auto":
        arrays.positive_integer("max_contexts", max_contexts)
    else:
        n_contexts = arrays.positive_integer("n_contexts", n_contexts)
    estimator = start.estimator if start is not None and n_contexts == "auto" else None
    engine = as_engine(engine, threads, device)
    if device == "cuda" and (method == "psr" or estimator is not None):
        request = 'method="psr"' if method == "psr" else "going on from a fit"
        raise DeviceError(
            f'device="cuda" makes the passes of a new fit by EM only; {request} runs on the CPU'
        )
    began = time.perf_counter()
    logs = checked_logs([long] if short is None else [short, long])
    if method == "psr":
        return _spectral(short, long, n_contexts, rng)
    if start is not None and estimator is not None:
        fit = estimator.fit(logs, start=start, rng=rng)
        return _reported(fit, logs, start.selection, start.decisions, began)
    if n_contexts == "auto" and not may_show_contexts(logs):
        n_contexts = 1
    generator, report = as_generator(rng), _say if progress else (lambda _: None)
    few = FEW_CONTEXTS if n_contexts == "auto" else n_contexts
    form = choose_reward_model(logs, few, reward_model, generator, engine, report)
    settings = TerminalEM(
        few,
        restarts=_restarts(few),
        behaviour=behaviour,
        shared_rewards=shared_rewards,
        shared_transitions=shared_transitions,
        covariates=covariates,
        shared_initial=shared_initial,
        reward_model=form,
        threads=threads,
    )
    selection, begin = None, cast(Any, start)
    if n_contexts == "auto":
        search = ContextSearch.of(logs, settings, generator, engine=engine)
        search.run(max_contexts, report)
        choice = search.outcome(report)
        selection, begin = choice.selection, choice.shares
        settings = decided_em(settings, choice.strengths, selection.n_contexts)
        settings = dataclasses.replace(settings, restarts=_restarts(selection.n_contexts))
    report(f"EM with {settings.n_contexts} contexts from {settings.restarts} starts")
    starts = None if begin is None else [begin, None]
    fit = settings.fit(logs, start=starts, rng=generator, engine=engine)
    decisions = fit.decisions
    if selection is None:
        for decision in decisions:
            report(decision)
    else:
        decisions, lasting = choice.decisions, ~final_states(logs)[:, None]
        models = tuple(restricted(model, lasting) for model in selection.models)
        selection = dataclasses.replace(selection, models=models)
    report(f"log-likelihood {fit.log_likelihood:.1f}, pseudo-counts {fit.pseudo_counts:g}")
    return _reported(fit, logs, selection, decisions, began)


class TerminalEM(EM):
    """EM whose models are terminal in the states in which episodes end."""

    def fit(self, logs: Logs | Sequence[Logs], **settings: Any) -> Fit:
        """As `EM.fit`."""
        fit = super().fit(logs, **settings)
        lasting = ~final_states(logs)[:, None]
        return dataclasses.replace(fit, model=restricted(fit.model, lasting))


def _reported(
    fit: Fit,
    logs: list[Logs],
    selection: ContextSelection | None,
    decisions: tuple[str, ...],
    began: float,
) -> Fit:
    """The fit with the evidence, the shares of the long episodes, and the time of all of it."""
    return dataclasses.replace(
        fit,
        responsibilities=fit.predict(logs[-1]),
        selection=selection,
        decisions=decisions,
        seconds=time.perf_counter() - began,
    )


def _restarts(n_contexts: int) -> int:
    """Starts of the final EM: more contexts have more poor maxima, and each costs one climb."""
    return max(4, 2 * n_contexts)


def _spectral(short: Logs | None, long: Logs, n_contexts: int | str, rng: RNGLike) -> Fit:
    if short is None or not isinstance(n_contexts, int):
        raise ValueError('method="psr" needs short episodes and a known n_contexts')
    from latentmdp.spectral import SpectralPSR, recover

    psr = SpectralPSR(rank=n_contexts).fit(require_trajectories("short", short))
    return recover(psr, require_trajectories("long", long), n_contexts=n_contexts, rng=rng)


def _say(message: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(f"initialize: {message}", highlight=False)
