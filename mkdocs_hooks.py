"""How the site is built: a search that works from disk, and what the reference lists.

The search of MkDocs loads its index with a request from a worker; a browser refuses both to pages
that were opened as files. Scripts it loads from anywhere, so the index is written as one, which
docs/js/search.js reads.

The reference lists the public functions and classes of a module. A module inside a package has no
`__all__`, so its documented constants and type aliases, which are for readers of the code, would
be listed too; where there is an `__all__`, it decides.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import griffe

INDEX = "search/search_index"


def on_post_build(config: Any) -> None:
    """Write search_index.js beside search_index.json."""
    source = Path(config["site_dir"]) / f"{INDEX}.json"
    entries = json.loads(source.read_text())["docs"]
    rows = [[entry["location"], entry["title"], entry["text"]] for entry in entries]
    text = f"window.searchIndex = {json.dumps(rows, ensure_ascii=False)};\n"
    (Path(config["site_dir"]) / f"{INDEX}.js").write_text(text)
    source.unlink()


class FunctionsAndClasses(griffe.Extension):
    """Take constants that no `__all__` names out of modules, before pages are made of them."""

    def on_module_members(self, *, mod: Any, **_: Any) -> None:
        """Leave functions, classes and submodules; the fields of a class are its own, and stay."""
        if mod.exports is None:
            for name, member in list(mod.members.items()):
                if not member.is_alias and member.is_attribute:
                    del mod.members[name]
