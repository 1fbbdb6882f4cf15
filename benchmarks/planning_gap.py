"""How fast HSVI closes the gap, (upper - lower) / lower, on problems of every kind.

`python benchmarks/planning_gap.py [seeds] [first seed]` plans every problem of `PROBLEMS`, some of
the large ones for one seed only; `--only WORD ...` those with one of the words in their name.

* dense: transitions are Dirichlet(1) in each context, 20% of (m, s, a) are rewarded with means
  U(0, 1), episodes start in state 0, weights are uniform;
* no end: the same without a horizon, and with four contexts as in conservation, where experts give
  a few models of a few states;
* sparse, many contexts: five successors a row, the same in all contexts ("own": drawn for each);
* identification: 256 targets; the optimum is 1.

Every row is the median and the worst of the seeds after so many seconds of wall-clock time. The
share of a core says what the machine really lent, the peak what the process held at most, with
Python and the model (it plans nothing but the seeds of one problem).

With `--out FILE` the gaps over time are kept as JSON, those of the dense problems for
docs/results.md; instances that are in it are not planned again. With `--sarsop PROGRAM` (the
`pomdpsol` of SARSOP) the instances that are small enough are also written as .pomdpx and solved by
it for twice as long: its own count of seconds, and one thread.
"""

import argparse
import json
import multiprocessing
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from large_models import sparse

import latentmdp as lm
from latentmdp._util.storage import atomic_write
from latentmdp._util.words import plural
from latentmdp.planning.limits import PlanningClock

Bounds = list[tuple[float, float, float]]
"""(seconds, lower, upper) along the work of a planner."""

Build = Callable[..., lm.LatentMDP]
"""Makes an instance from the keyword rng, a seed; can be sent to another process."""


def dense(
    M: int, S: int, A: int, horizon: int | None, discount: float = 1.0, *, rng: int
) -> lm.LatentMDP:
    generator = np.random.default_rng(rng)
    transitions = generator.dirichlet(np.ones(S), (M, S, A))
    rewarded = generator.random((M, S, A)) < 0.2
    means = np.where(rewarded, generator.random((M, S, A)), 0.0)
    return lm.LatentMDP(transitions, means, initial=0, horizon=horizon, discount=discount)


def few_successors(S: int, *, rng: int, own: bool) -> lm.LatentMDP:
    return sparse(S, seed=rng, own=own)


@dataclass(frozen=True)
class Problem:
    """A family of instances, and the seconds after which gaps are read; the last ends planning."""

    build: Build
    marks: tuple[float, ...]
    most_seeds: int | None = None
    for_sarsop: bool = False


SIZES = {
    (3, 7, 2, 10): (0.2, 0.5, 1.0),
    (5, 10, 3, 20): (2.0, 5.0, 10.0),
    (7, 15, 3, 30): (5.0, 10.0, 30.0),
}

PROBLEMS = {
    **{
        f"dense (M, S, A, H) = {sizes}": Problem(partial(dense, *sizes), marks, for_sarsop=True)
        for sizes, marks in SIZES.items()
    },
    **{
        f"no end (M, S, A) = {sizes}, discount {discount}": Problem(
            partial(dense, *sizes, None, discount), marks, for_sarsop=True
        )
        for sizes, discount, marks in (
            *((sizes[:3], 0.95, (10.0,)) for sizes in SIZES),
            *(((4, S, 4), discount, (1.0, 5.0)) for S in (2, 5) for discount in (0.9, 0.95)),
        )
    },
    **{
        f"sparse (5, 300, 4, 50), {'own' if own else 'same'} successors": Problem(
            partial(few_successors, 300, own=own), (5.0, 15.0), most_seeds=2
        )
        for own in (False, True)
    },
    **{
        f"many contexts ({M}, 100, 4, 30)": Problem(
            partial(lm.make, "sparse", contexts=M, states=100, horizon=30), marks, most_seeds=1
        )
        for M, marks in ((100, (10.0, 30.0)), (1000, (30.0, 60.0)))
    },
    "identification of 256 targets": Problem(
        partial(lm.make, "identification", bits=8, horizon=9), (5.0, 30.0), most_seeds=1
    ),
}


@dataclass(frozen=True)
class Planned:
    """What came of one plan."""

    sizes: tuple[int, int, int, int | None]
    bounds: Bounds
    vectors: int
    share: float  # of a core
    model_peak: float  # MiB that the process held at most before planning
    peak: float  # and at most in all
    message: str


def plan(
    build: Build, seed: int, seconds: float, threads: int | None = None, cpu: bool = False
) -> Planned:
    """Plan one instance with `HSVI`; the peaks are those of this process.

    With `cpu`, seconds are those that the processor worked for it, as SARSOP counts: other work on
    the machine is not seen.
    """
    lm.HSVI(gap=0.0, time_limit=None).plan(dense(3, 3, 2, 4, rng=0))  # compile
    model = build(rng=seed)
    model_peak, wall, began = _peak(), time.perf_counter(), time.process_time()
    if cpu:
        PlanningClock.seconds = property(lambda clock: time.process_time() - began)
    found = lm.HSVI(gap=0.0, time_limit=seconds, threads=threads).plan(model)
    return Planned(
        (model.n_contexts, model.n_states, model.n_actions, model.horizon),
        list(found.history),
        found.policy.actions.size,
        (time.process_time() - began) / (time.perf_counter() - wall),
        model_peak,
        _peak(),
        found.message,
    )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


