"""Policies for the bad case: worst context, CVaR over contexts, minimax regret, uncertain weights.

Analysts with several models ask what a policy earns if the world is the bad one. With W a set of
weights of the contexts, the objective is

    max_pi  min_{w' in W}  sum_m w'_m (V_m^pi - c_m),

where pi may be drawn at random at the start of an episode, and

    "worst-case"  W = all weights,                      c = 0,
    "cvar"        W = {w' <= w / level},                c = 0: the mean over the worst share,
    "ball"        W = {|w' - w|_1 <= level},            c = 0,
    "regret"      W = all weights,                      c_m = V*_m, so the objective is at most 0.

V*(w') = max_pi sum_m w'_m V_m^pi is convex in w', and policies that are best for some w' are all
that is needed [bovy2025]. So, with the policies found so far:

    repeat until the bounds meet:
        nature    min_{w' in W} max_i  w' (V^{pi_i} - c), a linear program; its dual weights say
                  how often to draw each policy, and its value is what the mixture earns;
        plan      by heuristic search for nature's w', which bounds V*(w') from both sides.

Lower bound: the mixture's objective, exactly, since every plan is followed as a policy graph, whose
value is known in every context. Upper bound: the smallest V*(w') - w' c proved for a w' in W.
One search serves all weights: its bounds hold for every belief, and only the start changes.
Nature's w' jumps between corners of W at first, so the plans are made halfway between it and the
best weights so far [benameur2007].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.results import Worded
from latentmdp._util.validation import require_choice
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning.base import Plan, enclosing, relative
from latentmdp.planning.endless import TOLERANCE
from latentmdp.planning.hsvi.bounds import Bounds
from latentmdp.planning.hsvi.nodes import earned_by_context, mixture_graph
from latentmdp.planning.hsvi.search import HeuristicSearch, NothingLeft
from latentmdp.planning.limits import PlanningClock, check_limit, check_limits

OBJECTIVES = ("worst-case", "cvar", "regret", "ball")


@dataclass(frozen=True, eq=False, repr=False)
class RobustPlan(Plan):
    """A policy for the bad case; `lower` and `upper` bound the objective, not the mean.

    Attributes
    ----------
    objective, level
        What was asked for.
    worst_weights
        Weights (M,) of the contexts, among those considered, under which the policy is worst.
    by_context
        What the policy earns in each context, (M,), a lower bound.
    upper_by_context
        The same from above; it differs from `by_context` by rounding only.
    reference
        c_m of the objective, (M,): the best value of each context for "regret", otherwise 0.
    given_up
        With `deterministic`, by how much a random mixture that was found is better; otherwise 0.

    Notes
    -----
    `gap` is relative to |sum_m w'_m V_m| with w' the worst weights: to |lower|, except for
    "regret", where it is relative to what the policy earns there and not to the regret.
    """

    objective: str = "worst-case"
    level: float | None = None
    worst_weights: Floats = field(default_factory=lambda: np.empty(0))
    by_context: Floats = field(default_factory=lambda: np.empty(0))
    upper_by_context: Floats = field(default_factory=lambda: np.empty(0))
    reference: Floats = field(default_factory=lambda: np.empty(0))
    given_up: float = 0.0

    @property
    def gap(self) -> float | None:
        """(upper - lower) / |sum_m w'_m V_m|, w' the worst weights."""
        if self.lower is None or self.upper is None:
            return None
        earned = self.lower + float(self.worst_weights @ self.reference)
        return relative(self.upper - self.lower, earned)

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know first, by name."""
        lost = f"{self.given_up:.3g}, beside a random mixture" if self.given_up else ""
        return {
            "objective": self.objective,
            "level": self.level,
            **super().facts(),
            "bounds_of": "the objective over the contexts, not the mean",
            "worst_weights": self.worst_weights,
            "by_context": self.by_context,
            "given_up": Worded(self.given_up, lost),
        }

    def __repr__(self) -> str:
        rest = super().__repr__().removeprefix("Plan(").removesuffix(")")
        goal = self.objective if self.level is None else f"{self.objective} at {self.level:g}"
        context = np.array2string(self.by_context, precision=4, threshold=8)
        return f"RobustPlan({goal},\n     {rest},\n     by_context={context})"


