"""What there is, as name to summary; a summary is the first line of a docstring."""

from __future__ import annotations

import inspect
import pkgutil
import re
from importlib import import_module
from typing import Any

import latentmdp as lm
from latentmdp.cli.choices import PLANNERS

__all__ = ["experiments", "instances", "learners", "planners"]

_LEARNERS = {
    "learn": "online.learn",
    "lucrl": "online.LUCRL",
    "solve": "offline.solve",
    "fit": "estimation.initialize",
    "EM": "estimation.EM",
    "SpectralPSR": "spectral.SpectralPSR",
    "recover": "spectral.recover",
    "SubspaceClustering": "estimation.SubspaceClustering",
    "TrajectoryKMeans": "estimation.TrajectoryKMeans",
    "PosteriorSampling": "online.baselines.PosteriorSampling",
    "explore": "deterministic.explore",
}
"""Commands in lower case first, then what only Python reaches."""


def instances() -> dict[str, str]:
    """Names for `latentmdp make`."""
    from latentmdp.instances import list_instances

    return {entry.name: entry.summary for entry in list_instances()}


def planners() -> dict[str, str]:
    """Names for `--method` and `--policy`."""
    found = {}
    for name, (owner, arguments) in PLANNERS.items():
        told = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        found[name] = _summary(getattr(lm, owner)) + (f" {owner}({told})" if told else "")
    return found


def learners() -> dict[str, str]:
    """Ways to learn, from logs or by acting."""
    found = {}
    for name, path in _LEARNERS.items():
        module, _, attribute = path.rpartition(".")
        found[name] = _summary(getattr(import_module(f"latentmdp.{module}"), attribute))
    return found


def experiments() -> dict[str, str]:
    """Names for `latentmdp reproduce`."""
    package = import_module("latentmdp.experiments")
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if info.ispkg]
    return {
        name.replace("_", "-"): _summary(import_module(f"{package.__name__}.{name}"))
        for name in sorted(names)
    }


def _summary(thing: Any) -> str:
    first = (inspect.getdoc(thing) or "").partition("\n")[0]
    return re.sub(r" (of )?\[\w+\d{4}[^\]]*\]", "", first)  # without the citation
