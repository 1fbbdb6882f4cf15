"""How fast HSVI closes the gap, (upper - lower) / lower, on dense random instances.

Transitions are Dirichlet(1) in each context, 20% of (m, s, a) are rewarded with means U(0, 1),
episodes start in state 0, weights are uniform. Every row is the median and the worst of the seeds,
after so many seconds of wall-clock time; the CPU time used by then is given, since it is what the
machine really lent. `python benchmarks/planning_gap.py [seeds] [first seed]`.

With `--out FILE` the gaps over time are kept as JSON, for docs/results.md; instances that are in it
are not planned again. With `--sarsop PROGRAM` (the `pomdpsol` of SARSOP) the instances are also
written as .pomdpx and solved by it for twice as long: its own count of seconds, and one thread.
"""

import argparse
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import latentmdp as lm
from latentmdp._util.storage import atomic_write

Curve = list[tuple[float, float]]
"""(seconds, gap) along the work of a planner."""

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


def hsvi_curve(model: lm.LatentMDP, seconds: float) -> Curve:
    """The gap of `HSVI` over time."""
    history = lm.HSVI(gap=0.0, time_limit=seconds).plan(model).history
    return [(t, (upper - lower) / lower) for t, lower, upper in history if lower > 0.0]


def sarsop_curve(program: str, model: lm.LatentMDP, seconds: float) -> Curve:
    """The gap of SARSOP over time, from the lines it prints: time, trials, backups, bounds."""
    with tempfile.TemporaryDirectory() as folder:
        lm.save(model, Path(folder) / "model.pomdpx")
        limits = ["--precision", "1e-9", "--timeout", f"{2.0 * seconds:g}"]
        command = [program, *limits, "--output", "policy.out", "model.pomdpx"]
        told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return printed_curve(told.stdout)


def printed_curve(text: str) -> Curve:
    """(seconds, gap) of the rows in what SARSOP prints."""
    number = r"([-+]?\.?\d[-+.\de]*)"
    rows = re.findall(rf"^\s*{number}\s+\d+\s+\d+\s+{number}\s+{number}\s", text, re.MULTILINE)
    found = [tuple(map(float, row)) for row in rows]
    return [(t, (upper - lower) / lower) for t, lower, upper in found if lower > 0.0]


def keep(file: Path, seeds: int, first: int, sarsop: str | None) -> None:
    """Write (seconds, gap) of every instance to a file, which goes on where it was."""
    kept = json.loads(file.read_text()) if file.is_file() else []
    done = {(entry.get("planner", "HSVI"), *entry["sizes"], entry["seed"]) for entry in kept}
    planners: dict[str, Callable[[lm.LatentMDP, float], Curve]] = {"HSVI": hsvi_curve}
    if sarsop is not None:
        planners["SARSOP"] = lambda model, seconds: sarsop_curve(sarsop, model, seconds)
    file.parent.mkdir(parents=True, exist_ok=True)
    for sizes, marks in SIZES.items():
        for seed in range(first, first + seeds):
            for name, curve in planners.items():
                if (name, *sizes, seed) not in done:
                    reached = curve(instance(sizes, seed), marks[-1])
                    kept.append({"planner": name, "sizes": sizes, "seed": seed, "gaps": reached})
                    with atomic_write(file) as stream:
                        stream.write(json.dumps(kept).encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", type=int, nargs="?", default=5)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sarsop", help="the program pomdpsol, to be compared with")
    given = parser.parse_args()
    seeds, first = given.seeds, given.first
    lm.HSVI(gap=0.0, time_limit=None).plan(instance((3, 3, 2, 4), 0))  # compile
    if given.out is not None:
        keep(given.out, seeds, first, given.sarsop)
        return
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
