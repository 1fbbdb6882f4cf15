"""The pictures of docs/explanation are drawn, and the page shows each with its command."""

from pathlib import Path

import pytest

from latentmdp.report.docs_figures import PICTURES, write_pictures

PAGES = Path(__file__).parents[1] / "docs" / "explanation"


def test_every_picture_is_drawn(tmp_path):
    written = write_pictures(tmp_path / "pictures")
    assert [path.stem for path in written] == list(PICTURES)
    for path in written:
        assert path.read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_shown(name):
    shown = "".join(page.read_text() for page in sorted(PAGES.glob("*.md")))
    assert f'src="pictures/{name}.svg"' in shown
