"""The documents keep their word: code blocks run and print what they say, citations exist.

A ```text block that follows a ```python block is what that block prints.
"""

import contextlib
import importlib
import inspect
import io
import json
import re
import runpy
from pathlib import Path

import pytest
from words import public_modules, words

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXT = {".py", ".md", ".txt", ".bib", ".css", ".js", ".html", ".toml", ".ipynb"}
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


def reference():
    """(page, name, text up to the next name) of every object in the reference."""
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        parts = re.split(r"^::: lm\.([\w.]+)$", page.read_text(), flags=re.MULTILINE)
        yield from ((page.stem, *pair) for pair in zip(parts[1::2], parts[2::2]))


def test_the_reference_has_every_public_name_once_with_an_example():
    import latentmdp

    found = [(name, text) for _, name, text in reference()]
    names = [name for name, _ in found]
    assert len(names) == len(set(names))
    public = set(latentmdp.__all__) - {"__version__", *public_modules()}
    assert sorted(public - set(names)) == []
    shown = {f"plot.{name}" for name in latentmdp.plot.__all__}
    assert sorted(shown - set(names)) == []
    for name, text in found:
        owner, _, member = name.rpartition(".")
        home = getattr(latentmdp, owner) if owner else latentmdp
        thing = getattr(home, member)
        assert member in home.__all__, f"lm.{name} is not public"
        assert inspect.isclass(thing) or inspect.isfunction(thing), name
        assert inspect.getdoc(thing), f"lm.{name} says nothing of itself"
        if name in public | shown:
            assert "```python" in text, f"lm.{name} has no example"


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_print_what_they_show(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tool = runpy.run_path(str(ROOT / "docs" / "tools" / "notebooks.py"))
    notebook = json.loads(path.read_text())
    for kept, run in zip(notebook["cells"], tool["run"](notebook)["cells"]):
        old, new = kept.get("outputs", []), run.get("outputs", [])
        if not old:  # docs/tools/notebooks.py has not filled it yet
            continue
        assert [sorted(o.get("data", o)) for o in old] == [sorted(o.get("data", o)) for o in new]
        assert [o.get("text") for o in old] == [o.get("text") for o in new], kept["source"]


def word_table():
    """(word, meaning, places) of every row of the table of public words."""
    text = (ROOT / "docs" / "notation.md").read_text().partition("\n## Every public word\n")[2]
    for line in text.partition("\n## ")[0].splitlines():
        if line.startswith("| `"):
            word, meaning, places = line.strip("| ").split(" | ")
            yield word.strip("`"), meaning, re.findall(r"`([^`]+)`", places)


def test_every_public_word_has_one_meaning():
    found, told = words(), list(word_table())
    listed = [word for word, _, _ in told]
    assert sorted(set(found) - set(listed)) == [], "no row in docs/notation.md"
    assert sorted(set(listed) - set(found)) == [], "a row for a word that does not occur"
    assert listed == sorted(set(listed)), "each word once, in alphabetical order"
    for word, meaning, places in told:
        assert meaning.endswith("."), word
        assert places, word
        assert set(places) <= set(found[word]), f"{word} does not occur at all of {places}"


def test_options_of_commands_are_among_the_words():
    found = words()
    assert "latentmdp plan --time-limit" in found["time_limit"]
    assert "latentmdp convert FILE" in found["file"]
    assert not {"help", "version", "-q"} & {w for w in found if any("--" in p for p in found[w])}


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f": {page.relative_to(ROOT / 'docs').as_posix()}\n" in navigation, page


NEEDS_EXTRA = {"yogurt_panel"}  # of packages: tests/test_yogurt_panel.py
EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.py") if p.stem not in NEEDS_EXTRA)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()


MADE = {"changelog", "contributing", "citation", "examples", *(p.stem for p in NOTEBOOKS)}
"""Pages that mkdocs_hooks.py makes of other files; the strict build checks links to them."""


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith("http") and Path(target).stem not in MADE:
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


def paper_map():
    """(paper item, functions, tests) of every row of the map that is not a heading."""
    text = (ROOT / "docs" / "paper_map.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    for row in rows[1:]:
        if not row[0].startswith("**"):
            assert len(row) == 3, row
            yield row[0], re.findall(r"`([^`]+)`", row[1]), re.findall(r"`([^`]+)`", row[2])


def resolves(name):
    """Whether a dotted name below `latentmdp` leads to a module, class, function or attribute."""
    found = importlib.import_module("latentmdp")
    path = "latentmdp"
    for part in name.split("."):
        path += f".{part}"
        if inspect.ismodule(found):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(path)
        fields = getattr(found, "__annotations__", {})
        if not hasattr(found, part) and part not in fields:
            return False
        found = getattr(found, part, None)
    return True


def test_the_paper_map_names_functions_that_exist():
    for item, functions, _ in paper_map():
        assert functions, f"{item}: no function"
        for name in functions:
            if name.startswith("latentmdp reproduce "):
                name = f"experiments.{name.rpartition(' ')[2].replace('-', '_')}.work"
            path, _, function = name.partition("::")  # of a script beside the documents
            if function:
                assert f"\ndef {function}(" in (ROOT / path).read_text(), f"{item}: {name}"
            else:
                assert resolves(re.sub(r"\(.*\)$", "", name)), f"{item}: {name}"


def test_the_paper_map_names_tests_that_exist():
    for item, _, tests in paper_map():
        assert tests, f"{item}: no test"
        for test in tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).is_file(), f"{item}: {path}"
            assert not name or f"\ndef {name}(" in (ROOT / path).read_text(), f"{item}: {test}"


def test_the_paper_map_has_every_numbered_item():
    items = " ".join(item for item, _, _ in paper_map())
    kinds = {
        "Theorem": ("3.1", "3.3", "3.4", "3.5", "A.1", "D.1", "D.2"),
        "Proposition": ("3.2",),
        "Algorithm": "123456",
        "Figure": ("1a", "1b", "2", "3", "4", "5"),
        "Lemma": ("B.1", "B.2", "B.3", "C.1", "C.2", "C.3", "E.3"),
        "Assumption": "1234",
        "Condition": "123",
        "Corollary": "1",
    }
    for kind, numbers in kinds.items():
        for number in numbers:
            assert f"{kind} {number} " in f"{items} ", f"{kind} {number}"


# Unfinished work, paths of one machine, package mirrors.
LEFTOVERS = re.compile(
    r"issue ?#\d|/home/|/root/|TODO|FIXME|index-url"
    r"|artifactory|://[\w.]*(pypi|registry|mirror)"
)


def test_nothing_is_left_over():
    kept = ("src", "tests", "docs", "examples", "benchmarks")
    files = [p for folder in kept for p in (ROOT / folder).rglob("*") if p.suffix in TEXT]
    files += [p for p in ROOT.iterdir() if p.is_file() and p.suffix in {*TEXT, ".cff"}]
    for path in files:
        if path != Path(__file__):
            found = LEFTOVERS.search(path.read_text())
            assert not found, f"{path.relative_to(ROOT)}: {found[0]}"


def test_one_version_everywhere():
    import latentmdp

    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {latentmdp.__version__}\n" in citation
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == latentmdp.__version__
