"""How fast HSVI closes the gap, (upper - lower) / lower, on dense random instances.

Transitions are Dirichlet(1) in each context, 20% of (m, s, a) are rewarded with means U(0, 1),
episodes start in state 0, weights are uniform. Every row is the median and the worst of the seeds,
after so many seconds of wall-clock time; the CPU time used by then is given, since it is what the
machine really lent. `python benchmarks/planning_gap.py [seeds] [first seed]`.
"""

import sys
import time

import numpy as np

import latentmdp as lm

SIZES = {
    (3, 7, 2, 10): (0.2, 0.5, 1.0),
    (5, 10, 3, 20): (2.0, 5.0, 10.0),
    (7, 15, 3, 30): (5.0, 10.0, 30.0),
}


def instance(sizes: tuple[int, int, int, int], seed: int) -> lm.LatentMDP:
    M, S, A, H = sizes
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(S), (M, S, A))
    means = np.where(rng.random((M, S, A)) < 0.2, rng.random((M, S, A)), 0.0)
    return lm.LatentMDP(transitions, means, initial=0, horizon=H)


def gaps(model: lm.LatentMDP, marks: tuple[float, ...]) -> tuple[list[float], float]:
    """Per cent after each mark, and the share of a core that was ours."""
    wall, cpu = time.perf_counter(), time.process_time()
    plan = lm.HSVI(gap=0.0, time_limit=marks[-1]).plan(model)
    share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    reached = [_gap(plan, mark) for mark in marks]
    return reached, share


def _gap(plan: lm.Plan, mark: float) -> float:
    rows = [row for row in plan.history if row[0] <= mark]
    return min(100.0 * (upper - lower) / lower for _, lower, upper in rows if lower > 0.0)


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    lm.HSVI(gap=0.0, time_limit=None).plan(instance((3, 3, 2, 4), 0))  # compile
    for sizes, marks in SIZES.items():
        found = [gaps(instance(sizes, seed), marks) for seed in range(first, first + seeds)]
        table = np.array([row for row, _ in found])
        share = np.mean([share for _, share in found])
        print(f"(M, S, A, H) = {sizes}, {seeds} seeds, {100 * share:.0f}% of a core")
        for i, mark in enumerate(marks):
            column = table[:, i]
            print(f"  {mark:5.1f} s   median {np.median(column):.3f}%   worst {column.max():.3f}%")


if __name__ == "__main__":
    main()
