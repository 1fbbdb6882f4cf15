"""The plan of the house: imports point one way, a thing has one name, a loop is written once.

Read from the source of every module; `docs/architecture.md` shows the same plan to people.
"""

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from types import FunctionType

import pytest
from frames import LIMITS, frames_of_entries
from words import public_modules

import latentmdp

ROOT = Path(latentmdp.__file__).parent

LAYERS = (
    {"_kernels", "_util", "_version", "engines", "errors"},
    {
        "outcomes",
        "_model_table",
        "_total_reward",
        "model",
        "logs",
        "worlds",
        "belief",
        "policies",
        "sessions",
        "simulation",
        "metrics",
    }
    | {"fit"},
    {"instances", "planning", "estimation", "spectral", "deterministic", "theory", "envs"},
    {"online", "offline"},
    {"io"},
    {"plot"},
    {"experiments", "report", "testing"},
    {"cli", "__main__"},
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# The package itself names everything, so only the top layer may import it whole.
TOP = len(LAYERS) - 1
FACELESS = ("_util", "_kernels")  # their modules are parts by themselves
MODULES = sorted(p.relative_to(ROOT) for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


@cache
def tree_of(path):
    """The syntax of a module; read where it is needed, not where tests are collected."""
    return ast.parse((ROOT / path).read_text())


def component(path):
    """The part of the package a module belongs to: its name right below `latentmdp`."""
    return path.parts[0].removesuffix(".py")


def type_checking_only(tree):
    """Nodes that run only under a type checker."""
    blocks = (n for n in ast.walk(tree) if isinstance(n, ast.If))
    guarded = (b for b in blocks if isinstance(b.test, ast.Name) and b.test.id == "TYPE_CHECKING")
    return {id(node) for block in guarded for child in block.body for node in ast.walk(child)}


def text_of(node):
    """A string that is passed to `import_module`, as far as it is known: its leading constant."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        return node.values[0].value
    return ""


@cache
def imported(path):
    """(module, names, line, runs) for every import from the package, however deep in a function.

    `names` is None where a whole module is imported, also by a string.
    """
    return list(read_imports(path))


def read_imports(path):
    tree = tree_of(path)
    unreached = type_checking_only(tree)
    for node in ast.walk(tree):
        runs = id(node) not in unreached
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None, node.lineno, runs
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module, [alias.name for alias in node.names], node.lineno, runs
        elif path == Path("_util/lazy.py"):
            continue  # it imports what a package lists for type checkers, which is read there
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("import_module", "__import__")
        ):
            name = text_of(node.args[0])
            own = f"latentmdp.{component(path)}."
            assert name.startswith(own), f"{path}:{node.lineno}: a string stands in for an import"


def targets(path):
    """(component, line, runs) for every import from the package."""
    for module, names, line, runs in imported(path):
        package, _, rest = module.partition(".")
        if package != "latentmdp":
            continue
        if rest:
            yield rest.split(".")[0], line, runs
        else:
            for name in names or ["latentmdp"]:
                yield name, line, runs


def test_imports_point_down():
    for path in MODULES:
        own = component(path)
        assert own in RANK, f"{path}: add {own!r} to a layer"
        for target, line, _ in targets(path):
            rank = TOP if target == "latentmdp" else RANK.get(target)
            assert rank is not None, f"{path}:{line}: {target!r} is in no layer"
            assert rank <= RANK[own], f"{path}:{line}: {own} imports {target}, which is above it"


def test_no_part_imports_itself_in_a_circle():
    graph = defaultdict(set)
    for path in MODULES:
        found = {t for t, _, runs in targets(path) if runs} - {component(path), "latentmdp"}
        graph[component(path)] |= found
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


@cache
def names_on_face(component_name):
    """What a part lists for others: in the `__init__` of a package, in `__all__` of a module."""
    package = ROOT / component_name
    file = package / "__init__.py" if package.is_dir() else package.with_suffix(".py")
    tree = ast.parse(file.read_text())
    names = set()
    for node in tree.body:
        if package.is_dir() and isinstance(node, ast.If):
            imports = (n for n in node.body if isinstance(n, ast.ImportFrom))
            names |= {alias.name for n in imports for alias in n.names}
        if isinstance(node, ast.ImportFrom) and package.is_dir():
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names |= set(ast.literal_eval(node.value))
        if isinstance(node, ast.FunctionDef) and package.is_dir():
            names.add(node.name)
    return names


def crossings():
    """(path, line, module, names) for every import from another part of the package."""
    for path in MODULES:
        for module, names, line, _ in imported(path):
            parts = module.split(".")
            if parts[0] != "latentmdp" or len(parts) == 1 or parts[1] == component(path):
                continue
            yield path, line, module, names


def test_names_cross_from_one_part_to_another_only_through_its_face():
    """`from latentmdp.planning import QMDP`, never `from latentmdp.planning.qmdp import QMDP`."""
    for path, line, module, names in crossings():
        part = module.split(".")[1]
        if part in FACELESS:
            private = [name for name in names or () if name.startswith("_")]
            assert not private, f"{path}:{line}: {private} is private in {module}"
            continue
        assert module == f"latentmdp.{part}", f"{path}:{line}: {module} is inside of {part}"
        if part == "_version":
            continue
        hidden = set(names or ()) - names_on_face(part)
        assert not hidden, f"{path}:{line}: {sorted(hidden)} is not on the face of {module}"


def test_helpers_have_users():
    """Nothing lists them, so a helper or a loop that nobody names any more is found here."""
    texts = [(ROOT / path).read_text() for path in (*MODULES, Path("__init__.py"))]
    words = Counter(word for text in texts for word in re.findall(r"\w+", text))
    for path in MODULES:
        if component(path) in FACELESS:
            defined = [
                n for n in tree_of(path).body if isinstance(n, ast.FunctionDef | ast.ClassDef)
            ]
            named = [n for n in defined if "overload" not in map(called, n.decorator_list)]
            unused = [node.name for node in named if words[node.name] < 2]
            assert not unused, f"{path}: nobody uses {unused}"


def called(decorator):
    """The name of a decorator, with or without arguments."""
    return ast.unparse(getattr(decorator, "func", decorator))


def test_modules_inside_a_package_list_no_names():
    for path in MODULES:
        tree = tree_of(path)
        if len(path.parts) > 1 and path.name != "__init__.py":
            listed = [n for n in tree.body if isinstance(n, ast.Assign)]
            assert not any(ast.unparse(n.targets[0]) == "__all__" for n in listed), path


def classes():
    """Every class of the package: its name and where it is."""
    found = defaultdict(list)
    for path in MODULES:
        tree = tree_of(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path}:{node.lineno}")
    return found


def test_a_class_name_stands_for_one_class():
    twice = {name: places for name, places in classes().items() if len(places) > 1}
    assert not twice
    assert classes()["World"][0].startswith("worlds.py")
    assert classes()["Run"][0].startswith("online/run.py")
    assert classes()["Kind"][0].startswith("io/kinds.py")


def test_steps_of_an_episode_are_played_in_one_loop():
    """Whoever asks a world to `step` in a loop plays an episode: `worlds.play_episode`."""
    places = []
    for path in MODULES:
        tree = tree_of(path)
        for loop in ast.walk(tree):
            if isinstance(loop, ast.For | ast.While):
                methods = (n for n in ast.walk(loop) if isinstance(n, ast.Attribute))
                steps = [m for m in methods if m.attr == "step" and "world" in ast.unparse(m.value)]
                places += [f"{path}" for _ in steps]
    assert places == ["worlds.py"]


def test_only_kernels_compile():
    for path in MODULES:
        tree = tree_of(path)
        if component(path) == "_kernels" or "kernels" in (
            path.parent.name,
            path.stem.split("_")[0],
        ):
            continue
        if path.parts[:2] == ("engines", "cuda"):
            continue
        if path == Path("_util/clock.py"):  # it only listens
            continue
        names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        names += [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert not any(name.split(".")[0] == "numba" for name in names), f"{path} imports numba"


def test_few_frames_lie_between_a_call_and_the_kernel_that_does_the_work():
    measured = frames_of_entries()
    assert measured.keys() == LIMITS.keys()
    for entry, frames in measured.items():
        assert 0 < len(frames) <= LIMITS[entry], " > ".join(frames)


def test_public_names_resolve():
    for name in latentmdp.__all__:
        assert getattr(latentmdp, name) is not None, name
    assert sorted(latentmdp.__all__) == dir(latentmdp)
    with pytest.raises(AttributeError, match="no attribute 'mkae'"):
        latentmdp.mkae  # noqa: B018


def test_every_module_there_is_can_be_seen():
    modules = {p.stem for p in ROOT.glob("*.py")} | {p.name for p in ROOT.iterdir() if p.is_dir()}
    public = {name for name in modules if not name.startswith("_")} - {"cli"}
    assert public <= set(dir(latentmdp))


def test_modules_need_no_import_of_their_own():
    """Each is reached with no other module of the package imported: they are forgotten between."""
    names = public_modules()
    forget = "[sys.modules.pop(m) for m in list(sys.modules) if m.startswith('latentmdp')]"
    reach = f"import latentmdp; print(getattr(latentmdp, name).__name__); {forget}"
    code = f"import sys\nfor name in {names}:\n    {reach}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"latentmdp.{name}" for name in names]


def test_no_module_shares_its_name_with_a_public_function():
    modules = {p.stem for p in ROOT.glob("*.py")} | {p.name for p in ROOT.iterdir() if p.is_dir()}
    functions = {n for n in latentmdp.__all__ if isinstance(getattr(latentmdp, n), FunctionType)}
    assert not modules & functions
