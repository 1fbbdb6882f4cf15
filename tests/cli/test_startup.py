"""Help must not wait for heavy imports."""

import subprocess
import sys

HEAVY = ("numba", "scipy", "matplotlib", "pyarrow", "pandas")


def loaded_after(code):
    listed = f"{code}\nimport sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    return subprocess.run(
        [sys.executable, "-c", listed], capture_output=True, text=True, check=True
    ).stdout.split()


def test_import_is_light():
    assert loaded_after("import latentmdp") == []
    assert loaded_after("import latentmdp as lm; lm.LatentMDP") == []


def test_the_command_line_is_light():
    assert loaded_after("import latentmdp.cli.app") == []


def test_the_module_runs():
    shown = subprocess.run(
        [sys.executable, "-m", "latentmdp", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "simulate" in shown
