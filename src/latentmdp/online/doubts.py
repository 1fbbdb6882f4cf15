"""Reasons not to rely on a policy that was learned by acting, as messages to its user.

The world has the last word: what the final policy earned in episodes of its own is compared with
what the fitted model promises. The same episodes, which no fit has seen, also tell whether the
world is a latent MDP at all. In one, the context stays as it is; if a filter that lets it change
from step to step predicts them better, something hidden moves within an episode.
"""

from __future__ import annotations

import numpy as np

from latentmdp._util.arrays import Flags, Floats
from latentmdp.fit import Fit
from latentmdp.logs import Trajectories
from latentmdp.metrics import Interval
from latentmdp.model import LatentMDP
from latentmdp.planning import Plan, acting_smoothing

__all__ = ["LearnWarning", "contradicted", "doubts", "moving_context", "told_apart"]


class LearnWarning(UserWarning):
    """A reason not to rely on what was learned by acting."""


_TOLD_APART = 0.3
"""Of the way from a guess to certainty that the labels of episodes must have come on average."""

_CHANGES = (0.03, 0.1, 0.3)
"""Chances that the context changes in a step, which are tried."""

_FEWEST = 10.0
"""Visits of an (s, a) in every context from which on its row is taken as known."""

_STDERRS, _LEAST_GAIN = 4.0, 0.005
"""By how much a moving context must predict better: standard errors, and nats a step."""


def doubts(
    plan: Plan, fit: Fit, visits: Floats, value: Interval | None, shown: Trajectories | None
) -> tuple[str, ...]:
    """What speaks against a plan.

    Parameters
    ----------
    visits : (M, S, A)
        What the fit rests on, each episode shared among the contexts.
    value, shown
        Of the plan's own episodes in the world.
    """
    found = []
    if value is None:
        found.append("too few episodes to try the final policy in the world")
    elif (promised := contradicted(plan, value)) is not None:
        found.append(
            f"the model promises {promised:.4g} an episode, and the world paid {value.mean:.4g} "
            f"({value.low:.4g} to {value.high:.4g}): the model is wrong where the policy goes"
        )
    model = fit.model
    if told_apart(fit) < _TOLD_APART:
        sure, guess = fit.responsibilities.max(axis=1).mean(), model.weights.max()
        found.append(
            f"the contexts were hardly told apart: the likeliest one of an episode has "
            f"{sure:.0%} on average, where a guess has {guess:.0%}"
        )
    if shown is not None and (gain := moving_context(model, visits, shown)) is not None:
        found.append(
            "something hidden moves within an episode, so this is not a latent MDP: a context that "
            f"may change predicts new episodes better, by {gain:.2g} nats a step"
        )
    return tuple(found)


def told_apart(fit: Fit) -> float:
    """How far labels of episodes are from a guess, 0, to certainty, 1; 1 with one context."""
    guess = float(fit.model.weights.max())
    if guess >= 1.0:
        return 1.0
    return (float(fit.responsibilities.max(axis=1).mean()) - guess) / (1.0 - guess)


def contradicted(plan: Plan, value: Interval) -> float | None:
    """What the plan promises, if the world's returns exclude it."""
    lower = plan.lower if plan.lower is not None else -np.inf
    upper = plan.upper if plan.upper is not None else np.inf
    slack = 0.02 * max(abs(value.low), abs(value.high))
    if lower > value.high + slack:
        return float(lower)
    return float(upper) if upper < value.low - slack else None


def moving_context(model: LatentMDP, visits: Floats, logs: Trajectories) -> float | None:
    """By how many nats a step a context that changes within episodes predicts them better.

    None unless it clearly does. `logs` must not have been used to fit the model. Steps at an (s, a)
    with too few `visits` (M, S, A) in some context are left out: where a model is wrong, a filter
    that forgets does better too.
    """
    if model.n_contexts == 1 or logs.n_steps == 0:
        return None
    known = visits.min(axis=0) >= _FEWEST
    still = _log_likelihoods(model, known, logs, 0.0)
    steps = np.maximum(logs.lengths, 1)
    best = None
    for change in _CHANGES:
        gains = _log_likelihoods(model, known, logs, change) - still
        error = float(gains.std(ddof=1) / gains.size**0.5) if gains.size > 1 else np.inf
        mean, per_step = float(gains.mean()), float(gains.sum() / steps.sum())
        if mean > _STDERRS * error and per_step > max(_LEAST_GAIN, best or 0.0):
            best = per_step
    return best


def _log_likelihoods(model: LatentMDP, known: Flags, logs: Trajectories, change: float) -> Floats:
    """Of every episode, under a context that is drawn anew with a chance of `change` a step."""
    smoothing = acting_smoothing(model.n_states, model.n_rewards)
    S, A, Z = model.n_states, model.n_actions, model.n_rewards
    steps = logs.steps()
    keys = ((steps.state * A + steps.action) * np.int64(S) + steps.next_state) * Z + steps.reward
    found = model.outcomes.find(keys, S, Z)
    listed = np.where(found[:, None] >= 0, model.outcomes.probs[found], 0.0)
    likelihoods = smoothing + (1.0 - smoothing * S * Z) * listed
    likelihoods[~known[steps.state, steps.action]] = 1.0
    belief = model.weights * model.initial.T[logs.first_states]
    total = belief.sum(axis=1, keepdims=True)
    belief = np.where(total > 0.0, belief / np.maximum(total, 1e-300), model.weights)
    total_logs = np.zeros(len(logs))
    for t in range(int(logs.lengths.max())):
        going = np.flatnonzero(logs.lengths > t)
        now = belief[going] * likelihoods[logs.offsets[going] + t]
        chance = now.sum(axis=1)
        total_logs[going] += np.log(np.maximum(chance, 1e-300))
        after = now / np.maximum(chance, 1e-300)[:, None]
        belief[going] = (1.0 - change) * after + change * model.weights
    return total_logs
