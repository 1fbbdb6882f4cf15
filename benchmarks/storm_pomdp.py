"""Probabilities of reaching a goal beside Storm's POMDP engine, on the same files in the same run.

Ten random problems as PRISM files: a prize is behind one of 2 to 4 doors, a noisy sign can be read
as often as one likes, but each time the game may be over, and the wrong door ends it. Storm gets a
lower bound by unfolding beliefs and an upper bound by discretizing them; both are made finer until
they are as close as asked, and only the first calls that suffice are counted, as if one had known
them. Files are read and compiled before. Printed are seconds of CPU time.

    python benchmarks/storm_pomdp.py --gap 0.001
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import stormpy
import stormpy.pomdp

import latentmdp as lm

MOST = 10.0
"""Seconds after which Storm is asked no further."""


def program(rng):
    """A problem in the language of PRISM."""
    N, over = int(rng.integers(2, 5)), rng.uniform(0.01, 0.05)
    signs = rng.dirichlet(np.ones(N), N) + np.diag(rng.uniform(0.3, 1.5, N))
    signs *= (1.0 - over) / signs.sum(axis=1, keepdims=True)
    doors = range(1, N + 1)
    first = " + ".join(f"1/{N}:(side'={s})&(place'=1)" for s in doors)
    lines = ["pomdp", "observables place, sign endobservables", "module doors"]
    lines += [f"side : [0..{N}] init 0;", "place : [0..3] init 0;", f"sign : [0..{N}] init 0;"]
    lines += [f"[begin] place=0 -> {first};"]
    for s in doors:
        chances = [f"{signs[s - 1, z - 1]:.12f}:(sign'={z})" for z in doors[:-1]]
        left = 1.0 - sum(float(f"{x:.12f}") for x in (*signs[s - 1, :-1], over))
        chances += [f"{left:.12f}:(sign'={N})", f"{over:.12f}:(place'=3)"]
        lines += [f"[read] place=1 & side={s} -> {' + '.join(chances)};"]
        for d in doors:
            lines += [f"[open{d}] place=1 & side={s} -> (place'={2 if d == s else 3});"]
    lines += ["[begin] place>1 -> true;", "endmodule", 'label "prize" = place=2;']
    return "\n".join(lines)


def sufficient(bound, sizes, enough):
    """The first bound that is enough, and the CPU seconds of its call; or the last."""
    began = time.process_time()
    for size in sizes:
        start = time.process_time()
        value = bound(size)
        taken = time.process_time() - start
        if enough(value) or time.process_time() - began > MOST:
            break
    return value, taken


def by_storm(path, gap, best):
    """Bounds whose distances from the value `best` are at most half of the gap each, and seconds."""
    model = stormpy.parse_prism_program(str(path), prism_compatibility=True)
    (goal,) = stormpy.parse_properties('Pmax=? [F "prize"]', model)
    pomdp = stormpy.build_model(model, [goal])

    def lower(size):
        return stormpy.pomdp.verify_with_belief_unfolding(
            pomdp, goal, max_exploration_size=size, build_choice_labeling=False
        ).value

    def upper(resolution):
        return stormpy.pomdp.verify_with_belief_discretization(
            pomdp, goal, resolution, build_choice_labeling=False
        ).value

    low, first = sufficient(lower, 2 ** np.arange(4, 22), lambda v: v >= best - gap / 2)
    high, second = sufficient(upper, 2 ** np.arange(1, 12), lambda v: v <= best + gap / 2)
    return low, high, first + second


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--problems", type=int, default=10)
    parser.add_argument("--gap", type=float, default=1e-3)
    settings = parser.parse_args()
    planner = lm.HSVI(gap=0.0, absolute_gap=settings.gap, time_limit=60.0, threads=1)
    for seed in range(settings.first, settings.first + settings.problems):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "doors.prism")
            path.write_text(program(np.random.default_rng(seed)))
            model = lm.load(path, goal='"prize"')
            if seed == settings.first:
                planner.plan(model)  # compiles
            began = time.process_time()
            plan = planner.plan(model)
            taken = time.process_time() - began
            low, high, seconds = by_storm(path, settings.gap, (plan.lower + plan.upper) / 2)
        print(
            f"{seed}: {model.n_contexts} contexts, [{plan.lower:.6f}, {plan.upper:.6f}] in "
            f"{taken:.3f} s; Storm [{low:.6f}, {high:.6f}] in {seconds:.3f} s: "
            f"{seconds / taken:.1f} times as long{'' if high - low <= settings.gap else ', open'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
