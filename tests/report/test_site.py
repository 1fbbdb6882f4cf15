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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_in_pictures_can_be_read(visit, site, scheme):
    """In every point of a text, over whatever is painted below it there."""
    page, _ = visit((site / "index.html").as_uri())
    page.emulate_media(color_scheme=scheme)
    pictures = [site / "architecture.svg", *sorted((site / "pictures").glob("*-graph.svg"))]
    pictures += [site / "pictures" / f"{name}.svg" for name in ("arena", "graph", "purpose")]
    for path in (*pictures, site / "notebooks" / "reading_a_policy.html"):
        page.goto(path.as_uri())
        pairs = page.evaluate(PAINTED)
        assert pairs, path.name
        for ink, behind in pairs:
            assert contrast(ink, behind) > 4.5, (path.name, ink, behind)
    drawn = page.eval_on_selector_all(".drawn svg", "all => all.map(e => e.clientWidth)")
    assert drawn
    assert min(drawn) > 200


PAINTED = """() => {
  const over = (top, share, below) => below.map((v, i) => share * top[i] + (1 - share) * v);
  const parts = (colour) => (colour.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const faded = (e) => e instanceof Element ? getComputedStyle(e).opacity * faded(e.parentNode) : 1;
  const pairs = new Set();
  for (const text of document.querySelectorAll("svg text")) {
    text.scrollIntoView({block: "center"});
    const box = text.getBoundingClientRect();
    for (const x of [0.1, 0.3, 0.5, 0.7, 0.9]) {
      let behind = [255, 255, 255];
      const at = [box.left + x * box.width, box.top + box.height / 2];
      for (const e of document.elementsFromPoint(...at).reverse()) {
        if (e.closest("text")) continue;
        const look = getComputedStyle(e), shape = e instanceof SVGElement && e.tagName !== "svg";
        const [r, g, b, alpha = 1] = parts(shape ? look.fill : look.backgroundColor);
        const share = alpha * (shape ? look.fillOpacity * faded(e) : 1);
        behind = over([r, g, b], share, behind);
      }
      const rounded = behind.map(Math.round).join();
      pairs.add(getComputedStyle(text).fill + "|rgb(" + rounded + ")");
    }
  }
  return [...pairs].map((pair) => pair.split("|"));
}"""
"""The colour of each text in a picture, and what is painted below it, in five points of it."""


def test_the_site_asks_for_nothing_and_is_small(site):
    sizes = [path.stat().st_size for path in site.rglob("*") if path.is_file()]
    assert sum(sizes) < 30e6
    for path in pages(site):
        assert not re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)"', path.read_text())
