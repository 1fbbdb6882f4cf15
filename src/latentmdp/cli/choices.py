"""Planners and policies by the names that commands use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import latentmdp as lm

if TYPE_CHECKING:
    from latentmdp.policies import Policy

__all__ = ["PLANNERS", "planner", "policy"]

PLANNERS: dict[str, Callable[..., Any]] = {"qmdp": lambda **options: lm.QMDP(**options)}
"""Name to constructor; the constructor is looked up when it is called."""


def planner(method: str, **options: Any) -> Any:
    """The planner called `method`, made with `options`."""
    if method not in PLANNERS:
        raise typer.BadParameter(f"unknown method {method!r}; known: {', '.join(PLANNERS)}")
    return PLANNERS[method](**options)


def policy(name: str, model: lm.LatentMDP) -> Any:
    """The policy called `name`: `uniform`, what a planner finds for the model, or a file's."""
    if name == "uniform":
        return lm.UniformPolicy()
    if name in PLANNERS:
        return planner(name).plan(model).policy
    if Path(name).is_file():
        return _policy_in(name)
    known = ", ".join(["uniform", *PLANNERS])
    raise typer.BadParameter(f"unknown policy {name!r}; known: {known}, or a policy's file")


def _policy_in(path: str) -> Policy:
    from latentmdp.policies import Policy

    found = lm.load(path)
    if not isinstance(found, Policy):
        raise typer.BadParameter(f"{path} holds {type(found).__name__}, not a policy")
    return found
