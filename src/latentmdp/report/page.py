"""One self-contained HTML page: no script, no network, light and dark, phone and paper."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from latentmdp._util.storage import atomic_write
from latentmdp._version import __version__
from latentmdp.report.drawing import inline_svg

__all__ = ["Picture", "Section", "Table", "render", "write_page"]


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, its title, and a caption that says what to see in it."""

    title: str
    figure: Figure
    caption: str
    wide: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under a header; columns named in `words` are aligned left, as the first is."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    words: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Section:
    """A heading, a few sentences, tables and pictures."""

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


def render(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("latentmdp.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbers = {id(p): i for i, p in enumerate(p for s in sections for p in s.pictures)}

    def svg(picture: Picture) -> Markup:
        # Drawn by matplotlib, which escapes its texts: safe to stand in the page as it is.
        return Markup(inline_svg(picture.figure, f"f{numbers[id(picture)]}"))

    return environment.get_template("report.html.j2").render(
        title=title, lead=lead, sections=sections, svg=svg, version=__version__
    )


def write_page(
    path: str | os.PathLike[str], title: str, lead: str, sections: Sequence[Section]
) -> None:
    """Write the page, all or nothing."""
    text = render(title, lead, sections)
    with atomic_write(path) as stream:
        stream.write(text.encode())
