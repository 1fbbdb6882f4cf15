"""Packages whose names are imported when they are first used.

A package lists its names once, as imports under `if TYPE_CHECKING:`, which type checkers and
readers see. `lazy_names` reads that block and gives the module functions of PEP 562 that import a
name's module on its first use. So importing one planner does not import them all, and a name that
crosses from one package to another is written down in exactly one place. A second such block, if
there is one, has the names that are for other parts of the library only: they are not in `__all__`.
"""

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from its imports for type checkers."""
    module = sys.modules[package]
    public, *others = _homes(inspect.getsource(module), package)
    homes = {name: home for block in (public, *others) for name, home in block.items()}
    names = sorted(public)

    def get(name: str) -> Any:
        if name not in homes and (name.startswith("_") or not find_spec(f"{package}.{name}")):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes.setdefault(name, f"{package}.{name}"))
        is_module = homes[name] == f"{package}.{name}"  # a name may be a module of the package
        value = home if is_module else getattr(home, name)
        setattr(module, name, value)
        return value

    return get, lambda: names, names


def _homes(source: str, package: str) -> list[dict[str, str]]:
    """The module of every name that is imported under `if TYPE_CHECKING:`, block by block."""
    branches = (n for n in ast.parse(source).body if isinstance(n, ast.If))
    return [
        {
            alias.asname or alias.name: (
                f"{node.module}.{alias.name}" if node.module == package else str(node.module)
            )
            for node in branch.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for branch in branches
        if ast.unparse(branch.test) == "TYPE_CHECKING"
    ]
