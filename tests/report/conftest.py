"""A real browser for the pages, where there is one."""

import shutil

import pytest
from pages import write_small_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def small_report(tmp_path_factory):
    """The folder of a small report."""
    return write_small_report(tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as tool:
        profile = tmp_path_factory.mktemp("profile")
        yield tool.chromium.launch_persistent_context(
            str(profile), executable_path=CHROMIUM, args=FLAGS
        )


@pytest.fixture
def visit(browser):
    """Open a page: the page, and what the browser said and asked for meanwhile."""
    pages = []

    def open_page(address):
        page = browser.new_page()
        pages.append(page)
        events: dict[str, list[str]] = {"said": [], "asked": []}
        page.on("console", lambda message: events["said"].append(message.text))
        page.on("pageerror", lambda error: events["said"].append(str(error)))
        page.on("request", lambda request: events["asked"].append(request.url))
        page.goto(address)
        return page, events

    yield open_page
    for page in pages:
        page.close()
