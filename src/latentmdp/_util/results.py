"""Results: frozen dataclasses that compare by content and show a small table in notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from html import escape
from typing import Any, cast

from latentmdp._util.arrays import same_content

__all__ = ["Result", "html_table"]

_LEFT = ' style="text-align: left"'


class Result:
    """Base of frozen dataclasses (declared with eq=False) that report what was found.

    Two are equal if they are of one type and all their fields are, NaN equal to NaN; fields that
    are not compared, such as wall-clock times, are left out.
    """

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        compared = [field.name for field in fields(cast(Any, self)) if field.compare]
        return all(same_content(getattr(self, name), getattr(other, name)) for name in compared)

    def facts(self) -> Iterable[tuple[str, Any]]:
        """(name, value) of what a reader wants to know first; None is left out."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self.facts())


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A captioned table of (name, value) as HTML; a value is shown by `str`, None is left out."""
    shown = "".join(
        f"<tr><th{_LEFT}>{escape(name)}</th><td{_LEFT}>{escape(str(value))}</td></tr>"
        for name, value in rows
        if value is not None
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{shown}</tbody></table>"
