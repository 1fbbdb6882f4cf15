"""One self-contained HTML page of text, tables and figures, for screen, phone and paper.

It needs no script and no network. Figures stand in it as SVG with the page's font and colours:
matplotlib draws with the colours below, and in the SVG each becomes a CSS variable, which the page
sets for light, dark and print.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from latentmdp._util import names
from latentmdp._util.figures import COLOURS, INK, MUTED, STYLE, canvas
from latentmdp._util.results import cell, labelled
from latentmdp._util.storage import atomic_write
from latentmdp._util.words import listed, plural
from latentmdp._version import __version__
from latentmdp.model import LatentMDP

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LIGHT = {
    **{"ink": INK, "muted": MUTED, "quiet": "#57606a", "paper": "#ffffff", "card": "#f6f8fa"},
    **{"line": "#d8dee4", "link": "#0060a0"},
    **{f"series-{i}": colour for i, colour in enumerate(COLOURS)},
}
"""The colours of a page by the names of their CSS variables."""
_BRIGHT = ("#56b4e9", "#f39b3a", "#35c99a", "#e58bc6", "#d8bd3c", "#92a4ff", "#ff7f8e")
DARK = {
    **{"ink": "#e6e9ec", "muted": "#7d8791", "quiet": "#a3adb7", "paper": "#14181d"},
    **{"card": "#1c2229", "line": "#39424c", "link": "#6cb6ff"},
    **{f"series-{i}": colour for i, colour in enumerate(_BRIGHT)},
}
"""The same for those who ask for dark pages."""

# Colours that matplotlib draws with. White is not among them: a text on a dark mark stays white.
_VARIABLES = {colour: f"--{name}" for name, colour in LIGHT.items() if name != "paper"}
_VARIABLES["#000000"] = "--ink"


def context_labels(model: LatentMDP) -> list[str]:
    """The names of the contexts, or their numbers."""
    return names.labels("context", model.context_names, model.n_contexts)


def sizes(model: LatentMDP) -> str:
    """How large a model is, in words."""
    M, S, A, _ = model.dimensions
    parts = [plural(M, "possible model"), plural(S, "state"), plural(A, "action")]
    return f"{listed(parts)}, {model.duration}"


def declarations(palette: Mapping[str, str]) -> str:
    """A palette as CSS."""
    return " ".join(f"--{name}: {colour};" for name, colour in palette.items())


def inline_svg(figure: Figure, key: str) -> str:
    """The `<svg>` element of a figure; `key` keeps its ids apart from those of other figures."""
    import matplotlib as mpl

    stream = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": key}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{key}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", text)
    for size in ("width", "height"):
        text = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", text, count=1)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable}, {colour})")
    return text


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, its title, and a caption that says what to see in it."""

    title: str
    figure: Figure
    caption: str


def drawn(title: str, caption: str, draw: Callable[[Axes], object], height: float = 3.4) -> Picture:
    """A picture on axes of a figure of its own, which no notebook shows."""
    figure, axes = canvas(height)
    draw(axes)
    return Picture(title, figure, caption)


@dataclass(frozen=True)
class Table:
    """Rows under a header; columns named in `words` are aligned left, as the first is.

    Rows may be given as values: they are kept as texts, with a dash for what is not known. A
    `folded` table shows its title only, until it is asked for.
    """

    title: str
    header: Sequence[str]
    rows: Iterable[Sequence[Any]]
    caption: str = ""
    words: Sequence[str] = ()
    folded: bool = False

    def __post_init__(self) -> None:
        rows = [tuple(map(cell, row)) for row in self.rows]
        object.__setattr__(self, "rows", rows)


def facts_table(title: str, facts: Mapping[str, Any], caption: str = "") -> Table:
    """What a result or its settings say, a fact a row."""
    return Table(title, ("what", "value"), labelled(facts), caption, words=("value",))


@dataclass(frozen=True, eq=False)
class Section:
    """A heading, a few sentences, tables and pictures."""

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


def render(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The page as text."""
    from markupsafe import Markup

    numbers = itertools.count()

    def svg(picture: Picture) -> Markup:
        # Drawn by matplotlib, which escapes its texts: safe to stand in the page as it is.
        return Markup(inline_svg(picture.figure, f"f{next(numbers)}"))

    palettes = {"light": declarations(LIGHT), "dark": declarations(DARK)}
    return from_template(
        "report.html.j2", title=title, lead=lead, sections=sections, svg=svg, **palettes
    )


def html_tables(tables: Sequence[Table]) -> str:
    """Tables for a notebook, without the page around them."""
    return from_template("tables.html.j2", tables=tables)


def csv_text(rows: Iterable[Iterable[Any]]) -> bytes:
    """The rows as a CSV file; a text that a spreadsheet would run gets an apostrophe in front."""
    stream = io.StringIO()
    cells = (
        [f"'{c}" if isinstance(c, str) and c[:1] in tuple("=+-@\t\r") else c for c in row]
        for row in rows
    )
    csv.writer(stream, lineterminator="\n").writerows(cells)
    return stream.getvalue().encode()


def from_template(name: str, **values: Any) -> str:
    """A template of this package with these values, which are escaped unless they are `Markup`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("latentmdp.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(version=__version__, **values)


def write_page(
    path: str | os.PathLike[str], title: str, lead: str, sections: Sequence[Section]
) -> None:
    """Write the page, all or nothing."""
    text = render(title, lead, sections).encode()
    with atomic_write(path) as stream:
        stream.write(text)
