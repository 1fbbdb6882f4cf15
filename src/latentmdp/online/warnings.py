"""Reasons not to rely on a policy that was learned by acting, as messages to its user.

The world has the last word: what the final policy earned in episodes of its own is compared with
what the fitted model promises. All episodes also tell whether the world is a latent MDP at all, and
has no more contexts than were found: then nothing that came before a step predicts it beyond the
model, by the checks of `latentmdp.check_fit`.
"""

from __future__ import annotations

import numpy as np

from latentmdp.fit import Fit
from latentmdp.logs import Trajectories
from latentmdp.metrics import Interval
from latentmdp.offline import outcome_warnings
from latentmdp.planning import Plan


class LearnWarning(UserWarning):
    """A reason not to rely on what was learned by acting."""


def learn_warnings(
    plan: Plan, fit: Fit, value: Interval | None, logs: Trajectories, rng: np.random.Generator
) -> tuple[str, ...]:
    """What speaks against a plan.

    Parameters
    ----------
    value
        Of the plan's own episodes in the world, if there are any.
    logs
        All episodes.
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
    for contradiction in outcome_warnings(logs, model, rng):
        messages.append(f"the world is not the latent MDP that was learned: {contradiction}")
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
