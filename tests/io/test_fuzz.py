"""Two hundred mutated files into every loader; `benchmarks/fuzz_loaders.py` does ten thousand."""

from support import script

fuzz_loaders = script("benchmarks/fuzz_loaders.py")


def test_mutated_files_are_read_or_refused(tmp_path):
    for name in fuzz_loaders.loaders():
        folder = tmp_path / name
        folder.mkdir()
        found = fuzz_loaders.fuzz(name, 200, folder)
        assert found["faults"] == [], name
        assert found["refused"] > 100, name
