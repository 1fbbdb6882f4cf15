"""Tables for notebooks."""

from html.parser import HTMLParser

from latentmdp._util.results import html_table


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


def test_rows_are_escaped_and_missing_values_left_out() -> None:
    parser = Cells()
    parser.feed(html_table("A & B", [("a<b", "<script>"), ("nothing", None), ("zero", 0)]))
    assert parser.open == []
    assert parser.texts == ["A & B", "a<b", "<script>", "zero", "0"]