@dataclass(frozen=True)
class Robust:
    """A planner for the worst case over contexts, CVaR, minimax regret, or uncertain weights.

    Parameters
    ----------
    objective
        "worst-case", "cvar", "regret" or "ball"; see `latentmdp.planning.robust`.
    level
        For "cvar" the share of the contexts, by weight, that counts as bad, in (0, 1]; for "ball"
        how far the weights may be off in L1, in [0, 2]. The others take none.
    gap
        Stop when upper - lower is at most this share of what the policy earns under the worst
        weights.
    absolute_gap
        Stop when upper - lower is at most this; whichever comes first.
    time_limit, memory_limit, on_progress, threads
        As for `HSVI`.
    deterministic
        Whether to return the best single policy that was found in place of a random mixture. Its
        objective may be lower; `given_up` says by how much. `upper` holds for mixtures too.

    Notes
    -----
    The worst case and the regret are over all contexts, whatever their weights, and a ball gives
    weight to contexts that have none: contexts of weight 0 count in these three, and `message` says
    so; `model.subset` leaves them out. For "cvar" they are no part of any share, and do not count.

    An interrupt (Ctrl-C) ends the search as a limit does: the plan has the bounds reached so far.
    """

    objective: str = "worst-case"
    level: float | None = None
    gap: float = 0.02
    absolute_gap: float | None = None
    time_limit: float | None = 60.0
    memory_limit: float | None = 2048.0
    deterministic: bool = False
    on_progress: Callable[[float, float, float], None] | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        require_choice("objective", self.objective, OBJECTIVES)
        check_limits(self)
        _check_level(self.objective, self.level)

    def plan(self, model: LatentMDP) -> RobustPlan:
        """Plan until the gap or a limit is reached."""
        require_model(model)
        clock = PlanningClock(self.time_limit, self.memory_limit, self.on_progress)
        with clock.interruptible():
            planes = _CuttingPlanes(model, self, clock)
            with clock.searching():
                while not planes.reached():
                    planes.cut()
        return planes.result()


def _check_level(objective: str, level: float | None) -> None:
    """Raise unless the level fits the objective."""
    if objective in ("worst-case", "regret"):
        if level is not None:
            raise ValueError(f"objective {objective!r} takes no level, got level={level}")
        return
    if level is None:
        raise ValueError(f"objective {objective!r} needs level=")
    check_limit("level", level, zero=objective == "ball")
    highest = 1.0 if objective == "cvar" else 2.0
    if level > highest:
        raise ValueError(f"level of {objective!r} must be at most {highest:g}, got {level}")


class WeightSet(NamedTuple):
    """The weights W that nature may choose: its linear programs."""

    objective: str
    level: float
    weights: Floats  # (M,): those of the model

    def worst(self, values: Floats) -> Floats:
        """The weights in W under which `values` (M,) are worst on average."""
        order, worst = np.argsort(values, kind="stable"), np.zeros(values.size)
        if self.objective in ("worst-case", "regret"):
            worst[order[0]] = 1.0
            return worst
        if self.objective == "cvar":
            most = self.weights[order] / self.level
            before = np.minimum(np.cumsum(most) - most, 1.0)
            worst[order] = np.minimum(most, 1.0 - before)
            return worst / worst.sum()
        weights = self.weights[order]
        above = np.cumsum(weights[::-1])[::-1] - weights  # better contexts lose theirs first
        moved = np.clip(0.5 * self.level - above, 0.0, weights)
        moved[0] = 0.0
        worst[order] = weights - moved
        worst[order[0]] += moved.sum()
        return worst

    def against(self, values: Floats) -> tuple[Floats, Floats]:
        """Nature's weights (M,) against policies with values (K, M), and how to mix these (K,).

        min_{w in W, v} v subject to values w <= v; the mixture is dual to the constraints.
        """
        from scipy.optimize import linprog

        K, M = values.shape
        scale = max(float(np.abs(values).max()), 1e-300)
        # w = base + more - less: only in a ball weights are moved, elsewhere all are given.
        is_ball = self.objective == "ball"
        base = self.weights if is_ball else np.zeros(M)
        most = self.weights / self.level if self.objective == "cvar" else np.ones(M)
        ones, signs = np.ones(2 * M), np.repeat([1.0, -1.0], M)
        moved = np.concatenate([values, -values], axis=1) / scale
        answer = linprog(
            np.append(np.zeros(2 * M), 1.0),
            A_ub=np.block([[moved, -np.ones((K, 1))], [ones, 0.0]]),
            b_ub=np.append(-(values @ base) / scale, self.level if is_ball else 1.0),
            A_eq=np.append(signs, 0.0)[None],
            b_eq=[1.0 - base.sum()],
            bounds=[*((0.0, top) for top in np.append(most, base)), (None, None)],
            method="highs",
        )
        if answer.x is None:  # rounding in a degenerate program: any answer keeps bounds valid
            return self.weights.copy(), np.eye(K)[int(np.argmax(values @ self.weights))]
        more, less = np.split(answer.x[:-1], 2)
        w = base + more - less
        mixture = np.maximum(-answer.ineqlin.marginals[:K], 0.0)
        mixture[mixture < 1e-9] = 0.0  # drawn too rarely to count
        w = np.maximum(w, 0.0)
        return w / w.sum(), mixture / mixture.sum()


