"""Tables that notebooks show in place of a plain text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["html_table"]

_LEFT = ' style="text-align: left"'


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A table of two columns, names and values, as HTML; a value that is None is left out.

    Parameters
    ----------
    title
        The caption.
    rows
        (name, value); a value is shown by `str`.
    """
    shown = "".join(
        f"<tr><th{_LEFT}>{escape(name)}</th><td{_LEFT}>{escape(str(value))}</td></tr>"
        for name, value in rows
        if value is not None
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{shown}</tbody></table>"
