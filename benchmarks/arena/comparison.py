"""The arena: learners side by side on many tasks, each scored against a certified optimum.

    score = (return - random return) / (optimum - random return),

the return being the mean over the last tenth of the episodes, the optimum the upper bound that
HSVI proves on the true model, and the random return what uniformly random actions earn. A score
of 1 is therefore the most that anyone who must infer the context can reach; a learner that is told
it may exceed 1. Beside the score: after how many episodes the mean over the last twentieth of all
episodes was first at .9 of what the learner can reach (the informed optimum sum_m w_m V*_m for one
that is told the context), and the seconds of the processor.

Of a learner that hands back a policy the cell also says what this earns in episodes of its own, as
a score, and whether the interval that the learner gives for it holds that: a score over the last
tenth of a run has the noise of few episodes.

A cell is a learner on a variant of a task; its result is a file, as in any sweep (`runner`), so an
interrupted comparison goes on where it stopped. A learner that fails leaves its message in the
cell, and is tried again the next time.
"""

from __future__ import annotations

import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from latentmdp._util.arrays import Floats
from latentmdp._util.figures import COLOURS, INK, write_figure
from latentmdp._util.random import philox_key
from latentmdp._util.storage import atomic_write, require_writable
from latentmdp._util.words import markdown_table
from latentmdp.engines import Engine
from latentmdp.estimation import initialize, restricted
from latentmdp.experiments.runner import Columns, Setting, read_result, run_sweep
from latentmdp.metrics import last_tenth, trailing_means
from latentmdp.online import LUCRL, QLearning, Run, learn, thompson_sampling
from latentmdp.planning import HSVI, QMDP, evaluate
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import play
from latentmdp.worlds import ModelWorld, World

from .recurrent_ppo import recurrent_ppo_returns
from .tasks import TASKS, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STANDARD = "standard"
"""The cell of a task that holds what scores are measured against."""


# -- learners -------------------------------------------------------------------------------------

Returns = Floats
Learn = Callable[[Task, World, int, int], Returns | Run]
"""What a learner earns in each episode: of the task, its world, a number of episodes and a seed.

Of a `Run` its final policy is tried too.
"""


@dataclass(frozen=True)
class Entry:
    """A learner of the arena: what it is, and whether it is told contexts before it acts."""

    summary: str
    run: Learn
    informed: bool = False


def _learn(n_contexts: str, method: Any = "likelihood") -> Learn:
    def run(task: Task, world: World, episodes: int, seed: int) -> Run:
        M: Any = world.space.n_contexts if n_contexts == "given" else "auto"
        return learn(world, M, episodes, rng=seed, method=method)

    return run


def _lucrl(task: Task, world: World, episodes: int, seed: int) -> Returns:
    return LUCRL(replan=_replan(world)).run(world, episodes, rng=seed).returns


def _lucrl_inferred(task: Task, world: World, episodes: int, seed: int) -> Returns:
    """Random episodes, `initialize`, and Algorithm 3 from there; all episodes count.

    The random ones are a tenth, and no more than 500.
    """
    number = max(2 * world.space.n_contexts, min(500, int(0.1 * episodes)))
    logs = play(world, UniformPolicy(), number, philox_key(seed)).without_contexts()
    fit = initialize(None, logs, world.space.n_contexts, rng=seed)
    model = restricted(fit.model, world.space.allowed_actions())
    model = model.replace(horizon=world.space.horizon)
    learner = LUCRL(contexts="inferred", start=model, replan=_replan(world))
    rest = learner.run(world, episodes - number, rng=np.random.SeedSequence((seed, 1)))
    return np.concatenate([logs.returns(world.space.discount), rest.returns])


def _replan(world: World) -> str:
    """Planning is compiled into the loop in a model, and slow against an episode elsewhere."""
    return "every" if isinstance(world, ModelWorld) else "lazy"


def _q_learning(informed: bool) -> Learn:
    learner = QLearning(informed=informed)
    return lambda task, world, episodes, seed: learner.run(world, episodes, rng=seed).returns