class _Answer(NamedTuple):
    """A mixture of policies."""

    lower: float
    plans: Integers  # (K, n): the plan of each policy in the first states
    mixture: Floats  # (K,)
    nature: Floats  # (M,): weights under which it is worst


class _Plane:
    """Weights that were planned for, and the best plans at the start for them so far."""

    def __init__(self, weights: Floats, points: Integers) -> None:
        self.weights, self._points = weights, points
        self.plans, self._lowers = np.full(points.size, -1), np.full(points.size, -math.inf)

    def renew(self, bounds: Bounds) -> Floats:
        """Ask the newest plans too; what the best earn in each context, (M,)."""
        lowers, _, plans = bounds.bounds_at(self._points)
        better = lowers > self._lowers
        self.plans[better], self._lowers[better] = plans[better], lowers[better]
        return earned_by_context(bounds, self.plans)


class _CuttingPlanes:
    """The state of a run: the search, the weights that were planned for, and the bounds.

    Every weights w' that were planned for bound the convex V*(w') from below, by the policies that
    are best there: nature minimises over these planes. The next weights lie a `step` from the
    `stability_centre`, those with the smallest upper bound, towards nature's, and V* is bounded
    there to `inner_tolerance` of what is worth it.
    """

    def __init__(self, model: LatentMDP, settings: Robust, clock: PlanningClock) -> None:
        self.model, self.settings, self.clock = model, settings, clock
        # The bounds of single weights are no bounds on the objective: they are not shown.
        self.search = HeuristicSearch(model, clock.silent(), settings.threads)
        self.bounds = self.search.bounds
        informed = self._informed_values()
        is_regret = settings.objective == "regret"
        self.reference = informed if is_regret else np.zeros(model.n_contexts)
        tolerance = TOLERANCE if is_regret and model.horizon is None else 0.0
        self.slack = tolerance * self.bounds.magnitude
        level = 1.0 if settings.level is None else settings.level
        self.allowed = WeightSet(settings.objective, level, model.weights)
        # V*(w') <= sum_m w'_m V*_m: to know the context cannot hurt, and no regret is below zero.
        best = informed - self.reference
        self.stability_centre = self.allowed.worst(best)
        self.lower, self.upper = -math.inf, float(self.stability_centre @ best)
        # If the time was over before V*_m was known, no more is known of a regret.
        self.is_informed = not is_regret or clock.remaining > 0.0
        self.answers: list[_Answer] = []
        self.n_iter, self.step, self.inner_tolerance = 0, 1.0, 1.0
        self.best_response = -math.inf  # what the policies so far earn against nature at best
        # The weights that are planned for now come last.
        self.planes = [_Plane(model.weights, self.bounds.start_points)]
        self._lower_upper()
        # Policies that ask no questions, and the best of the single contexts, can be mixed from the
        # start.
        n, policies = self.bounds.start_points.size, self.bounds.first_actions.shape[2]
        self.first_plans = [np.full(n, -1 - k) for k in range(policies)]
        self.first_values = [earned_by_context(self.bounds, plans) for plans in self.first_plans]
        for weights in np.eye(model.n_contexts):
            self.bounds.start(weights)
            self.planes.append(_Plane(weights, self.bounds.start_points))
        self.respond()

    def _informed_values(self) -> Floats:
        """V*_m (M,): what could be earned if the context were known; from above without an end."""
        bounds, model = self.bounds, self.bounds.model
        states = bounds.start_states
        places = bounds.problem.first[bounds.lumping.state[states], None]
        places = places + bounds.lumping.classes(states)
        earned = (model.initial_vectors.of(states) * bounds.best[0, places]).sum(axis=0)
        return earned if model.initial_bonus is None else earned + model.initial_bonus

    def _lower_upper(self) -> None:
        """Lower the upper bound by that of the weights at hand."""
        weights = self.planes[-1].weights
        upper = self.bounds.best_upper - float(weights @ self.reference) + self.slack
        if upper < self.upper and self.is_informed:
            self.upper, self.stability_centre = upper, weights

    @property
    def target_gap(self) -> float:
        """The difference of the bounds that is asked for."""
        scale = abs(self.lower + float(self.nature @ self.reference))
        return max(self.settings.absolute_gap or 0.0, self.settings.gap * scale)

    def reached(self) -> bool:
        """Whether the bounds are as close as asked, up to rounding."""
        rounding = 1e-9 * self.bounds.magnitude
        return self.upper - self.lower <= max(self.target_gap, rounding)

    def cut(self) -> None:
        """One round: plan for the next weights as closely as is worth it, then nature answers."""
        self.n_iter += 1
        distance, best_response = self.upper - self.lower, self.best_response
        self._move()
        # Of the gap, 0.3: less would spend time where nature will not stay, more would make it
        # move on little.
        enough = 0.3 * self.inner_tolerance * max(self.target_gap, distance)
        enough = max(enough, 1e-10 * self.bounds.magnitude)
        self._lower_upper()
        # 10,000 backups, or as many as all searches before, and then nature answers: where bounds
        # close slowly, other weights may be better to plan for.
        bounds, search = self.bounds, self.search
        most_work = max(2 * bounds.n_backups, 10_000)
        try:
            # A corner of W is known without a search: what is best in one context.
            while bounds.best_upper - bounds.best_lower > enough and bounds.n_backups <= most_work:
                search.round()
                self._lower_upper()
        except NothingLeft:
            self._lower_upper()
        self.respond()
        moved = distance - (self.upper - self.lower) + max(self.best_response - best_response, 0.0)
        self._adapt(moved > 0.05 * distance)

    def _adapt(self, progress: bool) -> None:
        """After a round that moved little, plan for nature's own weights, then more closely."""
        if progress:  # halfway to nature's weights: a step of 1 is Kelley's method, which jumps
            self.step, self.inner_tolerance = 0.5, 1.0
        elif self.step < 1.0:
            self.step = 1.0
        else:
            self.inner_tolerance *= 0.3
        if self.inner_tolerance < 1e-9:  # rounding
            raise NothingLeft("stopped: no further policy was found that would move the bounds")

    def _move(self) -> None:
        """Go on to the next weights, between the best so far and nature's."""
        weights = (1.0 - self.step) * self.stability_centre + self.step * self.nature
        self.search.start(weights)
        same = [np.abs(weights - plane.weights).max() <= 1e-12 for plane in self.planes]
        known = self.planes.pop(same.index(True)) if any(same) else None
        self.planes.append(known or _Plane(weights, self.bounds.start_points))

    def respond(self) -> None:
        """Nature's answer to all policies so far, and the mixture against it."""
        renewed = [plane.renew(self.bounds) for plane in self.planes]
        values = np.array(renewed + self.first_values) - self.reference
        self.nature, mixture = self.allowed.against(values)
        self.best_response = float((values @ self.nature).max())
        self._record(0, values, mixture, self.nature)
        if self.settings.deterministic:
            alone = [float(self.allowed.worst(row) @ row) for row in values]
            best = int(np.argmax(alone))
            self._record(1, values, np.eye(len(values))[best], self.allowed.worst(values[best]))
        self.lower = self.answers[0].lower
        # The search may drop and renumber all plans but these.
        kept = [plane.plans for plane in self.planes] + [answer.plans for answer in self.answers]
        self.bounds.kept = [plans.reshape(-1) for plans in kept]  # views
        self.upper = enclosing(self.lower, self.upper, self.bounds.magnitude)
        self.clock.record(self.lower, self.upper)

    def _record(self, place: int, values: Floats, mixture: Floats, nature: Floats) -> None:
        """Keep a mixture of the planes' policies as an answer, if it is the best so far there."""
        mixed = mixture @ values
        objective = float(self.allowed.worst(mixed) @ mixed)
        if len(self.answers) <= place or objective > self.answers[place].lower:
            used = np.flatnonzero(mixture)
            known = [plane.plans for plane in self.planes] + self.first_plans
            plans = np.array([known[i] for i in used])
            self.answers[place : place + 1] = [_Answer(objective, plans, mixture[used], nature)]

    def result(self) -> RobustPlan:
        """The plan, its objective that of the graph that is returned."""
        if self.clock.stopped is not None:  # plans were found since nature's last answer
            self.respond()
        settings, clock, answer = self.settings, self.clock, self.answers[-1]
        self.bounds.settle()
        policy, earned, above = mixture_graph(self.bounds, answer.plans, answer.mixture)
        exactly = earned - self.reference
        lower = float(self.allowed.worst(exactly) @ exactly)
        given_up = max(self.answers[0].lower - lower, 0.0) if settings.deterministic else 0.0
        message = clock.stopped or "the gap is as small as asked"
        if settings.deterministic:
            message += f"; a random mixture of policies is better by {given_up:.3g}"
        unlikely = np.flatnonzero(self.model.weights == 0.0)
        if unlikely.size and settings.objective != "cvar":
            message += f"; contexts of weight 0 count like the others: {unlikely.tolist()}"
        return RobustPlan(
            policy=policy,
            lower=lower,
            upper=enclosing(lower, self.upper, self.bounds.magnitude),
            converged=self.reached(),
            n_iter=self.n_iter,
            seconds=clock.seconds,
            history=tuple(clock.history),
            message=message,
            objective=settings.objective,
            level=settings.level,
            worst_weights=arrays.frozen(answer.nature.copy()),
            by_context=arrays.frozen(earned),
            upper_by_context=arrays.frozen(above),
            reference=arrays.frozen(self.reference),
            given_up=given_up,
        )
