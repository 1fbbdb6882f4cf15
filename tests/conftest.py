"""Shared set-up: helper modules are importable from every test folder, hypothesis is repeatable."""

import gc
import sys
from pathlib import Path

import pytest
from hypothesis import settings

_HERE = Path(__file__).parent
sys.path += [str(_HERE), *(str(folder) for folder in sorted(_HERE.iterdir()) if folder.is_dir())]
sys.path.append(str(_HERE.parent / "benchmarks"))  # for the arena

# The first example of a test may compile a kernel, so examples have no deadline.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("ci")

# Modules stay for the whole session: garbage is not looked for while they are imported.
gc.disable()

_FIRST, _FROM_HALF = ("kernels", "planning"), ("estimation", "online")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Planning first, learning from the half of the tests on, where a second worker begins.

    Both need many kernels, and not the same: on a machine where nothing is compiled yet, each
    kernel is compiled by one worker, and the other finds it.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(item.path.relative_to(_HERE).parts[0], []).append(item)
    first, learning = (
        [item for name in names for item in groups.pop(name, [])] for names in (_FIRST, _FROM_HALF)
    )
    rest = [item for group in groups.values() for item in group]
    before = max(0, len(items) // 2 - len(first))
    items[:] = [*first, *rest[:before], *learning, *rest[before:]]


def pytest_collection_finish() -> None:
    """From here on garbage is looked for as usual, but only among what the tests make."""
    gc.freeze()
    gc.enable()
