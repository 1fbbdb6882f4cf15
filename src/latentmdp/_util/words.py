"""Counted things and lists in messages."""

from collections.abc import Iterable, Sequence


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """The number with its noun: "1 context", "2 contexts"; `nouns` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def listed(parts: Sequence[str], word: str = "and") -> str:
    """The parts as one reads them: "a, b and c"."""
    *first, last = parts or [""]
    return f" {word} ".join([", ".join(first), last] if first else [last])


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
