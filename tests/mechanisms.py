"""What is written once: shapes in the source by which a second version of a mechanism is found.

    python tests/mechanisms.py

prints every function that looks like one of them. Text is not compared: a copy with other names has
the same shape. A shape is a necessary sign, not a proof, so functions that have it for another
reason are listed, with the reason, in `tests/test_one_way.py`.
"""

import ast
from pathlib import Path

import latentmdp

ROOT = Path(latentmdp.__file__).parent
# Oracles are other ways on purpose; the search of the point-based planners has loops of its own.
OUTSIDE = ("testing/", "planning/hsvi/", "planning/pbvi.py")


def functions():
    """(place, node) for every function of the library, as `planning/qmdp.py: QMDP.plan`."""
    for path in sorted(ROOT.rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        if not file.startswith(OUTSIDE):
            yield from _functions(ast.parse(path.read_text()), f"{file}: ")


def _functions(node, prefix):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef):
            yield f"{prefix}{child.name}", child
        else:
            yield from _functions(child, prefix)


def of_source(source):
    """The functions of a piece of source."""
    return [node for _, node in _functions(ast.parse(source), "")]


def _all(node, *kinds):
    return [child for child in ast.walk(node) if isinstance(child, kinds)]


def _called(call):
    return ast.unparse(call.func).split(".")[-1]


def _calls(node, *names):
    return [call for call in _all(node, ast.Call) if _called(call) in names]


