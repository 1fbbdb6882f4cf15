"""Lower and upper bounds on V* at every time, state and belief, from finite sets of points.

A lower bound is a set of plans (alpha vectors), an upper bound a set of points with bounds, joined
by the splits of the simplex into its small faces. First plans: the standing plans, among them the
optimal policy of each context. First points: the vertices, where Q-MDP is exact. Both bounds
hold at every moment, whatever was backed up: a sweep replaces the plans only once it is complete,
and an upper bound only ever goes down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from latentmdp._util import Flags, Floats, Integers
from latentmdp.engines import blocks, run_blocks
from latentmdp.model import LatentMDP
from latentmdp.planning.base import enclosing
from latentmdp.planning.point_based.charts import charts
from latentmdp.planning.point_based.faces import small_faces, straight_faces
from latentmdp.planning.point_based.kernels import alpha, sawtooth
from latentmdp.planning.point_based.kernels.faces import Faces, split_values
from latentmdp.planning.point_based.kernels.plans import (
    StepBounds,
    best_plans,
    cut_states,
    group_states,
    put_gainful_first,
    put_plans,
    put_wanted,
)
from latentmdp.planning.point_based.kernels.sawtooth import Found
from latentmdp.planning.point_based.kernels.standing import mark_standing
from latentmdp.planning.point_based.standing import Ruler, Standing, standing_plans
from latentmdp.planning.qmdp import best_actions, least_values, q_values
from latentmdp.policies import AlphaVectorPolicy

_BLOCK_NANOSECONDS, _MOST_IN_BLOCK = 2e6, 256
"""Work between two looks at the clock, and points in it at most: small enough to keep a limit
closely, large enough that looking costs nothing."""

_FEW_ITEMS = 4096
"""So many plans are put into order by one thread: it takes less than a millisecond."""

_NEARLY_ALL = 0.8
"""Of the standing plans of a time step: where so many are followed, the next step keeps all of its
own, as finding out which ones it needs takes as long as making them."""

_STANDING_COPIES = 2
"""The standing plans, and those of them that the policy keeps."""


class BeliefPoints:
    """The belief points of one time step, in the order they were added."""

    def __init__(self, n_contexts: int, n_actions: int) -> None:
        self.states = np.empty(0, np.int64)
        self.beliefs = np.empty((0, n_contexts))
        self.limits = np.empty((0, n_actions))  # upper bounds of the action values
        self.splits = np.empty(0)  # upper bounds from the faces of the simplex alone
        self.labels = np.empty(0, np.int64)  # first actions of the plans of the last sweep
        self.resolution = 0.0  # of `places`: where the first `located` points are found
        self.places: dict[int, int] = {}
        self.located = 0

    def __len__(self) -> int:
        return self.states.size

    def append(self, states: Integers, beliefs: Floats, limits: Floats, splits: Floats) -> None:
        """Add points."""
        self.states = np.concatenate([self.states, states])
        self.beliefs = np.concatenate([self.beliefs, beliefs])
        self.limits = np.concatenate([self.limits, limits])
        self.splits = np.concatenate([self.splits, splits])
        self.labels = np.concatenate([self.labels, limits.argmax(axis=1)])

    def keep(self, chosen: Integers) -> None:
        """Drop all but the chosen points."""
        for name in ("states", "beliefs", "limits", "splits", "labels"):
            setattr(self, name, getattr(self, name)[chosen])
        self.resolution, self.places, self.located = 0.0, {}, 0

    @property
    def uppers(self) -> Floats:
        """The upper bound of each point, shape (n,)."""
        return np.minimum(self.splits, self.limits.max(axis=1))


class Bounds:
    """Lower and upper bounds of one model.

    The values of each context's worst and best policy bound V* at once; after `tabulate` and
    `prepare` there are first plans, and the bounds can be swept.

    Parameters
    ----------
    exact
        Whether a backup searches all plans of the next step.
    check
        Called now and then in long work; it may raise to stop, and the bounds stay valid.
    threads
        How many share the work; results do not depend on it.

    Attributes
    ----------
    q, least
        Q_{t,m}(s, a) of each context alone, (H, S, A, M), and its worst policy's value, (H, S, M).
    context_actions
        The optimal policy of context k, (H, S, M).
    standing
        The standing plans, from `prepare` on.
    points
        `BeliefPoints` of each time step.
    starts, start_points, start_weights
        The points of time 0 that are the beliefs at the start of an episode, one for each possible
        first state, and the probabilities of these states; `starts` holds those of all weights that
        were asked for, the last ones are `start_points`.
    steps, faces, straight
        The bounds of the last sweep, those from the faces of the simplex, and from its vertices
        alone, by time step.
    doubt
        The expected probability that the likeliest context is wrong, by time, in the last walk.
    breadth, close
        Cells of plans searched for each successor in the next sweep, and a relative gap at a
        successor that needs no search for points.
    magnitude
        The largest absolute value that enters the bounds.
    best_lower, best_upper, best_steps
        The best bounds at the start so far, and the `StepBounds` whose policy attains the lower;
        None for Q-MDP's policy, of which no more is known than of any other.
    """

    link_bytes = 0.0
    """What a link takes, where plans are to be linked into a graph."""

    gained = 0.0
    """What a further sweep over the same points could still gain: nothing, steps being in order."""

    tolerance = 0.0
    """How far values of single contexts may be off, relative to `magnitude`: where they are
    iterated."""
    has_layers = True
    """Whether there are time steps, with grids and standing plans of their own."""

    def __init__(
        self,
        model: LatentMDP,
        exact: bool,
        check: Callable[[], None],
        threads: int | None = 1,
    ) -> None:
        self.model, self.exact, self.check, self.threads = model, exact, check, threads
        self.q = q_values(model, check, threads)
        self.least = least_values(model, check, threads)
        self.allowed = model.allowed
        hidden = 0.0 if model.initial_bonus is None else float(np.abs(model.initial_bonus).max())
        self.magnitude = max(float(self.q.max()), -float(self.least.min())) + hidden
        self.breadth, self.close = 1 if exact else 2, 0.0
        self.steps: list[StepBounds] = []
        self.doubt = np.empty(0)
        self.straight = self.faces = straight_faces(model, self.q)
        M, H = model.n_contexts, model.n_layers
        self.points = [BeliefPoints(M, model.n_actions) for _ in range(H)]
        self.best_steps: Sequence[StepBounds] | None = None
        self.starts: list[Integers] = []
        self.start(model.weights)

    def start(self, weights: Floats) -> None:
        """Bound V* for these weights of the contexts from now on; all plans and points are kept."""
        model = self.model
        hidden = model.initial_bonus
        self.constant = 0.0 if hidden is None else float(weights @ hidden)
        joint = weights[:, None] * model.initial
        chances = joint.sum(axis=0)
        states = np.flatnonzero(chances > 0.0)
        self.start_weights = chances[states]
        beliefs = (joint[:, states] / chances[states]).T.copy()
        self.starts.append(self.add(0, states, beliefs))
        worst = np.einsum("im,im->i", beliefs, self.least[0, states])
        self.best_lower = self.constant + float(self.start_weights @ worst)
        self.best_steps, self.best_upper = None, self.upper()
        if self.steps:
            self.keep_better()

    @property
    def start_points(self) -> Integers:
        """The points of the weights that were given to `start` last."""
        return self.starts[-1]

    @property
    def depth(self) -> int:
        """How many steps a walk goes."""
        return len(self.points) - 1

    def layer(self, t: int) -> BeliefPoints:
        """The points of time t."""
        return self.points[t]

    @property
    def node_bytes(self) -> float:
        """What the links of one plan take, on average."""
        rows = self.model.n_states * self.model.n_actions
        return self.link_bytes * self.model.outcomes.size / rows

    def table_memory(self) -> float:
        """Bytes of the table of outcomes that is still to be made."""
        model = self.model
        if model.is_table:
            return float(model.outcomes.probs.nbytes)
        possible = np.zeros(model.transitions.shape[1:], np.bool_)
        for transitions in model.transitions:
            possible |= transitions > 0.0
        return 8.0 * model.n_contexts * model.n_rewards * float(possible.sum())

    def tabulate(self) -> None:
        """Make the table of outcomes that backups read."""
        model = self.model
        self.check()
        cost = model.n_states * model.n_rewards * model.n_contexts  # of a row, where it is dense
        if model.is_table:
            cost = model.outcomes.probs.size // (model.n_states * model.n_actions) + 1

        def run(kernel: Callable[..., None], total: int, *arguments: Any) -> None:
            size = max(1, int(_BLOCK_NANOSECONDS / (4.0 * cost)))
            run_blocks(kernel, blocks(total, size), self.threads, self.check, *arguments)

        self.table, self.places = model.tabulate(run).merged(run)
        self.context_actions = best_actions(model, self.q)
        self.rewards = np.ascontiguousarray(np.moveaxis(model.planning_rewards(), 0, -1))
        nanoseconds = self.table.size / model.n_states * (100.0 + 4.0 * model.n_contexts)
        self.block = int(min(max(_BLOCK_NANOSECONDS / (nanoseconds + 1.0), 1.0), _MOST_IN_BLOCK))
        self.check()

    def prepare(self, lattice: Floats) -> None:
        """Make the standing plans of the beliefs `lattice` (F, M), and the first lower bound."""
        self._stand_on(standing_plans(self, lattice))

    def chart(self, rulers: Sequence[Ruler]) -> None:
        """Make standing plans and upper bounds on grids, see `charts`; for three contexts."""
        standing, faces = charts(self, rulers)
        self._face(faces)
        self._stand_on(standing)

    def _stand_on(self, standing: Standing) -> None:
        self.standing = standing
        none = np.empty((0, self.model.n_contexts)), np.empty(0, np.int64)
        self.steps = [self._arrange(t, *none) for t in range(len(self.points))]
        self.keep_better()

    @property
    def n_points(self) -> int:
        """Points of all time steps."""
        return sum(len(points) for points in self.points)

    def tighten(self, work: float, memory: float) -> None:
        """Bring in the small faces of the simplex, see `small_faces`."""
        self._face(
            small_faces(self.model, self.table, self.q, work, memory, self.check, self.threads)
        )

    def _face(self, faces: list[Faces]) -> None:
        self.faces = faces
        for points, now in zip(self.points, faces):
            split_values(now, points.states, points.beliefs, points.splits)

    def memory(self, points: float, successors: float) -> float:
        """Bytes with so many more points, and successors of one time step at once."""
        A, M = self.model.n_actions, self.model.n_contexts
        faces = sum(array.nbytes for now in self.faces for array in now[:5])
        total = self.n_points + points
        grown = 8.0 * (total * (11 * M + A + 9) + successors * (2 * M + 8))
        fixed = self.q.nbytes + self.least.nbytes + self.table.probs.nbytes
        standing = _STANDING_COPIES * self.standing.nbytes
        linked = sum(labels.size for labels in self.standing.labels) + total
        return fixed + faces + standing + grown + self.node_bytes * linked

    def add(self, t: int, states: Integers, beliefs: Floats) -> Integers:
        """Add points at time t; returns their positions."""
        points, splits = self.points[t], np.empty(states.size)
        split_values(self.faces[t], states, beliefs, splits)
        limits = np.empty((states.size, self.model.n_actions))
        sawtooth.first_limits(self.q[t], self.allowed, states, beliefs, limits)
        points.append(states, beliefs, limits, splits)
        return np.arange(len(points) - states.size, len(points))

    def sweep(self, visited: list[Integers]) -> None:
        """Back up all plans, and the upper bounds of the visited points, from the last step on."""
        steps: list[StepBounds] = []
        for t in range(len(self.points) - 1, -1, -1):
            later = steps[-1] if steps else None
            vectors, labels = self._alpha_backup(t, later)
            self._upper_backup(t, visited[t], later)
            steps.append(self._arrange(t, vectors, labels))
            self.points[t].labels = labels
        self.steps = steps[::-1]

    def expand(
        self, t: int, chosen: Integers, weights: Floats, actions: Integers, faintest: float
    ) -> Found:
        """Successors of chosen points of time t that are at least as likely as the faintest."""
        return self._expanded(t, t + 1, chosen, weights, actions, faintest)

    def _expanded(
        self,
        t: int,
        later: int,
        chosen: Integers,
        weights: Floats,
        actions: Integers,
        faintest: float,
    ) -> Found:
        points, starts = self.points[t], self.table.starts
        rows = points.states[chosen] * self.model.n_actions + actions
        ends = np.cumsum(starts[rows + 1] - starts[rows])
        begins, n = np.concatenate([[0], ends[:-1]]), int(ends[-1]) if ends.size else 0
        found = Found.room(n, self.model.n_contexts)
        run_blocks(
            sawtooth.expand, self.spans(chosen.size), self.threads, self.check, self.table,
            self.steps[later], self.faces[later], self.close, self.breadth, points.beliefs, chosen,
            rows, begins, weights, faintest, found,
        )  # fmt: skip
        return found.possible()

    def lower(self) -> float:
        """The lower bound at the start of an episode, attained by `policy(steps)`."""
        return self.constant + float(self.start_weights @ self._start_plans(self.steps[0])[0])

    def upper(self) -> float:
        """The upper bound at the start of an episode."""
        first = self.points[0].uppers[self.start_points]
        return self.constant + float(self.start_weights @ first)

    def keep_better(self) -> None:
        """Keep the better of the bounds at the start before and now."""
        lower = self.lower()
        if lower > self.best_lower or self.best_steps is None:
            self.best_steps = self.steps  # first, so that an interrupt leaves a valid pair
            self.best_lower = max(lower, self.best_lower)
        upper = min(self.upper(), self.best_upper)
        self.best_upper = enclosing(self.best_lower, upper, self.magnitude)

    def policy(self, steps: Sequence[StepBounds] | None) -> AlphaVectorPolicy:
        """The policy that attains the lower bound of `steps`: its plans, less those never followed.

        Acting by the label of the best plan earns at least that plan's value, as long as every plan
        is the backup of plans that are still in the set: at the next step the belief finds one at
        least as good as the one that the backup counted on. So from the plans that are best at the
        start, those that they go on with are kept, step by step. Q-MDP's policy for None.
        """
        if steps is None:
            return self._informed_policy()
        S, M = self.model.n_states, self.model.n_contexts
        kept = self._followed(steps)
        counts = np.array(
            [
                standing.sum(axis=1) + np.bincount(states, items, S).astype(np.int64)
                for states, items, standing in kept
            ]
        )
        offsets = np.concatenate([[0], np.cumsum(counts)])
        vectors = np.empty((int(offsets[-1]), M))
        labels = np.empty(len(vectors), np.int32)
        for t, (now, (_, items, standing)) in enumerate(zip(steps, kept)):
            own = offsets[t * S : t * S + S + 1]
            run_blocks(
                put_wanted, blocks(S, max(64, S // 64)), self.threads, None, now, standing, items,
                own, vectors, labels,
            )  # fmt: skip
        return AlphaVectorPolicy(vectors, labels, offsets, self.model)

    def _followed(self, steps: Sequence[StepBounds]) -> list[tuple[Integers, Flags, Flags]]:
        """By time, the states of the items, the items and the standing plans to be kept."""
        model, kept = self.model, []
        best = self._start_plans(steps[0])[1]
        starts = self.points[0].states[self.start_points]
        items = np.zeros(len(steps[0].rows), np.bool_)
        items[best[best >= 0]] = True
        standing = np.zeros(steps[0].standing_labels.shape, np.bool_)
        standing[starts[best < 0], -1 - best[best < 0]] = True
        for t, now in enumerate(steps):
            standing[:, : model.n_contexts] = True  # for wherever the other plans do not lead
            states = np.repeat(np.arange(model.n_states), np.diff(now.starts[now.groups]))
            later = steps[t + 1] if t + 1 < len(steps) else None
            followers = later and self._followers(now, later, states, items, standing)
            standing[model.terminal] = False
            items &= ~model.terminal[states]
            kept.append((states, items, standing))
            if followers:
                items, standing = followers
        return kept

    def _followers(
        self, now: StepBounds, later: StepBounds, states: Integers, wanted: Flags, standing: Flags
    ) -> tuple[Flags, Flags]:
        """Items and standing plans of the next step that the wanted ones go on with."""
        A = self.model.n_actions
        items = np.zeros(len(later.rows), np.bool_)
        others = np.zeros(later.standing_labels.shape, np.bool_)
        beliefs = np.ascontiguousarray(now.beliefs.T)
        run_blocks(
            alpha.mark_followers, self.spans(states.size), self.threads, None, self.table,
            A, later, now.breadth, states, beliefs, now.labels, wanted, items, others,
        )  # fmt: skip
        if standing[~self.model.terminal].mean() < _NEARLY_ALL:
            run_blocks(
                mark_standing, self.spans(self.model.n_states), self.threads, None,
                self.table, A, now.lattice, later.ruler, later.standing, now.standing_labels,
                standing, others,
            )  # fmt: skip
        else:
            others[:] = True
        return items, others

    def _informed_policy(self) -> AlphaVectorPolicy:
        """Q-MDP's policy."""
        H, S, A, M = self.q.shape
        rows = np.flatnonzero(self.allowed)
        counts = np.tile(self.allowed.sum(axis=1), H)
        return AlphaVectorPolicy(
            self.q.reshape(H, S * A, M)[:, rows].reshape(-1, M),
            np.tile(rows % A, H),
            np.concatenate([[0], np.cumsum(counts)]),
            self.model,
        )

    def _start_plans(self, first: StepBounds) -> tuple[Floats, Integers]:
        """For each belief at the start, what the best plan is worth, and which one it is."""
        points, chosen = self.points[0], self.start_points
        values, best = np.empty(chosen.size), np.empty(chosen.size, np.int64)
        best_plans(first, points.states[chosen], points.beliefs[chosen], values, best)
        return values, best

    def _alpha_backup(self, t: int, later: StepBounds | None) -> tuple[Floats, Integers]:
        """Plans (n, M) of the points of time t and their actions; nothing follows the last time."""
        points, breadth = self.points[t], self.breadth if later else 0
        vectors, labels = np.zeros_like(points.beliefs), np.zeros(len(points), np.int64)
        run_blocks(
            alpha.alpha_backup, self.spans(len(points)), self.threads, self.check,
            self.table, self.rewards, self.model.discount, later or self.steps[t], breadth,
            points.states, points.beliefs, points.limits, vectors, labels,
        )  # fmt: skip
        return vectors, labels

    def _upper_backup(self, t: int, visited: Integers, later: StepBounds | None) -> None:
        """Lower the limits of the visited points of time t; nothing follows the last time."""
        points, breadth = self.points[t], self.breadth if later else 0
        faces = self.faces[min(t + 1, len(self.faces) - 1)]
        run_blocks(
            sawtooth.upper_backup, self.spans(visited.size), self.threads, self.check,
            self.table, self.rewards, self.model.discount, later or self.steps[t], faces,
            self.close, breadth, points.states, points.beliefs, visited, points.limits,
        )  # fmt: skip

    def spans(self, n: int) -> list[tuple[int, int]]:
        """Blocks of n points of a time step: 32 to share, but none of less than an eighth of what
        is done between two looks at the clock, as handing it over would cost more than it gains.
        """
        return blocks(n, min(self.block, max(-(-n // 32), -(-self.block // 8))))

    def _arrange(self, t: int, vectors: Floats, labels: Integers) -> StepBounds:
        """Put the plans of the points of time t into search order, beside the standing plans."""
        points = self.points[t]
        n, S, M = len(vectors), self.model.n_states, self.model.n_contexts
        states, beliefs = points.states[:n], points.beliefs[:n]
        member, offsets, groups = group_states(states, S, self.exact)
        order, starts = np.empty(n, np.int64), np.empty(groups[S] + 1, np.int64)
        leaders = np.zeros((M, groups[S]))
        starts[groups[S]] = n
        threads = 1 if n <= _FEW_ITEMS else self.threads
        run_blocks(
            cut_states, blocks(S, -(-S // 64) if n > _FEW_ITEMS else S), threads, self.check,
            member, offsets, groups, beliefs, vectors, order, starts, leaders,
        )  # fmt: skip
        uppers = points.uppers[:n]
        gains = points.splits[:n] - uppers
        tops = np.empty(groups[S], np.int64)
        put_gainful_first(starts, gains, order, tops)
        columns, rows = np.empty((M, n)), np.empty((n, M))
        masses, inverses = np.empty((M, n)), np.empty((M, n))
        run_blocks(
            put_plans, blocks(n, _FEW_ITEMS), threads, self.check, order, beliefs, vectors, columns,
            rows, masses, inverses,
        )  # fmt: skip
        return StepBounds(
            starts=starts,
            groups=groups,
            leaders=leaders,
            columns=columns,
            rows=rows,
            labels=labels[order],
            order=order,
            beliefs=masses,
            inverses=inverses,
            uppers=uppers[order],
            gains=gains[order],
            tops=tops,
            least=self.least[t],
            is_vertex=np.zeros(n, np.bool_),
            breadth=self.breadth,
            standing=self.standing.plans[t],
            standing_labels=self.standing.labels[t],
            lattice=self.standing.lattices[t],
            ruler=self.standing.rulers[t],
        )
