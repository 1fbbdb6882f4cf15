"""Shared set-up: helper modules are importable from every test folder, hypothesis is repeatable."""

import sys
from pathlib import Path

from hypothesis import settings

_HERE = Path(__file__).parent
sys.path += [str(_HERE), *(str(folder) for folder in sorted(_HERE.iterdir()) if folder.is_dir())]

# The first example of a test may compile a kernel, so examples have no deadline.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("ci")
