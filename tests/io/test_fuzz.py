"""Two hundred mutated files into every loader; `benchmarks/fuzz_loaders.py` does ten thousand."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz_loaders.py"
SPEC = importlib.util.spec_from_file_location("fuzz_loaders", SCRIPT)
fuzz_loaders = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fuzz_loaders)


@pytest.mark.parametrize("name", fuzz_loaders.loaders())
def test_mutated_files_are_read_or_refused(name, tmp_path):
    found = fuzz_loaders.fuzz(name, 200, tmp_path)
    assert found["faults"] == []
    assert found["refused"] > 100
