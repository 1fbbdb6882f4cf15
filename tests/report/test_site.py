"""The site in a browser, from disk: no scrolling sideways, no errors, search, dark pages."""

import importlib.util
from pathlib import Path

import pytest
from test_browser import contrast, luminance, style

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages that people write, without the reference, which takes long to build."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
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


def test_search_works_from_disk(visit, site):
    page, events = visit((site / "index.html").as_uri())
    page.fill("#rtd-search-form input", "worst case")
    page.press("#rtd-search-form input", "Enter")
    page.wait_for_selector("#mkdocs-search-results article")
    found = page.eval_on_selector_all("#mkdocs-search-results a", "all => all.map(e => e.href)")
    assert any("costs_to_risk.html" in address for address in found)
    page.fill("#mkdocs-search-query", "zzzzqqq")
    assert page.inner_text("#mkdocs-search-results") == "Nothing was found."
    page.fill("#mkdocs-search-query", "a+b(c")  # no pattern, only words
    page.fill("#mkdocs-search-query", "glossary")
    page.click("#mkdocs-search-results a")
    page.wait_for_load_state()
    assert events["said"] == []
    assert page.url.startswith(site.as_uri())
    assert "search.html" not in page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read(visit, site, scheme):
    page, _ = visit((site / "how-to" / "own_models.html").as_uri())
    page.emulate_media(color_scheme=scheme)
    paper = style(page, ".wy-nav-content", "backgroundColor")
    assert (luminance(paper) > 0.5) == (scheme == "light")
    assert contrast(style(page, ".rst-content p", "color"), paper) > 4.5
    code = style(page, ".highlight", "backgroundColor")
    colours = page.eval_on_selector_all(
        ".highlight pre, .highlight span[class]:not(.w)",
        "all => [...new Set(all.map(e => getComputedStyle(e).color))]",
    )
    assert all(contrast(colour, code) > 4.0 for colour in colours)
    for name in ("notation.html", "index.html"):
        page.goto((site / name).as_uri())
        table = page.eval_on_selector_all(
            "table td",
            "all => all.slice(0, 20).map(e => [getComputedStyle(e).color,"
            " getComputedStyle(e).backgroundColor])",
        )
        for ink, behind in table:
            ground = paper if behind == "rgba(0, 0, 0, 0)" else behind
            assert contrast(ink, ground) > 4.5
