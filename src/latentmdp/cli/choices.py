"""Planners and policies by the names that commands use."""

from collections.abc import Callable
from typing import Any

import typer

import latentmdp as lm

__all__ = ["PLANNERS", "planner", "policy"]

PLANNERS: dict[str, Callable[..., Any]] = {"qmdp": lambda **options: lm.QMDP(**options)}
"""Name to constructor; the constructor is looked up when it is called."""


def planner(method: str, **options: Any) -> Any:
    """The planner called `method`, made with `options`."""
    if method not in PLANNERS:
        raise typer.BadParameter(f"unknown method {method!r}; known: {', '.join(PLANNERS)}")
    return PLANNERS[method](**options)


def policy(name: str, model: lm.LatentMDP) -> Any:
    """The policy called `name` for a model: `uniform`, or what a planner finds."""
    if name == "uniform":
        return lm.UniformPolicy()
    if name not in PLANNERS:
        known = ", ".join(["uniform", *PLANNERS])
        raise typer.BadParameter(f"unknown policy {name!r}; known: {known}")
    return planner(name).plan(model).policy
