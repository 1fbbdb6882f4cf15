"""Lower and upper bounds on V* at every cell and belief, from finite sets of plans and points.

A lower bound is a set of plans (alpha vectors), an upper bound a set of points with bounds below
that of `sets`. Both hold at every moment: a plan is worth what it says for ever, whatever is found
after it, since it is linked to the plans it goes on with; and an upper bound only ever goes down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import Flags, Floats, Indices, Integers
from latentmdp.engines import blocks, run_blocks, thread_count
from latentmdp.model import LatentMDP
from latentmdp.planning.base import enclosing
from latentmdp.planning.hsvi import kernels
from latentmdp.planning.hsvi.kernels import LANES, ArrangedStep, Blocks, Expansion, Tables
from latentmdp.planning.hsvi.lumping import LumpedProblem, lump
from latentmdp.planning.hsvi.sets import informed_sets
from latentmdp.planning.limits import LimitReached, PlanningClock
from latentmdp.planning.qmdp import best_actions, best_of, policy_values, q_values

_BLANK = -1e300
"""An entry of no plan: below all values, and finite, so that a product with 0 is 0."""

FEW = 32
"""So many plans of a cell have one leader: it costs as much to find one as to look at them."""


_ENTRIES_PER_SECOND, _GRID_WORK_PER_SECOND, _LONGEST, _SETS_SHARE = 2e5, 2e6, 30.0, 0.2
"""Successors of sets that are listed, and interpolations for their grids, for each second of the
time limit, up to half a minute; and a share of the memory limit. So a tenth of the time is spent:
these bounds tighten every other, but only once."""


_DEPTH_SHARE, _DEEPEST = 1e-3, 300
"""Without an end, walks go so deep that discount^depth is this small, as deeper beliefs hardly
move the start, and no deeper than this."""


class Column:
    """An array that grows at its end."""

    def __init__(self, dtype: Any, *shape: int) -> None:
        self.array, self.size = np.empty((16, *shape), dtype), 0

    def __len__(self) -> int:
        return self.size

    @property
    def used(self) -> NDArray[Any]:
        """The rows there are."""
        return self.array[: self.size]

    def reserve(self, more: int) -> None:
        """Make room for so many more rows."""
        if self.size + more > len(self.array):
            shape = int(1.5 * (self.size + more)), *self.array.shape[1:]
            grown = np.empty(shape, self.array.dtype)
            grown[: self.size] = self.used
            self.array = grown

    def extend(self, rows: Any) -> None:
        """Add rows."""
        self.reserve(len(rows))
        self.array[self.size : self.size + len(rows)] = rows
        self.size += len(rows)


class Shelf:
    """Vectors by owner, a cell or a leader, as `Blocks` that grow."""

    def __init__(self, owners: int, blank: float) -> None:
        self._blank = blank
        self.head = Column(np.int32)
        self.head.extend(np.full(owners, -1, np.int32))
        self._by_block = (
            Column(np.int32), Column(np.int32), Column(np.int64), Column(np.int32, LANES),
            Column(np.float64, LANES),
        )  # fmt: skip
        self._entry = Column(np.float64, LANES)

    @property
    def blocks(self) -> Blocks:
        """What kernels read."""
        columns = (self.head, *self._by_block, self._entry)
        return Blocks(*(column.array for column in columns))

    @property
    def gains(self) -> Floats:
        """The gain of every lane."""
        return self._by_block[4].array.reshape(-1)

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return sum(column.array.nbytes for column in (*self._by_block, self._entry))

    def insert(
        self, owners: Integers, widths: Integers, items: Integers, gains: Floats, entries: Floats
    ) -> Integers:
        """Put vectors on the shelf; returns their lanes."""
        for column in self._by_block:
            column.reserve(items.size)
        self._entry.reserve(int(widths.sum()))
        slots = np.empty(items.size, np.int64)
        n, rows = kernels.insert(
            self.blocks, len(self._by_block[0]), len(self._entry), self._blank, owners, widths,
            items, gains, entries, slots,
        )  # fmt: skip
        for column in self._by_block:
            column.size = n
        self._entry.size = rows
        return slots


class BeliefPoints:
    """The points of one step, each with a bound from above and, once backed up, with a plan."""

    def __init__(self, layer: int, n_states: int, widest: int, n_actions: int) -> None:
        self.layer, self._n_states = layer, n_states
        self.states, self.beliefs = Column(np.int64), Column(np.float64, widest)
        self.limits = Column(np.float64, n_actions)  # upper bounds of the action values
        self.knowns = Column(np.float64)  # what a point is worth if the context were known
        self.uppers = Column(np.float64)
        self.vectors = Column(np.float64, widest)
        self.plans = Column(np.int64)  # the number of the plan, -1 for none
        self._plan_slots, self._point_slots = Column(np.int64), Column(np.int64)
        self._columns = (
            self.states, self.beliefs, self.limits, self.knowns, self.uppers, self.vectors,
            self.plans, self._plan_slots, self._point_slots,
        )  # fmt: skip
        self.places: dict[int, int] = {}  # points by their keys
        self.changes = 0  # plans and points put on the shelves since they were arranged
        self._clear()

    def _clear(self) -> None:
        self._leaders = Shelf(self._n_states, _BLANK)
        self._plan_shelf, self._point_shelf = Shelf(0, _BLANK), Shelf(0, 0.0)
        self._n_leaders = 0

    def __len__(self) -> int:
        return len(self.states)

    @property
    def step(self) -> ArrangedStep:
        """What kernels read."""
        return ArrangedStep(
            self._leaders.blocks, self._plan_shelf.blocks, self._point_shelf.blocks,
            self.states.array, self.beliefs.array, self.uppers.array, self.vectors.array,
            self.layer,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """The memory they take."""
        shelves = (self._leaders, self._plan_shelf, self._point_shelf)
        return sum(shelf.nbytes for shelf in shelves) + sum(c.array.nbytes for c in self._columns)

    def append(self, states: Integers, beliefs: Floats) -> None:
        """Add points, whose bounds are still to be filled in."""
        self.states.extend(states)
        self.beliefs.extend(beliefs)
        for column in (self.limits, self.knowns, self.uppers, self.vectors):
            column.extend(np.zeros((states.size, *column.array.shape[1:])))
        for column in (self.plans, self._plan_slots, self._point_slots):
            column.extend(np.full(states.size, -1))

    def is_found(self, chosen: Integers) -> Flags:
        """Whether the bounds of some points are where a search finds them."""
        return np.asarray(self._point_slots.array[chosen] >= 0)

    def put(self, width: Integers, plans: Integers, points: Integers, homes: Integers) -> None:
        """Put the plans and the bounds of some points where a search finds them.

        `homes` are the best leaders of all points in `plans` followed by `points`, -1 for none.
        """
        chosen = np.concatenate([plans, points])
        homes = self._housed(width, chosen, homes)
        slots = self._plan_slots.array[plans]
        old, new = plans[slots >= 0], plans[slots < 0]
        kernels.replace(
            self._plan_shelf.blocks, slots[slots >= 0], width[self.states.array[old]],
            self.vectors.array[old],
        )  # fmt: skip
        self._shelve_plans(width, new, homes[: plans.size][slots < 0])
        slots = self._point_slots.array[points]
        gains = self.knowns.array[points] - self.uppers.array[points]
        self._point_shelf.gains[slots[slots >= 0]] = gains[slots >= 0]
        self._shelve_points(width, points[slots < 0], homes[plans.size :][slots < 0])
        self.changes += chosen.size

    def _shelve_plans(self, width: Integers, new: Integers, homes: Integers) -> None:
        widths, vectors = width[self.states.array[new]], self.vectors.array[new]
        none = np.zeros(new.size)
        self._plan_slots.array[new] = self._plan_shelf.insert(homes, widths, new, none, vectors)

    def _shelve_points(self, width: Integers, new: Integers, homes: Integers) -> None:
        gains = self.knowns.array[new] - self.uppers.array[new]
        new, homes, gains = new[gains > 0.0], homes[gains > 0.0], gains[gains > 0.0]
        with np.errstate(divide="ignore"):
            inverses = 1.0 / self.beliefs.array[new]
        widths = width[self.states.array[new]]
        self._point_slots.array[new] = self._point_shelf.insert(homes, widths, new, gains, inverses)

    def _housed(self, width: Integers, chosen: Integers, homes: Integers) -> Integers:
        """The leaders; in a cell that has none, the plan of the first point becomes one."""
        lost = np.flatnonzero(homes < 0)
        if lost.size == 0:
            return homes
        states = self.states.array[chosen[lost]]
        _, first, member = np.unique(states, return_index=True, return_inverse=True)
        leaders = self._lead(width, chosen[lost[first]])
        homes = homes.copy()
        homes[lost] = leaders[member]
        return homes

    def _lead(self, width: Integers, points: Integers) -> Integers:
        """Make leaders of the plans of some points; returns their numbers."""
        numbers = np.arange(self._n_leaders, self._n_leaders + points.size)
        self._n_leaders += points.size
        states = self.states.array[points]
        none, vectors = np.zeros(points.size), self.vectors.array[points]
        self._leaders.insert(states, width[states], numbers, none, vectors)
        for shelf in (self._plan_shelf, self._point_shelf):
            shelf.head.extend(np.full(points.size, -1, np.int32))
        return numbers

    def arrange(self, width: Integers, few: float) -> None:
        """Arrange all plans and points anew: each to the leader that is best at its belief.

        The first sqrt(n) of the n plans of a cell lead, or one where they are few: then a search
        looks at all of them.
        """
        self._clear()
        self.changes = 0
        self._plan_slots.used[:], self._point_slots.used[:] = -1, -1
        planned = np.flatnonzero(self.plans.used >= 0)
        if planned.size == 0:
            return
        states = self.states.used[planned]
        order = np.argsort(states, kind="stable")
        planned, states = planned[order], states[order]
        counts = np.bincount(states, minlength=self._n_states)
        rank = np.arange(planned.size) - np.repeat(np.cumsum(counts) - counts, counts)
        most = np.where(counts > few, np.ceil(np.sqrt(counts)), 1)[states]
        self._lead(width, planned[rank < most])
        homes, leaders = np.empty(len(self), np.int64), self._leaders.blocks
        kernels.homes_of(0, len(self), width, leaders, self.states.used, self.beliefs.used, homes)
        self._shelve_plans(width, planned, homes[planned])
        bounded = np.flatnonzero((self.uppers.used < self.knowns.used) & (homes >= 0))
        self._shelve_points(width, bounded, homes[bounded])


class Plans:
    """All plans that were ever found and may still be followed: what they do, and where they go."""

    def __init__(self, widest: int) -> None:
        self.vectors, self.layers = Column(np.float64, widest), Column(np.int32)
        self.states, self.actions = Column(np.int64), Column(np.int32)
        self.starts, self.links = Column(np.int64), Column(np.int64)

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def columns(self) -> tuple[Column, ...]:
        """All arrays."""
        return self.vectors, self.layers, self.states, self.actions, self.starts, self.links

    def append(
        self, layer: int, states: Integers, actions: Indices, vectors: Floats, counts: Integers,
        links: Integers,
    ) -> Integers:  # fmt: skip
        """Add plans with counts[i] links each; returns their numbers."""
        n = states.size
        self.starts.extend(len(self.links) + np.cumsum(counts) - counts)
        self.links.extend(links)
        self.vectors.extend(vectors)
        self.layers.extend(np.full(n, layer))
        self.states.extend(states)
        self.actions.extend(actions)
        return np.arange(len(self) - n, len(self))


def _least(problem: LumpedProblem) -> Floats:
    """What every policy earns at least from each layer on: the least reward at every step."""
    worst = min(0.0, float(problem.earned.min(initial=0.0)))
    if not problem.ends:
        return np.array([worst / (1.0 - problem.discount)])
    return worst * np.cumsum(problem.discount ** np.arange(problem.layers))[::-1]


class Bounds:
    """Lower and upper bounds of one model.

    Parameters
    ----------
    clock
        Its limits say how much may be spent before the search; `check` is called now and then in
        long work and may raise to stop, and the bounds stay valid.
    threads
        How many share the work; results do not depend on it.
    few
        Plans of a cell that are all looked at, see `BeliefPoints.arrange`.
    informed
        Whether to bound values from above by sets of contexts, or by single ones.

    Attributes
    ----------
    best : (layers, all classes)
        Values of the classes alone, upper bounds.
    points, plans
        The `BeliefPoints` of each step, and all `Plans`.
    start_states, start_points, start_weights
        The model's states in which an episode may begin, the points of step 0 that are the beliefs
        there, and the probabilities of these states.
    best_lower, best_upper, best_plans
        The best bounds at the start so far, and the plans that attain the lower one.
    kept
        Arrays of numbers of plans that `collect` keeps too, and renumbers.
    magnitude
        The largest absolute value that enters the bounds.
    """

    def __init__(
        self, model: LatentMDP, clock: PlanningClock, threads: int | None, few: float = FEW,
        informed: bool = True,
    ) -> None:  # fmt: skip
        self.model, self.check, self.threads, self.few = model, clock.check, threads, few
        self.kept: list[Integers] = []
        check = clock.check
        self.lumping = lump(model, self._share_all, check)
        self.problem = self.lumping.problem
        flat = self.lumping.flat()
        q = q_values(flat, check, threads)
        best = np.ascontiguousarray(best_of(flat, q)[:, :, 0])
        self.best = best
        least = _least(self.problem)
        hidden = 0.0 if model.initial_bonus is None else float(np.abs(model.initial_bonus).max())
        self.magnitude = max(float(np.abs(best).max()), -float(least.min())) + hidden
        weights = np.where(model.weights > 0.0, model.weights, model.weights.mean())
        leaders = self.lumping.leaders.tolist()
        self.reference = np.concatenate([self.lumping.push(s, weights) for s in leaders])
        starts = np.unique(self.lumping.state[model.initial.any(axis=0)])
        # Of the limit, not of what is left of it, nor by threads: the same bits in every run.
        seconds = informed * min(clock.time_limit or _LONGEST, _LONGEST)
        entries = int(min(_ENTRIES_PER_SECOND * seconds, _SETS_SHARE * clock.memory / 32.0))
        work = min(_GRID_WORK_PER_SECOND * seconds, _SETS_SHARE * clock.memory / 8.0)
        sets = informed_sets(
            self.problem, self.reference, best, starts, entries, work, check, self._share
        )
        self.first_actions, first_plans = self._first_policies(flat, q, least)
        self.tables = Tables(self.problem, sets, first_plans)
        widest, self.most_outcomes = (
            int(self.problem.width.max()),
            int(np.diff(self.problem.starts).max()),
        )
        X, A = self.problem.allowed.shape
        self.points = [BeliefPoints(t, X, widest, A) for t in range(self.problem.layers)]
        self.plans = Plans(widest)
        self.resolution = 100.0  # see `HeuristicSearch`
        self.start(model.weights)

    def _share(self, kernel: Callable[..., Any], n: int, *arguments: Any) -> None:
        """Run a kernel over n items by threads, looking at the clock."""
        run_blocks(kernel, self._spans(n), self.threads, self.check, *arguments)

    def _share_all(self, kernel: Callable[..., Any], n: int, *arguments: Any) -> None:
        """Run a kernel over n items by threads, to the end."""
        run_blocks(kernel, self._spans(n), self.threads, None, *arguments)

    def _spans(self, n: int) -> list[tuple[int, int]]:
        return blocks(n, max(1, -(-n // (8 * thread_count(self.threads)))))

    def _first_policies(self, flat: LatentMDP, q: Floats, least: Floats) -> tuple[Integers, Floats]:
        """Actions (layers, X, K) and values (layers, all classes, K) of memoryless policies.

        Those of the contexts with the largest weights, and one for all contexts at once.
        """
        problem, lumping = self.problem, self.lumping
        state = np.repeat(np.arange(problem.width.size), problem.width)
        alone = best_actions(flat, q)[..., 0]
        heaviest = np.argsort(-self.model.weights, kind="stable")[:8]
        of_class = problem.first[:-1] + lumping.classes[lumping.leaders][:, heaviest].T
        mean = np.zeros((problem.layers, *problem.allowed.shape))
        for values, out in zip(q[..., 0], mean):
            np.add.at(out, state, self.reference[:, None] * values)
        joint = np.where(problem.allowed, mean, -np.inf).argmax(axis=2)
        actions = np.concatenate([alone[:, of_class].swapaxes(1, 2), joint[:, :, None]], axis=2)
        try:
            values = policy_values(flat, actions[:, state], self.check)[..., 0]
        except LimitReached:  # of any policy no less is known
            return actions[:, :, :1], np.tile(least[:, None, None], (1, problem.first[-1], 1))
        return actions, np.ascontiguousarray(values)

    def start(self, weights: Floats) -> None:
        """Bound V* for these weights of the contexts from now on; all plans and points are kept."""
        model, lumping = self.model, self.lumping
        hidden = model.initial_bonus
        self.constant = 0.0 if hidden is None else float(weights @ hidden)
        states = np.flatnonzero(model.initial.any(axis=0))
        joint = weights[:, None] * model.initial
        self.start_weights = joint.sum(axis=0)[states]
        # In a state that the weights exclude, all contexts count alike: a policy must begin there.
        excluded = states[self.start_weights <= 0.0]
        joint[:, excluded] = model.initial[:, excluded]
        chances = joint.sum(axis=0)
        beliefs = np.zeros((states.size, self.points[0].beliefs.array.shape[1]))
        for belief, s in zip(beliefs, states.tolist()):
            belief[: self.problem.width[lumping.state[s]]] = lumping.push(
                s, joint[:, s] / chances[s]
            )
        self.start_states = states
        self.start_points = self.add(0, lumping.state[states], beliefs)
        self.best_lower, self.best_upper = -np.inf, np.inf
        self.keep_better()

    @property
    def depth(self) -> int:
        """How many steps a walk goes."""
        if self.problem.ends:
            return self.problem.layers - 1
        steps = math.ceil(math.log(_DEPTH_SHARE) / math.log(self.problem.discount))
        return min(max(1, steps), _DEEPEST)

    def layer(self, t: int) -> int:
        """Which step of `points` time t has."""
        return t if self.problem.ends else 0

    def add(self, t: int, states: Integers, beliefs: Floats) -> Integers:
        """Add points of time t; returns their places."""
        points = self.points[t]
        first = len(points)
        points.append(states, beliefs)
        n = len(points)
        is_last = self.problem.ends and t + 1 == self.problem.layers
        limits, knowns = points.limits.array, points.knowns.array
        kernels.first_bounds(first, n, self.tables, points.step, is_last, limits, knowns)
        places = np.arange(first, n)
        lowers, uppers, items = (
            np.empty(n - first),
            np.empty(n - first),
            np.empty(n - first, np.int64),
        )
        kernels.bounds_at(0, n - first, self.tables, points.step, places, lowers, uppers, items)
        points.uppers.array[first:n] = np.minimum(uppers, limits[first:n].max(axis=1))
        return places

    def locate(self, t: int, states: Integers, beliefs: Floats) -> Integers:
        """Places of beliefs among the points of time t; those that are new are added."""
        points = self.points[t]
        names = self._keys(states, beliefs)
        places = np.array([points.places.get(name, -1) for name in names], np.int64)
        missing = np.flatnonzero(places < 0)
        if missing.size:
            fresh = dict[int, int]()  # key -> the first belief that has it
            for i in missing.tolist():
                fresh.setdefault(names[i], i)
            new = np.array(list(fresh.values()))
            points.places.update(zip(fresh, self.add(t, states[new], beliefs[new]).tolist()))
            places[missing] = [points.places[names[i]] for i in missing.tolist()]
        return places

    def _keys(self, states: Integers, beliefs: Floats) -> list[int]:
        keys = np.empty(states.size, np.uint64)
        kernels.keys_of(self.problem.width, states, beliefs, self.resolution, keys)
        return keys.tolist()

    def arrange(self, t: int) -> None:
        """Arrange the plans and points of a step."""
        self.points[t].arrange(self.problem.width, self.few)

    def refine(self, factor: float) -> None:
        """Tell beliefs apart so many times as finely, and look at so many times as many plans."""
        self.resolution *= factor
        self.few *= factor
        for points in self.points:
            names = self._keys(points.states.used, points.beliefs.used)
            points.places = dict(zip(names[::-1], range(len(names) - 1, -1, -1)))

    def expand(self, t: int, chosen: Integers, weights: Floats, actions: Integers) -> Expansion:
        """Expansion of chosen points of time t after their actions."""
        now, later = self.points[t].step, self.points[self.layer(t + 1)].step
        rows = now.states[chosen] * self.model.n_actions + actions
        counts = np.diff(self.problem.starts)[rows]
        n, widest = int(counts.sum()), now.beliefs.shape[1]
        out = Expansion(np.empty(n, np.int64), np.zeros((n, widest)), np.empty(n), np.empty(n))
        begins = np.cumsum(counts) - counts
        self._share(
            kernels.expand,
            chosen.size,
            self.tables,
            now,
            later,
            chosen,
            actions,
            weights,
            begins,
            out,
        )
        return out

    def back_up(self, t: int, chosen: Integers, above: Flags) -> float:
        """Back up the lower bound at chosen points of time t, and the upper at those `above`.

        Returns by how much the lower bound rose at most.
        """
        points, n = self.points[t], chosen.size
        is_last = self.problem.ends and t + 1 == self.problem.layers
        later = points if is_last else self.points[self.layer(t + 1)]
        lowers, homes = np.empty((n, 2)), np.empty(n, np.int64)
        vectors = np.zeros((n, points.beliefs.array.shape[1]))
        labels, links = np.zeros(n, np.int32), np.zeros((n, self.most_outcomes), np.int32)
        self._share(
            kernels.back_up, n, self.tables, points.step, later.step, is_last, chosen, above,
            points.limits.array, lowers, homes, vectors, labels, links,
        )  # fmt: skip
        better = lowers[:, 1] > lowers[:, 0] + 1e-13 * self.magnitude
        mine = chosen[better]
        if mine.size:
            states = points.states.array[mine]
            rows = states * self.model.n_actions + labels[better]
            counts = (
                np.zeros(mine.size, np.int64) if is_last else np.diff(self.problem.starts)[rows]
            )
            items = links[better][np.arange(self.most_outcomes) < counts[:, None]].astype(np.int64)
            ids = np.where(items >= 0, later.plans.array[items], items)
            points.vectors.array[mine] = vectors[better]
            points.plans.array[mine] = self.plans.append(
                t, states, labels[better], vectors[better], counts, ids
            )
        tops = points.limits.array[chosen].max(axis=1)
        uppers = points.uppers.array[chosen]
        fell = above & ((tops < uppers) | ~points.is_found(chosen))
        points.uppers.array[chosen] = np.minimum(tops, uppers)
        # A point without a plan has none to be found by: its bound is put beside others' plans.
        homes = np.concatenate([homes[better], homes[fell]])
        points.put(self.problem.width, mine, chosen[fell], homes)
        return float((lowers[:, 1] - lowers[:, 0]).max(initial=0.0))

    def keep_better(self) -> None:
        """Keep the better of the bounds at the start before and now."""
        lowers, uppers, items = self._at_start()
        lower = self.constant + float(self.start_weights @ lowers)
        if lower > self.best_lower:
            plans = np.where(items >= 0, self.points[0].plans.array[items], items)
            self.best_plans, self.best_lower = plans, lower
        upper = min(self.best_upper, self.constant + float(self.start_weights @ uppers))
        self.best_upper = enclosing(self.best_lower, upper, self.magnitude)

    @property
    def n_points(self) -> int:
        """Points of all steps."""
        return sum(len(points) for points in self.points)

    @property
    def nbytes(self) -> float:
        """The memory that the bounds take."""
        columns = (*self.problem[:11], *self.tables.sets, self.tables.first_plans, self.best)
        fixed = sum(np.asarray(array).nbytes for array in columns)
        plans = sum(column.array.nbytes for column in self.plans.columns)
        return float(fixed + plans + sum(points.nbytes for points in self.points))

    def collect(self) -> None:
        """Drop the plans that no point has and none that is kept is linked to."""
        plans = self.plans
        wanted = np.zeros(len(plans), np.bool_)
        others = [self.best_plans, *self.kept]
        roots = [points.plans.used for points in self.points] + others
        counts = np.diff(np.append(plans.starts.used, len(plans.links)))
        first = np.concatenate(roots)
        kernels.mark(first[first >= 0], plans.starts.used, counts, plans.links.used, wanted)
        number = np.where(wanted, np.cumsum(wanted) - 1, -1)
        links = plans.links.used[np.repeat(wanted, counts)]
        kept = Plans(plans.vectors.array.shape[1])
        kept.starts.extend(np.cumsum(counts[wanted]) - counts[wanted])
        kept.links.extend(np.where(links >= 0, number[np.maximum(links, 0)], links))
        for new, old in zip(kept.columns[:4], plans.columns[:4]):
            new.extend(old.used[wanted])
        self.plans = kept
        for numbers in roots:
            found = numbers >= 0
            numbers[found] = number[numbers[found]]

    def _at_start(self) -> tuple[Floats, Floats, Integers]:
        n, points = self.start_points.size, self.points[0]
        lowers, uppers, items = np.empty(n), np.empty(n), np.empty(n, np.int64)
        kernels.bounds_at(0, n, self.tables, points.step, self.start_points, lowers, uppers, items)
        return lowers, np.minimum(uppers, points.uppers.array[self.start_points]), items
