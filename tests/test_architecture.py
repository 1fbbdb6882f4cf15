"""Imports point one way (DESIGN, "The one data flow"), read from the source of every module."""

import ast
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

import latentmdp

ROOT = Path(latentmdp.__file__).parent

LAYERS = (
    {
        "errors",
        "_arrays",
        "_compile_clock",
        "_kernels",
        "_model_checks",
        "_random",
        "_threads",
        "_version",
    },
    {"_acting", "_model_contexts", "_tables", "_trajectory_checks", "_trajectory_parts"}
    | {"model", "trajectories", "belief", "policies", "sessions", "simulation", "metrics"}
    | {"fit", "space"},
    {"instances", "planning", "learning", "spectral", "deterministic", "theory", "io", "envs"},
    {"pipeline", "experiments", "report", "testing"},
    {"cli", "__main__"},
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# The package itself names everything, so only the top layer may import it whole.
TOP = len(LAYERS) - 1
MODULES = sorted(p.relative_to(ROOT) for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def component(path):
    """The part of the package a module belongs to: its name right below `latentmdp`."""
    return path.parts[0].removesuffix(".py")


def type_checking_only(tree):
    """Nodes that run only under a type checker."""
    blocks = (n for n in ast.walk(tree) if isinstance(n, ast.If))
    guarded = (b for b in blocks if isinstance(b.test, ast.Name) and b.test.id == "TYPE_CHECKING")
    return {id(node) for block in guarded for child in block.body for node in ast.walk(child)}


def imported(tree, path):
    """(component, line, runs) for every import from the package, however deep in a function."""
    unreached = type_checking_only(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            whole = node.module == "latentmdp"
            names = [f"latentmdp.{a.name}" for a in node.names] if whole else [node.module]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "latentmdp":
                yield (
                    rest.split(".")[0] if rest else "latentmdp",
                    node.lineno,
                    id(node) not in unreached,
                )


def imports_of(path):
    return list(imported(ast.parse((ROOT / path).read_text()), path))


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_point_down(path):
    own = component(path)
    assert own in RANK, f"{path}: add {own!r} to a layer"
    for target, line, _ in imports_of(path):
        rank = TOP if target == "latentmdp" else RANK.get(target)
        assert rank is not None, f"{path}:{line}: {target!r} is in no layer"
        assert rank <= RANK[own], f"{path}:{line}: {own} imports {target}, which is above it"


def test_no_part_imports_itself_in_a_circle():
    graph = {}
    for path in MODULES:
        targets = {t for t, _, runs in imports_of(path) if runs} - {component(path), "latentmdp"}
        graph.setdefault(component(path), set()).update(targets)
    done, active = set(), []

    def visit(name):
        assert name not in active, " -> ".join([*active[active.index(name) :], name])
        if name not in done:
            active.append(name)
            for target in sorted(graph.get(name, ())):
                visit(target)
            done.add(active.pop())

    for name in sorted(graph):
        visit(name)


def test_only_kernels_compile():
    for path in MODULES:
        if component(path) in {"_kernels", "_compile_clock"}:  # the clock only listens
            continue
        tree = ast.parse((ROOT / path).read_text())
        names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        names += [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert not any(name.split(".")[0] == "numba" for name in names), f"{path} imports numba"


def test_public_names_resolve():
    for name in latentmdp.__all__:
        assert getattr(latentmdp, name) is not None, name
    known = {"__version__", *latentmdp._HOMES, *latentmdp._SUBPACKAGES}
    assert set(latentmdp.__all__) == known
    assert sorted(latentmdp.__all__) == dir(latentmdp)
    homes = {home.split(".")[0] for home in latentmdp._HOMES.values()} - {"errors", "fit"}
    assert homes <= {*latentmdp._SUBPACKAGES, *latentmdp._UNLISTED}
    with pytest.raises(AttributeError, match="no attribute 'mkae'"):
        latentmdp.mkae  # noqa: B018


@pytest.mark.parametrize("name", [*latentmdp._SUBPACKAGES, *latentmdp._UNLISTED])
def test_modules_need_no_import_of_their_own(name):
    alone = f"import latentmdp; print(latentmdp.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"latentmdp.{name}"


def test_no_module_shares_its_name_with_a_public_function():
    modules = {p.stem for p in ROOT.glob("*.py")} | {p.name for p in ROOT.iterdir() if p.is_dir()}
    functions = {n for n in latentmdp.__all__ if isinstance(getattr(latentmdp, n), FunctionType)}
    assert not modules & functions