def _variable(node):
    """The name at the root of a subscript, an attribute or a call of a method."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _assigned(function, matches):
    """Variables to which an expression is assigned that `matches`."""
    return {
        _variable(target)
        for node in _all(function, ast.Assign)
        if matches(node.value)
        for target in node.targets
    }


def _multiplies(node):
    return any(isinstance(part.op, ast.Mult) for part in _all(node, ast.BinOp))


def _sums(node):
    return bool(_calls(node, "sum", "einsum", "dot"))


def bayes(function):
    """A product that is divided by its own sum; or exponents, less their largest, that are."""
    totals = _assigned(function, _sums)
    products = _assigned(function, _multiplies)
    for node in _all(function, ast.AugAssign):
        totals |= {_variable(node.target)} if isinstance(node.op, ast.Add) else set()
        products |= {_variable(node.target)} if isinstance(node.op, ast.Mult) else set()

    def is_total(node):
        return _sums(node) or bool({_variable(n) for n in _all(node, ast.Name)} & totals)

    def divides(node):
        return any(isinstance(n.op, ast.Div) and is_total(n.right) for n in _all(node, ast.BinOp))

    inverse = _assigned(
        function, lambda v: divides(v) and isinstance(getattr(v, "left", None), ast.Constant)
    )
    for node in _all(function, ast.AugAssign, ast.BinOp):
        top, below = (
            (node.target, node.value)
            if isinstance(node, ast.AugAssign)
            else (node.left, node.right)
        )
        normalised = isinstance(node.op, ast.Div) and is_total(below)
        normalised |= isinstance(node.op, ast.Mult) and _variable(below) in inverse
        if normalised and (_variable(top) in products or _multiplies(top)):
            return True
    largest = _assigned(function, lambda value: bool(_calls(value, "max")))
    lowered = any(
        isinstance(node.op, ast.Sub) and (_calls(node, "max") or _variable(right) in largest)
        for node in _all(function, ast.AugAssign, ast.BinOp)
        for right in [node.value if isinstance(node, ast.AugAssign) else node.right]
    )
    return bool(lowered and _calls(function, "exp"))


def _maximises(function):
    if _calls(function, "argmax", "maximum", "fmax"):
        return True
    if any(isinstance(call.func, ast.Attribute) for call in _calls(function, "max")):
        return True
    for node in _all(function, ast.If):  # if value > best: best = value
        if isinstance(node.test, ast.Compare) and len(node.test.ops) == 1:
            compared = {ast.unparse(node.test.left), ast.unparse(node.test.comparators[0])}
            for assignment in _all(node, ast.Assign):
                sides = {ast.unparse(assignment.targets[0]), ast.unparse(assignment.value)}
                if compared <= sides:
                    return True
    return any(  # best = max(best, value)
        ast.unparse(node.targets[0]) in [ast.unparse(argument) for argument in call.args]
        for node in _all(function, ast.Assign)
        for call in _calls(node.value, "max")
    )


def _expects(function):
    """Whether it adds up products: a value weighted by probabilities."""
    if any(isinstance(node.op, ast.MatMult) for node in _all(function, ast.BinOp)):
        return True
    if _calls(function, "einsum", "dot", "matmul", "tensordot"):
        return True
    if any(len(call.args) > 1 for call in _calls(function, "bincount")):
        return True
    adding = (node for node in _all(function, ast.AugAssign) if isinstance(node.op, ast.Add))
    return any(_multiplies(node.value) for node in adding)


def bellman(function):
    """A maximum over actions, an expected value, and a discount or time that runs backwards."""
    words = [n.id for n in _all(function, ast.Name)] + [n.arg for n in _all(function, ast.arg)]
    words += [n.attr for n in _all(function, ast.Attribute)]
    backwards = any(
        ast.unparse(call).startswith("reversed(range(")
        or (_called(call) == "range" and len(call.args) == 3 and "-1" in ast.unparse(call.args[2]))
        for call in _calls(function, "range", "reversed")
    )
    discounts = any("discount" in word or word == "gamma" for word in words)
    return _maximises(function) and _expects(function) and (backwards or discounts)


def acting(function):
    """The largest product of vectors with a belief: what a policy does, or which plan follows."""
    vectors = "vectors"
    for call in _calls(function, "argmax"):
        if any(isinstance(node.op, ast.MatMult) for node in _all(call, ast.BinOp)):
            return True
    products = _assigned(
        function, lambda v: any(isinstance(n.op, ast.MatMult) for n in _all(v, ast.BinOp))
    )
    if any(
        {_variable(call.func), *map(_variable, call.args)} & products
        for call in _calls(function, "argmax")
    ):
        return True
    names = {n.id for n in _all(function, ast.Name)} | {n.arg for n in _all(function, ast.arg)}
    return (
        bool({"belief", "beliefs"} & names)
        and _maximises(function)
        and _expects(function)
        and (bool(_all(function, ast.For)) or vectors in names)
    )


def linear_solver(function):
    """A linear system or an inverse next to an identity matrix: (I - discount P) x = b."""
    solves = _calls(function, "solve", "inv", "spsolve", "splu", "bicgstab", "gmres", "lu_factor")
    iterative = [n for n in _all(function, ast.Attribute) if n.attr in ("bicgstab", "gmres")]
    identity = _calls(function, "eye", "identity", "eye_array", "diags_array")
    return bool((solves and identity) or iterative)


def counting(function):
    """Counts of cells (s, a, s', z) of logged steps, by NumPy or by hand."""
    names = {n.attr for n in _all(function, ast.Attribute)} | {
        n.id for n in _all(function, ast.Name)
    }
    logged = {"states", "actions"} <= names or ("steps" in names and {"state", "action"} <= names)
    tallied = bool(_calls(function, "bincount", "at", "histogram"))
    return logged and tallied


def progress(function):
    """A bar of rich."""
    modules = [node.module or "" for node in _all(function, ast.ImportFrom)]
    return any(module.startswith("rich.progress") for module in modules) or bool(
        _calls(function, "Progress", "tqdm", "track")
    )


def where_work_runs(function):
    """Threads, processes, or compiled loops that start threads."""
    pools = ("ThreadPoolExecutor", "ProcessPoolExecutor", "Pool", "Thread", "Process", "prange")
    return bool(_calls(function, *pools))


MECHANISMS = {
    "Bayes' rule": bayes,
    "the Bellman backup": bellman,
    "what a policy does next": acting,
    "solving (I - discount P) x = b": linear_solver,
    "counting cells": counting,
    "progress": progress,
    "where work runs": where_work_runs,
}


if __name__ == "__main__":
    for name, has_shape in MECHANISMS.items():
        print(name)
        for place, function in functions():
            if has_shape(function):
                print("   ", place)
