"""The best memoryless policy by mixed-integer programming on HiGHS [steimle2021; huangfu2018].

In occupancies y_t(s, a, m) and policy variables pi_t(s, a),

    maximise  sum R_m(s, a) y_t(s, a, m)
    subject to  sum_a y_t(s, a, m) = inflow:  w_m nu_m(s) at t = 0, later
                                     discount sum_{s',a} y_{t-1}(s', a, m) T_m(s | s', a),
                y_t(s, a, m) <= U_t(s, m) pi_t(s, a),
                sum_a pi_t(s, a) = 1,   y, pi >= 0,

where U_t(s, m) = w_m discount^t max_pi P_m^pi(s_t = s), the least big-M that each context allows.
With pi in {0, 1} it is the multi-model program of [steimle2021] in its dual form: the policy
switches flows where there it switches Bellman inequalities, and its relaxation is tighter. A
stationary policy shares pi(s, a) over time. Without an end there is one flow, y(s, a, m), whose
inflow is w_m nu_m(s) and what flows back, and U(s, m) bounds the discounted visits. Forbidden
actions have y = pi = 0; a terminal state has one action that leads nowhere.

The prices of the second family, lambda >= 0, price disagreement: for every memoryless policy

    sum R y  <=  sum (R - lambda) y  +  sum_{t,s} max_a sum_m U_t(s, m) lambda_t(s, a, m),

and the first sum is at most what the contexts earn alone under the rewards R - lambda.

The solver sees the shares x = y / U in [0, 1], so that its tolerance means the same everywhere. It
proves its answer to a relative 1e-6; the policy is then evaluated exactly.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp._kernels import induction
from latentmdp._util.arrays import Floats, Indices
from latentmdp.planning.endless import best_from_above
from latentmdp.planning.limits import PlanningClock
from latentmdp.planning.memoryless.cadp import Incumbent, MemorylessProblem, improve
from latentmdp.planning.qmdp import planning_rows

__all__ = ["Program", "in_background", "mixed_integer_program"]

_SOLVED = 0
"""HiGHS's status of an optimal solution."""

_SOLVER_TOLERANCE = 1e-6
"""How far HiGHS's optimum may be from the true one: its tolerance of feasibility and gap."""

_FAINT = 1e-30
"""Chances below this count as none: they are far beyond the solver's precision, and dividing by
them would spread over more orders of magnitude than it can scale."""

_BYTES_PER_ENTRY = 400.0
"""Of a sparse entry, in our matrices and in HiGHS's copies and factors: twice what solving the
relaxation of 20 states, 4 contexts and 20 steps was measured to take, since factors may grow."""

_SECONDS_PER_ENTRY, _BUILDING_SHARE = 1e-6, 0.25
"""To build the matrices, and what of the time left that may take."""

_EXACT_REACH = 5e8
"""Multiplications, about a second, that the least big-Ms may cost."""

_FEW_STATES = 64
"""Up to here the most visits of a state without an end are solved for, one state at a time."""

_PATIENCE = 0.1
"""Seconds that HiGHS may take beyond its limit to hand over its answer."""


