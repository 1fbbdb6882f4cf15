"""What the package registers when it is imported, without importing anything slow for it.

The function that writes files: `latentmdp.io` lies above the classes whose objects it writes, so a
method that saves its object asks for the `saver` registered here.

The Gymnasium environment of this package, without importing Gymnasium for it.

Gymnasium takes ten times as long to import as this package. So where it is loaded already, the
environment is registered at once; where it is not, as soon as somebody imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["register_environment", "register_saver", "saver"]

_SAVERS: list[Callable[[Any, Any], None]] = []


def register_saver(save: Callable[[Any, Any], None]) -> None:
    """Say which function (object, path) writes objects to files."""
    _SAVERS[:] = [save]


def saver() -> Callable[[Any, Any], None]:
    """The function (object, path) that writes objects to files."""
    return _SAVERS[0]


NAME, ENTRY_POINT = "LatentMDP-v0", "latentmdp.envs:LatentMDPEnv"


def register_environment() -> None:
    """Make `gymnasium.make("LatentMDP-v0")` work, now or once Gymnasium is imported."""
    if "gymnasium" in sys.modules:
        _register(sys.modules["gymnasium"])
    elif not any(isinstance(finder, _WhenImported) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WhenImported())


def _register(gymnasium: ModuleType) -> None:
    if NAME not in gymnasium.registry:
        gymnasium.register(id=NAME, entry_point=ENTRY_POINT)


class _WhenImported(MetaPathFinder):
    """Finds Gymnasium as any other finder would, and registers once it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenRegister(spec.loader)
        return spec


class _ThenRegister(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _register(module)
