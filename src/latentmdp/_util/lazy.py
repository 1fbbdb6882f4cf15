"""Packages whose names are imported when they are first used.

A package lists its names once, as imports under `if TYPE_CHECKING:`, which type checkers and
readers see. `lazy_names` reads that block and gives the module functions of [PEP 562] that import a
name's module on its first use. So importing one planner does not import them all, and a name that
crosses from one package to another is written down in exactly one place.
"""

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from its imports for type checkers."""
    module = sys.modules[package]
    homes = _homes(inspect.getsource(module), package)
    names = sorted(homes)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name])
        is_module = homes[name] == f"{package}.{name}"  # a name may be a module of the package
        value = home if is_module else getattr(home, name)
        setattr(module, name, value)
        return value

    return get, lambda: names, names


def _homes(source: str, package: str) -> dict[str, str]:
    """The module of every name that is imported under `if TYPE_CHECKING:`."""
    blocks = (n for n in ast.parse(source).body if isinstance(n, ast.If))
    guarded = (b for b in blocks if ast.unparse(b.test) == "TYPE_CHECKING")
    imports = (n for block in guarded for n in block.body if isinstance(n, ast.ImportFrom))
    homes = {}
    for node in imports:
        for alias in node.names:
            home = f"{node.module}.{alias.name}" if node.module == package else str(node.module)
            homes[alias.asname or alias.name] = home
    return homes
