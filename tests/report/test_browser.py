"""The page in a real browser: it loads nothing, complains of nothing, and can be read anywhere."""

import re
from pathlib import Path

import pytest


@pytest.fixture
def address(small_report):
    return (small_report / "report.html").as_uri()


@pytest.fixture
def opened(visit, address):
    """The page, and what the browser said and asked for while it loaded."""
    return visit(address)


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)`, as WCAG defines it."""
    parts = [int(p) / 255 for p in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def style(page, selector: str, name: str) -> str:
    return page.eval_on_selector(selector, f"e => getComputedStyle(e)['{name}']")


def test_nothing_is_loaded_and_nothing_goes_wrong(opened, address):
    _, events = opened
    assert events == {"said": [], "asked": [address]}


def test_every_picture_is_there(opened):
    page, _ = opened
    sizes = page.eval_on_selector_all(
        "figure svg", "all => all.map(e => [e.clientWidth, e.clientHeight])"
    )
    assert len(sizes) >= 19
    assert all(width > 200 and height > 100 for width, height in sizes)
    captions = page.eval_on_selector_all(
        ".pictures figure .caption", "all => all.map(e => e.innerText)"
    )
    assert len(captions) == len(sizes)
    assert all(len(text) > 40 for text in captions)
    ids = page.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("width", [320, 375, 1200])
def test_only_tables_scroll_sideways(opened, width):
    page, _ = opened
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.eval_on_selector_all(
        "figure, svg, p, h1, h2",
        f"all => all.filter(e => e.getBoundingClientRect().right > {width})",
    )
    assert not outside


def test_tables_of_words_need_no_scrolling_on_a_phone(opened):
    page, _ = opened
    page.set_viewport_size({"width": 375, "height": 800})
    widths = page.eval_on_selector_all(
        "table.stack", "all => all.map(e => [e.scrollWidth, e.parentElement.clientWidth])"
    )
    assert widths
    assert all(table <= room for table, room in widths)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_in_both_schemes(opened, scheme):
    page, _ = opened
    page.emulate_media(color_scheme=scheme)
    paper, card = style(page, "body", "backgroundColor"), style(page, "figure", "backgroundColor")
    assert (luminance(paper) > 0.5) == (scheme == "light")
    assert contrast(style(page, "body", "color"), paper) > 7.0
    assert contrast(style(page, ".caption", "color"), card) > 4.5
    fills = page.eval_on_selector_all(
        "figure svg text", "all => [...new Set(all.map(e => getComputedStyle(e).fill))]"
    )
    assert fills
    assert all(contrast(fill, card) > 4.5 for fill in fills)
    lines = page.eval_on_selector_all(
        "figure svg [style*='--series']",
        "all => [...new Set(all.map(e => getComputedStyle(e).stroke))]",
    )
    drawn = [line for line in lines if line.startswith("rgb")]
    assert drawn
    assert all(contrast(line, card) > 3.0 for line in drawn)


def test_paper_is_white_whatever_the_screen(opened, tmp_path: Path):
    page, _ = opened
    page.emulate_media(media="print", color_scheme="dark")
    assert luminance(style(page, "body", "backgroundColor")) > 0.99
    assert contrast(style(page, "body", "color"), "rgb(255, 255, 255)") > 7.0
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
