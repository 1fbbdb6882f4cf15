"""The page of results in the documents: figures, claims and verdicts, from folders of long runs.

python docs/tools/results.py out docs

reads what is there under `out` (folders of `latentmdp reproduce`, the arena, the file of gaps that
benchmarks/planning_gap.py writes, the folder of benchmarks/interval_coverage.py), draws pictures
into docs/pictures, and fills the parts of docs/results.md from `<!-- begin NAME -->` to
`<!-- end NAME -->`. A part whose runs are not there stays as it is.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from latentmdp._util.figures import COLOURS, MUTED, canvas, legend
from latentmdp._util.storage import atomic_write
from latentmdp._util.words import markdown_table, plural
from latentmdp.experiments import read_experiment
from latentmdp.experiments.runner import MANIFEST
from latentmdp.report.report import panel_figure

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "benchmarks")]

from arena import Arena, Cell, picture
from svg import standalone_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PARTS", "write_results"]

EXPERIMENTS = ("fig1a", "fig1b", "fig2", "lower_bound")
_CONFIDENCE = 0.95
"""What the intervals of `solve` ask for."""

_KINDS_OF_LOGS = {
    "far": "far: contexts far apart (delta .5 to 1), 5 to 15 steps",
    "near": "near: contexts close (delta .2 to .4), 8 to 20 steps",
    "long": "long: 30 to 50 steps (delta .3 to .8)",
    "confounded": "confounded: made by someone who knew the context",
    "ending": "ending: episodes end in a terminal state",
    "costs": "costs: rewards are costs, one large and rare",
}

Part = tuple[str, Mapping[str, "Figure"]]
"""Markdown, in which a picture stands as `{name}`, and the pictures by name."""


def experiment_part(folder: Path) -> Part | None:
    """Every claim of the paper with its verdict, and the panels of the figure."""
    if not (folder / MANIFEST).is_file():
        return None
    experiment = read_experiment(folder)
    findings, name = experiment.findings, experiment.name
    claims = [(c.verdict, c.paper, c.measured) for c in findings.claims]
    header = ("verdict", "the paper", "measured here")
    lines = [findings.description, "", *markdown_table(header, claims)]
    figures = {}
    for i, panel in enumerate(findings.panels):
        key = f"{name}-{i + 1}"
        figures[key] = panel_figure(panel)
        lines += ["", f"**{panel.title}.** {panel.caption}", "", f"{{{key}}}"]
    timed = [run.seconds for run in experiment.runs if run.seconds is not None]
    took = f", {plural(max(1, round(sum(timed) / 60.0)), 'minute')} of one core" if timed else ""
    lines += ["", f"{plural(len(experiment.runs), 'run')}{took}."]
    return "\n".join(lines), figures


def planning_part(file: Path) -> Part | None:
    """The gap of planners over time, a curve for each size: the median over instances."""
    if not file.is_file():
        return None
    curves_by_kind: dict[tuple[str, tuple[int, ...]], list[list[tuple[float, float]]]] = {}
    for entry in json.loads(file.read_text()):
        if not entry.get("problem", "dense").startswith("dense"):
            continue  # other problems that the benchmark plans
        key = entry.get("planner", "HSVI"), tuple(entry["sizes"])
        curves_by_kind.setdefault(key, []).append(
            [point for point in entry["gaps"] if point[1] > 0.0]
        )
    colours = {
        sizes: COLOURS[i] for i, sizes in enumerate(dict.fromkeys(s for _, s in curves_by_kind))
    }
    figure, axes = canvas(height=2.8 + 0.22 * len(curves_by_kind))
    rows = []
    for (planner, sizes), curves in sorted(curves_by_kind.items(), key=lambda item: item[0][::-1]):
        end = min(curve[-1][0] for curve in curves)
        times = np.geomspace(0.1, max(end, 0.2), 80)
        gaps = np.array([[_gap_at(curve, t) for t in times] for curve in curves])
        finite = np.isfinite(gaps).all(axis=0)
        middle = np.median(gaps[:, finite], axis=0)
        style = "-" if planner == "HSVI" else "--"
        label = f"{planner}, (M, S, A, H) = {sizes}"
        curve = times[finite], 100.0 * middle
        axes.plot(*curve, color=colours[sizes], linestyle=style, label=label)
        low, high = gaps[:, finite].min(axis=0), gaps[:, finite].max(axis=0)
        axes.fill_between(times[finite], 100 * low, 100 * high, color=colours[sizes], alpha=0.18)
        last = [curve[-1][1] for curve in curves]
        rows.append((str(sizes), planner, str(len(curves)), f"{end:.0f} s", f"{median(last):.2%}"))
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="gap, per cent")
    legend(axes, columns=1)
    header = ("(M, S, A, H)", "planner", "instances", "after", "median gap")
    peer = any(planner == "SARSOP" for planner, _ in curves_by_kind)
    against = (
        ", beside SARSOP (broken lines, one thread) on the same instances as .pomdpx files"
        if peer
        else ""
    )
    lines = [
        f"How fast `HSVI` closes the gap on dense random instances{against}; the band is the range "
        "over instances.",
        "",
        *markdown_table(header, rows),
        "",
        "{planning-gap}",
    ]
    return "\n".join(lines), {"planning-gap": figure}


def _gap_at(curve: Sequence[Sequence[float]], time: float) -> float:
    reached = [gap for seconds, gap in curve if seconds <= time]
    return min(reached) if reached else float("nan")


def arena_part(folder: Path) -> Part | None:
    """Scores of the learners: the picture, their means over tasks, and those of each task.

    A learner that returns a policy is scored by what that earns in episodes of its own, which has
    less noise than the end of a run.
    """
    file = folder / "arena.parquet"
    if not file.is_file():
        return None
    table = pq.read_table(file)
    # Version 0.2 scored the last fifth of the episodes, and did not say so in its files.
    window = (table.schema.metadata or {}).get(b"window", b"last fifth").decode()
    cells = [Cell(**row) for row in table.to_pylist()]
    cells = [replace(c, score=c.final) if np.isfinite(c.final) else c for c in cells]
    arena = Arena(folder, tuple(cells), {})
    variants = [len({c.seed for c in cells if c.task == task}) for task in arena.tasks]
    few, many = min(variants), max(variants)
    seeds = plural(few, "variant") if few == many else f"{few} to {many} variants"
    rows = []
    for learner in arena.learners:
        scores = np.array([arena.mean(task, learner) for task in arena.tasks])
        scores = scores[np.isfinite(scores)]
        held = [c.covered for c in cells if c.learner == learner and np.isfinite(c.covered)]
        if scores.size:
            good = int((scores >= 0.9).sum())
            means = (f"{scores.mean():.2f}", f"{scores.min():.2f}", str(good))
            rows.append((learner, *means, f"{int(sum(held))} of {len(held)}" if held else "-"))
    tasks = [
        (task, str(n), *(f"{arena.mean(task, name):.2f}" for name in arena.learners))
        for task, n in zip(arena.tasks, variants)
    ]
    lines = [
        f"Learners on {plural(len(arena.tasks), 'task')}, {seeds} of each. A score of 1 is the "
        "certified optimum, 0 random actions. What counts is what the final policy earns in "
        f"episodes of its own, or the {window} of the episodes where a learner returns none.",
        "",
        *markdown_table(
            ("learner", "mean score", "worst task", "tasks at 0.9 or more", "intervals that hold"),
            rows,
        ),
        "",
        *markdown_table(("task", "variants", *arena.learners), tasks),
        "",
        "{arena}",
    ]
    return "\n".join(lines), {"arena": picture(arena)}


def coverage_part(folder: Path) -> Part | None:
    """How often the intervals of `solve` hold what its policy earns, by kind of logs."""
    rows = [json.loads(file.read_text()) for file in sorted(folder.glob("instance-*.json"))]
    if not rows:
        return None
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(row)
    kinds["all"] = rows
    figure, axes = canvas(2.8)
    for i, some in enumerate(kinds.values()):
        covers = [row["covers"] for row in some]
        share = float(np.mean(covers))
        low, high = _wilson(sum(covers), len(covers))
        axes.errorbar(share, -i, xerr=[[share - low], [high - share]], fmt="o", color=COLOURS[0])
    axes.axvline(_CONFIDENCE, color=MUTED, linestyle="--", label="what is asked for")
    axes.set_yticks([-i for i in range(len(kinds))], list(kinds))
    axes.set(xlabel="share of intervals that hold the true value", ylabel="logs", xlim=(0.0, 1.02))
    legend(axes)
    table = [(_KINDS_OF_LOGS.get(kind, kind), *_covered(some)) for kind, some in kinds.items()]
    lines = [
        "`solve` gives an interval of 95 % for what its policy will earn. Each instance was solved "
        "from logs alone, and the policy then valued in the true model. Bars are 95 % intervals of "
        "the share itself; widths and errors are shares of the true value, on average.",
        "",
        *markdown_table(
            ("kind of logs", "instances", "covered", "half-width", "mean off by"), table
        ),
        "",
        "{coverage}",
    ]
    return "\n".join(lines), {"coverage": figure}


def _covered(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """How many there are, the share that covers, and how wide and how far off intervals are."""
    value, mean, low, high = (
        np.array([row[name] for row in rows]) for name in ("value", "mean", "low", "high")
    )
    scale = np.maximum(np.abs(value), 1e-9)
    width, error = np.mean((high - low) / 2.0 / scale), np.mean((mean - value) / scale)
    covers = np.mean([row["covers"] for row in rows])
    return str(len(rows)), f"{covers:.0%}", f"{width:.1%}", f"{error:+.1%}"


def _wilson(successes: int, number: int, z: float = 1.96) -> tuple[float, float]:
    """The score interval of a share."""
    share, spread = successes / number, z * z / number
    middle = (share + spread / 2.0) / (1.0 + spread)
    half = z * ((share * (1 - share) / number + spread / (4 * number)) ** 0.5) / (1.0 + spread)
    return min(middle - half, share), max(middle + half, share)


PARTS: dict[str, tuple[str, Callable[[Path], Part | None]]] = {
    **{name: (name, experiment_part) for name in EXPERIMENTS},
    "planning": ("planning_gap.json", planning_part),
    "arena": ("arena", arena_part),
    "coverage": ("coverage", coverage_part),
}
"""Name of a part of the page to where its runs are, and what makes the part of them."""


def write_results(out: Path, docs: Path) -> list[str]:
    """Fill every part of docs/results.md whose runs are there; their names."""
    page, filled = docs / "results.md", []
    text = page.read_text()
    for name, (where, make) in PARTS.items():
        part = make(out / where)
        if part is None:
            continue
        markdown, figures = part
        for key, figure in figures.items():
            with atomic_write(docs / "pictures" / f"{key}.svg") as stream:
                stream.write(standalone_svg(figure, key).encode())
            image = f"![{_alternative(figure)}](pictures/{key}.svg)"
            markdown = markdown.replace(f"{{{key}}}", image)
        text = _filled(text, name, markdown)
        filled.append(name)
    with atomic_write(page) as stream:
        stream.write(text.encode())
    return filled


def _alternative(figure: Figure) -> str:
    """What a picture shows, for those who do not see it: its axes and its lines."""
    axes = figure.axes[0]
    what = " over ".join(filter(None, (axes.get_ylabel(), axes.get_xlabel())))
    lines = axes.get_legend_handles_labels()[1]
    return what[:1].upper() + what[1:] + (f": {'; '.join(lines)}" if lines else "")


def _filled(text: str, name: str, part: str) -> str:
    """The page with what stands between the marks of a part replaced."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page needs one {begin} and one {end}")
    pattern = re.compile(f"({re.escape(begin)}\n).*?({re.escape(end)})", re.DOTALL)
    return pattern.sub(lambda marks: f"{marks[1]}\n{part}\n\n{marks[2]}", text)


def _main(arguments: Sequence[str]) -> None:
    out, docs = (Path(argument) for argument in (*arguments, *("out", "docs")[len(arguments) :]))
    for name in write_results(out, docs):
        print(name)


if __name__ == "__main__":
    _main(sys.argv[1:])
