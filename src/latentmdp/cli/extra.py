"""Options that a command does not know itself: arguments of an instance or of a planner.

`--contexts 3 --delta=0.5 --shared-rewards` becomes {contexts: 3, delta: 0.5, shared_rewards: True}.
"""

import json
from collections.abc import Sequence
from typing import Any

import typer

__all__ = ["parse_extra"]

_WORDS = {"true": True, "yes": True, "false": False, "no": False, "none": None, "null": None}


def parse_extra(tokens: Sequence[str]) -> dict[str, Any]:
    """Keyword arguments from the tokens that were left over on the command line."""
    found: dict[str, Any] = {}
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        if not token.startswith("--") or len(token) == 2:
            raise typer.BadParameter(f"unexpected {token!r}: options look like --name value")
        option, equals, text = token[2:].partition("=")
        name = option.replace("-", "_")
        if name in found:
            raise typer.BadParameter(f"--{option} is given twice")
        if equals:
            found[name] = _value(text)
        elif rest and not rest[0].startswith("--"):
            found[name] = _value(rest.pop(0))
        else:
            found[name] = True
    return found


def _value(text: str) -> Any:
    """A number, a truth value, a list, or the text itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text
