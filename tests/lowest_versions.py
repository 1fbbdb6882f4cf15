"""The lowest versions of what the package needs, as `pyproject.toml` promises, for pip.

    python tests/lowest_versions.py

prints one constraint `name==version` a line. `make test-lowest` runs the suite with them.
"""

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest(requirements):
    """`name==version` of every requirement `name>=version`, with or without an upper bound."""
    for requirement in requirements:
        name, version = re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", requirement).groups()
        yield f"{name}=={version}"


if __name__ == "__main__":
    print(*lowest(tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]), sep="\n")
