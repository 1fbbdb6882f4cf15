"""The best memoryless policy by mixed-integer programming on HiGHS [steimle2021; huangfu2018].

The program is that of `latentmdp.planning.memoryless.program` with pi in {0, 1}. HiGHS proves its
answer to its own tolerance, a relative 1e-6; the policy is then evaluated exactly.
"""

from __future__ import annotations

import numpy as np

from latentmdp._util.progress import Progress
from latentmdp.planning.memoryless.cadp import improve
from latentmdp.planning.memoryless.problem import Incumbent, MemorylessProblem
from latentmdp.planning.memoryless.program import Program, in_background

__all__ = ["mixed_integer_program"]

SOLVER_TOLERANCE = 1e-6
"""How far HiGHS's optimum may be from the true one: its tolerance of feasibility and gap."""

_OPTIMAL = 0


def mixed_integer_program(
    problem: MemorylessProblem, incumbent: Incumbent, progress: Progress
) -> None:
    """Solve the program, or stop at the time limit (`Stop`) with the better of two policies."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    progress.check()
    progress.require_memory(Program.bytes_needed(problem))
    program = Program.of(problem)
    n_shares = program.coupling.shape[0]
    is_rule = np.arange(program.objective.size) >= n_shares
    found = in_background(
        lambda: milp(
            -program.objective,
            constraints=[
                LinearConstraint(program.flow, program.inflow, program.inflow),
                LinearConstraint(program.coupling, -np.inf, 0.0),
            ],
            integrality=is_rule.astype(np.int64),
            bounds=Bounds(0.0, 1.0),
            options={"mip_rel_gap": 0.0, "time_limit": max(progress.remaining, 0.0)},
        )
    )
    incumbent.n_iter += int(found.mip_node_count or 0)
    if found.x is not None:
        chosen = found.x[is_rule].reshape(*problem.shape, -1).argmax(axis=-1)
        policy, value, _ = improve(problem, chosen)
        incumbent.offer(policy, value)
    slack = SOLVER_TOLERANCE * max(1.0, abs(incumbent.lower))
    if found.mip_dual_bound is not None:
        incumbent.prove(-float(found.mip_dual_bound) + slack)
    if found.status == _OPTIMAL and incumbent.upper - incumbent.lower <= 3.0 * slack:
        incumbent.upper = incumbent.lower
        return
    progress.stop_for_time()