def _thompson(task: Task, world: World, episodes: int, seed: int) -> Returns:
    """The true model is known; only the context is not."""
    model = task.model(seed)
    return thompson_sampling(model).run(model, episodes, rng=seed).returns


LEARNERS = {
    "learn": Entry("`learn`, M given", _learn("given")),
    "learn-auto": Entry("`learn`, M to be found", _learn("auto")),
    "lucrl": Entry("L-UCRL, contexts revealed afterwards", _lucrl),
    "lucrl-inferred": Entry("L-UCRL, contexts inferred, from `initialize`", _lucrl_inferred),
    "sampling": Entry("posterior sampling with refits, M given", _learn("given", "sampling")),
    "q-informed": Entry("Q-learning, told the context beforehand", _q_learning(True), True),
    "q-blind": Entry("Q-learning, blind to contexts", _q_learning(False)),
    "thompson": Entry("Thompson sampling on the belief, true model known", _thompson),
}
"""Every learner by name; a script adds its own here, before it compares them."""

if importlib.util.find_spec("sb3_contrib") is not None:
    LEARNERS["recurrent-ppo"] = Entry("recurrent PPO (sb3-contrib)", recurrent_ppo_returns)


# -- cells ----------------------------------------------------------------------------------------


def sweep(
    tasks: Sequence[str],
    learners: Sequence[str],
    seeds: Sequence[int],
    episodes: int | None,
    gap: float = 0.002,
    time_limit: float = 60.0,
) -> list[Setting]:
    """What scores are measured against, and then every learner, for each variant of each task.

    `gap` and `time_limit` are those of the certificate of the optimum.
    """
    settings = []
    for name in tasks:
        K = episodes or TASKS[name].episodes
        for seed in seeds:
            values = {"task": name, "seed": seed}
            certificate = {**values, "learner": STANDARD, "gap": gap, "time_limit": time_limit}
            settings.append(Setting(f"arena/{name}/{STANDARD}/{seed}", certificate))
            settings += [
                Setting(
                    f"arena/{name}/{learner}/{seed}", {**values, "learner": learner, "episodes": K}
                )
                for learner in learners
            ]
    return settings


def work(setting: Setting) -> Columns:
    """One cell."""
    task, seed = TASKS[setting["task"]], setting["seed"]
    if setting["learner"] == STANDARD:
        return _standard(task, seed, setting["gap"], setting["time_limit"])
    entry = LEARNERS[setting["learner"]]
    began, tried = time.process_time(), _UNTRIED
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            world = task.world(seed, tell_context=entry.informed)
            found = entry.run(task, world, setting["episodes"], seed)
            seconds = time.process_time() - began
            if isinstance(found, Run):
                tried = _tried(task.world(seed), found, seed)
                found = found.returns
        returns, problem = found, ""
    # Whatever a learner raises is its result here; the others must not wait for it.
    except Exception as error:
        returns, problem = np.full(1, np.nan), f"{type(error).__name__}: {error}"
        seconds = time.process_time() - began
    # Points of the learning curve: the last tenth and the last twentieth are whole blocks.
    blocks = np.array_split(returns, min(200, returns.size))
    n = len(blocks)
    return {
        "episode": np.cumsum([block.size for block in blocks]),
        "return": np.array([block.mean() for block in blocks]),
        "run_seconds": np.full(n, seconds),
        "problem": np.array([problem] * n),
        **{name: np.full(n, value) for name, value in tried.items()},
    }


_UNTRIED = dict.fromkeys(("final", "low", "high"), float("nan"))


def _tried(world: World, run: Run, seed: int) -> dict[str, float]:
    """What the final policy earns in episodes of its own, and the interval promised for it."""
    episodes = 20_000 if isinstance(world, ModelWorld) else 4_000
    key = philox_key(np.random.SeedSequence((seed, 1)))  # not the chance that it learned from
    earned = play(world, run.policy, episodes, key).returns(world.space.discount).mean()
    promised = (np.nan, np.nan) if run.value is None else run.value[1:]
    return dict(zip(_UNTRIED, map(float, (earned, *promised))))


