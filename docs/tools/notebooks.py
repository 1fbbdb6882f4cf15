"""Run the notebooks of the documents and keep what their cells print, show and draw.

python docs/tools/notebooks.py [docs/notebooks/NAME.ipynb ...]

needs no Jupyter: a cell is executed, what it prints is kept, and so is the value of its last
expression: a picture as SVG, a result as its table, anything else as text. The site and the tests
run them with the same function.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from latentmdp.report.page import inline_svg

__all__ = ["run"]


def run(notebook: dict[str, Any], name: str = "cell") -> dict[str, Any]:
    """The notebook with the outputs of its cells, executed in order in one namespace."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            outputs = _outputs("".join(cell["source"]), namespace, f"{name}{number}")
            cell = {**cell, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, namespace: dict[str, Any], key: str) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    first = tree.body[:-1] if last else tree.body
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(first, []), key, "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), key, "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed)})
    if value is not None:
        data = {"text/plain": _words(value)}
        if isinstance(value, Axes):
            data["image/svg+xml"] = inline_svg(value.figure, key)
        elif hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_()
        outputs.append(
            {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": data}
        )
    return outputs


def _lines(printed: io.StringIO) -> list[str]:
    return printed.getvalue().splitlines(keepends=True)


def _words(value: Any) -> str:
    """A picture in words, for those who do not see it: what is drawn against what."""
    if not isinstance(value, Axes):
        return repr(value)
    names = [text for text in (value.get_title(), value.get_ylabel(), value.get_xlabel()) if text]
    return "A picture: " + ", against ".join(names)


if __name__ == "__main__":
    folder = Path(__file__).parents[1] / "notebooks"
    for path in map(Path, sys.argv[1:] or sorted(folder.glob("*.ipynb"))):
        filled = run(json.loads(path.read_text()), path.stem)
        path.write_text(json.dumps(filled, indent=1, ensure_ascii=False) + "\n")
        print(path)
