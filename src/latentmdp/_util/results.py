"""Results: frozen dataclasses that compare by content and show a small table in notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from latentmdp._util.arrays import same_fields

__all__ = ["Result", "html_table"]

_LEFT = ' style="text-align: left"'


class Result:
    """Base of frozen dataclasses (declared with eq=False) that report what was found.

    Two are equal if they are of one type and all their fields are, NaN equal to NaN; fields that
    are not compared, such as wall-clock times, are left out.
    """

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return same_fields(self, other) if type(self) is type(other) else NotImplemented

    def facts(self) -> Iterable[tuple[str, Any]]:
        """(name, value) of what a reader wants to know first; None is left out."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self.facts())


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
