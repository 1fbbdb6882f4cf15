"""Tables for notebooks."""

from dataclasses import dataclass
from html.parser import HTMLParser

from latentmdp._util.results import Result


class Cells(HTMLParser):
    """The text of every cell, and whether tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@dataclass(frozen=True, eq=False)
class Found(Result):
    name: str
    nothing: float | None
    zero: int

    def facts(self) -> dict[str, object]:
        return {"a<b": self.name, "nothing": self.nothing, "zero": self.zero}


def test_rows_are_escaped_and_missing_values_left_out() -> None:
    parser = Cells()
    parser.feed(Found("<script>", None, 0)._repr_html_())
    assert parser.open == []
    assert parser.texts == ["Found", "a<b", "<script>", "zero", "0"]
