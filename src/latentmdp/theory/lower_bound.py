"""An exact check of the lower bound [kwon2021, Thm. 3.1, App. A.1], in rational arithmetic.

Three claims about the hard instance with n effective actions per stage (n = A, or A^depth where
stages are trees of actions):

1. All n^M - 1 wrong action sequences give the same distribution of observations, P(s_{1:H}, r_{1:H}
   || do a_{1:H}). Within a tree an agent sees the nodes it chose itself, so observations are which
   stage, sunk or not, and the reward.
2. The best policy, even one that looks at what it observes, earns V* = 1/M (1/2 + epsilon/M in the
   epsilon version).
3. In the epsilon version the final reward has mean 1/2 + epsilon/M after the right sequence and 1/2
   after every other.

The laws of all n^M sequences are found together: the state of every context is followed at once,
and action sequences that lead to the same states are counted, not listed. The model's numbers are
taken as the binary fractions that they are; weights must be equal and become 1/M.
"""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.random import RNGLike
from latentmdp.instances import make
from latentmdp.model import LatentMDP

Law = tuple[tuple[Any, Fraction], ...]


@dataclass(frozen=True)
class LowerBoundCheck:
    """What the exact computation found.

    Attributes
    ----------
    n_sequences
        n^M, the action sequences of all stages.
    n_laws
        Distinct distributions of observations among the wrong sequences; the theorem says 1.
    n_right
        Sequences that earn more than the rest; the theorem says 1.
    value
        V* over all history-dependent policies.
    right_value, wrong_value
        What the right sequence and any wrong one earn.
    expected
        What V* should be.
    """

    n_sequences: int
    n_laws: int
    n_right: int
    value: Fraction
    right_value: Fraction
    wrong_value: Fraction
    expected: Fraction

    @property
    def holds(self) -> bool:
        """Whether every claim holds, exactly."""
        return (
            self.n_laws == 1
            and self.n_right == 1
            and self.value == self.right_value == self.expected
            and self.wrong_value < self.right_value
        )


def check_lower_bound(
    contexts: int,
    actions: int,
    variant: str = "plain",
    *,
    depth: int | None = None,
    epsilon: float = 0.1,
    rng: RNGLike = 0,
) -> LowerBoundCheck:
    """Build the instance `lower-bound` and verify the claims of the theorem about it.

    Parameters
    ----------
    contexts, actions, variant, depth, epsilon
        As in `lm.make("lower-bound", ...)`; with one action or one context nothing is hidden.
    """
    if arrays.positive_integer("actions", actions) < 2:
        raise ValueError("actions must be at least 2: with one action no sequence is wrong")
    options = {"depth": depth, "epsilon": epsilon}
    model = make("lower-bound", rng, contexts=contexts, actions=actions, variant=variant, **options)
    M, steps = model.n_contexts, model.n_layers // model.n_contexts
    tree = sum(actions**level for level in range(steps))
    laws = _laws(model, [min(s // tree, M) for s in range(model.n_states)])
    pays = [Fraction(value) for value in model.reward_values.tolist()]
    values = {
        law: sum((p * sum(pays[z] for _, z in sequence) for sequence, p in law), Fraction(0))
        for law in laws
    }
    best = max(values.values())
    wrong = [law for law in laws if values[law] < best]
    bonus = Fraction(model.reward_probs[0, :, :, 1].max()) - Fraction(1, 2)
    expected = Fraction(1, M) if variant != "epsilon" else Fraction(1, 2) + bonus / M
    return LowerBoundCheck(
        n_sequences=sum(laws.values()),
        n_laws=len(wrong),
        n_right=sum(count for law, count in laws.items() if values[law] == best),
        value=_optimal_value(model, pays),
        right_value=best,
        wrong_value=max((values[law] for law in wrong), default=Fraction(0)),
        expected=expected,
    )


def required_episodes(contexts: int, effective_actions: int, epsilon: float | None = None) -> float:
    """n^M, or n^M / epsilon^2: the order of the number of episodes that Theorem 3.1 demands."""
    sequences = float(effective_actions) ** contexts
    return sequences if epsilon is None else sequences / epsilon**2


def _laws(model: LatentMDP, labels: list[int]) -> Counter[Law]:
    """Distribution of the labelled observations of every action sequence, with multiplicity."""
    next_state, rewards = _tables(model)

    @cache
    def futures(steps: int, states: tuple[int, ...]) -> Counter[tuple[Law, ...]]:
        """For every sequence of so many actions: what each context would show."""
        if steps == 0:
            return Counter({tuple((((), Fraction(1)),) for _ in states): 1})
        laws: Counter[tuple[Law, ...]] = Counter()
        for a in range(model.n_actions):
            paid = [rewards[m][s][a] for m, s in enumerate(states)]
            next_states = tuple(next_state[m][s][a] for m, s in enumerate(states))
            observed = [labels[s] for s in next_states]
            for shows, count in futures(steps - 1, next_states).items():
                laws[tuple(map(_prepend, observed, paid, shows))] += count
        return laws

    M = model.n_contexts
    start = tuple(int(np.argmax(row)) for row in model.initial)
    mixed: Counter[Law] = Counter()
    for shows, count in futures(model.n_layers, start).items():
        law: dict[Any, Fraction] = {}
        for of_context in shows:
            for sequence, p in of_context:
                law[sequence] = law.get(sequence, Fraction(0)) + p / M
        mixed[tuple(sorted(law.items()))] += count
    return mixed


def _prepend(label: int, rewards: dict[int, Fraction], law: Law) -> Law:
    return tuple(
        sorted((((label, z), *rest), p * q) for z, p in rewards.items() for rest, q in law)
    )


def _optimal_value(model: LatentMDP, pays: list[Fraction]) -> Fraction:
    """V* over history-dependent policies: the contexts left and the state are all that matters.

    Rewards before the last step are deterministic in this instance, so beliefs stay uniform over
    the contexts left.
    """
    next_state, rewards = _tables(model)

    @cache
    def best(steps: int, s: int, contexts: tuple[int, ...]) -> Fraction:
        if steps == 0:
            return Fraction(0)
        return max(act(steps, s, a, contexts) for a in range(model.n_actions))

    def act(steps: int, s: int, a: int, contexts: tuple[int, ...]) -> Fraction:
        total = Fraction(0)
        groups: dict[Any, list[int]] = {}
        for m in contexts:
            total += sum(p * pays[z] for z, p in rewards[m][s][a].items())
            paid = tuple(rewards[m][s][a]) if steps > 1 else ()
            if len(paid) > 1:
                raise ValueError("only the last reward may be random")
            groups.setdefault((next_state[m][s][a], paid), []).append(m)
        return total + sum(best(steps - 1, n, tuple(group)) for (n, _), group in groups.items())

    M, start = model.n_contexts, int(np.argmax(model.initial[0]))
    return best(model.n_layers, start, tuple(range(M))) / M


def _tables(model: LatentMDP) -> tuple[list[Any], list[Any]]:
    """Next state and reward probabilities (as fractions) by context, state and action."""
    if set(np.unique(model.transitions)) - {0.0, 1.0}:
        raise ValueError("transitions must be deterministic")
    if np.unique(model.weights).size > 1:
        raise ValueError("weights must be equal")
    next_state = model.transitions.argmax(axis=-1).tolist()
    rewards = [
        [[{z: Fraction(p) for z, p in enumerate(row) if p} for row in rows] for rows in context]
        for context in model.reward_probs.tolist()
    ]
    return next_state, rewards
