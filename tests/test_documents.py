"""The documents keep their word: code blocks run and print what they say, citations exist.

A ```text block that follows a ```python block is what that block prints.
"""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    """(line, code, expected output or None) for every Python block of a page."""
    text = page.read_text()
    found = list(BLOCK.finditer(text))
    for block, following in zip(found, [*found[1:], None]):
        if block[1] == "python":
            printed = following[2] if following and following[1] == "text" else None
            yield text[: block.start()].count("\n") + 2, block[2], printed


WITH_CODE = [page for page in PAGES if any(True for _ in blocks(page))]


@pytest.fixture
def registry(monkeypatch):
    """Instances that a page registers are forgotten after it."""
    from latentmdp.instances import registry

    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_code_blocks_run_and_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": page.stem}
    for line, code, expected in blocks(page):
        padded = "\n" * (line - 1) + code  # so that a traceback shows the line of the page
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(padded, str(page), "exec"), namespace)
        if expected is not None:
            assert printed.getvalue() == expected, f"{page.name}:{line}"


def test_the_readme_has_its_ten_lines():
    first = next(blocks(ROOT / "README.md"))
    statements = [line for line in first[1].splitlines() if line.strip()]
    assert 8 <= len(statements) <= 12
    assert first[2] is not None


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_citations_are_in_the_bibliography():
    known = set(
        re.findall(r"^@\w+\{(\w+),", (ROOT / "docs" / "refs.bib").read_text(), re.MULTILINE)
    )
    sources = [*(ROOT / "src").rglob("*.py"), *PAGES]
    for path in sources:
        for group in re.findall(r"\[([a-z]+\d{4}[a-z]?\b[^\]]*)\]", path.read_text()):
            for key in re.findall(r"\b[a-z]+\d{4}[a-z]?\b", group):
                assert key in known, f"{path.relative_to(ROOT)} cites {key}"


def test_the_paper_map_names_tests_that_exist():
    text = (ROOT / "docs" / "paper_map.md").read_text()
    for path in re.findall(r"`(tests/[\w/]+\.py)", text):
        assert (ROOT / path).exists(), path


def test_one_version_everywhere():
    import latentmdp

    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {latentmdp.__version__}\n" in citation