def _standard(task: Task, seed: int, gap: float, time_limit: float) -> Columns:
    if task.optimum is not None:
        earned = play(task.world(seed), UniformPolicy(), 1_000, philox_key(seed)).returns().mean()
        values = {"random": earned, **dict.fromkeys(("lower", "upper", "informed"), task.optimum)}
        return {name: np.array([value], np.float64) for name, value in values.items()}
    model = task.model(seed)
    plan = HSVI(gap=gap, time_limit=time_limit, threads=1).plan(model)
    random = evaluate(model, UniformPolicy(), episodes=100_000, rng=seed, threads=1).mean
    informed = QMDP().plan(model).upper
    values = {"random": random, "lower": plan.lower, "upper": plan.upper, "informed": informed}
    return {name: np.array([value], np.float64) for name, value in values.items()}


@dataclass(frozen=True)
class Standard:
    """What the scores of a variant of a task are measured against.

    Attributes
    ----------
    random
        What uniformly random actions earn.
    lower, upper
        HSVI's bounds on V*.
    informed
        What can be earned by one who is told the context: sum_m w_m V*_m.
    """

    random: float
    lower: float
    upper: float
    informed: float

    def score(self, earned: float | Floats, informed: bool = False) -> Any:
        """(earned - random) / (optimum - random), the optimum being that of one who is told."""
        best = self.informed if informed else self.upper
        return (earned - self.random) / (best - self.random)


@dataclass(frozen=True)
class Cell:
    """A learner on one variant of a task.

    Attributes
    ----------
    score
        Over the last tenth of the episodes.
    earned
        The mean return there.
    reached
        Episodes until .9 of what the learner can reach; NaN if it was not reached.
    seconds
        Of the processor.
    problem
        Why there is no result; empty if there is one.
    final
        The score of the final policy in episodes of its own; NaN of learners that return none.
    covered
        Whether the interval that the learner gives for it holds what it earns there, 1 or 0; NaN
        where there is none.
    """

    task: str
    learner: str
    seed: int
    episodes: int
    score: float
    earned: float
    reached: float
    seconds: float
    problem: str = ""
    final: float = float("nan")
    covered: float = float("nan")


