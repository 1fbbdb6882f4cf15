"""Search that works from disk: the index as a script, since a page opened from disk may fetch none.

The search of MkDocs loads its index with a request from a worker; a browser refuses both to pages
that were opened as files. Scripts it loads from anywhere, so the index is written as one, which
docs/js/search.js reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

INDEX = "search/search_index"


def on_post_build(config: Any) -> None:
    """Write search_index.js beside search_index.json."""
    source = Path(config["site_dir"]) / f"{INDEX}.json"
    entries = json.loads(source.read_text())["docs"]
    kept = [[entry["location"], entry["title"], entry["text"]] for entry in entries]
    text = f"window.searchIndex = {json.dumps(kept, ensure_ascii=False)};\n"
    (Path(config["site_dir"]) / f"{INDEX}.js").write_text(text)
    source.unlink()
