"""`latentmdp demo`: the whole story on two instances."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentmdp.cli import options
from latentmdp.cli.screen import session

if TYPE_CHECKING:
    from latentmdp.report.demo import Chapter

__all__ = ["command"]

PAGE = "demo.html"


def command(
    out: Annotated[Path, typer.Option("--out", help="Folder for page and runs.")] = Path("out"),
    quick: Annotated[bool, typer.Option("--quick", help="A small version, in seconds.")] = False,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Tell the whole story: hide the context, act, learn from nothing, certify.

    On two instances: what random, memoryless and planned policies earn, what a learner finds that
    starts from nothing, how the belief in the true context grows, and what the planner certifies.
    Ends with a table and a page with pictures; `latentmdp report` reads the runs it leaves.

    Example: `latentmdp demo --out out`
    """
    with session(as_json, quiet, debug) as screen:
        from latentmdp.report.demo import INSTANCES, QUICK, steps_of, tell
        from latentmdp.report.story import HEADER, values_row, write_story

        out.mkdir(parents=True, exist_ok=True)
        instances = QUICK if quick else INSTANCES
        chapters = []
        with screen.progress() as progress:
            task = progress.add_task("", total=1 + sum(map(steps_of, instances.values())))

            def report(doing: str) -> None:
                progress.update(task, description=doing)
                progress.advance(task)

            for name, sizes in instances.items():
                chapters.append(tell(name, sizes, seed, report))
            report("drawing")
            write_story(out / PAGE, chapters)
        for chapter in chapters:
            for k, run in enumerate(chapter.runs):
                options.save(run, out / f"{chapter.name}-{k}.npz")
        screen.result(page=str(out / PAGE), instances={c.name: _as_dict(c) for c in chapters})
        for c in chapters:
            screen.say(repr(c.model), c.name)
        screen.table(
            "Value per episode (± standard error), the context hidden",
            HEADER,
            [values_row(c) for c in chapters],
        )
        for c in chapters:
            screen.say(_in_words(c), c.name)
        screen.say(str(out / PAGE), "The whole story with pictures:")


def _in_words(c: "Chapter") -> str:
    found = ", ".join(str(run.model.n_contexts) for run in c.runs)
    number = f"found by the learner: {found}" if c.told == "auto" else "the learner was told"
    belief = c.growth["filter with the true model"].mean(axis=0)
    gap = "" if c.plan.gap is None else f", proved within {c.plan.gap:.2%} of optimal"
    return (
        f"{c.model.n_contexts} hidden contexts ({number}); "
        f"belief in the true one grows from {belief[0]:.2f} to {belief[-1]:.2f} in an episode; "
        f"the plan for the true model earns {c.best.mean:.3f}{gap}."
    )


def _as_dict(c: "Chapter") -> dict[str, Any]:
    return {
        "separation": c.delta,
        "random": c.random.mean,
        "memoryless": c.memoryless.mean,
        "learned": [value.mean for value in c.learned],
        "best": c.best.mean,
        "best_stderr": c.best.stderr,
        "lower": c.plan.lower,
        "upper": c.plan.upper,
        "full_information": c.informed,
        "contexts": c.model.n_contexts,
        "found_contexts": [run.model.n_contexts for run in c.runs],
        "belief": c.growth["filter with the true model"].mean(axis=0).tolist(),
    }
