"""The pictures of the documents are drawn, shown, and read in light and dark."""

from pathlib import Path

import pytest
from support import script

pictures = script("docs/tools/pictures.py")
PICTURES, write_pictures = pictures.PICTURES, pictures.write_pictures

ROOT = Path(__file__).parents[1]
SLOW = {"learning", "bounds"}
"""Pictures of runs that take seconds; the others are drawn here."""


def test_pictures_are_drawn_for_light_and_dark(tmp_path):
    quick = [name for name in PICTURES if name not in SLOW]
    written = write_pictures(tmp_path / "pictures", quick)
    assert [path.stem for path in written] == quick
    for path in written:
        text = path.read_text()
        assert text.startswith("<svg")
        assert "prefers-color-scheme: dark" in text
        assert len(text) < 60_000
        assert 'href="http' not in text


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_kept_and_shown(name):
    assert (ROOT / "docs" / "pictures" / f"{name}.svg").is_file()
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert any(f"pictures/{name}.svg" in page.read_text() for page in pages)


def test_no_picture_is_left_over():
    shown = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    shown += (ROOT / "README.md").read_text()
    for path in (ROOT / "docs" / "pictures").iterdir():
        assert f"pictures/{path.name}" in shown, path.name
