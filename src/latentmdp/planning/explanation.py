"""Why a policy acts as it does: what speaks for the action, and what would change it.

At time t, state s and belief b the policy takes an action a. What is said about it:

* **Action values**, by one step of lookahead through the model,

      Q_m(a) = R_m(s, a) + R^hid_m(s, a) + discount sum_{s',z} P_m(s', z | s, a) alpha_{s',b'}(m),
      q(a)   = sum_m b(m) Q_m(a),

  where b' is the belief of the policy's filter after (s', z), and alpha_{s',b'} the vector that the
  policy follows there. So q(a) is the value of taking a once and of going on with what the vectors
  promise: exactly Q*(b, a) for the vectors of `Exact` where a leads to beliefs it has planned for;
  a lower bound for those of `HSVI` and `PBVI`; too much for those of `QMDP`, which believe that the
  context is revealed after the step. For a policy that does not look at the belief, alpha_{s'} is
  the exact value of following it.
* The **margin** q(a) - max_{a' != a} q(a'). It is negative where the lookahead prefers another
  action than the policy; a warning says so.
* **Turning points**: where on the straight line from b to the certainty of a context,
  b_x = (1 - x) b + x e_m, the action first changes. Along a line every vector is worth a linear
  function of x and the policy follows their upper envelope, so turning points are intersections of
  two lines, exact but for rounding.
* **Wishes**: the action that would be best if a context were known, and max_a Q*_m(s, a).
* **Prospects**: what may be observed after the action, how likely it is, and the belief and the
  action that follow.

A **policy graph** goes on by what was seen, not by the belief: its own action is worth what its
followers are worth, after any other it goes on from the node that is best at b'. Where an episode
begins it is at its first node; otherwise the belief does not say at which node it is, and the one
that is best at b is explained, among those it can be at. A **mixture** of graphs is drawn at the
start of an episode: every graph that may have been drawn is explained, with its probability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays, names
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.results import Result
from latentmdp._util.words import listed, plural
from latentmdp.belief import ContextFilter
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.evaluation import markov_values
from latentmdp.planning.qmdp import q_values
from latentmdp.policies import (
    HistoryPolicy,
    Memory,
    MixturePolicy,
    Policy,
    PolicyGraph,
    action_table,
)

_FEW = 5
"""Prospects that a text tells of; the data have all of them."""


@dataclass(frozen=True, eq=False)
class Choice:
    """An allowed action, its value q(a) under the belief, and its value Q_m(a) by context (M,)."""

    action: int
    value: float
    by_context: Floats


@dataclass(frozen=True, eq=False)
class TurningPoint:
    """The first belief on the way to certainty of a context at which another action is taken.

    Belief and action are None where the action stays the same all the way.
    """

    context: int
    belief: Floats | None
    action: int | None


@dataclass(frozen=True)
class Wish:
    """The best action if a context were known, and what it would be worth there."""

    context: int
    action: int
    value: float


@dataclass(frozen=True, eq=False)
class Prospect:
    """What may be observed after the action: its probability, and the belief and action then.

    `reward` is the value of the reward; `action` is None where the episode is over then.
    """

    next_state: int
    reward: float
    probability: float
    belief: Floats
    action: int | None


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Result):
    """Why a policy acts as it does in one situation; `str` tells it in words.

    Of a policy that is drawn at the start of an episode it holds an explanation of each that may
    have been drawn: action, probabilities and values are then those of the draw, and there are no
    choices, turning points, wishes and prospects but in its parts.

    Attributes
    ----------
    model, policy
        The model in which values and probabilities are computed, and the policy.
    state, belief, t
        The situation.
    action
        The action taken, the likeliest of a policy that draws; None where the episode is over.
    probabilities
        With which probability each action is taken, (A,).
    margin
        How much more the action is worth than the best other one; None where there is no other.
    uses_belief
        Whether the policy looks at the belief in this state at this time.
    choices
        Every allowed action with its values, best first.
    turning_points, wishes
        One for each context; no turning points where the policy does not look at the belief.
    prospects
        Every possible observation after the action, the likeliest first.
    warnings
        What a user should know before relying on this.
    parts, weights
        Explanations of the policies that may have been drawn, and with which probabilities.
    """

    model: LatentMDP = field(compare=False)
    policy: Any = field(compare=False)
    state: int
    belief: Floats
    t: int
    action: int | None
    probabilities: Floats
    margin: float | None = None
    uses_belief: bool = False
    choices: tuple[Choice, ...] = ()
    turning_points: tuple[TurningPoint, ...] = ()
    wishes: tuple[Wish, ...] = ()
    prospects: tuple[Prospect, ...] = ()
    warnings: tuple[str, ...] = ()
    parts: tuple[Explanation, ...] = ()
    weights: tuple[float, ...] = ()

    @property
    def value(self) -> float:
        """What the action, or on average what is drawn, is worth; 0 where the episode is over."""
        return float(self.belief @ self.by_context)

    @property
    def by_context(self) -> Floats:
        """The same in each context, (M,)."""
        if self.parts:
            return np.asarray(self.weights) @ np.array([part.by_context for part in self.parts])
        nothing = np.zeros(self.model.n_contexts)
        return next((c.by_context for c in self.choices if c.action == self.action), nothing)

    @property
    def text(self) -> str:
        """The explanation in words, a paragraph for each question."""
        return "\n".join(_paragraphs(self))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        naming = _Names(self.model)
        does = "over" if self.action is None else f"action={naming.action(self.action)!r}"
        by = "" if self.margin is None else f", margin={self.margin:.4g}"
        by = f", {plural(len(self.parts), 'part')}" if self.parts else by
        where = naming.state(self.state)
        return f"Explanation(state={where!r}, t={self.t}, {does}{by}, value={self.value:.4g})"

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know first, by name."""
        naming = _Names(self.model)
        facts = {
            "state": naming.state(self.state),
            "belief": naming.beliefs(self.belief),
            "action": "none" if self.action is None else naming.action(self.action),
            "margin": self.margin,
            "value": self.value,
        }
        if self.parts:
            drawn = ", ".join(f"{share:.0%}" for share in self.weights)
            facts |= {"drawn": drawn, "actions": naming.actions(self.probabilities)}
        return facts

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data, with names: what a JSON file can hold."""
        naming = _Names(self.model, quoted=False)
        names_of_data = [part.name for part in fields(self) if part.compare]
        names_of_data += ["value", "by_context"]
        return {name: naming.plain(name, getattr(self, name)) for name in names_of_data}


def explain(
    model: LatentMDP,
    policy: Policy | HistoryPolicy,
    state: int | str,
    belief: ArrayLike | Mapping[str, float] | None = None,
    t: int = 0,
) -> Explanation:
    """Say why a policy acts as it does: the action, its margin, and what would change it.

    Parameters
    ----------
    model
        Where values and probabilities are computed: the policy's own model, or another one with
        the same contexts.
    policy
        An `AlphaVectorPolicy`, a `PolicyGraph`, a `MixturePolicy` of those, or one that does not
        look at the belief.
    state
        By its index or its name.
    belief
        Probabilities of the contexts (M,), or by name, those left out being zero. By default that
        of an episode which begins in the state, or the weights if none does.
    t
        Time in the episode, from 0.

    Returns
    -------
    Explanation
        Its module says what the values, the margin and the turning points are. Of a mixture it
        holds one for each policy that may have been drawn.
    """
    if isinstance(policy, MixturePolicy):
        whole = [explain(model, part, state, belief, t) for part in policy.parts]
        return _of_mixture(model, policy, whole)
    rule = action_rule(policy, model, begins=belief is None and t == 0)
    s = names.to_index("state", state, model.state_names, model.n_states)
    t = checked_time(t, model)
    b = belief_at(model, belief, rule.start(s) if t == 0 else model.weights)
    situation = (model, rule.policy, s, b, t)
    if model.terminal[s]:
        nothing = np.zeros(model.n_actions)
        return Explanation(*situation, None, arrays.frozen(nothing))
    probabilities = rule.probabilities(t, s, b)
    action = int(np.argmax(probabilities))
    choices = _choices(model, rule, t, s, b)
    margin = _margin(choices, action)
    points = _turning_points(rule, t, s, b)
    return Explanation(
        *situation,
        action,
        arrays.frozen(probabilities),
        margin,
        uses_belief=bool(points),
        choices=choices,
        turning_points=points,
        wishes=_wishes(model, t, s),
        prospects=_prospects(model, rule, t, s, b, action),
        warnings=tuple(_doubts(model, policy, choices, action, margin)),
    )


def _of_mixture(model: LatentMDP, policy: MixturePolicy, whole: list[Explanation]) -> Explanation:
    """The explanations of all that may have been drawn, as one."""
    # What one of several policies gives up is none of the warnings: they earn together.
    about = "one step of lookahead prefers"
    kept = [tuple(text for text in part.warnings if not text.startswith(about)) for part in whole]
    parts = tuple(replace(part, warnings=texts) for part, texts in zip(whole, kept))
    first, chances = parts[0], policy.weights @ np.array([part.probabilities for part in parts])
    return Explanation(
        model,
        policy,
        *(first.state, first.belief, first.t),
        action=None if first.action is None else int(np.argmax(chances)),
        probabilities=arrays.frozen(chances),
        warnings=tuple(dict.fromkeys(text for texts in kept for text in texts)),
        parts=parts,
        weights=tuple(policy.weights.tolist()),
    )


def belief_at(
    model: LatentMDP, belief: ArrayLike | Mapping[str, float] | None, default: Floats
) -> Floats:
    """A belief that a user gave by index or by name, checked; the `default` where none is given."""
    if belief is None:
        return arrays.frozen(np.array(default))
    if isinstance(belief, Mapping):
        shares = np.zeros(model.n_contexts)
        for name, share in belief.items():
            shares[names.to_index("belief", name, model.context_names, model.n_contexts)] = share
        belief = shares
    b = arrays.as_floats("belief", belief)
    if b.shape != (model.n_contexts,):
        raise ValueError(
            f"belief must have one entry for each of {plural(model.n_contexts, 'context')}, got "
            f"shape {b.shape}"
        )
    return arrays.frozen(arrays.distributions("belief", b, (), source=np.asarray(belief)))


def switches(
    vectors: Floats, labels: Integers, belief: Floats, context: int
) -> list[tuple[float, int]]:
    """The actions on the way from a belief b to certainty of a context, as (x, action).

    The action is taken from (1 - x) b + x e_m on, up to the next x: the labels along the upper
    envelope of the vectors (n, M), the first of equal ones. An entry that begins where the next
    one does is taken at that point only.
    """
    at = vectors @ belief
    slope = vectors[:, context] - at
    k = int(np.argmax(at))
    pieces, x = [(0.0, int(labels[k]))], 0.0
    while True:
        steeper = np.flatnonzero(slope > slope[k])
        if not steeper.size:
            return pieces
        crossing = np.maximum((at[k] - at[steeper]) / (slope[steeper] - slope[k]), x)
        x = float(crossing.min())
        if x >= 1.0:
            return pieces
        here = steeper[crossing == x]
        k = int(here[np.argmax(slope[here])])
        if labels[k] != pieces[-1][1]:
            pieces.append((x, int(labels[k])))


# ------------------------------------------------------------------------- a policy as explained


class ActionRule:
    """A policy as explained in a model: what it does, and what it goes on to earn, at a belief.

    Parameters
    ----------
    begins
        Whether time 0 is where an episode begins, so that a graph is at its first node.
    """

    def __init__(self, policy: Policy, model: LatentMDP, begins: bool = False) -> None:
        self.policy, self._model, self._begins = policy, model, begins
        self._interpreter, self._filter = policy.interpreter(model), policy.context_filter(model)
        self._table, self._values = action_table(policy, model), dict[int, Floats]()

    def start(self, state: int) -> Floats:
        """The belief at a first state, (M,)."""
        return np.asarray(self._filter.start(state)[0])

    def observe(self, belief: Floats, s: int, a: int, next_state: int, z: int) -> Floats:
        """The belief after a step, (M,)."""
        held = ContextFilter.holding(belief)
        return np.asarray(self._filter.observe(held, s, a, next_state, z)[0])

    def probabilities(self, t: int, s: int, belief: Floats) -> Floats:
        """With which probability each action is taken, (A,)."""
        return np.array(self._interpreter.act(t, s, self._memory(t, s, belief)))

    def vectors(self, t: int, s: int) -> tuple[Floats, Integers]:
        """Vectors (n, M) of which the best at the belief is followed, with their actions.

        None of a policy that does not look at the belief.
        """
        candidates, acting = self._candidates(t, s), self._interpreter.acting
        return acting.vectors[candidates], acting.labels[candidates].astype(np.int64)

    def ways(self, t: int, s: int, belief: Floats) -> list[list[tuple[float, int]]]:
        """What is done on the way from a belief to certainty of each context.

        A way is (probability of its context from which on, action), the first at the belief itself.
        """
        vectors, labels = self.vectors(t, s)
        if not len(vectors):
            action = int(np.argmax(self.probabilities(t, s, belief)))
            return [[(b, action)] for b in belief.tolist()]
        pieces = [switches(vectors, labels, belief, m) for m in range(belief.size)]
        return [
            [(float((1.0 - x) * b + x), action) for x, action in way]
            for b, way in zip(belief, pieces)
        ]

    def later(
        self, t: int, s: int, belief: Floats, a: int, next_state: int, z: int
    ) -> tuple[Floats, int]:
        """What is earned after a step from (t, s, belief) in each context, and the action then.

        The vector that is followed says what is earned; of a policy that does not look at the
        belief it is computed. The action is the likeliest. The step must not end the episode.
        """
        after = self._interpreter.observe(self._memory(t, s, belief), s, a, next_state, z)
        t += 1
        if self._table is None:
            acting = self._interpreter.acting
            vector = self._interpreter.vector(t, next_state, after)
            return acting.vectors[vector], int(acting.labels[vector])
        if t not in self._values:
            rest = self._table[t:] if len(self._table) > 1 else self._table
            self._values[t] = markov_values(_from(self._model, t), rest)
        chances = self._interpreter.act(t, next_state, after)
        return self._values[t][:, next_state], int(np.argmax(chances))

    def _candidates(self, t: int, s: int) -> Integers:
        return self.policy.candidates(t, s, self._begins)

    def _memory(self, t: int, s: int, belief: Floats) -> Memory:
        """The memory of a policy that holds this belief: a graph is at the node best at it."""
        node, (vectors, _) = -1, self.vectors(t, s)
        if len(vectors):
            node = int(self._candidates(t, s)[np.argmax(vectors @ belief)])
        return Memory(ContextFilter.holding(belief), node, t)


def action_rule(policy: Any, model: LatentMDP, begins: bool = False) -> ActionRule:
    """A policy as explained in a model; raises if it does not fit or cannot be explained."""
    require_model(model)
    if isinstance(policy, MixturePolicy):
        raise TypeError(
            f"a MixturePolicy draws one of {plural(len(policy.weights), 'policy', 'policies')} at "
            "the start of an episode: take policy.parts, one by one"
        )
    if not isinstance(policy, Policy):
        raise TypeError(
            "policy must be an AlphaVectorPolicy, a PolicyGraph or a mixture of such, a "
            "MarkovPolicy or a UniformPolicy: what a "
            f"{type(policy).__name__} would do under another belief cannot be read from it"
        )
    rule = ActionRule(policy, model, begins)
    contexts = rule.start(0).size
    if contexts != model.n_contexts:
        raise ValueError(
            f"the policy believes in {plural(contexts, 'context')}, the model has "
            f"{model.n_contexts}: explain it in policy.model"
        )
    return rule


def checked_time(t: Any, model: LatentMDP) -> int:
    """A time in the episode that a user gave, as an integer."""
    if isinstance(t, bool) or not isinstance(t, int | np.integer):
        raise TypeError(f"t must be an integer, got {type(t).__name__}")
    if t < 0 or model.duration.is_over(int(t)):
        last = model.duration.remaining(1)
        limits = "[0, infinity)" if last is None else f"[0, {last}]"
        raise ValueError(f"t must lie in {limits}, got {t}")
    return int(t)


def _from(model: LatentMDP, t: int) -> LatentMDP:
    """The model of the steps that are left at time t."""
    return model if t == 0 else model.replace(horizon=model.duration.remaining(t))


# --------------------------------------------------------------------------------------- the parts


def _choices(
    model: LatentMDP, rule: ActionRule, t: int, s: int, belief: Floats
) -> tuple[Choice, ...]:
    """Every allowed action with its values by lookahead, best first."""
    rewards, choices = model.planning_rewards()[:, s], []
    for a in np.flatnonzero(model.allowed[s]).tolist():
        by_context = rewards[:, a].copy()
        for _, _, probs, earned, _ in _ahead(model, rule, t, s, belief, a):
            by_context += model.discount * probs * earned
        choices.append(Choice(a, float(belief @ by_context), arrays.frozen(by_context)))
    return tuple(sorted(choices, key=lambda choice: -choice.value))


def _ahead(
    model: LatentMDP, rule: ActionRule, t: int, s: int, belief: Floats, a: int
) -> Iterator[tuple[int, int, Floats, Floats, int | None]]:
    """(next state, reward index, probabilities (M,)) of all that can follow an action.

    And what is earned from there on in each context, (M,), and the action then, if there is any.
    """
    table, row = model.outcomes, s * model.n_actions + a
    for k in range(table.starts[row], table.starts[row + 1]):
        n, z, then = int(table.next_state[k]), int(table.reward[k]), None
        earned = np.zeros(model.n_contexts)
        if not (model.terminal[n] or model.duration.is_over(t + 1)):
            earned, then = rule.later(t, s, belief, a, n, z)
        yield n, z, table.distinct[table.pattern[k]], earned, then


def _margin(choices: tuple[Choice, ...], action: int) -> float | None:
    values = {choice.action: choice.value for choice in choices}
    others = [value for a, value in values.items() if a != action]
    return values[action] - max(others) if others else None


def _turning_points(rule: ActionRule, t: int, s: int, belief: Floats) -> tuple[TurningPoint, ...]:
    """One for each context; none where the policy has one vector, and so no use for a belief."""
    if len(rule.vectors(t, s)[0]) < 2:
        return ()
    points = []
    for m, way in enumerate(rule.ways(t, s, belief)):
        if len(way) == 1:
            points.append(TurningPoint(m, None, None))
        else:
            share, action = way[1]
            there = belief * ((1.0 - share) / (1.0 - belief[m]))  # the others keep proportions
            there[m] = share
            points.append(TurningPoint(m, arrays.frozen(there), action))
    return tuple(points)


def _wishes(model: LatentMDP, t: int, s: int) -> tuple[Wish, ...]:
    values = np.where(model.allowed[s][:, None], q_values(_from(model, t))[0, s], -np.inf)
    best = values.argmax(axis=0).tolist()
    return tuple(Wish(m, a, float(values[a, m])) for m, a in enumerate(best))


def _prospects(
    model: LatentMDP, rule: ActionRule, t: int, s: int, belief: Floats, action: int
) -> tuple[Prospect, ...]:
    prospects = []
    for n, z, probs, _, then in _ahead(model, rule, t, s, belief, action):
        chance = float(probs @ belief)
        if chance > 0.0:
            after = arrays.frozen(rule.observe(belief, s, action, n, z))
            prospects.append(Prospect(n, float(model.reward_values[z]), chance, after, then))
    return tuple(sorted(prospects, key=lambda prospect: -prospect.probability))


def _doubts(
    model: LatentMDP, policy: Any, choices: tuple[Choice, ...], action: int, margin: float | None
) -> Iterator[str]:
    """What speaks against relying on an explanation."""
    naming = _Names(model)
    size = max(1e-9, *(abs(choice.value) for choice in choices))
    if margin is not None and margin < -1e-9 * size:
        yield (
            f"one step of lookahead prefers {naming.action(choices[0].action)} to "
            f"{naming.action(action)} by {-margin:.3g}: the policy may not be the best one here"
        )
    planned = getattr(policy, "model", model)
    if planned is not model and planned.fingerprint() != model.fingerprint():
        yield "the policy was made for another model: its vectors are not values in this one"


# ------------------------------------------------------------------------------------------- words


class _Names:
    """What the parts of a model are called in a text; names with a comma are quoted there."""

    def __init__(self, model: LatentMDP, *, quoted: bool = True) -> None:
        self.model, self.quoted = model, quoted
        contexts = names.labels("context", model.context_names, model.n_contexts)
        self.contexts = [self._quote(name) for name in contexts]

    def _quote(self, name: str) -> str:
        return f'"{name}"' if self.quoted and "," in name else name

    def state(self, s: int) -> str:
        return self._quote(names.label("state", s, self.model.state_names))

    def action(self, a: int) -> str:
        return self._quote(names.label("action", a, self.model.action_names))

    def plain(self, name: str, value: Any) -> Any:
        """A field of an explanation as plain data: its name says what its numbers stand for."""
        if isinstance(value, tuple):
            return [self.plain(name, one) for one in value]
        if isinstance(value, Explanation):
            return value.to_dict()
        if is_dataclass(value):
            return {
                part.name: self.plain(part.name, getattr(value, part.name))
                for part in fields(value)
            }
        if value is not None and name in _NAMED:
            return _NAMED[name](self, value)
        return value.tolist() if isinstance(value, np.ndarray) else value

    def by_context(self, values: Floats) -> dict[str, float]:
        """Values (M,) by the names of the contexts."""
        return dict(zip(self.contexts, values.tolist()))

    def beliefs(self, belief: Floats) -> str:
        """Contexts with their probabilities, those above half a per cent."""
        shares = zip(self.contexts, belief.tolist())
        return ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= 0.005)

    def actions(self, probabilities: Floats) -> str:
        """Actions with their probabilities."""
        possible = np.flatnonzero(probabilities).tolist()
        return listed([f"{self.action(a)} ({probabilities[a]:.0%})" for a in possible])


_NAMED: dict[str, Callable[[_Names, Any], Any]] = {
    "state": _Names.state,
    "next_state": _Names.state,
    "action": _Names.action,
    "context": lambda naming, m: naming.contexts[m],
    "belief": _Names.by_context,
    "by_context": _Names.by_context,
    "probabilities": lambda naming, chances: {
        naming.action(a): float(chances[a]) for a in np.flatnonzero(chances).tolist()
    },
}
"""How fields of explanations are told in names."""


def _paragraphs(explanation: Explanation) -> Iterator[str]:
    naming, parts = _Names(explanation.model), explanation.parts
    if parts and (explanation.action is None or len(parts) == 1):
        yield from _paragraphs(parts[0])
        return
    if parts:
        yield from _mixture_paragraphs(explanation, naming)
        return
    where = f"In {naming.state(explanation.state)}{explanation.model.duration.step(explanation.t)}"
    if explanation.action is None:
        yield f"{where} the episode is over: the state is terminal and there is nothing to choose."
        return
    yield _decision(explanation, naming, where)
    yield _worth(explanation, naming)
    yield "By context the action is worth " + _by_context(naming, explanation.by_context) + "."
    if explanation.model.n_contexts == 1:
        yield "No belief would change it: there is one context only."
    elif explanation.uses_belief:
        yield _changes(explanation, naming)
    else:
        goes_on = isinstance(explanation.policy, PolicyGraph)
        looks = "goes on by what was seen" if goes_on else "does not look at the belief here"
        yield f"No belief would change it: the policy {looks}."
    yield _wants(explanation, naming)
    yield from _waits(explanation, naming)
    for warning in explanation.warnings:
        yield f"Warning: {warning}."


def _mixture_paragraphs(explanation: Explanation, naming: _Names) -> Iterator[str]:
    parts, weights = explanation.parts, explanation.weights
    yield (
        f"At the start of an episode one of {len(parts)} policies is drawn, and followed to its "
        f"end. In this situation they take {naming.actions(explanation.probabilities)}."
    )
    yield f"Together they are worth {_by_context(naming, explanation.by_context)}."
    if any(part.margin is not None and part.margin < 0.0 for part in parts):
        yield (
            "One that is drawn need not take the action that is best at this belief: what counts "
            "is what all of them earn together in each context."
        )
    for i in sorted(range(len(parts)), key=lambda i: -weights[i]):
        yield ""
        yield f"Policy {i + 1}, drawn with probability {weights[i]:.3g}:"
        yield from _paragraphs(parts[i])


def _decision(explanation: Explanation, naming: _Names, where: str) -> str:
    assert explanation.action is not None
    believing = f"{where}, believing {naming.beliefs(explanation.belief)},"
    if np.count_nonzero(explanation.probabilities) == 1:
        return f"{believing} the policy takes {naming.action(explanation.action)}."
    among = naming.actions(explanation.probabilities)
    about = f"what follows is about {naming.action(explanation.action)}"
    return f"{believing} the policy draws among {among}; {about}."


def _worth(explanation: Explanation, naming: _Names) -> str:
    worth = f"It is worth {explanation.value:.4g} from here on"
    if explanation.margin is None:
        return f"{worth}; there is no other action."
    other = next(choice for choice in explanation.choices if choice.action != explanation.action)
    name = f"{naming.action(other.action)} ({other.value:.4g})"
    if explanation.margin == 0.0:
        return f"{worth}, as much as {name}."
    if explanation.margin < 0.0:
        return f"{worth}, {-explanation.margin:.3g} less than {name}."
    return f"{worth}, {explanation.margin:.3g} more than the next best, {name}."


def _by_context(naming: _Names, values: Floats) -> str:
    return listed([f"{v:.4g} in {name}" for name, v in zip(naming.contexts, values.tolist())])


def _changes(explanation: Explanation, naming: _Names) -> str:
    wanted = {wish.context: wish.action for wish in explanation.wishes}
    turns, stays, blind = [], [], []
    for point in explanation.turning_points:
        name = naming.contexts[point.context]
        if point.belief is not None and point.action is not None:
            share, now = point.belief[point.context], explanation.belief[point.context]
            turns.append(
                f"{naming.action(point.action)} once {name} has probability {share:.3f} "
                f"(now {now:.3f})"
            )
        elif wanted.get(point.context, explanation.action) == explanation.action:
            stays.append(name)
        else:
            blind.append(name)
    sentences = []
    if turns:
        sentences.append(
            f"What would change it, the other contexts keeping their proportions: "
            f"{'; '.join(turns)}."
        )
    if stays:
        sentences.append(f"Growing sure of {' or '.join(stays)} would not change it.")
    if blind:
        sentences.append(
            f"Nor does this plan turn for certainty of {' or '.join(blind)}, where another action "
            "is best: it was made for the beliefs that occur."
        )
    return " ".join(sentences)


def _wants(explanation: Explanation, naming: _Names) -> str:
    wishes = [
        f"{naming.contexts[wish.context]} would want {naming.action(wish.action)} "
        f"({wish.value:.4g})"
        for wish in explanation.wishes
    ]
    return "If the context were known: " + "; ".join(wishes) + "."


def _waits(explanation: Explanation, naming: _Names) -> Iterator[str]:
    """The likeliest observations, and the one that moves the belief most."""
    several = len({prospect.reward for prospect in explanation.prospects}) > 1

    def line(prospect: Prospect) -> str:
        paid = f" with reward {prospect.reward:g}" if several else ""
        then = "the episode is over"
        if prospect.action is not None:
            then = f"then {naming.action(prospect.action)}"
        return (
            f"{naming.state(prospect.next_state)}{paid} (probability {prospect.probability:.2g}): "
            f"belief {naming.beliefs(prospect.belief)}; {then}"
        )

    yield "What to wait for:"
    for prospect in explanation.prospects[:_FEW]:
        yield f"- {line(prospect)}"
    rest = explanation.prospects[_FEW:]
    if rest:
        chance = sum(prospect.probability for prospect in rest)
        yield f"- {plural(len(rest), 'more observation')} (probability {chance:.2g} in all)"
    moves = [float(np.abs(p.belief - explanation.belief).sum()) for p in explanation.prospects]
    if max(moves) > 0.01:
        yield f"Most telling: {line(explanation.prospects[int(np.argmax(moves))])}."
