"""The site in a browser, from disk: no scrolling sideways, no errors, search, dark pages."""

import importlib.util
import re
from pathlib import Path

import pytest
from test_browser import contrast, luminance, style

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages that people write, without the reference, which takes long to build."""
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    if importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("mkdocstrings is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    target = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(target), strict=True))
    return target


def pages(site):
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_scrolls_sideways_or_complains(visit, site, width):
    page, events = visit((site / "index.html").as_uri())
    page.set_viewport_size({"width": width, "height": 800})
    for path in pages(site):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
        assert events["said"] == [], path.name
    assert all(address.startswith(("file:", "data:")) for address in events["asked"])


def test_search_works_from_disk_and_is_in_view(visit, site):
    page, events = visit((site / "index.html").as_uri())
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.locator(".md-search__input").is_visible()
    page.fill(".md-search__input", "worst case")
    page.wait_for_selector(".md-search-result__item")
    found = page.eval_on_selector_all(".md-search-result__link", "all => all.map(e => e.href)")
    assert any("costs_to_risk.html" in address or "planning.html" in address for address in found)
    page.fill(".md-search__input", "")
    page.type(".md-search__input", "zzzzqqq")
    page.wait_for_function(
        "document.querySelector('.md-search-result__meta').innerText.startsWith('No matching')"
    )
    assert events["said"] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read(visit, site, scheme):
    for name in ("how-to/own_models.html", "notation.html", "index.html"):
        page, _ = visit((site / name).as_uri())
        page.emulate_media(color_scheme=scheme)
        page.reload()
        paper = style(page, "body", "backgroundColor")
        assert (luminance(paper) > 0.5) == (scheme == "light")
        for ink, behind in page.evaluate(INKS):
            assert contrast(ink, behind) > 4.5, (name, ink, behind)


INKS = """() => {
  const shown = new Set();
  const texts = ["p", "td", "th", "pre span", "pre code", "a"].map((e) => `.md-content ${e}`);
  for (const e of document.querySelectorAll([...texts, ".md-tabs__link", ".md-nav__link"].join())) {
    if (!e.textContent.trim() || e.getClientRects().length === 0) continue;
    let behind = e;
    while (behind && getComputedStyle(behind).backgroundColor.endsWith(" 0)")) {
      behind = behind.parentElement;
    }
    const paper = getComputedStyle(behind || document.body).backgroundColor;
    shown.add(getComputedStyle(e).color + "|" + paper);
  }
  return [...shown].map((pair) => pair.split("|"));
}"""
"""Every colour of text on the page, with what is behind it."""


def test_the_site_asks_for_nothing_and_is_small(site):
    sizes = [path.stat().st_size for path in site.rglob("*") if path.is_file()]
    assert sum(sizes) < 30e6
    for path in pages(site):
        assert not re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)"', path.read_text())
