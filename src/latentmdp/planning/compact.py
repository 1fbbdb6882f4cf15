"""Plans with few alpha vectors: small enough to read, with their own proved lower bound.

The beliefs that matter are those that the policy meets, so it is simulated. Then, from the last
step to the first, every such belief is backed up from the few vectors kept for the next step, and
of the vectors this gives, those are kept one by one that add most to

    sum_b (how often b is met) max_i <b, alpha_i>.

Each vector is the backup of vectors that are kept, so it is the exact value, context by context, of
a plan that can be followed, and the best of them at the start is a proved lower bound. Without an
end the vectors kept are the nodes of a policy graph: they are linked, evaluated, backed up at the
beliefs and chosen anew, and the best graph of all rounds is returned. In a second pass the beliefs
that the small policy meets are added to the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp.belief import posterior
from latentmdp.model import LatentMDP
from latentmdp.planning.base import Plan
from latentmdp.planning.graphs import evaluated_graph
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, Policy, PolicyGraph
from latentmdp.simulation import simulate

__all__ = ["compacted"]

_STEPS, _FEWEST_EPISODES, _MOST_EPISODES = 100_000, 50, 2_000
"""Steps that are simulated to see which beliefs a policy meets, and limits on its episodes: more
make the choice a little better, and the work grows with the beliefs found."""

_RESOLUTION = 100.0
"""Beliefs that agree to 1 / 100 in every context are one."""

_MOST_POINTS = 200
"""Beliefs of a (t, s), or of s without an end: those met most often."""

_PASSES, _ROUNDS, _FRUITLESS = 2, 40, 6
"""Passes over simulated beliefs; and, without an end, rounds of evaluation and choice, and how many
may bring nothing before the rest are saved."""

_MOST_CANDIDATES = 400
"""Vectors of a state that are looked at without an end, from a plan that may have a million: those
that are best at one of the beliefs."""


class _Points(NamedTuple):
    """Beliefs in the order of their (t, s), with how often they are met."""

    states: Integers
    beliefs: Floats
    weights: Floats
    offsets: Integers  # (layers S + 1,)


class _Small(NamedTuple):
    """Few plans in the order of their (t, s), and the belief each was made for."""

    lower: float
    vectors: Floats
    actions: Integers
    offsets: Integers
    beliefs: Floats


def compacted(plan: Plan, vectors: int | None, loss: float | None, graph: bool) -> Plan:
    """See `Plan.compact`."""
    policy = plan.policy
    if isinstance(policy, PolicyGraph) and not isinstance(policy, MixturePolicy):
        policy = policy.nodes
    if not isinstance(policy, AlphaVectorPolicy):
        raise TypeError(
            f"only a plan of alpha vectors can be made compact, not one of a "
            f"{type(policy).__name__}"
        )
    if (vectors is None) == (loss is None):
        raise ValueError("give vectors= or loss=, one of them")
    choice = _Choice(policy)
    if vectors is not None:
        return _stated(plan, choice, choice.of(arrays.positive_integer("vectors", vectors)), graph)
    assert loss is not None
    if not 0.0 < loss < 1.0:
        raise ValueError(f"loss must lie between 0 and 1, got {loss}")
    if plan.lower is None:
        raise ValueError("loss= is relative to the plan's lower bound, and this plan has none")
    return _stated(plan, choice, choice.within(plan.lower - loss * abs(plan.lower)), graph)


def _stated(plan: Plan, choice: _Choice, small: _Small, graph: bool) -> Plan:
    """The compact plan, with what it loses."""
    model, most = choice.model, int(np.diff(small.offsets).max())
    before = np.size(getattr(plan.policy, "nodes", plan.policy).actions)
    where = "a state" if model.horizon is None else "a time and state"
    message = f"{small.actions.size:,} vectors in place of {before:,}, at most {most} for {where}"
    loss = None
    if plan.lower is not None:
        loss = (plan.lower - small.lower) / abs(plan.lower) if plan.lower else 0.0
        message += f"; the lower bound loses {max(loss, 0.0):.2%}"
    policy: Policy = AlphaVectorPolicy(
        small.vectors, small.actions, small.offsets, model, choice.policy.smoothing
    )
    if graph:
        policy = choice.graph(small)
    guarantee = None if plan.upper is None else (1.0, max(plan.upper - small.lower, 0.0))
    return replace(
        plan,
        policy=policy,
        lower=small.lower,
        upper=None if plan.upper is None else max(plan.upper, small.lower),
        loss=loss,
        history=(),
        guarantee=guarantee,
        message=message,
    )


class _Choice:
    """The few vectors of a policy, for any number of them."""

    def __init__(self, policy: AlphaVectorPolicy) -> None:
        self.policy, self.model = policy, policy.model
        model = self.model
        self.rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
        joint = model.weights[:, None] * model.initial
        self.starts = np.flatnonzero((joint.sum(axis=0) > 0.0) & ~model.terminal)
        self.joint = joint[:, self.starts].T
        self.points = _met(policy, model)

    def of(self, most: int) -> _Small:
        """At most so many vectors for each (t, s), or s."""
        points, best = self.points, None
        for _ in range(_PASSES):
            small = self._chosen(points, most)
            if best is None or small.lower > best.lower:
                best = small
            own = (small.vectors, small.actions, small.offsets)
            points = _joined(
                self.points, _met(AlphaVectorPolicy(*own, self.model), self.model), self.model
            )
        assert best is not None
        small = self._chosen(points, most)
        return small if small.lower > best.lower else best

    def within(self, lower: float) -> _Small:
        """About as few as keep the lower bound; as many as there are beliefs if none does."""
        few, many = 0, 1
        found = self.of(many)
        while found.lower < lower and many < _MOST_POINTS:
            few, many = many, 2 * many
            found = self.of(many)
        while many - few > 1 and found.lower >= lower:
            middle = (few + many) // 2
            other = self.of(middle)
            if other.lower >= lower:
                many, found = middle, other
            else:
                few = middle
        return found

    def _chosen(self, points: _Points, most: int) -> _Small:
        if self.model.horizon is None:
            return self._endless(points, most)
        return self._finite(points, most)

    def _finite(self, points: _Points, most: int) -> _Small:
        """From the last step to the first, each from what was kept of the next."""
        model = self.model
        S, H = model.n_states, model.horizon or 1
        later, bounds = np.zeros((0, model.n_contexts)), np.zeros(S + 1, np.int64)
        kept = []
        for t in range(H - 1, -1, -1):
            own = slice(points.offsets[t * S], points.offsets[t * S + S])
            part = _Points(
                points.states[own],
                points.beliefs[own],
                points.weights[own],
                points.offsets[t * S : t * S + S + 1] - points.offsets[t * S],
            )
            plans, labels = self._backed_up(part, later, bounds)
            chosen, bounds = _choose(part, plans, part.offsets, most)
            later = plans[chosen]
            kept.append((later, labels[chosen], np.diff(bounds), part.beliefs[chosen]))
        vectors, actions, sizes, beliefs = (np.concatenate(p) for p in zip(*kept[::-1]))
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return _Small(self._lower(vectors, offsets), vectors, actions, offsets, beliefs)

    def _endless(self, points: _Points, most: int) -> _Small:
        """Choose, link and evaluate, again and again; the best graph counts."""
        later, offsets = _useful(self.policy, points)
        best, fruitless = None, 0
        for _ in range(_ROUNDS):
            plans, labels = self._backed_up(points, later, offsets)
            chosen, offsets = _choose(points, plans, points.offsets, most)
            drafted = plans[chosen], labels[chosen], offsets, points.beliefs[chosen]
            graph = self.graph(_Small(0.0, *drafted))
            later = graph.nodes.vectors
            lower = self._lower(later, offsets)
            fruitless += 1
            if best is None or lower > best.lower + 1e-9 * abs(best.lower):
                best, fruitless = _Small(lower, later, *drafted[1:]), 0
            if fruitless == _FRUITLESS:
                break
        assert best is not None
        return best

    def _backed_up(
        self, points: _Points, later: Floats, offsets: Integers
    ) -> tuple[Floats, Integers]:
        """The best plan at each point and its action."""
        from latentmdp._kernels.compact import back_up_points

        model, n = self.model, points.states.size
        plans, labels = np.zeros((n, model.n_contexts)), np.zeros(n, np.int64)
        back_up_points(
            model.outcomes, self.rewards, model.discount, model.allowed, points.states,
            points.beliefs, np.ascontiguousarray(later), offsets, 0, n, plans, labels,
        )  # fmt: skip
        return plans, labels

    def _lower(self, vectors: Floats, offsets: Integers) -> float:
        """What the best plans are worth at the start."""
        groups = (slice(offsets[s], offsets[s + 1]) for s in self.starts)
        best = (float((vectors[own] @ joint).max()) for own, joint in zip(groups, self.joint))
        return self.model.initial_value() + sum(best)

    def graph(self, small: _Small) -> PolicyGraph:
        """The plans as a policy graph: each goes on with what is best after its own belief."""
        from latentmdp._kernels.compact import link_points

        model = self.model
        S, A = model.n_states, model.n_actions
        counts = np.diff(model.outcomes.starts)
        layers, followers = (small.offsets.size - 1) // S, []
        for t in range(layers):
            own = small.offsets[t * S : t * S + S + 1]
            after = own if layers == 1 else small.offsets[(t + 1) * S : (t + 2) * S + 1]
            states = np.repeat(np.arange(S), np.diff(own))
            part = slice(own[0], own[-1])
            links = np.full(int(counts[states * A + small.actions[part]].sum()), -1)
            if after.size > S:
                link_points(
                    model.outcomes, A, states, small.beliefs[part], small.actions[part],
                    small.vectors, after, links,
                )  # fmt: skip
            followers.append(links)
        first = np.where(model.terminal, -1, small.offsets[:S])
        for s, joint in zip(self.starts, self.joint):
            group = slice(small.offsets[s], small.offsets[s + 1])
            first[s] = group.start + int(np.argmax(small.vectors[group] @ joint))
        links = np.concatenate(followers)
        return evaluated_graph(
            model, small.actions, small.offsets, links, first, guess=small.vectors
        )


def _met(policy: AlphaVectorPolicy, model: LatentMDP) -> _Points:
    """The beliefs that a policy meets in its model, by simulation from a fixed seed."""
    from latentmdp.worlds import Space

    steps = Space.of(model).longest_episode
    episodes = int(np.clip(_STEPS // steps, _FEWEST_EPISODES, _MOST_EPISODES))
    logs = simulate(model, policy, episodes, rng=0)
    beliefs = posterior(model, logs, along=True)
    lengths = np.diff(logs.offsets) + 1
    t = np.arange(logs.states.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    acted = (t < steps) & ~model.terminal[logs.states]
    states, beliefs, t = logs.states[acted].astype(np.int64), beliefs[acted], t[acted]
    weights = model.discount**t / episodes
    return _gathered(model, np.where(model.horizon is None, 0, t), states, beliefs, weights)


def _joined(one: _Points, two: _Points, model: LatentMDP) -> _Points:
    """The beliefs of both."""
    groups = [np.repeat(np.arange(p.offsets.size - 1), np.diff(p.offsets)) for p in (one, two)]
    layers = np.concatenate(groups) // model.n_states
    parts = (np.concatenate(pair) for pair in zip(one[:3], two[:3]))
    return _gathered(model, layers, *parts)


def _gathered(
    model: LatentMDP, layers: Integers, states: Integers, beliefs: Floats, weights: Floats
) -> _Points:
    """Distinct beliefs by (t, s), those met most often; the prior where nothing was met."""
    from latentmdp.planning.point_based.expansion import belief_keys

    S = model.n_states
    alive = np.flatnonzero(~model.terminal)
    every = (np.arange(model.n_layers)[:, None] * S + alive).ravel()
    groups = np.concatenate([layers * S + states, every])
    beliefs = np.concatenate([beliefs, np.tile(model.weights, (every.size, 1))])
    weights = np.concatenate([weights, np.zeros(every.size)])
    _, one, member = np.unique(
        belief_keys(groups, beliefs, _RESOLUTION), return_index=True, return_inverse=True
    )
    weights = np.bincount(member.ravel(), weights, one.size)
    groups, beliefs = groups[one], beliefs[one]
    order = np.lexsort((-weights, groups))
    groups, beliefs, weights = groups[order], beliefs[order], weights[order]
    sizes = np.bincount(groups, minlength=model.n_layers * S)
    rank = np.arange(groups.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    wanted = rank < _MOST_POINTS
    groups = groups[wanted]
    sizes = np.minimum(sizes, _MOST_POINTS)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return _Points(groups % S, beliefs[wanted], weights[wanted] + 1e-12, offsets)


def _useful(policy: AlphaVectorPolicy, points: _Points) -> tuple[Floats, Integers]:
    """The vectors of a policy without an end that are best at one of the points, by state."""
    kept, sizes = [], []
    for s in range(points.offsets.size - 1):
        own = policy.vectors[policy.offsets[s] : policy.offsets[s + 1]]
        at = points.beliefs[points.offsets[s] : points.offsets[s + 1]]
        best = np.unique((at @ own.T).argmax(axis=1))[:_MOST_CANDIDATES] if own.size else []
        kept.append(own[best])
        sizes.append(len(best))
    return np.concatenate(kept), np.concatenate([[0], np.cumsum(sizes)])


def _choose(
    points: _Points, plans: Floats, offsets: Integers, most: int
) -> tuple[Integers, Integers]:
    """Up to `most` plans of each group that are worth most at its points, and their offsets."""
    from latentmdp._kernels.compact import choose_plans

    chosen, sizes = [], []
    room = np.empty(most, np.int64)
    for first, last in zip(offsets[:-1], offsets[1:]):
        own = slice(int(first), int(last))
        n = choose_plans(points.beliefs[own], points.weights[own], plans[own], most, room)
        chosen.append(own.start + np.sort(room[:n]))
        sizes.append(n)
    return np.concatenate(chosen), np.concatenate([[0], np.cumsum(sizes)])
