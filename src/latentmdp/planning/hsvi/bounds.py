"""Lower and upper bounds on V* at every cell and belief, from finite sets of plans and points.

A lower bound is a set of plans (alpha vectors), an upper bound a set of points with bounds below
that of `sets`. Both hold at every moment: a plan is worth what it says for ever, whatever is found
after it, since it is linked to the plans it goes on with; and an upper bound only ever goes down.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np

from latentmdp._total_reward import sure_rule
from latentmdp._util.arrays import ROW_TOLERANCE, Flags, Floats, Integers
from latentmdp._util.clock import compile_seconds
from latentmdp.engines import blocks, run_blocks, thread_count
from latentmdp.model import LatentMDP
from latentmdp.planning.base import enclosing
from latentmdp.planning.goals import quotient
from latentmdp.planning.hsvi import kernels
from latentmdp.planning.hsvi.kernels import (
    Backups,
    Expansion,
    Plans,
    Scratch,
    Store,
    Tables,
    Trials,
)
from latentmdp.planning.hsvi.lumping import LumpedProblem, lump
from latentmdp.planning.hsvi.sets import GROWTH, InformedSets
from latentmdp.planning.limits import LimitReached, PlanningClock
from latentmdp.planning.qmdp import best_actions, best_of, policy_values, q_values

_LOOKS = 30.0
"""Interpolations that take as long as a look at an outcome."""

DEEPEST = 300
"""Without an end, walks are no longer, nor so long that discount^length, or in a sweep the share of
the gap that is left there, is below its inverse: what comes later hardly moves the start, and takes
as long."""

AT_ONCE = 2**22
"""Numbers that are written, or looked at, in a few thousandths of a second: fewer at once waste the
threads, more take memory and let the clock wait."""

EXPLORED = 0.2
"""Share of all work that is spent to find out: that of a round of trials, which may bring nothing
by chance if they are fewer, and what a kind of round that brought less may take of the others'. And
of the memory limit, what bounds from sets may take, and half of it the first policies."""


def _sizes(content: Any) -> dict[int, int]:
    """The bytes of every array among nested tuples, each once."""
    if not isinstance(content, tuple):
        return {id(content): np.asarray(content).nbytes}
    return {number: size for part in content for number, size in _sizes(part).items()}


def _by_class(values: Floats) -> Floats:
    """Values (layers, S, K, M) by class, (layers, S M, K)."""
    layers, _, K, _ = values.shape
    return np.ascontiguousarray(values.swapaxes(2, 3)).reshape(layers, -1, K)


def empty_store(n_cells: int, widest: int, n_actions: int) -> Store:
    """A store with nothing in it."""

    def empty(kind: Any, *shape: int) -> Any:
        return np.empty((0, *shape), kind)

    i4, i8, f8, lanes = np.int32, np.int64, np.float64, kernels.LANES
    heads = [np.full(n_cells, -1, i4) for _ in range(3)]
    blocks = (*heads, empty(i4), empty(i4), empty(i8, lanes), empty(f8, lanes), empty(f8, lanes))
    numbers = (empty(i8) for _ in range(4))
    return Store(
        kernels.Blocks(*blocks),
        kernels.Points(
            empty(i8), empty(f8, widest), empty(f8, n_actions), empty(f8), empty(f8), *numbers
        ),
        Plans(empty(f8, widest), empty(i8), empty(i4), empty(i8), empty(i8)),
        np.full(n_cells, -1), np.full(2, -1, i4), empty(np.uint64),
        np.array([0, 0, 0, 0, n_cells]),
    )  # fmt: skip


def _least(problem: LumpedProblem) -> Floats:
    """What every policy earns at least from each layer on: the least reward at every step."""
    worst = min(0.0, float(problem.earned.min(initial=0.0)))
    if not problem.ends and problem.discount == 1.0:
        return np.array([0.0 if worst == 0.0 else -np.inf])
    if not problem.ends:
        return np.array([worst / (1.0 - problem.discount)])
    return worst * np.cumsum(problem.discount ** np.arange(problem.layers))[::-1]


class Bounds:
    """Lower and upper bounds of one model.

    Parameters
    ----------
    clock
        `check` is called now and then in long work and may raise to stop, and the bounds stay
        valid; of the memory limit a share may be spent before the search.
    threads
        How many share the work; results do not depend on it.
    few
        Plans of a cell that are all looked at, see `kernels.arrange`. By default four blocks: as
        many as those of the leaders, and of the two best ones' plans.
    informed
        Whether to bound values from above by sets of contexts, or by single ones.

    Attributes
    ----------
    best : (layers, all classes)
        Values of the classes alone, upper bounds.
    store
        All plans and points.
    start_states, start_points, start_weights
        The model's states in which an episode may begin, the points of step 0 that are the beliefs
        there, and the probabilities of these states.
    best_lower, best_upper, best_plans
        The best bounds at the start so far, and the plans that attain the lower one.
    kept
        Arrays of numbers of plans that `collect` keeps too, and renumbers.
    magnitude
        The largest absolute value that enters the bounds.
    n_backups, work
        Backups so far, and the outcomes that they looked at.
    lattice
        The points that `place_lattice` has made.
    resolution
        Beliefs whose entries, relative to the largest, round to the same multiples of its inverse
        are one point.
    """

    def __init__(
        self, model: LatentMDP, clock: PlanningClock, threads: int | None,
        few: float | None = None, informed: bool = True,
    ) -> None:  # fmt: skip
        room = EXPLORED * min(clock.memory, 2.0**35)
        self.quotient = quotient(model, room, clock)
        model = self.quotient.model
        self.model, self.check, self.threads = model, clock.check, threads
        self._known = set(vars(model))  # what a model remembers from now on counts too
        self.few = 4.0 * kernels.LANES if few is None else few
        self.kept: list[Integers] = []
        self._clock, self.memory = clock, clock.memory
        check = clock.check
        # Without lumping, what follows takes longer still, and may not fit into memory.
        is_small = 8.0 * model.n_layers * model.n_states * model.n_actions * model.n_contexts < room
        lumping_check = self.quotient.keep_apart or (check if is_small else None)
        self.lumping = lump(model, self.share_all, lumping_check)
        problem = self.problem = self.lumping.problem
        alive = int(np.count_nonzero(~model.terminal))
        self._of_policy = 8.0 * model.n_layers * alive * model.n_contexts
        # Where no two pairs are alike, the model's own values are those of the classes. Learners'
        # models, with dense rows that sum to less than one, pay there for what is lost.
        is_own = int(problem.first[-1]) == model.n_states * model.n_contexts
        if is_own and not model.is_table:
            sums = model.transitions.sum(axis=3)[:, model.allowed]
            is_own = bool((sums > 1.0 - ROW_TOLERANCE).all())
        flat = model if is_own else self.lumping.flat()
        q = q_values(flat, clock.with_time_left().check, threads)
        self.best = np.ascontiguousarray(best_of(flat, q)).reshape(problem.layers, -1)
        least = _least(problem)
        hidden = 0.0 if model.initial_bonus is None else float(np.abs(model.initial_bonus).max())
        weights = np.where(model.weights > 0.0, model.weights, model.weights.mean())
        leaders = self.lumping.leaders.tolist()
        self.reference = np.concatenate([self.lumping.push(s, weights) for s in leaders])
        starts = np.unique(self.lumping.state[model.initial_vectors.nonzero()])
        self._informed = informed
        self._informing = 1.0, 0.0  # of the last: work of what was expected, seconds of its work
        self._sets = InformedSets(
            problem, self.reference, self.best, starts, room, check, self._share, self.depth,
            AT_ONCE / _LOOKS,
        )  # fmt: skip
        self._most_outcomes = int(np.diff(problem.starts).max())
        self.first_actions, first_plans, policy_of = self._first_policies(
            flat, q, least, 0.5 * EXPLORED * clock.memory
        )
        lowest = max(float(least.min()), float(first_plans.min()))
        self.magnitude = max(float(np.abs(self.best).max()), -lowest) + hidden
        self._least_rise = 1e-13 * self.magnitude
        self.tables = Tables(problem, self._sets.nothing(), first_plans, policy_of, _by_class(q))
        X, A = problem.allowed.shape
        widest = int(problem.width.max())
        self._by_state = np.diff(problem.starts[::A])  # outcomes of all actions
        self.store = empty_store(problem.layers * X, widest, A)
        self._arranged = 0  # points when they were arranged
        self.lattice, self._level = np.empty(0, np.int64), 1
        self._reached = self._reachable_cells()
        self.n_backups, self.work = 0, 0.0
        self._scratch: list[Scratch] = []  # working memory that no thread uses now
        self.resolution = 10000.0
        self.start(model.weights)

    @property
    def may_inform(self) -> bool:
        """Whether there is more to be had from sets of contexts."""
        return self._informed and not self._sets.is_whole

    @property
    def informing_work(self) -> float:
        """What `inform` will add to the work, about: as much of what it may take as the last."""
        return self._sets.work / _LOOKS * self._informing[0]

    @property
    def informing_seconds(self) -> float:
        """How long `inform` will take, about."""
        return self.informing_work * self._informing[1]

    def inform(self) -> None:
        """Bound values by sets of contexts more closely than before."""
        began, expected = time.perf_counter() - compile_seconds(), self._sets.work / _LOOKS
        sets, work = self._sets.bounds()
        self.tables = self.tables._replace(sets=sets)
        self._scratch.clear()
        self.work += work / _LOOKS
        seconds = time.perf_counter() - compile_seconds() - began
        self._informing = work / _LOOKS / expected, seconds / max(work / _LOOKS, 1.0)

    def _reachable_cells(self) -> Integers:
        """The cells that an episode may come to and go on from."""
        problem, A = self.problem, self.problem.allowed.shape[1]
        state = np.repeat(np.arange(problem.width.size), np.diff(problem.starts[::A]))
        reached = np.zeros((problem.layers, problem.width.size), np.bool_)
        reached[0, self.lumping.state[self.model.initial_vectors.nonzero()]] = True
        t, before = 0, -1
        while t < problem.layers - 1 or (not problem.ends and reached.sum() > before):
            before, after = int(reached.sum()), min(t + 1, problem.layers - 1)
            reached[after, problem.next_state[reached[t][state]]] = True
            t = after
        return np.flatnonzero(reached & problem.allowed.any(axis=1))

    @property
    def lattice_size(self) -> tuple[float, float]:
        """How many points `place_lattice` will make, about, and the work of backing them up."""
        states, counts = np.unique(self._reached % self.problem.width.size, return_counts=True)
        widths = self.problem.width[states].tolist()
        sizes = range(1, self._level + 1)
        each = np.array([float(sum(math.comb(width, k) for k in sizes)) for width in widths])
        return float(each @ counts), float((each * counts) @ self._by_state[states])

    def place_lattice(self) -> None:
        """Make points for the lower bound near the sets of contexts, in all cells that are reached.

        With w the reference of a state, level l has the beliefs (1 - e) w_G + e w for every set G
        of k <= l classes and e = 4^(k - l - 1). Where thousands of cells are reached, few visited
        beliefs fall to each, and plans made for these serve all that come by; without the share e
        for the others a plan would ask nothing of them.
        """
        problem, begin = self.problem, self.n_points
        layers, states = np.divmod(self._reached, problem.width.size)
        at_once = max(1, AT_ONCE // self.store.points.belief.shape[1])
        for x in np.unique(states).tolist():
            w = self.reference[problem.first[x] : problem.first[x + 1]]
            beliefs = []
            for k in range(1, min(self._level, w.size) + 1):
                rest = GROWTH ** (2.0 * (k - self._level - 1))
                chosen = np.array(list(combinations(range(w.size), k)))
                near = np.zeros((len(chosen), self.store.points.belief.shape[1]))
                np.put_along_axis(near, chosen, w[chosen], axis=1)
                near *= (1.0 - rest) / near.sum(axis=1, keepdims=True)
                near[:, : w.size] += rest * w / w.sum()
                beliefs.append(near)
            all_beliefs = np.concatenate(beliefs)
            cells = layers[states == x] * problem.width.size + x
            for some in np.array_split(cells, -(-cells.size * len(all_beliefs) // at_once)):
                self.check()
                every = np.repeat(some, len(all_beliefs))
                self.locate(self.beliefs_in(every, np.tile(all_beliefs, (some.size, 1))))
        self._level += 1
        self.lattice = np.concatenate([self.lattice, np.arange(begin, self.n_points)])

    def _share(self, kernel: Callable[..., Any], n: int, *arguments: Any) -> None:
        """Run a kernel over n items by threads, looking at the clock."""
        run_blocks(kernel, self._spans(n), self.threads, self.check, *arguments)

    def share_all(self, kernel: Callable[..., Any], n: int, *arguments: Any) -> None:
        """Run a kernel over n items by threads, to the end."""
        run_blocks(kernel, self._spans(n), self.threads, None, *arguments)

    def _spans(self, n: int) -> list[tuple[int, int]]:
        return blocks(n, max(1, -(-n // (8 * thread_count(self.threads)))))

    def _first_policies(
        self, flat: LatentMDP, q: Floats, least: Floats, memory: float
    ) -> tuple[Any, ...]:  # fmt: skip
        """Memoryless policies: one for all contexts, and those that are best in single ones.

        As many as so much memory allows, and a fraction of a second.

        Their actions (layers, X, K) and values (K, layers x all classes), and of every class the
        policy that is best for it alone, 0 if that is not among them.
        """
        problem, lumping, model = self.problem, self.lumping, self.model
        state = np.repeat(np.arange(problem.width.size), problem.width)
        alone = best_actions(flat, q, self.check).reshape(problem.layers, -1)
        mean = np.zeros((problem.layers, *problem.allowed.shape))
        for values, out in zip(_by_class(q), mean):
            np.add.at(out, state, self.reference[:, None] * values)
        joint = np.where(problem.allowed, mean, -np.inf).argmax(axis=2)
        # Solving for the values without an end takes as long as hundreds of layers.
        pairs = state.size * problem.layers
        outcomes = 1.0 + flat.outcomes.size * flat.n_contexts / problem.allowed.shape[1]
        cost = outcomes * (problem.layers if problem.ends else 500.0)
        room = memory / (8.0 * pairs)
        n = int(min(model.n_contexts, max(2.0, AT_ONCE * _LOOKS / cost), max(2.0, room)))
        heaviest = np.argsort(-model.weights, kind="stable")[:n]
        of_class = problem.first[:-1] + lumping.classes(lumping.leaders)[:, heaviest].T
        actions = np.concatenate([joint[:, :, None], alone[:, of_class].swapaxes(1, 2)], axis=2)
        values = np.tile(least[:, None, None], (1, state.size, 1))  # of any policy no less is known
        # The first at once, as time may run out for the others.
        for some, check in ((1, self._clock.with_time_left().check), (n + 1, self.check)):
            try:
                values = self._earned(flat, actions[:, :, :some], check)
            except LimitReached:
                break
        if model.duration.is_total:
            actions, values = self._ending_policies(flat, actions[:, :, : values.shape[2]], values)
        actions = actions[:, :, : values.shape[2]]
        policy = np.zeros(model.n_contexts, np.int32)
        policy[heaviest] = np.arange(1, n + 1)
        policy[policy >= values.shape[2]] = 0
        policy_of = policy[lumping.contexts]
        first_plans = np.ascontiguousarray(np.moveaxis(values, 2, 0)).reshape(-1, pairs)
        return actions, first_plans, policy_of

    def _earned(
        self, flat: LatentMDP, actions: Integers, check: Callable[[], None] | None = None
    ) -> Floats:
        """What policies (layers, X, K) earn from every class on, (layers, all classes, K)."""
        if flat is not self.model:
            actions = np.repeat(actions, self.problem.width, axis=1)
        return _by_class(policy_values(flat, actions, check))

    def _ending_policies(
        self, flat: LatentMDP, actions: Integers, values: Floats
    ) -> tuple[Integers, Floats]:
        """Policies and their values, changed where they would pay for ever: there to one that ends.

        That one is the first.
        """
        if np.isfinite(values).all():
            return actions, values
        state = np.repeat(np.arange(self.problem.width.size), self.problem.width)
        rule, _ = sure_rule(self.model)
        actions = actions.copy()
        actions[0, :, 0] = rule[self.lumping.leaders]
        while True:
            values = self._earned(flat, actions)
            endless = np.zeros(actions.shape[1:], np.bool_)
            np.logical_or.at(endless, state, np.isinf(values[0]))
            if not endless.any():
                return actions, values
            actions[0] = np.where(endless, actions[0, :, :1], actions[0])

    def start(self, weights: Floats) -> None:
        """Bound V* for these weights of the contexts from now on; all plans and points are kept."""
        model, lumping = self.model, self.lumping
        hidden = model.initial_bonus
        self.constant = 0.0 if hidden is None else float(weights @ hidden)
        states = model.initial_vectors.nonzero()
        first = model.initial_vectors.of(states).T
        joint = weights[:, None] * first
        self.start_weights = joint.sum(axis=0)
        # In a state that the weights exclude, all contexts count alike: a policy must begin there.
        excluded = self.start_weights <= 0.0
        joint[:, excluded] = first[:, excluded]
        joint /= joint.sum(axis=0)
        beliefs = np.zeros((states.size, self.store.points.belief.shape[1]))
        for belief, s, mass in zip(beliefs, states.tolist(), joint.T):
            belief[: self.problem.width[lumping.state[s]]] = lumping.push(s, mass)
        self.start_states = states
        found = self.beliefs_in(lumping.state[states], beliefs)
        self.start_points = self.locate(found, resolution=1e15)
        self.best_lower, self.best_upper = -np.inf, np.inf
        self.keep_better()

    @property
    def depth(self) -> int:
        """How many steps a walk goes."""
        if self.problem.ends:
            return self.problem.layers - 1
        if self.problem.discount == 1.0:
            return DEEPEST
        steps = math.ceil(-math.log(DEEPEST) / math.log(self.problem.discount))
        return min(max(1, steps), DEEPEST)

    @property
    def n_points(self) -> int:
        """How many points there are."""
        return int(self.store.size[kernels.POINTS])

    @property
    def n_plans(self) -> int:
        """How many plans there are."""
        return int(self.store.size[kernels.PLANS])

    @property
    def plans(self) -> Plans:
        """All plans, views."""
        vector, cell, action, start, link = self.store.plans
        n, n_links = self.n_plans, self.store.size[kernels.LINKS]
        return Plans(vector[:n], cell[:n], action[:n], start[:n], link[:n_links])

    def points_of_layers(self) -> list[Integers]:
        """The points of every layer."""
        layers = self.store.points.cell[: self.n_points] // self.problem.width.size
        order = np.argsort(layers, kind="stable")
        return np.split(order, np.searchsorted(layers[order], np.arange(1, self.problem.layers)))

    def _reserve(
        self, points: int = 0, plans: int = 0, links: int = 0, blocks: int = 0, owners: int = 0,
        also: float = -math.inf,
    ) -> None:  # fmt: skip
        """Make room for so many more, in place: long arrays are not copied.

        Where it is said what a step needs `also`, plans are dropped, or the search ends, rather
        than take more memory than is allowed.
        """
        more = points, plans, links, blocks, owners
        short, needed = self._short(more)
        if needed + also > self.memory:
            self.collect()
            short, needed = self._short(more)
            self._clock.require_memory(needed + also, self.nbytes)
        total = sum(length * array.strides[0] for array, length in short)
        spare = min(EXPLORED, max(self.memory - needed, 0.0) / max(total, 1))
        for array, length in short:
            array.resize((int((1.0 + spare) * length), *array.shape[1:]), refcheck=False)
        all_points = self.n_points + points
        if 2 * all_points > len(self.store.slots):
            self._rehash(all_points)

    def _short(self, more: tuple[int, ...]) -> tuple[list[tuple[Any, int]], float]:
        """The arrays that are too short for so many more, how long they must be, and all bytes."""
        short = [(array, length) for array, length in self._lengths(more) if length > len(array)]
        growth = sum((length - len(array)) * array.strides[0] for array, length in short)
        return short, self.nbytes + growth

    def _lengths(self, more: tuple[int, ...]) -> Iterator[tuple[Any, int]]:
        """The arrays that grow, and how long they must be for so many more of what is counted."""
        store, blocks = self.store, self.store.blocks
        of_kinds = (
            (*store.points, store.keys), store.plans[:-1], store.plans[-1:],
            (blocks.link, blocks.fill, blocks.item, blocks.gain, blocks.entry),
            (blocks.plans, blocks.points),
        )  # fmt: skip
        for arrays, size, n in zip(of_kinds, store.size.tolist(), more):
            for array in arrays:
                rows = store.plans.vector.shape[1] if array is blocks.entry else 1
                yield array, rows * (size + n)

    def _rehash(self, points: int) -> None:
        """Find points by their keys again, with room for so many."""
        slots = np.full(1 << (2 * points + 2).bit_length(), -1, np.int32)
        self.store = self.store._replace(slots=slots)
        kernels.rehash(self.tables, self.store, self.resolution)

    def locate(
        self, found: Expansion, chosen: Integers | None = None, resolution: float | None = None
    ) -> Integers:
        """The points at chosen entries of an expansion; those that are new are added."""
        chosen = np.arange(found.cells.size) if chosen is None else chosen
        self._reserve(points=chosen.size)
        places = np.empty(chosen.size, np.int64)
        resolution = self.resolution if resolution is None else resolution
        kernels.locate(self.tables, self.store, found, chosen, resolution, places)
        return places

    def beliefs_in(self, cells: Integers, beliefs: Floats) -> Expansion:
        """Beliefs of cells as an expansion; of their bounds only Q-MDP's is known."""
        layers, states = np.divmod(cells, self.problem.width.size)
        places = self.problem.first[states][:, None] + np.arange(beliefs.shape[1])
        # Beyond the classes of a state beliefs are 0, whatever stands there.
        values = self.best[layers[:, None], np.minimum(places, self.problem.first[-1] - 1)]
        knowns = (beliefs * values).sum(axis=1)
        n, nothing = cells.size, np.full(cells.size, -np.inf)
        return Expansion(cells, beliefs, np.ones(n), nothing, knowns, knowns, np.full(n, -1))

    def refine(self, factor: float) -> bool:
        """Tell beliefs apart so many times as finely, and look at so many times as many plans.

        Returns whether that can be: there is nothing finer than a float.
        """
        if self.resolution * np.finfo(np.float64).eps > 1.0:
            return False
        self.resolution *= factor
        self.few *= factor
        self._rehash(self.n_points)
        return True

    def expand(self, chosen: Integers, weights: Floats, actions: Integers) -> Expansion:
        """What may follow points, which are not of the last step."""
        states = self.store.points.cell[chosen] % self.problem.width.size
        counts = np.diff(self.problem.starts)[states * self.model.n_actions + actions]
        out = self._expansion(int(counts.sum()))
        places = np.cumsum(counts) - counts
        self._work(kernels.EXPAND, chosen, actions=actions, weights=weights, places=places, out=out)
        return out

    def _expansion(self, n: int) -> Expansion:
        beliefs = np.zeros((n, self.store.points.belief.shape[1]))
        return Expansion(
            np.empty(n, np.int64), beliefs, np.empty(n), np.empty(n), np.empty(n), np.empty(n),
            np.empty(n, np.int64),
        )  # fmt: skip

    def _backups(self, n: int) -> Backups:
        widest, most = self.store.points.belief.shape[1], self._most_outcomes
        i8 = np.int64
        return Backups(
            np.empty((n, 2)), np.empty(n, i8), np.empty(n, i8), np.empty((n, widest)),
            np.empty((n, most), i8),
        )  # fmt: skip

    def _work(self, task: int, chosen: Integers, **arguments: Any) -> None:
        """Run a task of `kernels.work` at chosen points, by threads."""
        given = self._arguments(task, chosen, **arguments)

        def run(start: int, stop: int) -> None:
            scratch = self._scratch.pop() if self._scratch else self._make_scratch()
            kernels.work(start, stop, *given, scratch)
            self._scratch.append(scratch)

        run_blocks(run, self._spans(chosen.size), self.threads, self.check)

    def _arguments(
        self, task: int, chosen: Integers, actions: Any = None, weights: Any = None,
        places: Any = None, above: Any = None, out: Any = None, backups: Any = None,
        trials: Any = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The arguments of `kernels.work`; those that a task does not need are empty."""
        i8 = np.empty(0, np.int64)
        nothing = Trials(i8, np.empty(0), 0, 0.0, 0.0, 0.0)
        return (
            task, self.tables, self.store, chosen,
            np.full(chosen.size, -1) if actions is None else actions,
            np.ones(chosen.size) if weights is None else weights,
            i8 if places is None else places, np.empty(0, np.bool_) if above is None else above,
            out or self._expansion(0), backups or self._backups(0), trials or nothing,
        )  # fmt: skip

    def _make_scratch(self) -> Scratch:
        widest, A = self.store.points.belief.shape[1], self.model.n_actions
        link, tried = np.empty(self._most_outcomes, np.int64), np.empty(A, np.bool_)
        room = self._sets.make_room(self.tables.sets)
        return Scratch(np.empty(widest), np.empty(widest), np.empty(widest), link, tried, room)

    def back_up(self, chosen: Integers, above: Flags) -> float:
        """Back up the lower bound at chosen points of one layer, and the upper at those `above`.

        Returns by how much the lower bound rose at most.
        """
        widest, most = self.store.points.belief.shape[1], self._most_outcomes
        risen, at_once = 0.0, max(256, AT_ONCE // (widest + most))
        for begin in range(0, chosen.size, at_once):
            some, up = chosen[begin : begin + at_once], above[begin : begin + at_once]
            backups = self._backups(some.size)
            of_backups = float(sum(_sizes(tuple(backups)).values()))
            # Of every owner in the layer a block that is nearly full, and what fills others.
            n_cells = self.store.newest.size // self.problem.layers
            owners = n_cells + int(self.store.size[kernels.OWNERS]) - self.store.newest.size
            n_blocks = min(some.size, owners + some.size // kernels.LANES)
            self._reserve(0, some.size, some.size * most, 2 * n_blocks, also=of_backups)
            self._work(kernels.BACK_UP, some, above=up, backups=backups)
            kernels.record_all(self.tables, self.store, some, up, backups, self._least_rise)
            rises = backups.lower[:, 1] - backups.lower[:, 0]
            risen = max(risen, float(rises.max(initial=0.0)))
            self._count(some)
        return risen

    def _count(self, chosen: Integers) -> None:
        states = self.store.points.cell[chosen] % self.problem.width.size
        self.n_backups += chosen.size
        self.work += float(self._by_state[states].sum())

    def run_trials(self) -> None:
        """Some trials from the start, each until the gap is below half of that at the start."""
        depth = self.depth
        # So many that a call is worth it, that the clock is looked at often enough, and that points
        # are no more than double before they are arranged. A backup may need two blocks of its own.
        each = max(float(self._by_state.mean()), 2.0 * kernels.LANES)
        room = int(each * (depth + 1)) * self.store.points.belief.shape[1]
        count = max(1, min(self.n_points // (depth + 1), AT_ONCE // room))
        most = count * (depth + 1)
        self._reserve(most, most, most * self._most_outcomes, 2 * most, also=0.0)
        lowers, uppers, _ = self.bounds_at(self.start_points)
        gaps = self.start_weights * np.maximum(uppers - lowers, 0.0)
        path = np.empty(depth + 1, np.int64)
        trials = Trials(path, gaps, count, 1.0 / GROWTH, self.resolution, self._least_rise)
        given = self._arguments(
            kernels.TRIALS, self.start_points, weights=self.start_weights,
            actions=np.zeros(gaps.size, np.int64), out=self._expansion(self._most_outcomes),
            backups=self._backups(1), trials=trials,
        )  # fmt: skip
        n_backups = kernels.work(0, 1, *given, self._make_scratch())
        self.n_backups += n_backups
        # Forth and back, and one thread where other work is shared by several.
        self.work += 4.0 * n_backups * float(self._by_state.mean())

    def arrange(self, factor: float = GROWTH) -> None:
        """Arrange plans and points anew, once there are so many times as many as the last time."""
        if self.n_points <= factor * self._arranged:
            return
        self._arranged, store = self.n_points, self.store
        n, points = self.n_points, store.points
        gaining = points.known[:n] - points.upper[:n] > self._least_rise
        planned, others = (
            np.bincount(points.cell[:n][some], minlength=store.newest.size)
            for some in (points.plan[:n] >= 0, gaining)
        )
        leaders = np.where(planned > self.few, np.ceil(np.sqrt(planned)), 0.0)
        # Full ones, and one that is not of every owner.
        n_blocks = -int(store.size[kernels.BLOCKS])
        for members, heads in ((planned, leaders), (others, leaders), (leaders, 0.0)):
            blocks_of_cells = members // kernels.LANES + heads + 1.0
            n_blocks += int(blocks_of_cells[members > 0].sum())
        owners = store.newest.size + int(leaders.sum()) - int(store.size[kernels.OWNERS])
        self._reserve(blocks=n_blocks, owners=owners, also=0.0)
        store.size[kernels.BLOCKS], store.size[kernels.OWNERS] = 0, store.newest.size
        mass = np.empty(self.store.points.belief.shape[1])
        kernels.arrange(self.tables, self.store, self.few, self._least_rise, mass)

    def keep_better(self) -> None:
        """Keep the better of the bounds at the start before and now."""
        lowers, uppers, items = self.bounds_at(self.start_points)
        lower, before = self.constant + float(self.start_weights @ lowers), self.best_lower
        if lower > before:
            self.best_plans, self.best_lower = items, lower
        upper = min(self.best_upper, self.constant + float(self.start_weights @ uppers))
        enclosing(self.best_lower, upper, self.magnitude)
        # Where they meet, rounding must not make one of them worse than it was.
        self.best_upper = max(upper, before)
        self.best_lower = min(self.best_lower, self.best_upper)

    def bounds_at(self, points: Integers) -> tuple[Floats, Floats, Integers]:
        """The lower and upper bounds at points, and the plans that attain the lower ones."""
        found = self._looked_up(points)
        uppers = np.minimum(found.uppers, self.store.points.upper[points])
        return found.lowers, uppers, found.plans

    @property
    def informed_upper(self) -> float:
        """The upper bound at the start by sets of contexts alone, whatever points know there."""
        knowns = self._looked_up(self.start_points).knowns
        return self.constant + float(self.start_weights @ knowns)

    def _looked_up(self, points: Integers) -> Expansion:
        """What plans, points and sets say of the beliefs of points."""
        found, places = self._expansion(points.size), np.arange(points.size)
        given = self._arguments(kernels.EXPAND, points, places=places, out=found)
        kernels.work(0, points.size, *given, self._make_scratch())
        return found

    def bytes_with(self, points: int) -> float:
        """The memory that the bounds take with so many more points and plans."""
        links, blocks = points * self._most_outcomes, 3 * points // kernels.LANES
        return self._short((points, points, links, blocks, 0))[1]

    @property
    def nbytes(self) -> float:
        """The memory that the bounds take, and at least a policy of them."""
        remembered = tuple(x for name, x in vars(self.model).items() if name not in self._known)
        own = (self.store, self.tables, self.lumping, self.best, self._sets.listed, remembered)
        return self.standing * self._of_policy + float(sum(_sizes(own).values()))

    @property
    def standing(self) -> int:
        """How many policies that ask no questions are part of the planned one in every state.

        Two, or one where two would take more than a tenth of the memory.
        """
        return 2 if self.may_hold(2) else 1

    def may_hold(self, n: int) -> bool:
        """Whether vectors of so many policies, in all states, take no more than their share."""
        return n * self._of_policy <= 0.5 * EXPLORED * self.memory

    def collect(self) -> None:
        """Drop the plans that no point has and none that is kept is linked to."""
        store, n = self.store, self.n_plans
        wanted, number = np.zeros(n, np.bool_), np.empty(n, np.int64)
        of_points = store.points.plan[: self.n_points]
        roots = [of_points, self.best_plans, *self.kept]
        first = np.concatenate(roots)
        wanted[first[first >= 0]] = True
        kernels.drop(store, wanted, number)
        for numbers in roots:
            found = numbers >= 0
            numbers[found] = number[numbers[found]]
        lanes = store.points.plan_lane[: self.n_points]
        found = lanes >= 0
        store.blocks.item.reshape(-1)[lanes[found]] = of_points[found]

    def settle(self) -> None:
        """Drop all but the plans that are followed from the best: what a policy needs."""
        self.store.size[[kernels.POINTS, kernels.BLOCKS, kernels.OWNERS]] = 0
        self.collect()
        for array, length in self._lengths((0,) * 5):
            array.resize((length, *array.shape[1:]), refcheck=False)