def mixed_integer_program(
    problem: MemorylessProblem, incumbent: Incumbent, clock: PlanningClock
) -> None:
    """Solve the program, or stop at the time limit (`LimitReached`) with the best policy found."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    clock.check()
    clock.require_memory(Program.bytes_needed(problem))
    if not Program.is_built_within(problem, clock.remaining):
        clock.stop_for_time()
    program = Program.of(problem)
    n_shares = program.coupling.shape[0]
    is_rule = np.arange(program.objective.size) >= n_shares
    clock.check()
    found = in_background(
        lambda: milp(
            -program.objective,
            constraints=[
                LinearConstraint(program.flow, program.inflow, program.inflow),
                LinearConstraint(program.coupling, -np.inf, 0.0),
            ],
            integrality=is_rule.astype(np.int64),
            bounds=Bounds(0.0, program.most),
            options={"mip_rel_gap": 0.0, "time_limit": max(clock.remaining, 0.0)},
        ),
        clock.remaining,
    )
    if found is None:
        clock.stop_for_time()
    incumbent.n_iter += int(found.mip_node_count or 0)
    if found.x is not None:
        chosen = found.x[is_rule].reshape(*problem.shape, -1).argmax(axis=-1)
        incumbent.offer(chosen.astype(np.int32), problem.value(chosen.astype(np.int32)))
        policy, value, _ = improve(problem, chosen)
        incumbent.offer(policy, value)
    slack = _SOLVER_TOLERANCE * max(1.0, abs(incumbent.lower))
    if found.mip_dual_bound is not None:
        # HiGHS's bound holds to its own tolerance only, so it may fall below an exact value.
        incumbent.prove(max(slack - float(found.mip_dual_bound), incumbent.lower))
    if found.status == _SOLVED and incumbent.upper - incumbent.lower <= 3.0 * slack:
        incumbent.upper = incumbent.lower
        return
    clock.stop_for_time()


@dataclass(frozen=True)
class Program:
    """The program as sparse matrices over the variables (x, pi), x = y / U."""

    objective: Floats  # what is maximised
    flow: Any  # equalities flow @ x = inflow, the policy's rows sum to one included
    inflow: Floats
    coupling: Any  # inequalities x - pi <= 0, one for each x
    reach: Floats  # (H or 1, S, M): U, with 1 where it is faint; nothing flows on from there
    most: Floats  # 0 for what belongs to a forbidden action, else 1

    @classmethod
    def of(cls, problem: MemorylessProblem) -> Program:
        """Build the program."""
        from scipy.sparse import coo_array

        H, S, A, M = problem.sizes
        layers = problem.shape[0]
        n_x, n_flow = H * S * A * M, H * S * M
        x = np.arange(n_x).reshape(H, S, A, M)
        pi = n_x + np.arange(layers * S * A).reshape(layers, S, A)
        rows = np.arange(n_flow).reshape(H, S, M)
        simplex = n_flow + np.arange(layers * S).reshape(layers, S, 1)
        most = _reach(problem)
        reach = np.where(most > 0.0, most, 1.0)
        width = n_x + pi.size
        starts, next_state, probs, may = problem.moves
        pair = np.repeat(np.arange(S * A), np.diff(starts))
        now, then = (slice(None), slice(None)) if problem.horizon is None else (
            slice(None, -1), slice(1, None),
        )  # fmt: skip
        moved = -problem.discount * probs * most[now][:, pair // A]
        flow = _stack(
            (rows[:, :, None, :], x, 1.0),
            (
                rows[then][:, next_state],
                x.reshape(H, S * A, M)[now][:, pair],
                moved / reach[then][:, next_state],
            ),
            (simplex, pi, 1.0),
        )
        coupling = _stack((x, x, 1.0), (x, pi[..., None], -1.0))
        inflow = np.zeros(n_flow + layers * S)
        inflow[: S * M] = (problem.start / reach[0]).ravel()
        inflow[n_flow:] = 1.0
        objective = np.zeros(width)
        objective[:n_x] = (problem.rewards * reach[:, :, None, :]).ravel()
        x_most = np.broadcast_to(may[:, :, None], (H, S, A, M))
        return cls(
            objective=objective,
            flow=coo_array(flow, shape=(inflow.size, width)).tocsr(),
            inflow=inflow,
            coupling=coo_array(coupling, shape=(n_x, width)).tocsr(),
            reach=reach,
            most=np.concatenate([x_most.ravel(), np.tile(may.ravel(), layers)]).astype(np.float64),
        )

    @staticmethod
    def entries(problem: MemorylessProblem) -> float:
        """About how many entries the matrices have."""
        return problem.step_cost + 4.0 * problem.values.size

    @classmethod
    def bytes_needed(cls, problem: MemorylessProblem) -> float:
        """About what building and solving the program takes."""
        return _BYTES_PER_ENTRY * cls.entries(problem)

    @classmethod
    def is_built_within(cls, problem: MemorylessProblem, seconds: float) -> bool:
        """Whether building it leaves most of the time."""
        return _SECONDS_PER_ENTRY * cls.entries(problem) <= _BUILDING_SHARE * seconds

    def relax(self, time_limit: float) -> tuple[Floats, Indices | None]:
        """The relaxation's prices (H, S, A, M) and its likeliest actions (H or 1, S).

        If the time does not suffice, the prices are zero and there are no actions.
        """
        from scipy import optimize

        H, S, M = self.reach.shape
        A = self.coupling.shape[0] // self.reach.size
        linprog: Any = optimize.linprog  # scipy's type stubs know no sparse matrices here
        unbounded = np.where(self.most > 0.0, np.inf, 0.0)
        found = in_background(
            lambda: linprog(
                -self.objective,
                A_ub=self.coupling,
                b_ub=np.zeros(self.coupling.shape[0]),
                A_eq=self.flow,
                b_eq=self.inflow,
                bounds=np.column_stack([np.zeros_like(self.most), unbounded]),
                method="highs",
                options={"time_limit": max(time_limit, 0.0)},
            ),
            time_limit,
        )
        if found is None or found.status != _SOLVED:
            return np.zeros((H, S, A, M)), None
        allowed = self.most[: H * S * A * M].reshape(H, S, A, M)
        prices = allowed * np.maximum(-found.ineqlin.marginals, 0.0).reshape(H, S, A, M)
        rules = found.x[H * S * A * M :].reshape(-1, S, A)
        return prices / self.reach[:, :, None, :], rules.argmax(axis=2).astype(np.int32)


def in_background(call: Callable[[], Any], seconds: float = math.inf) -> Any:
    """Run a long compiled call in a thread, so that Ctrl-C reaches the caller while it runs.

    After an interrupt the thread is left to its own time limit, and its result is dropped; so it
    is, and the answer is None, where it takes longer than `seconds`: HiGHS looks at its clock
    rarely while it prepares a problem.
    """
    deadline = time.monotonic() + max(seconds, 0.0) + _PATIENCE
    answer: Future[Any] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
        if time.monotonic() > deadline:
            return None
    return answer.result()


def _reach(problem: MemorylessProblem) -> Floats:
    """U_t(s, m): at least what any policy can bring to s at time t in context m; 0 if faint.

    The most itself, by an induction for every s, unless that takes long: then what the most at
    the time before can bring at most.
    """
    H, S, A, M = problem.sizes
    if problem.horizon is None:
        return _visits(problem)
    reach = np.empty((H, S, M))
    if problem.step_cost * S <= _EXACT_REACH:
        rows = planning_rows(problem.model)
        later, best = np.zeros((S, rows.rewards.shape[1])), np.empty((0, 0))
        q = np.empty((rows.action.size, M))
        for goal in range(S):
            later[:, :M], nothing = 0.0, np.zeros_like(rows.rewards)
            later[goal, :M] = 1.0
            for t in range(H):
                reach[t, goal] = (problem.start * later[:, :M]).sum(axis=0)
                best = np.zeros_like(later)
                induction.back_up(rows.steps, nothing, later, q, best)
                later, best = best, later
    else:
        starts, next_state, probs, _ = problem.moves
        source = np.repeat(np.arange(S * A), np.diff(starts)) // A
        pairs, index = np.unique(source * S + next_state, return_inverse=True)
        strongest = np.zeros((pairs.size, M))
        np.maximum.at(strongest, index.ravel(), probs)
        reach[0] = problem.start
        total = problem.start.sum(axis=0)
        for t in range(1, H):
            arriving = reach[t - 1][pairs // S] * strongest
            for m in range(M):
                reach[t, :, m] = np.bincount(pairs % S, arriving[:, m], S)
            reach[t] = np.minimum(reach[t], total)
    reach *= problem.discount ** np.arange(H)[:, None, None]
    return np.where(reach > _FAINT, reach, 0.0)


def _visits(problem: MemorylessProblem) -> Floats:
    """U(s, m) without an end: at least the discounted visits of s in context m, (1, S, M)."""
    _, S, _, M = problem.sizes
    total = problem.start.sum(axis=0)
    if S > _FEW_STATES:
        return np.tile(total / (1.0 - problem.discount), (1, S, 1))
    rows = planning_rows(problem.model)
    visits = np.empty((1, S, M))
    states = np.repeat(np.arange(S), np.diff(rows.steps.first))
    for goal in range(S):
        if problem.model.terminal[goal]:
            visits[0, goal] = total
            continue
        here = induction.pad_contexts(np.repeat((states == goal)[:, None] * 1.0, M, axis=1))
        most = best_from_above(rows.steps, here, problem.discount, M)
        visits[0, goal] = (problem.start * most).sum(axis=0)
    return np.where(visits > _FAINT, visits, 0.0)


def _stack(*parts: tuple[Any, Any, Any]) -> tuple[Floats, tuple[NDArray[Any], NDArray[Any]]]:
    """Entries of a sparse matrix from (rows, columns, values), each broadcast; zeros left out."""
    triples = [[np.ravel(x) for x in np.broadcast_arrays(*part)] for part in parts]
    rows, columns, values = (np.concatenate(column) for column in zip(*triples))
    kept = values != 0.0
    return values[kept].astype(np.float64), (rows[kept], columns[kept])
