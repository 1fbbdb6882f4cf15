"""Options that a command's signature does not name: from a file, and left over for another.

`--config run.toml` reads a command's options and arguments by name, `episodes = 3000`, one per
line, for runs that can be repeated. What is given on the command line wins; a key that the command
does not know is an error. Paths are taken as on the command line, from the current folder.

Options that `make` and `plan` do not know are arguments of an instance or a planner: `--contexts 3
--delta=0.5 --shared-rewards` becomes {contexts: 3, delta: 0.5, shared_rewards: True}.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

_EXTRA = "latentmdp.extra"
_WORDS = {"true": True, "yes": True, "false": False, "no": False, "none": None, "null": None}


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: not valid TOML: {error}") from None
    for key, value in values.items():
        if isinstance(value, dict):
            raise typer.BadParameter(f"{path}: {key!r} is a table; write key = value")
    return {key.replace("-", "_"): value for key, value in values.items()}


def _apply(context: typer.Context, path: Path | None) -> Path | None:
    """Let the values of a file stand where the command line says nothing."""
    if path is None or context.resilient_parsing:
        return path
    parameters = {p.name for p in context.command.params if p.name} - {"config", "help"}
    values, extra = {}, {}
    for key, value in _read(path).items():
        if key in parameters:
            values[key] = value
        elif context.allow_extra_args and key != "config":
            extra[key] = value
        else:
            raise typer.BadParameter(
                f"{path}: unknown key {key!r}; known: {', '.join(sorted(parameters))}"
            )
    context.default_map = {**(context.default_map or {}), **values}
    context.meta[_EXTRA] = extra
    return path


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


def handed_on(context: typer.Context) -> dict[str, Any]:
    """Keyword arguments from what a file and the command line have that the command does not."""
    arguments: dict[str, Any] = {}
    rest = list(context.args)
    while rest:
        token = rest.pop(0)
        if not token.startswith("--") or len(token) == 2:
            raise typer.BadParameter(f"unexpected {token!r}: options look like --name value")
        option, equals, text = token[2:].partition("=")
        name = option.replace("-", "_")
        if name in arguments:
            raise typer.BadParameter(f"--{option} is given twice")
        if equals:
            arguments[name] = value_of(text)
        elif rest and not rest[0].startswith("--"):
            arguments[name] = value_of(rest.pop(0))
        else:
            arguments[name] = True
    return {**context.meta.get(_EXTRA, {}), **arguments}


def value_of(text: str) -> Any:
    """A number, a truth value, a list, or the text itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text
