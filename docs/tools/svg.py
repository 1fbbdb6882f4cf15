"""Pictures of the documents as files: each brings the colours of light and dark pages along."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from latentmdp.report.page import DARK, LIGHT, declarations, inline_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def standalone_svg(figure: Figure, key: str) -> str:
    """A figure as a file of its own, on a card that is light or dark with its reader's screen."""
    style = (
        f"<style>svg {{ {declarations(LIGHT)} background: var(--card); border-radius: 6px; }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {declarations(DARK)} }} }} "
        'text { fill: var(--ink); font-family: system-ui, "Segoe UI", Roboto, sans-serif'
        " !important; }</style>"
    )
    text = re.sub(r"(?m)^ +| +$", "", inline_svg(figure, key))
    text = re.sub(r"(\d\.\d\d)\d+", r"\1", text)  # a hundredth of a point cannot be seen
    return text.replace(">", f">{style}", 1)