@contextmanager
def child() -> Iterator[Callable[..., Planned | None]]:
    """`plan` in a process of its own, so that peaks are its own; None if it died."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:

        def run(*arguments: Any) -> Planned | None:
            try:
                return pool.submit(plan, *arguments).result()
            except (BrokenProcessPool, MemoryError) as error:
                print(f"  HSVI failed: {error!r}")
                return None

        yield run


def sarsop(program: str, file: Path, seconds: float) -> tuple[Bounds, int]:
    """Bounds of SARSOP over time on a .pomdpx file, and how many vectors its policy has."""
    limits = ["--precision", "1e-9", "--timeout", f"{seconds:g}"]
    with tempfile.TemporaryDirectory() as folder:
        command = [program, *limits, "--output", f"{folder}/policy.out", str(file)]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
    return printed_bounds(told.stdout)


def printed_bounds(text: str) -> tuple[Bounds, int]:
    """The bounds and the last number of vectors in the rows that SARSOP prints.

    They are: time, trials, backups, lower, upper, their difference, vectors, beliefs.
    """
    number = r"([-+]?\.?\d[-+.\de]*)"
    pattern = rf"^\s*{number}\s+\d+\s+\d+\s+{number}\s+{number}\s+{number}\s+(\d+)\s"
    rows = re.findall(pattern, text, re.MULTILINE)
    bounds = [(float(t), float(lower), float(upper)) for t, lower, upper, _, _ in rows]
    return bounds, int(rows[-1][-1]) if rows else 0


def gap_curve(bounds: Bounds) -> list[tuple[float, float]]:
    """(seconds, gap) where there is a lower bound above 0."""
    return [(t, (upper - lower) / lower) for t, lower, upper in bounds if lower > 0.0]


def gap_at(curve: list[tuple[float, float]], mark: float) -> float:
    """The gap after so many seconds; infinite where there was none yet."""
    return min((gap for t, gap in curve if t <= mark), default=float("inf"))


def hsvi_entries(problem: Problem, seeds: list[int]) -> Iterator[dict[str, Any]]:
    with child() as plan_there:
        for seed in seeds:
            planned = plan_there(problem.build, seed, problem.marks[-1])
            if planned is None:
                return
            found = vars(planned) | {"seed": seed, "gaps": gap_curve(planned.bounds)}
            yield found | {"bounds": planned.bounds[-1][1:]}


def sarsop_entries(problem: Problem, seeds: list[int], program: str) -> Iterator[dict[str, Any]]:
    for seed in seeds:
        model = problem.build(rng=seed)
        sizes = (model.n_contexts, model.n_states, model.n_actions, model.horizon)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.pomdpx"
            lm.save(model, file)
            bounds, vectors = sarsop(program, file, 2.0 * problem.marks[-1])
        found = {"seed": seed, "sizes": sizes, "vectors": vectors, "bounds": bounds[-1][1:]}
        yield found | {"gaps": gap_curve(bounds)}


def report(title: str, marks: tuple[float, ...], entries: list[dict[str, Any]]) -> None:
    """Print the gaps of the seeds after each mark, and how the last one ended."""
    shares = [entry["share"] for entry in entries if "share" in entry]
    share = f", {100 * np.mean(shares):.0f}% of a core" if shares else ""
    print(f"{title}, {plural(len(entries), 'seed')}{share}")
    for mark in marks:
        gaps = 100.0 * np.array([gap_at(entry["gaps"], mark) for entry in entries])
        print(f"  {mark:5.1f} s   median {np.median(gaps):.3f}%   worst {gaps.max():.3f}%")
    last = entries[-1]
    if "vectors" in last:
        lower, upper = last["bounds"]
        print(f"  seed {last['seed']}: [{lower:.6g}, {upper:.6g}], {last['vectors']:,} vectors")
    if "peak" in last:
        print(f"  {last['message']}; peak {last['peak']:.0f} MiB")


def kept_entries(file: Path | None) -> list[dict[str, Any]]:
    """What a file holds; files of 0.2 name no problems, and have the dense ones only."""
    kept = json.loads(file.read_text()) if file is not None and file.is_file() else []
    dense_name = "dense (M, S, A, H) = {}".format
    return [
        {"planner": "HSVI", "problem": dense_name(tuple(entry["sizes"]))} | entry for entry in kept
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", type=int, nargs="?", default=5)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--only", nargs="+", default=[""], help="words in the names of problems")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sarsop", help="the program pomdpsol, to be compared with")
    given = parser.parse_args()
    kept = kept_entries(given.out)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
    for name, problem in PROBLEMS.items():
        if not any(word in name for word in given.only):
            continue
        seeds = list(range(given.first, given.first + given.seeds))[: problem.most_seeds]
        planners = {"HSVI": hsvi_entries}
        if given.sarsop is not None and problem.for_sarsop:
            planners["SARSOP"] = partial(sarsop_entries, program=given.sarsop)
        for planner, measure in planners.items():
            names = {"planner": planner, "problem": name}
            entries = [e for e in kept if names.items() <= e.items() and e["seed"] in seeds]
            missing = [seed for seed in seeds if seed not in {e["seed"] for e in entries}]
            for entry in measure(problem, missing) if missing else ():
                entries.append(names | entry)
                kept.append(entries[-1])
                if given.out is not None:
                    with atomic_write(given.out) as stream:
                        stream.write(json.dumps(kept).encode())
            if entries:
                report(f"{planner} on {name}", problem.marks, entries)


if __name__ == "__main__":
    main()
