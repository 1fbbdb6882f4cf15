"""Instances, planners, learners and experiments by the names that commands use."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

import latentmdp as lm
from latentmdp._util.words import did_you_mean

PLANNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "qmdp": ("QMDP", {}),
    "pbvi": ("PBVI", {}),
    "hsvi": ("HSVI", {}),
    "exact": ("Exact", {}),
    "robust": ("Robust", {}),
    "branch-and-bound": ("Memoryless", {"method": "branch-and-bound"}),
    "cadp": ("Memoryless", {"method": "cadp"}),
}
"""What help shows: name to class and arguments; the class is looked up when it is needed."""

DEFAULT = "hsvi"
"""The planner of commands that are told none: it proves how much its policy may lose."""
SECONDS = 10.0
"""What a planner may take where the user sets no limit: a newcomer waits no longer."""


def planner(method: str, **options: Any) -> Any:
    """The planner called `method`, made with `options`."""
    owner, arguments = _planner_class(method)
    for option in options:
        if option in arguments or not takes(method, option):
            own = [f.name for f in fields(owner) if f.init and f.name != "on_progress"]
            every = map(_shown, [*own, "method", "out", "plot", "objective"])
            raise typer.BadParameter(
                f"{method} takes no option {_shown(option)}{did_you_mean(_shown(option), every)}; "
                f"its own are: {', '.join(map(_shown, own))}"
            )
    return owner(**arguments, **options)


def _planner_class(method: str) -> tuple[Any, dict[str, Any]]:
    """The class and the arguments of a planner: one of the table, or by its name in lower case."""
    if method in PLANNERS:
        owner, arguments = PLANNERS[method]
        return getattr(lm.planning, owner), arguments
    for name in dir(lm.planning):
        if name.lower() == method and hasattr(getattr(lm.planning, name), "plan"):
            return getattr(lm.planning, name), {}
    raise typer.BadParameter(
        f"unknown method {method!r}{did_you_mean(method, PLANNERS)}; known: {', '.join(PLANNERS)}"
    )


def _shown(option: str) -> str:
    return "--" + option.replace("_", "-")


def limited(method: str, time_limit: float | None = SECONDS) -> dict[str, float]:
    """The time limit as an option of a planner, if it takes one."""
    given = time_limit is not None and takes(method, "time_limit")
    return {"time_limit": float(time_limit or 0.0)} if given else {}


def policy_in(path: Path) -> Any:
    """The policy in a file, or of what holds one there: a plan, a run, an outcome of `solve`."""
    content = lm.load(path)
    found = getattr(content, "policy", content)
    if not isinstance(found, lm.policies.Policy):
        raise typer.BadParameter(f"{path} holds a {type(content).__name__}, not a policy")
    return found


def takes(method: str, option: str) -> bool:
    """Whether a planner has an option."""
    return any(field.name == option for field in fields(_planner_class(method)[0]))


def find_policy(name: str, model: lm.LatentMDP) -> Any:
    """The policy called `name`: `uniform`, what a planner finds for the model, or a file's."""
    if name == "uniform":
        return lm.UniformPolicy()
    if name in PLANNERS:
        return planner(name, **limited(name)).plan(model).policy
    if Path(name).is_file():
        return policy_in(Path(name))
    if Path(name).suffix:
        raise typer.BadParameter(f"there is no file {name!r} with a policy")
    known = ["uniform", *PLANNERS]
    raise typer.BadParameter(
        f"unknown policy {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}, or a "
        "policy's file"
    )


def _instances() -> dict[str, str]:
    """Every instance, with its arguments as options of `make`."""
    return {
        e.name: " ".join([e.summary, *(f"{_shown(k)} {v}" for k, v in e.arguments.items())])
        for e in lm.instances.list_instances()
    }


def _planners() -> dict[str, str]:
    """Names for `--method` and `--policy`."""
    summaries = {}
    for name, (owner, arguments) in PLANNERS.items():
        settings = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        call = f" {owner}({settings})" if settings else ""
        summaries[name] = _summary(getattr(lm, owner)) + call
    return summaries


def _learners() -> dict[str, str]:
    """Ways to learn, from logs or by acting: commands first, then what only Python reaches."""
    commands = {"learn": lm.learn, "lucrl": lm.LUCRL, "solve": lm.solve, "fit": lm.initialize}
    others: Iterable[Any] = (
        lm.EM,
        lm.SpectralPSR,
        lm.recover,
        lm.estimation.SubspaceClustering,
        lm.estimation.TrajectoryKMeans,
        lm.online.PosteriorSampling,
        lm.deterministic.explore,
    )
    learners = {**commands, **{thing.__name__: thing for thing in others}}
    return {name: _summary(thing) for name, thing in learners.items()}


def _summary(thing: Any) -> str:
    """The first line of a docstring, without the citation."""
    first = (inspect.getdoc(thing) or "").partition("\n")[0]
    return re.sub(r" (of )?\[\w+\d{4}[^\]]*\]", "", first)


KINDS: dict[str, Callable[[], dict[str, str]]] = {
    "instances": _instances,
    "planners": _planners,
    "learners": _learners,
    "experiments": lambda: {n: _summary(m) for n, m in lm.experiments.runner.designs().items()},
}
"""What `latentmdp list` shows: each gives names and their summaries."""
