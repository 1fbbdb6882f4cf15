"""Options from a file, for runs that can be repeated: `--config run.toml`.

The file holds a command's options and arguments by name, `episodes = 3000`, one per line. What is
given on the command line wins; a key that the command does not know is an error. Paths are taken
as on the command line, from the current folder.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["Config", "extra_of"]

_EXTRA = "latentmdp.extra"


def _read(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: not valid TOML: {error}") from None
    for key, value in found.items():
        if isinstance(value, dict):
            raise typer.BadParameter(f"{path}: {key!r} is a table; write key = value")
    return {key.replace("-", "_"): value for key, value in found.items()}


def _names(context: typer.Context) -> dict[str, str]:
    """Key in a file to the parameter it sets."""
    found = {}
    for parameter in context.command.params:
        if parameter.name is None or parameter.name in ("config", "help"):
            continue
        longest = max(parameter.opts, key=len)
        key = longest.removeprefix("--") if longest.startswith("--") else parameter.name
        found[key.replace("-", "_")] = parameter.name
    return found


def _apply(context: typer.Context, path: Path | None) -> Path | None:
    """Let the values of a file stand where the command line says nothing."""
    if path is None or context.resilient_parsing:
        return path
    known, values, extra = _names(context), {}, {}
    for key, value in _read(path).items():
        if key in known:
            values[known[key]] = value
        elif context.allow_extra_args and key != "config":
            extra[key] = value
        else:
            raise typer.BadParameter(
                f"{path}: unknown key {key!r}; known: {', '.join(sorted(known))}"
            )
    context.default_map = {**(context.default_map or {}), **values}
    context.meta[_EXTRA] = extra
    return path


def extra_of(context: typer.Context) -> dict[str, Any]:
    """Keys of the file that the command hands on, to a planner for instance."""
    return dict(context.meta.get(_EXTRA, {}))


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="A TOML file of options; the command line wins over it.",
        exists=True,
        dir_okay=False,
        is_eager=True,
        callback=_apply,
    ),
]
