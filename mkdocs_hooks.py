"""How the site is built: pages made of files outside of docs/, formulas, and the reference.

Nothing is fetched from elsewhere, and everything works from disk. Formulas between dollars become
MathML here, which browsers draw without a script. A line `::: lm.NAME` of a reference page stands
for the documentation of a public object under the name that users write. The changelog, how to
contribute and to cite, the examples and the notebooks are pages too, made of the files themselves,
so that nothing is written twice.

With the environment variable VERSIONED the site goes to a folder of its version, beside those that
are there, and its pages have a list to choose from: `site/` is then what a host serves.
"""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent
NOTEBOOKS = ROOT / "docs" / "notebooks"
REFERENCE = re.compile(r"^::: lm\.([\w.]+)$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """The version stands at the foot of every page."""
    version = re.search(r'"(.+)"', (ROOT / "src/latentmdp/_version.py").read_text())
    assert version is not None
    if os.environ.get("VERSIONED"):
        config.site_dir = str(ROOT / "site" / version[1])
        config.extra["version"] = {"provider": "mike"}  # the theme's list, of versions.json
    config.copyright = f"latentmdp {version[1]}, MIT licence. No script or font from elsewhere."
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made of other files."""
    pages = {
        "changelog.md": _moved((ROOT / "CHANGELOG.md").read_text()),
        "contributing.md": _moved((ROOT / "CONTRIBUTING.md").read_text()),
        "citation.md": _citation(),
        "examples.md": _examples(),
        **{f"notebooks/{path.stem}.md": _notebook(path) for path in NOTEBOOKS.glob("*.ipynb")},
    }
    for name, text in {**pages, "css/drawn.css": _palettes()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def _palettes() -> str:
    """The colours of pictures that stand in a page, by its scheme."""
    from latentmdp.report.page import DARK, LIGHT

    schemes = {"default": LIGHT, "slate": DARK}
    return "".join(
        f'[data-md-color-scheme="{scheme}"] .drawn {{ '
        f"{' '.join(f'--{name}: {colour};' for name, colour in palette.items())} }}\n"
        for scheme, palette in schemes.items()
    )


def on_page_markdown(markdown: str, **_: Any) -> str:
    """`::: lm.NAME` becomes what mkdocstrings reads."""
    return REFERENCE.sub(
        r"::: latentmdp.\1\n    options:\n      heading: lm.\1\n      toc_label: lm.\1", markdown
    )


def on_page_content(content: str, **_: Any) -> str:
    """Formulas, which arithmatex has marked, become MathML."""
    from latex2mathml.converter import convert

    def formula(found: re.Match[str]) -> str:
        display = "block" if found[1] == "div" else "inline"
        return convert(html.unescape(found[2]), display=display)

    marked = r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>'
    return re.sub(marked, formula, content, flags=re.DOTALL)


def on_post_page(output: str, **_: Any) -> str:
    """The theme's search is a dialog without a name, which screen readers need."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">', 1)


on_post_template = on_post_page
"""The page for addresses that lead nowhere is no page to mkdocs, but a template."""


def on_post_build(config: Any) -> None:
    """What the list of versions shows, and where readers begin: at the newest."""
    if not os.environ.get("VERSIONED"):
        return
    folders = [path.parent for path in Path(config.site_dir).parent.glob("*/index.html")]
    order = sorted(folders, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])
    names = [path.name for path in reversed(order)]
    entries = [{"version": name, "title": name, "aliases": []} for name in names]
    above = Path(config.site_dir).parent
    (above / "versions.json").write_text(json.dumps(entries))
    (above / "index.html").write_text(
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>latentmdp</title>'
        f'<meta http-equiv="refresh" content="0; url={names[0]}/index.html">'
        f'<a href="{names[0]}/index.html">latentmdp {names[0]}</a></html>'
    )


def _moved(text: str) -> str:
    """A page of the repository's root: its links to documents lead to their pages."""
    return re.sub(r"\]\(docs/", "](", re.sub(r"\]\((examples|LICENSE)\)", "](examples.md)", text))


def _citation() -> str:
    return (
        "# How to cite\n\nPlease cite the library and the paper whose algorithms you run. This is "
        "`CITATION.cff`; entries of all papers are on [the page of the literature](literature.md)."
        f"\n\n```yaml\n{(ROOT / 'CITATION.cff').read_text()}```\n"
    )


def _examples() -> str:
    """Every example whole, after its first sentence."""
    parts = [
        "# Examples\n\nEach is a script of its own, under `examples/` in the repository, and run "
        "by the tests. [Notebooks](notebooks/first_plan.md) show their output too.\n"
    ]
    for path in sorted((ROOT / "examples").glob("*.py")):
        title, text = path.stem.replace("_", " ").capitalize(), path.read_text()
        parts.append(f"## {title}\n\n`examples/{path.name}`\n\n```python\n{text.strip()}\n```\n")
    return "\n".join(parts)


def _notebook(path: Path) -> str:
    """The cells of a notebook, with what they printed, showed and drew."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/svg+xml" in data:
                label = html.escape(data.get("text/plain", "a picture"))
                svg = "".join(data["image/svg+xml"])
                figure = f'<figure class="drawn" role="img" aria-label="{label}">{svg}</figure>'
                parts.append(figure)
            elif "text/html" in data:
                parts.append("".join(data["text/html"]))
            else:
                shown = "".join(output.get("text", data.get("text/plain", "")))
                parts.append(f"```text\n{shown.rstrip()}\n```")
    parts.append(f"Download it: [{path.name}]({path.name})")
    return "\n\n".join(parts)
