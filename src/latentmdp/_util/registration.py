"""What the package registers when it is imported.

The function that writes files: `latentmdp.io` lies above the classes whose objects it writes, so a
method that saves its object asks for the `saver` registered here.

The Gymnasium environment of this package, so that Gymnasium makes it by name. Gymnasium costs a
tenth of a second to import, most of it NumPy, which every use of the package needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SAVERS: list[Callable[[Any, Any], None]] = []


def register_saver(save: Callable[[Any, Any], None]) -> None:
    """Say which function (object, path) writes objects to files."""
    _SAVERS[:] = [save]


def saver() -> Callable[[Any, Any], None]:
    """The function (object, path) that writes objects to files."""
    return _SAVERS[0]


NAME, ENTRY_POINT = "LatentMDP-v0", "latentmdp.envs:LatentMDPEnv"


def register_environment() -> None:
    """Make `gymnasium.make("LatentMDP-v0")` work; the environment itself is imported when made."""
    import gymnasium

    if NAME not in gymnasium.registry:
        gymnasium.register(id=NAME, entry_point=ENTRY_POINT)
