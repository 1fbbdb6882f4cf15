"""HSVI on RockSample, beside SARSOP on the same problems in the same run.

`python benchmarks/rock_sample.py [--sarsop PROGRAM] [--only 4,4 ...] [--seconds 60] [--out FILE]`.
A problem is the size of the grid and the number of rocks. (7, 8) has the published map [smith2004],
the others draw their rocks by `--seed`; discount .95, no end.

HSVI plans `lm.make("rock-sample", ...)` in a process of its own, whose peak resident size is given.
With `--cpu` it has one thread and its seconds are those of the processor.
SARSOP (its `pomdpsol`, one thread) gets the problem in its own form, not our export: a .pomdpx file
where the rover's cell is observed, each rock is a hidden variable that turns bad when sampled, and
the sensor is an observation. A move that is forbidden there costs 100 and leads nowhere. Its
seconds are those it prints, of the processor, without loading the file.

Gaps are (upper - lower) / lower. Results are kept in `--out`, and what is in it is not done again.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from planning_gap import Bounds, child, gap_at, gap_curve, sarsop

import latentmdp as lm
from latentmdp._util.storage import atomic_write
from latentmdp.instances.rock_sample import HALF_EFFICIENCY, MOVES

Cell = tuple[int, int]  # (row, column)

PROBLEMS: dict[tuple[int, int], list[Cell] | None] = {
    (4, 4): None,
    (5, 5): None,
    (5, 7): None,
    (7, 8): [(0, 2), (1, 0), (1, 3), (3, 6), (4, 2), (4, 3), (5, 5), (6, 1)],
}
"""The rocks of a published map, None where they are drawn."""

DISCOUNT = 0.95
MARKS = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0)
COMPARED = (10.0, 60.0)
PRINTED = 1e-5
"""SARSOP prints six digits, which tell no smaller gap from none."""


def rocks_of(problem: tuple[int, int], seed: int) -> list[Cell]:
    size, k = problem
    cells = np.random.default_rng(seed).choice(size * size, size=k, replace=False)
    return PROBLEMS[problem] or [divmod(int(cell), size) for cell in cells]


# ---- The problem as SARSOP's users write it


def pomdpx(size: int, rocks: Sequence[Cell], start: Cell) -> str:
    """RockSample as a .pomdpx file with one hidden variable for each rock."""
    k, cells = len(rocks), [(row, column) for row in range(size) for column in range(size)]
    places = [*map(_name, cells), "left"]
    actions = [*MOVES, "sample", *(f"check{i}" for i in range(k))]
    variables = [
        _state_variable("rover", places, observed=True),
        *(_state_variable(f"rock{i}", ("bad", "good"), observed=False) for i in range(k)),
        f'<ObsVar vname="reading">{_values(("bad", "good"))}</ObsVar>',
        f'<ActionVar vname="action">{_values(actions)}</ActionVar>',
        '<RewardVar vname="reward"/>',
    ]
    first = " ".join("1" if cell == start else "0" for cell in (*cells, None))
    initial = [
        _table("rover_0", ["null"], [("-", first)]),
        *(_table(f"rock{i}_0", ["null"], [("-", "uniform")]) for i in range(k)),
    ]
    any_rock = " ".join("*" * k)
    moves: list[tuple[str, str]] = []
    rewards: list[tuple[str, str]] = []
    for cell in cells:
        for action, to in _moves(size, cell):
            moves.append((f"{action} {_name(cell)} {_name(to or cell)}", "1"))
            amount = {None: "-100", "left": "10"}.get(to, "0")
            rewards.append((f"{action} {_name(cell)} {any_rock}", amount))
        moves += [(f"{action} {_name(cell)} {_name(cell)}", "1") for action in actions[4:]]
        if cell not in rocks:
            rewards.append((f"sample {_name(cell)} {any_rock}", "-100"))
    for i, cell in enumerate(rocks):
        for quality, amount in (("bad", "-10"), ("good", "10")):
            rewards.append((f"sample {_name(cell)} {_only(i, k, quality)}", amount))
    transitions = [_table("rover_1", ["action", "rover_0"], [*moves, ("* left left", "1")])]
    for i, cell in enumerate(rocks):
        turns = [("* * - -", "identity"), (f"sample {_name(cell)} * -", "1 0")]
        transitions.append(_table(f"rock{i}_1", ["action", "rover_0", f"rock{i}_0"], turns))
    readings = [(f"{action} * {any_rock} -", "1 0") for action in (*MOVES, "sample")]
    for i, rock in enumerate(rocks):
        readings.append((f"check{i} left {any_rock} -", "1 0"))
        for cell in cells:
            right = 0.5 * (1.0 + 2.0 ** (-math.dist(cell, rock) / HALF_EFFICIENCY))
            table = " ".join(repr(p) for p in (right, 1.0 - right, 1.0 - right, right))
            readings.append((f"check{i} {_name(cell)} {_only(i, k, '-')} -", table))
    after, before = ([f"rock{i}_{t}" for i in range(k)] for t in (1, 0))
    observations = [_table("reading", ["action", "rover_1", *after], readings)]
    earned = [_table("reward", ["action", "rover_0", *before], rewards, "Func", "ValueTable")]
    parts = {
        "Variable": variables,
        "InitialStateBelief": initial,
        "StateTransitionFunction": transitions,
        "ObsFunction": observations,
        "RewardFunction": earned,
    }
    body = "\n".join(f"<{tag}>\n{chr(10).join(lines)}\n</{tag}>" for tag, lines in parts.items())
    header = '<?xml version="1.0" encoding="UTF-8"?>\n<pomdpx version="1.0" id="RockSample">'
    return f"{header}\n<Discount>{DISCOUNT}</Discount>\n{body}\n</pomdpx>\n"


def _name(place: Cell | str) -> str:
    return place if isinstance(place, str) else f"r{place[0]}c{place[1]}"


def _moves(size: int, cell: Cell) -> Iterable[tuple[str, Cell | str | None]]:
    """Where each move leads from a cell; None into a wall."""
    for action, (down, right) in MOVES.items():
        row, column = cell[0] + down, cell[1] + right
        inside = 0 <= row < size and 0 <= column < size
        yield action, (row, column) if inside else "left" if column == size else None


def _only(i: int, k: int, value: str) -> str:
    """A value of rock i, and any of the others."""
    return " ".join(value if j == i else "*" for j in range(k))


def _values(values: Iterable[str]) -> str:
    return f"<ValueEnum>{' '.join(values)}</ValueEnum>"


def _state_variable(name: str, values: Iterable[str], *, observed: bool) -> str:
    names = f'vnamePrev="{name}_0" vnameCurr="{name}_1" fullyObs="{str(observed).lower()}"'
    return f"<StateVar {names}>{_values(values)}</StateVar>"


def _table(
    variable: str,
    parents: Sequence[str],
    entries: Iterable[tuple[str, str]],
    kind: str = "CondProb",
    numbers: str = "ProbTable",
) -> str:
    rows = "\n".join(
        f"<Entry><Instance>{where}</Instance><{numbers}>{what}</{numbers}></Entry>"
        for where, what in entries
    )
    return (
        f"<{kind}><Var>{variable}</Var><Parent>{' '.join(parents)}</Parent>"
        f'<Parameter type="TBL">\n{rows}\n</Parameter></{kind}>'
    )


# ---- The two planners


def plan_with_hsvi(
    problem: tuple[int, int], seed: int, seconds: float, threads: int | None, cpu: bool
) -> dict[str, Any] | None:
    size, k = problem
    build = partial(
        lm.make,
        "rock-sample",
        size=size,
        rocks=k,
        positions=rocks_of(problem, seed),
        discount=DISCOUNT,
    )
    with child() as plan_there:
        planned = plan_there(build, seed, seconds, threads, cpu)
    return None if planned is None else vars(planned)


def plan_with_sarsop(
    problem: tuple[int, int], seed: int, seconds: float, program: str
) -> dict[str, Any]:
    size, _ = problem
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rock_sample.pomdpx"
        file.write_text(pomdpx(size, rocks_of(problem, seed), (size // 2, 0)))
        bounds, vectors = sarsop(program, file, seconds)
    return {"bounds": bounds, "vectors": vectors}


# ---- What they reached


def report(problem: tuple[int, int], seconds: float, found: dict[str, dict[str, Any]]) -> None:
    """Print the bounds of both planners after each mark, and the times to the same gap."""
    print(f"RockSample{problem}, discount {DISCOUNT}")
    for mark in (m for m in MARKS if m <= seconds):
        columns = [f"{name} {_shown(entry['bounds'], mark)}" for name, entry in found.items()]
        print(f"  {mark:5.1f} s   {'   '.join(columns)}")
    for name, entry in found.items():
        extra = ""
        if "peak" in entry:
            extra = (
                f", {100 * entry['share']:.0f}% of a core, peak {entry['peak']:.0f} MiB "
                f"({entry['model_peak']:.0f} before planning); {entry['message']}"
            )
        print(f"  {name}: {entry['vectors']:,} vectors{extra}")
    if len(found) == 2:
        ours, theirs = (gap_curve(found[name]["bounds"]) for name in ("HSVI", "SARSOP"))
        for mark in (m for m in COMPARED if m <= seconds):
            target = max(gap_at(theirs, mark), PRINTED)
            ours_at = min((t for t, gap in ours if gap <= target), default=math.inf)
            when = f"after {ours_at:.2f} s, x{ours_at / mark:.3g}" if ours_at < math.inf else "not"
            print(f"  SARSOP's gap of {target:.3%} at {mark:g} s: HSVI {when}")


def _shown(bounds: Bounds, mark: float) -> str:
    reached = [(lower, upper) for t, lower, upper in bounds if t <= mark]
    if not reached:
        return f"{'nothing yet':>30}"
    lower, upper = max(low for low, _ in reached), min(high for _, high in reached)
    gap = gap_at(gap_curve(bounds), mark)
    return f"[{lower:8.4f}, {upper:8.4f}] {gap:8.3%}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", help="problems as SIZE,ROCKS")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="of HSVI; all cores by default")
    parser.add_argument("--cpu", action="store_true", help="seconds of the processor, one thread")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sarsop", help="the program pomdpsol, to be compared with")
    given = parser.parse_args()
    wanted = list(PROBLEMS)
    if given.only is not None:
        sizes = {tuple(map(int, text.split(","))) for text in given.only}
        wanted = [problem for problem in PROBLEMS if problem in sizes]
    kept = json.loads(given.out.read_text()) if given.out and given.out.is_file() else []
    threads = 1 if given.cpu else given.threads
    planners = {"HSVI": partial(plan_with_hsvi, threads=threads, cpu=given.cpu)}
    if given.sarsop is not None:
        planners["SARSOP"] = partial(plan_with_sarsop, program=given.sarsop)
    for problem in wanted:
        found: dict[str, dict[str, Any]] = {}
        for name, plan_with in planners.items():
            key = {"planner": name, "problem": list(problem)}
            key |= {"seed": given.seed, "seconds": given.seconds}
            entry = next((entry for entry in kept if key.items() <= entry.items()), None)
            if entry is None:
                entry = plan_with(problem, given.seed, given.seconds)
                if entry is None:
                    continue
                kept.append(key | entry)
                if given.out is not None:
                    given.out.parent.mkdir(parents=True, exist_ok=True)
                    with atomic_write(given.out) as stream:
                        stream.write(json.dumps(kept).encode())
            found[name] = entry
        report(problem, given.seconds, found)


if __name__ == "__main__":
    main()
