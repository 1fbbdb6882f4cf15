"""Results: frozen dataclasses that compare by content and say what they are.

What a result says of itself are its `facts`: values by name. Notebooks, the command line and --json
all show these, so nothing is listed twice: `in_words` makes a value of them readable, `plain` makes
it data for JSON. Where people want more words than the value itself has, a fact is `Worded`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from html import escape
from typing import Any, NamedTuple, Self, cast

from latentmdp._util.arrays import same_content

_LEFT = ' style="text-align: left"'


class Worded(NamedTuple):
    """A fact with words of its own: machines read the value, people the text.

    An empty text leaves the fact out for people.
    """

    value: Any
    text: str

    @classmethod
    def lines(cls, sentences: Sequence[str]) -> Worded:
        """Sentences, each on a line of its own."""
        return cls(list(sentences), "\n".join(sentences))


class Factual:
    """Base of everything that says what it is: in a notebook, and on the command line."""

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know first, by name."""
        return {"summary": repr(self)}

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th{_LEFT}>{escape(name)}</th><td{_LEFT}>{escape(text)}</td></tr>"
            for name, text in labelled(self.facts())
        )
        return f"<table><caption>{type(self).__name__}</caption><tbody>{rows}</tbody></table>"


class Result(Factual):
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

    def to_fields(self) -> dict[str, Any]:
        """The fields by name that are compared, for a file; unless a class chooses."""
        return {one.name: getattr(self, one.name) for one in fields(cast(Any, self)) if one.compare}

    @classmethod
    def from_fields(cls, found: dict[str, Any]) -> Self:
        """The result with these fields."""
        return cls(**found)

    def facts(self) -> dict[str, Any]:
        """What a reader wants to know first, by name; every field, unless a class chooses."""
        return {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}


def extent(numbers: Any) -> Worded | None:
    """The least and the greatest of an array, as a fact; None where there is none."""
    if not numbers.size:
        return None
    ends = [numbers.min().item(), numbers.max().item()]
    return Worded(ends, "{:.4g} to {:.4g}".format(*ends))


def labelled(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, text) of the facts that people are shown: None and what is empty are left out."""
    for name, value in facts.items():
        text = in_words(value, digits=3 if name == "seconds" else 6)
        if text:
            yield name.replace("_", " "), text


def in_words(value: Any, digits: int = 6, most: int = 20) -> str:
    """A value for people; empty for None and NaN.

    Parameters
    ----------
    digits
        Of a number that is not whole.
    most
        Entries of a list.
    """
    if isinstance(value, Worded):
        return value.text
    if value is None:
        return ""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.{digits}g}"
    if isinstance(value, list) or type(value) is tuple:
        more = [] if len(value) <= most else [f"... ({len(value):,} in all)"]
        return ", ".join([*map(in_words, value[:most]), *more])
    return str(value)


def cell(value: Any) -> str:
    """A value in a table: four digits of a number, and a dash where there is none."""
    return value if isinstance(value, str) else in_words(value, digits=4) or "-"


def plain(value: Any) -> Any:
    """A value as JSON can hold it: text for paths and infinities, null for NaN."""
    if isinstance(value, Worded):
        return plain(value.value)
    if is_dataclass(value) and not isinstance(value, type):
        value = value.facts() if isinstance(value, Result) else asdict(value)
    if hasattr(value, "_asdict"):  # of a named tuple
        value = value._asdict()
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if isinstance(value, bool | int | float | str | None) else repr(value)
