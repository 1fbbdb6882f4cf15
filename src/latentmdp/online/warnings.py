"""Reasons not to rely on a policy that was learned by acting, as messages to its user.

The world has the last word: what the final policy earned in episodes of its own is compared with
what the fitted model promises. The same episodes, which no fit has seen, also tell whether the
world is a latent MDP at all. In one, the context stays as it is; if a filter that lets it change
from step to step predicts them better, something hidden moves within an episode.
"""

from __future__ import annotations

import numpy as np

from latentmdp._util import Floats
from latentmdp.belief import filter_tables
from latentmdp.fit import Fit
from latentmdp.logs import Trajectories
from latentmdp.metrics import Interval
from latentmdp.model import LatentMDP
from latentmdp.planning import Plan, acting_smoothing


class LearnWarning(UserWarning):
    """A reason not to rely on what was learned by acting."""


def learn_warnings(
    plan: Plan, fit: Fit, visits: Floats, value: Interval | None, final_logs: Trajectories
) -> tuple[str, ...]:
    """What speaks against a plan.

    Parameters
    ----------
    visits : (M, S, A)
        What the fit rests on, each episode shared among the contexts.
    value, final_logs
        Of the plan's own episodes in the world, if there are any.
    """
    messages = []
    if value is None:
        messages.append("too few episodes to try the final policy in the world")
    elif (promised := contradicted(plan, value)) is not None:
        messages.append(
            f"the model promises {promised:.4g} an episode, and the world paid {value.mean:.4g} "
            f"({value.low:.4g} to {value.high:.4g}): the model is wrong where the policy goes"
        )
    elif plan.upper is not None and plan.upper < value.low - 0.02 * abs(value.low):
        messages.append(
            f"the world paid {value.mean:.4g} an episode ({value.low:.4g} to {value.high:.4g}), "
            f"more than the {plan.upper:.4g} that the model promises at most: a better policy may "
            "be found with more episodes"
        )
    model = fit.model
    if told_apart(fit) < 0.3:  # of the way from a guess to certainty, on average over episodes
        sure, guess = fit.responsibilities.max(axis=1).mean(), model.weights.max()
        messages.append(
            f"the contexts were hardly told apart: the likeliest one of an episode has "
            f"{sure:.0%} on average, where a guess has {guess:.0%}"
        )
    if (gain := moving_context(model, visits, final_logs)) is not None:
        messages.append(
            "something hidden moves within an episode, so this is not a latent MDP: a context that "
            f"may change predicts new episodes better, by {gain:.2g} nats a step"
        )
    return tuple(messages)


def told_apart(fit: Fit) -> float:
    """How far labels of episodes are from a guess, 0, to certainty, 1; 1 with one context."""
    guess = float(fit.model.weights.max())
    if guess >= 1.0:
        return 1.0
    return (float(fit.responsibilities.max(axis=1).mean()) - guess) / (1.0 - guess)


def contradicted(plan: Plan, value: Interval) -> float | None:
    """What the plan promises at least, if the world paid clearly less.

    A world that pays more than promised is no reason to give a plan up.
    """
    slack = 0.02 * max(abs(value.low), abs(value.high))
    if plan.lower is None or plan.lower <= value.high + slack:
        return None
    return float(plan.lower)


def moving_context(model: LatentMDP, visits: Floats, logs: Trajectories) -> float | None:
    """By how many nats a step a context that changes within episodes predicts them better.

    None unless it clearly does: by four standard errors and 0.005 nats a step, for a chance of
    0.03, 0.1 or 0.3 that the context is drawn anew in a step. `logs` must not have been used to fit
    the model. Steps at an (s, a) with fewer than ten `visits` (M, S, A) in some context are left
    out: where a model is wrong, a filter that forgets does better too.
    """
    from latentmdp.online.kernels_warnings import moving_evidence

    if model.n_contexts == 1 or logs.n_steps == 0:
        return None
    table = filter_tables(model, acting_smoothing(model.n_states, model.n_rewards))
    well_visited = visits.min(axis=0) >= 10.0
    flat = (logs.states, logs.actions, logs.rewards, logs.offsets)
    still, *moving = (
        moving_evidence(table, well_visited, *flat, change, np.empty(len(logs)))
        for change in (0.0, 0.03, 0.1, 0.3)
    )
    best = None
    for evidence in moving:
        gains = evidence - still
        error = float(gains.std(ddof=1) / gains.size**0.5) if gains.size > 1 else np.inf
        mean, per_step = float(gains.mean()), float(gains.sum() / logs.n_steps)
        if mean > 4.0 * error and per_step > max(0.005, best or 0.0):
            best = per_step
    return best
