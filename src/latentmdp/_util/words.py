"""Counted things, lists and guesses in messages."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """The number with its noun: "1 context", "2 contexts"; `nouns` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def listed(parts: Sequence[str], word: str = "and") -> str:
    """The parts as one reads them: "a, b and c"."""
    *first, last = parts or [""]
    return f" {word} ".join([", ".join(first), last] if first else [last])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """What may have been meant, to follow a word that is not known; empty if nothing is near."""
    words = list(known)
    near = get_close_matches(word.lower().replace("_", "-"), words, n=3, cutoff=0.5)
    near = near or get_close_matches(word.lower(), words, n=3, cutoff=0.5)
    return f" (did you mean {listed([repr(one) for one in near], 'or')}?)" if near else ""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
