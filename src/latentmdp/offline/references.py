"""What a policy found in logs is compared with: the logger, and each action taken always.

A promise by itself says little: what counts is the gain over what is done today, or over the
simplest rules, in the same model and over the same steps. All of these are Markov policies, one
for each context where the logger knew it, so their values are exact.

**Trials with arms.** Where no individual ever changes its action, the logs show what each action
does to those who take it throughout, and nothing else. "Some do well whatever they take" and "some
do well on this action" then have the same likelihood [holland1986]: what a change of action would
bring is not identified, and a policy that changes it may be promised anything. So only actions
taken throughout are compared: `ConstantActions` is the planner for such logs. What each earns is
the mean of those who took it, by the state in which they began, which needs no model
(`randomised`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentmdp._util import names
from latentmdp._util.arrays import Flags, Floats, normalised
from latentmdp.logs import Trajectories
from latentmdp.metrics import Interval
from latentmdp.model import LatentMDP
from latentmdp.planning import Plan, evaluate
from latentmdp.policies import MarkovPolicy, Policy

Rule = tuple[Policy, ...]
"""A policy, or one for each context."""


class Reference(NamedTuple):
    """Something to compare a policy with: its value, and what the policy gains over it."""

    name: str
    value: Interval
    gain: Interval


def rule_value(model: LatentMDP, rule: Rule) -> float:
    """The value of a policy, or of one for each context, in a model, as far as it may be followed.

    A model fitted to other logs may lack an action that was seldom tried.
    """
    rule = tuple(
        possible(policy.probabilities, model.allowed)
        if isinstance(policy, MarkovPolicy) and policy.probabilities is not None
        else policy
        for policy in rule
    )
    if len(rule) == 1:
        return evaluate(model, rule[0], rng=0, threads=1).mean
    values = [evaluate(model.context(m), policy, rng=0).mean for m, policy in enumerate(rule)]
    return float(model.weights @ values)


def always(action: int, allowed: Flags) -> MarkovPolicy:
    """One action always; any other where it is not `allowed` (S, A)."""
    return possible(np.eye(allowed.shape[1])[[action] * len(allowed)], allowed)


def possible(probabilities: Floats, allowed: Flags) -> MarkovPolicy:
    """What is `allowed` (S, A) of actions taken so often (..., S, A); anything where nothing is."""
    rows = np.where(allowed, probabilities, 0.0)
    rows = np.where(rows.any(axis=-1, keepdims=True), rows, allowed)
    return MarkovPolicy(normalised(rows, np.ones(allowed.shape[1])))


def rules(model: LatentMDP, behaviour: Floats, allowed: Flags, asked: str = "") -> dict[str, Rule]:
    """The logger with its `behaviour` (S, A) or (M, S, A), and every action taken always.

    Of very many actions the eight commonest, and the one that is `asked` for.
    """
    rows = behaviour if behaviour.ndim == 3 else behaviour[None]
    found: dict[str, Rule] = {"logger": tuple(possible(one, allowed) for one in rows)}
    common = set(np.argsort(-rows.sum(axis=(0, 1)), kind="stable")[:8].tolist())
    for a, label in enumerate(names.labels("action", model.action_names, model.n_actions)):
        name = f"always {label}"
        if name == asked or (a in common and model.n_actions > 1):
            found[name] = (always(a, allowed),)
    return found


def has_arms(logs: Trajectories) -> bool:
    """Whether actions differ between individuals and, with exceptions of 2 %, never within one."""
    offsets = logs.individual_offsets()
    long = np.flatnonzero(np.diff(offsets) > 1)
    if not long.size:
        return False
    changes = np.concatenate([[0], np.cumsum(np.diff(logs.actions) != 0)])
    varies = changes[offsets[1:][long] - 1] > changes[offsets[:-1][long]]
    counts = logs.multiplicities()[logs.beginnings()[long]]
    first = logs.actions[offsets[:-1][long]]
    return bool(counts @ varies <= 0.02 * counts.sum() and np.unique(first).size > 1)


def randomised(logs: Trajectories) -> Trajectories:
    """The logs of a trial with its propensities, 1 after the first action.

    That is an arm's share of those who begin in the state, with all as one observation more: where
    arms were given by how ill somebody was, those who were alike are compared. Logs that are no
    trial, or have propensities, stay as they are.
    """
    if logs.propensities is not None or not has_arms(logs):
        return logs
    first = logs.individual_offsets()[:-1][np.diff(logs.individual_offsets()) > 0]
    begun, arm = logs.steps().state[first], logs.actions[first]
    table, chances = np.zeros((logs.n_states, logs.n_actions)), np.ones(logs.n_steps)
    np.add.at(table, (begun, arm), logs.step_counts()[first])
    chances[first] = normalised(table + table.sum(axis=0) / table.sum())[begun, arm]
    return logs._with(propensities=chances)


@dataclass(frozen=True)
class ConstantActions:
    """A planner that takes one action always: the one with the largest value."""

    def plan(self, model: LatentMDP) -> Plan:
        """The best of them."""
        plans = [always(a, model.allowed) for a in range(model.n_actions)]
        values = [evaluate(model, policy).mean for policy in plans]
        best = int(np.argmax(values))
        return Plan(plans[best], lower=values[best], message="the best action throughout")