@dataclass(frozen=True)
class Arena:
    """What a comparison gives: all cells, what they are measured against, and its files."""

    folder: Path
    cells: tuple[Cell, ...]
    standards: Mapping[tuple[str, int], Standard]

    def mean(self, task: str, learner: str, what: str = "score") -> float:
        """The mean of a field of the cells over seeds; NaN where one failed."""
        values = [getattr(c, what) for c in self.cells if (c.task, c.learner) == (task, learner)]
        return float(np.mean(values)) if values else float("nan")

    def table(self, what: str = "score") -> tuple[list[str], list[list[str]]]:
        """Header and rows of the means of a field, by task and learner; a dash where one failed."""
        form = {"reached": ",.0f", "seconds": ".1f"}.get(what, ".2f")
        rows = [
            [task, *("-" if np.isnan(x) else format(x, form) for x in means)]
            for task in self.tasks
            for means in [[self.mean(task, name, what) for name in self.learners]]
        ]
        return ["task", *self.learners], rows

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the order they were asked for."""
        return tuple(dict.fromkeys(cell.task for cell in self.cells))

    @property
    def learners(self) -> tuple[str, ...]:
        """The learners, in the order they were asked for."""
        return tuple(dict.fromkeys(cell.learner for cell in self.cells))

    def __repr__(self) -> str:
        return (
            f"Arena({len(self.cells)} cells, {len(self.tasks)} tasks, "
            f"{len(self.learners)} learners, in {str(self.folder)!r})"
        )


def compare_learners(
    tasks: Sequence[str] | None = None,
    learners: Sequence[str] | None = None,
    *,
    seeds: int | Sequence[int] = 3,
    episodes: int | None = None,
    quick: bool = False,
    out: str | os.PathLike[str] = "out",
    jobs: int | None = None,
    progress: bool = False,
    engine: Engine | None = None,
) -> Arena:
    """Run every learner on every task, or what is missing of it, and write table and picture.

    Parameters
    ----------
    tasks, learners
        Names out of `TASKS` and `LEARNERS`; all by default.
    seeds
        How many variants of each task, or which.
    episodes
        In place of each task's own number.
    quick
        Three tasks, three learners, two variants and few episodes, unless told otherwise.
    out
        Results go to the folder `out/arena` (`out/arena-quick`): `arena.md`, `arena.svg`, all
        cells in `arena.parquet`, and each cell's learning curve in `runs/`.
    jobs
        Processes; None takes all cores.
    engine
        Where to run instead, for instance `engines.Dask`.
    """
    few = ("wait-hub", "deterministic", "lake-permuted"), ("lucrl", "q-informed", "q-blind")
    task_names = tuple(tasks or (few[0] if quick else TASKS))
    learner_names = tuple(learners or (few[1] if quick else LEARNERS))
    for kind, names, entries in (("task", task_names, TASKS), ("learner", learner_names, LEARNERS)):
        for name in names:
            if name not in entries:
                raise ValueError(f"there is no {kind} {name!r}; known: {', '.join(entries)}")
    variants = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not variants:
        raise ValueError("seeds must name at least one variant")
    if quick:
        variants, episodes = variants[:2], episodes or 200
    folder = Path(out) / ("arena-quick" if quick else "arena")
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    require_writable(folder / "arena.md")
    settings = sweep(task_names, learner_names, variants, episodes)
    _forget_failures(runs, settings)
    run_sweep(settings, work, runs, jobs, progress=progress, engine=engine)
    arena = _arena(folder, runs, settings)
    _write(arena)
    return arena


def _forget_failures(runs: Path, settings: Sequence[Setting]) -> None:
    """Remove the cells in which a learner failed, so that they run again."""
    for setting in settings:
        path = runs / setting.file_name
        if setting["learner"] == STANDARD or not path.exists():
            continue
        if read_result(runs, setting).table["problem"][0].as_py():
            path.unlink()


# -- results --------------------------------------------------------------------------------------


def _arena(folder: Path, runs: Path, settings: Sequence[Setting]) -> Arena:
    standards, cells = {}, []
    for setting in settings:
        table = read_result(runs, setting).table
        key = (setting["task"], setting["seed"])
        if setting["learner"] == STANDARD:
            standards[key] = Standard(**{name: table[name][0].as_py() for name in _STANDARD})
        else:
            cells.append(_cell(setting, table, standards[key]))
    return Arena(folder, tuple(cells), standards)


_STANDARD = tuple(Standard.__dataclass_fields__)


def _cell(setting: Setting, table: pa.Table, standard: Standard) -> Cell:
    episode, returns = (table[name].to_numpy() for name in ("episode", "return"))
    informed = LEARNERS[setting["learner"]].informed
    sizes = np.diff(episode, prepend=0)
    last = last_tenth(returns.size)
    earned = float(np.average(returns[-last:], weights=sizes[-last:]))
    window = max(1, returns.size // 20)
    ends = episode[window - 1 :]
    begins = np.concatenate([[0], episode])[: ends.size]
    trailing = trailing_means(np.repeat(returns, sizes), ends, ends - begins)
    good = ends[standard.score(trailing, informed) >= 0.9]
    final, low, high = (table[name][0].as_py() for name in _UNTRIED)
    return Cell(
        **{name: setting[name] for name in ("task", "learner", "seed", "episodes")},
        score=float(standard.score(earned)),
        earned=earned,
        reached=float(good[0]) if good.size else float("nan"),
        seconds=table["run_seconds"][0].as_py(),
        problem=table["problem"][0].as_py(),
        final=float(standard.score(final)),
        covered=float(low <= final <= high) if np.isfinite([low, high]).all() else float("nan"),
    )


def _write(arena: Arena) -> None:
    folder = arena.folder
    table = pa.Table.from_pylist([asdict(cell) for cell in arena.cells])
    with atomic_write(folder / "arena.parquet") as stream:
        pq.write_table(table.replace_schema_metadata({"window": "last tenth"}), stream)
    with atomic_write(folder / "arena.md") as stream:
        stream.write(page(arena).encode())
    write_figure(picture(arena), folder / "arena.svg")


def page(arena: Arena) -> str:
    """The tables: scores, episodes until .9, seconds, and what scores are measured against."""
    seeds = sorted({cell.seed for cell in arena.cells})
    lines = ["# Learners compared", "", f"Means over {len(seeds)} variants of each task.", ""]
    if len(seeds) == 1:
        lines[2] = "One variant of each task."
    lines += [f"- **{name}**: {LEARNERS[name].summary}" for name in arena.learners]
    parts = (
        ("Score", "score", "1 is the certified optimum, 0 random; last tenth of episodes."),
        ("Episodes until .9", "reached", "Of what the learner can reach; - if not."),
        ("Final policy", "final", "Its score in episodes of its own; - of learners without one."),
        ("Intervals", "covered", "The share that holds what the final policy earns."),
        ("Seconds", "seconds", "Of the processor, one process."),
    )
    for title, what, note in parts:
        lines += ["", f"## {title}", "", note, "", *markdown_table(*arena.table(what))]
    lines += ["", "## What scores are measured against", ""]
    header = ("task", "variant", "random", "optimum: lower", "upper", "informed")
    rows = [
        (task, str(seed), *(f"{getattr(standard, name):.4g}" for name in _STANDARD))
        for (task, seed), standard in arena.standards.items()
    ]
    lines += markdown_table(header, rows)
    failed = [cell for cell in arena.cells if cell.problem]
    if failed:
        lines += ["", "## Failures", ""]
        lines += [f"- {c.task}, {c.learner}, variant {c.seed}: {c.problem}" for c in failed]
    return "\n".join([*lines, "", "![Scores by task](arena.svg)", ""])


def picture(arena: Arena) -> Figure:
    """One line a task: the mean score of every learner and its range over variants."""
    from matplotlib.figure import Figure

    tasks, learners = arena.tasks, arena.learners
    low_edge, high_edge = -0.25, 1.25  # scores beyond the frame are drawn at its edge
    height = 1.6 + 0.32 * len(tasks) * max(1.0, len(learners) / 5)
    figure = Figure(figsize=(7.5, height), layout="constrained")
    axes = figure.subplots()
    for i, learner in enumerate(learners):
        offset = (i - (len(learners) - 1) / 2) * 0.8 / len(learners)
        colour, mark = COLOURS[i % len(COLOURS)], _MARKS[i % len(_MARKS)]
        style: dict[str, Any] = {"color": colour, "marker": mark, "markersize": 5}
        axes.plot([], [], linestyle="", label=learner, **style)
        for k, task in enumerate(tasks):
            scores = [c.score for c in arena.cells if (c.task, c.learner) == (task, learner)]
            finite = np.array([x for x in scores if np.isfinite(x)])
            if finite.size:
                ends = finite.min(), finite.mean(), finite.max()
                y, (low, mean, high) = k + offset, np.clip(ends, low_edge, high_edge)
                axes.plot([low, high], [y, y], color=colour, linewidth=1.5)
                axes.plot([mean], [y], linestyle="", **style)
    for score in (0.0, 1.0):
        axes.axvline(score, color=INK, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(tasks)), tasks)
    axes.set(xlim=(low_edge - 0.03, high_edge + 0.03), ylim=(len(tasks) - 0.5, -0.5))
    axes.set_xlabel("score: 0 random, 1 the certified optimum", color=INK)
    axes.tick_params(colors=INK)
    for side in axes.spines.values():
        side.set_color(INK)
    figure.legend(
        loc="outside lower center", ncols=4, frameon=False, labelcolor=INK, fontsize="small"
    )
    return figure


_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")
