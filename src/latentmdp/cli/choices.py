"""Planners and policies by the names that commands use."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import latentmdp as lm

if TYPE_CHECKING:
    from latentmdp.policies import Policy

__all__ = ["PLANNERS", "planner", "policy", "takes"]

_PLANNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "qmdp": ("QMDP", {}),
    "pbvi": ("PBVI", {}),
    "hsvi": ("HSVI", {}),
    "exact": ("Exact", {}),
    "branch-and-bound": ("Memoryless", {"method": "branch-and-bound"}),
    "mip": ("Memoryless", {"method": "mip"}),
    "cadp": ("Memoryless", {"method": "cadp"}),
}
PLANNERS = {name: made for name, made in _PLANNERS.items() if made[0] in lm.__all__}
"""Name to public class and arguments; the class is looked up when it is needed."""


def planner(method: str, **options: Any) -> Any:
    """The planner called `method`, made with `options`."""
    if method not in PLANNERS:
        raise typer.BadParameter(f"unknown method {method!r}; known: {', '.join(PLANNERS)}")
    owner, arguments = PLANNERS[method]
    for option in options:
        if option in arguments or not takes(method, option):
            known = ", ".join(_shown(f.name) for f in fields(getattr(lm, owner)) if f.init)
            raise typer.BadParameter(
                f"{method} takes no option {_shown(option)}; its own are: {known}"
            )
    return getattr(lm, owner)(**arguments, **options)


def _shown(option: str) -> str:
    return "--" + option.replace("_", "-")


def takes(method: str, option: str) -> bool:
    """Whether a planner has an option."""
    return any(field.name == option for field in fields(getattr(lm, PLANNERS[method][0])))


def policy(name: str, model: lm.LatentMDP) -> Any:
    """The policy called `name`: `uniform`, what a planner finds for the model, or a file's."""
    if name == "uniform":
        return lm.UniformPolicy()
    if name in PLANNERS:
        return planner(name).plan(model).policy
    if Path(name).is_file():
        return _policy_in(name)
    if Path(name).suffix:
        raise typer.BadParameter(f"there is no file {name!r} with a policy")
    known = ", ".join(["uniform", *PLANNERS])
    raise typer.BadParameter(f"unknown policy {name!r}; known: {known}, or a policy's file")


def _policy_in(path: str) -> Policy:
    from latentmdp.policies import Policy

    return lm.io.load_as(Policy, path, "a policy")
