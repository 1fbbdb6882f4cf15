"""Two hundred mutated files into every loader; `benchmarks/fuzz_loaders.py` does ten thousand."""

import pytest
from support import script

fuzz_loaders = script("benchmarks/fuzz_loaders.py")


@pytest.mark.parametrize("name", fuzz_loaders.loaders())
def test_mutated_files_are_read_or_refused(name, tmp_path):
    found = fuzz_loaders.fuzz(name, 200, tmp_path)
    assert found["faults"] == []
    assert found["refused"] > 100
