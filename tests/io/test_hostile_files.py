"""Files that lie, are damaged or mean harm: a FormatError that names the file, and no more."""

import json
import os
import pickle
import zipfile
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import gap_model, random_model

import latentmdp as lm
from latentmdp._util import storage
from latentmdp.errors import FormatError


@pytest.fixture
def model_json(tmp_path):
    lm.save(random_model(), tmp_path / "m.json")
    return json.loads((tmp_path / "m.json").read_text())


def refused(path, message):
    """Loading must fail with a FormatError that names the file."""
    with pytest.raises(FormatError, match=message or None) as caught:
        lm.load(path)
    assert str(caught.value).startswith(str(path))


def write_members(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


@pytest.fixture
def signed(monkeypatch):
    """Every digest is right, as that of one who changes a file on purpose would be."""
    monkeypatch.setattr(storage, "digest_of", lambda *_: "signed")


@pytest.fixture
def model_npz(tmp_path, signed):
    lm.save(random_model(), tmp_path / "m.npz")
    return members_of(tmp_path / "m.npz")


@pytest.mark.parametrize("suffix", [".npz", ".json", ".parquet"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_truncated(tmp_path, suffix, share):
    logs = lm.Trajectories.from_arrays(
        np.zeros((50, 9), int), np.ones((50, 8), int), np.ones((50, 8), int)
    )
    path = tmp_path / f"file{suffix}"
    lm.save(logs if suffix == ".parquet" else random_model(), path)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    refused(path, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, 'not a latentmdp file: it does not say "format": "latentmdp"'),
        ({"kind": "spaceship"}, "unknown kind 'spaceship'"),
        ({"kind": ["model"]}, "unknown kind"),
        ({"schema": 2}, "schema version 2 of model is newer than 1.*upgrade"),
        ({"schema": 0}, "schema version 0 is not a positive integer"),
        ({"schema": "1"}, "schema version '1' is not a positive integer"),
        ({"schema": True}, "schema version True"),
        ({"extra": 1}, "unknown field 'extra'"),
        ({"model": [1, 2]}, "field 'model' must be an object, got list"),
    ],
)
def test_json_headers(tmp_path, model_json, change, message):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**model_json, **change}))
    refused(path, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"horizon": 3.5}, "field 'horizon' must be an integer, got float"),
        ({"horizon": True}, "field 'horizon' must be an integer, got bool"),
        ({"discount": "1"}, "field 'discount' must be a number, got str"),
        ({"discount": 2}, r"discount must lie in \(0, 1\]"),
        ({"allow_unvisited": "no"}, "field 'allow_unvisited' must be true or false"),
        ({"state_names": [1, 2, 3, 4]}, "field 'state_names' must be a list of texts"),
        ({"weights": [0.5, 0.6, 0.1]}, "weights: sums to 1.2"),
        ({"weights": [True, False, False]}, "field 'weights' must be an array of floats"),
        ({"weights": ["0.5", "0.5", "0"]}, "field 'weights' must be an array of floats"),
        ({"weights": [0.5, [0.5]]}, "field 'weights': rows differ in length"),
        ({"weights": 1.0}, "field 'weights' must be a list, got float"),
        ({"weights": [None, 1.0, 0.0]}, "field 'weights' must be an array of floats"),
        ({"reward_probs": [[[0.5]]]}, "field 'reward_probs' must have shape"),
        ({"wings": 2}, "unknown field 'wings'"),
    ],
)
def test_json_fields(tmp_path, model_json, change, message):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**model_json, "model": {**model_json["model"], **change}}))
    refused(path, message)


@pytest.fixture
def table_json(tmp_path):
    lm.save(gap_model(), tmp_path / "t.json")
    return json.loads((tmp_path / "t.json").read_text())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outcome_starts": [0]}, "allowed must have shape|starts"),
        ({"outcome_starts": [0, 1, 2, 3, 4, 5, 6]}, "starts must rise"),
        ({"outcome_starts": []}, "allowed must have shape|starts"),
        ({"outcome_starts": [-1, 2]}, "must not be negative"),
        ({"outcome_starts": [0, 2**63]}, "starts|integers"),
        ({"outcome_starts": [0.0, 1.0]}, "array of integers"),
        ({"outcome_next_state": [0]}, "describe the same outcomes"),
        ({"outcome_next_state": [2**40]}, "larger than int32"),
        ({"outcome_reward": [[0]]}, "one-dimensional"),
        ({"outcome_reward": None}, "must be a list"),
        ({"outcome_probs": [[2.0, 2.0]]}, "describe the same outcomes"),
        ({"outcome_probs": [1.0]}, "describe the same outcomes"),
        ({"outcome_probs": [["x"]]}, "array of floats"),
        ({"allowed": [[1, 0]]}, "array of flags"),
        ({"allowed": [[True]]}, "allowed must have shape"),
        ({"allowed": [[True, True]] * 3}, "sums to 0"),
        ({"reward_model": "other"}, "reward_model must be one of"),
        ({"reward_model": 1}, "must be a string"),
        ({"discount": 1.5}, "discount"),
        ({"initial": [[1.0]]}, "S A|starts|initial|shape"),
        ({"initial": [[0.0] * 1000] * 2}, "S A|starts|initial|shape"),
        ({"transitions": [[[[1.0]]]]}, "dense arrays or an outcome table, not both"),
    ],
)
def test_json_tables(tmp_path, table_json, change, message):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**table_json, "model": {**table_json["model"], **change}}))
    refused(path, message)


@pytest.mark.parametrize("field", ["starts", "next_state", "reward", "distinct", "pattern"])
def test_json_tables_without_a_field(tmp_path, table_json, field):
    del table_json["model"][f"outcome_{field}"]
    (tmp_path / "bad.json").write_text(json.dumps(table_json))
    refused(tmp_path / "bad.json", f"outcome_{field}|outcome table")


@pytest.mark.parametrize("seed", range(40))
def test_mutated_tables_never_crash(tmp_path, table_json, seed):
    """One entry of one array changed to anything: refused, or another model."""
    rng = np.random.default_rng(seed)
    fields = [name for name in table_json["model"] if name.startswith(("outcome", "allowed"))]
    array = table_json["model"][fields[seed % len(fields)]]
    while isinstance(array[0], list):
        array = array[int(rng.integers(len(array)))]
    wild = [0, 1, -1, 5, 2**31, 2**62, 0.5, -0.5, 1e300, True, False]
    array[int(rng.integers(len(array)))] = wild[int(rng.integers(len(wild)))]
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(table_json))
    with suppress(FormatError):
        assert isinstance(lm.load(path), lm.LatentMDP)


def test_json_without_a_field(tmp_path, model_json):
    del model_json["model"]["transitions"]
    (tmp_path / "bad.json").write_text(json.dumps(model_json))
    refused(tmp_path / "bad.json", "field 'transitions' is missing")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "latentmdp", "format": "latentmdp"}', "key 'format' occurs twice"),
        ('{"format": NaN}', "NaN is not a JSON number"),
        ('{"format": -Infinity}', "-Infinity is not a JSON number"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("[" + "[]," * 2_000_001 + "[]]", "too many lists"),
        ("[" + "1" * 5000 + "]", ""),
        ("[1, 2", "not valid JSON"),
        ("", "not valid JSON"),
        ('"latentmdp"', "not a latentmdp file"),
    ],
)
def test_json_texts(tmp_path, text, message):
    (tmp_path / "bad.json").write_text(text)
    refused(tmp_path / "bad.json", message)


def test_json_numbers_too_large_for_a_float(tmp_path, model_json):
    text = json.dumps(model_json).replace('"discount": 1.0', '"discount": 1e999')
    (tmp_path / "bad.json").write_text(text)
    refused(tmp_path / "bad.json", "discount")
    model_json["model"]["weights"] = [0.5, 0.5, 12345.5]
    text = json.dumps(model_json).replace("12345.5", "1e999")
    (tmp_path / "bad.json").write_text(text)
    refused(tmp_path / "bad.json", r"weights\[2\] is inf")


def test_json_that_is_not_text(tmp_path):
    (tmp_path / "bad.json").write_bytes(b'{"format": "\xff\xfe"}')
    refused(tmp_path / "bad.json", "utf-8")


def test_a_huge_json_file_is_not_even_read(tmp_path):
    path = tmp_path / "bad.json"
    with open(path, "wb") as file:
        file.truncate(2**40)
    refused(path, "bytes of JSON; at most")


def test_a_model_too_large_for_json_is_refused_when_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "MAX_CONTAINERS", 10)
    with pytest.raises(FormatError, match=r"m\.json: too large for JSON: save it as \.npz"):
        lm.save(random_model(), tmp_path / "m.json")
    assert list(tmp_path.iterdir()) == []


def npy(array, **changes):
    """The bytes of a .npy file, its header changed."""
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape, **changes}
    text = repr(header).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + array.tobytes()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy(np.ones(3), shape=(2**40, 2**40)), "declares shape .* more than its"),
        (npy(np.ones(3), shape=(-3,)), "declares shape"),
        (npy(np.ones(3), shape=(2,)), "too long for its shape"),
        (npy(np.ones(3), shape="3"), ""),
        (npy(np.ones(3), descr="|O"), "only plain numbers"),
        (npy(np.ones(3), descr="<c16", shape=(1,)), "only plain numbers"),
        (npy(np.ones(3), descr="<M8[s]"), "only plain numbers"),
        (npy(np.ones(3), descr=[("a", "<f8")]), "only plain numbers"),
        (npy(np.array([0.5, 0.5, np.nan])), r"weights\[2\] is nan"),
        (npy(np.array(["a", "b", "c"])), "field 'weights' must be an array of floats"),
        (npy(np.ones(3) / 3).replace(b"\x01\x00", b"\x09\x00", 1), ""),
        (b"", ""),
        (b"not an array at all", ""),
        (pickle.dumps([1, 2, 3]), ""),
    ],
)
def test_npz_members(tmp_path, model_npz, data, message):
    path = tmp_path / "bad.npz"
    write_members(path, [(n, data if n == "weights.npy" else d) for n, d in model_npz])
    refused(path, message)


def test_pickled_arrays_are_never_executed(tmp_path, model_npz):
    class Mischief:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    array = np.array([Mischief()], dtype=object)
    np.save(tmp_path / "o.npy", array, allow_pickle=True)
    payload = (tmp_path / "o.npy").read_bytes()
    for member in ("weights.npy", "header.npy"):
        path = tmp_path / "bad.npz"
        write_members(path, [(n, payload if n == member else d) for n, d in model_npz])
        refused(path, "only plain numbers")
    assert not (tmp_path / "executed").exists()


def test_npz_archives(tmp_path, model_npz):
    path = tmp_path / "bad.npz"
    write_members(path, [m for m in model_npz if m[0] != "weights.npy"])
    refused(path, "field 'weights' is missing")
    write_members(path, [*model_npz, ("wings.npy", npy(np.ones(1)))])
    refused(path, r"unknown field 'wings' \(kind 'model'\)")
    write_members(path, [m for m in model_npz if m[0] != "header.npy"])
    refused(path, "no member 'header'")
    write_members(path, [(f"{i}.npy", b"") for i in range(65)])
    refused(path, "holds 65 members")
    write_members(path, model_npz, zipfile.ZIP_LZMA)
    refused(path, "unknown compression")
    with pytest.warns(UserWarning, match="Duplicate"):
        write_members(path, [*model_npz, model_npz[-1]])
    refused(path, "occurs twice")
    np.savez(path, transitions=np.ones(3))
    refused(path, "no member 'header'")
    path.write_bytes(os.urandom(1000))
    refused(path, "not an npz archive")


def test_npz_headers(tmp_path, model_npz):
    """Of a header that is no text, no object, without values or digest, or with hostile JSON."""
    path = tmp_path / "bad.npz"
    start = '{"format": "latentmdp", "kind": "model", "schema": 1'
    for header, message in [
        (np.zeros(3), "not a text"),
        (np.array(["{}"]), "not a text"),
        (np.array("[]"), "not a JSON object"),
        (np.array(start + "}"), "no 'values'"),
        (np.array(start + ', "values": {}}'), "damaged"),
        (np.array(start + ', "values": {"horizon": NaN}, "digest": "signed"}'), "'horizon' must"),
        (np.array(start + ', "values": {"weights": 1}, "digest": "signed"}'), "both an array and"),
        (np.array('{"a": 1, "a": 2}'), "key 'a' occurs twice"),
        (np.array("[" * 100_000), "nested too deeply"),
        (np.array("[" + "[]," * 2_000_001 + "[]]"), "too many lists"),
    ]:
        write_members(path, [(n, npy(header) if n == "header.npy" else d) for n, d in model_npz])
        refused(path, message)


def test_a_changed_array_is_noticed(tmp_path):
    """Checksums of the archive are right, and the array is a valid one."""
    path = tmp_path / "m.npz"
    lm.save(random_model(), path)
    other = npy(np.array([0.2, 0.3, 0.5]))
    members = [(n, other if n == "weights.npy" else d) for n, d in members_of(path)]
    write_members(path, members)
    refused(path, "damaged: its contents are not those that were written")


def test_npz_of_a_newer_schema(tmp_path, model_npz):
    header = np.array('{"format": "latentmdp", "kind": "model", "schema": 99, "values": {}}')
    path = tmp_path / "bad.npz"
    write_members(path, [(n, npy(header) if n == "header.npy" else d) for n, d in model_npz])
    refused(path, "newer than 1")


def test_numbers_of_8_bits_count_as_what_they_become(tmp_path, model_npz, monkeypatch):
    """A quarter of the limit as it lies in the file, and twice the limit as 64-bit numbers."""
    monkeypatch.setattr(storage, "ALWAYS", 2**20)
    path = tmp_path / "bomb.npz"
    narrow = npy(np.zeros(2**18, np.int8))
    write_members(path, [(n, narrow if n == "weights.npy" else d) for n, d in model_npz])
    refused(path, "declares .* bytes of data")


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path):
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    refused(pipe, "not a regular file")


def test_a_zip_bomb_is_refused_before_it_unpacks(tmp_path, model_npz, monkeypatch):
    assert storage.ALWAYS == 2**30
    monkeypatch.setattr(storage, "ALWAYS", 2**22)
    path = tmp_path / "bomb.npz"
    bomb = npy(np.zeros(2**20))
    write_members(path, [(n, bomb if n == "weights.npy" else d) for n, d in model_npz])
    assert path.stat().st_size < 2**16
    refused(path, "declares .* bytes of data in a file of")


def test_damaged_bytes_are_noticed(tmp_path):
    lm.save(random_model(), tmp_path / "m.npz")
    data = bytearray((tmp_path / "m.npz").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "m.npz").write_bytes(data)
    refused(tmp_path / "m.npz", "")


def columns(**changes):
    found = {
        "episode": [0, 0, 1],
        "t": [0, 1, 0],
        "state": [0, 1, 2],
        "action": [1, 0, 1],
        "reward": [0.0, 1.0, 0.5],
        "next_state": [1, 2, 0],
    }
    return {k: v for k, v in {**found, **changes}.items() if v is not None}


def write_table(path, found, metadata=None):
    table = pa.table(found)
    if metadata is not None:
        table = table.replace_schema_metadata({b"latentmdp": metadata})
    pq.write_table(table, path)


def test_a_foreign_parquet_file(tmp_path):
    path = tmp_path / "foreign.parquet"
    ids = ["visitor-b", "visitor-b", "visitor-a"]
    write_table(path, columns(episode=ids, page=["x", "y", "z"]))
    logs = lm.load(path)
    assert logs.states.tolist() == [2, 0, 0, 1, 2]
    assert logs.reward_values.tolist() == [0.0, 0.5, 1.0]
    assert logs.contexts is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": None}, "has no column 'action'"),
        ({"episode": [0, None, 1]}, "column 'episode' is empty or NaN in row 1"),
        ({"state": ["a", "b", "c"]}, "column 'next_state' holds 1 in row 0, a number, while"),
        ({"state": [[0], [1], [2]]}, "column 'state' must be one-dimensional"),
        ({"t": [0, 0, 0]}, "episode 0, step 1: t is 0"),
        ({"next_state": [5, 2, 0]}, "episode 0, step 0: next_state is 5"),
        ({"reward": [0.0, float("inf"), 0.0]}, "column 'reward' is inf in row 1"),
    ],
)
def test_bad_parquet_columns(tmp_path, changes, message):
    write_table(tmp_path / "bad.parquet", columns(**changes))
    refused(tmp_path / "bad.parquet", message)


HEADER = {
    "format": "latentmdp",
    "kind": "trajectories",
    "schema": 1,
    "n_states": 3,
    "n_actions": 2,
    "reward_values": [0.0, 0.5, 1.0],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 7}, "newer than 1"),
        ({"kind": "model"}, "holds a model, not logs"),
        ({"n_states": 2}, "episode 0, step 2: state 2 is out of range"),
        ({"n_states": "many"}, "n_states must be an integer"),
        ({"n_states": -1}, "n_states must be at least 1"),
        ({"reward_values": [0.0, 1.0]}, "episode 1, step 0: reward is 0.5, not one of"),
        ({"reward_values": "all"}, "reward_values"),
        ({"reward_values": None}, "episode 1, step 0: reward is 0.5, must be an integer"),
    ],
)
def test_bad_parquet_metadata(tmp_path, change, message):
    path = tmp_path / "bad.parquet"
    write_table(path, columns(), json.dumps({**HEADER, **change}).encode())
    refused(path, message)


def test_parquet_metadata_that_lacks_a_size(tmp_path):
    header = {k: v for k, v in HEADER.items() if k != "n_actions"}
    write_table(tmp_path / "bad.parquet", columns(), json.dumps(header).encode())
    refused(tmp_path / "bad.parquet", "the metadata lack 'n_actions'")


def test_a_small_parquet_file_with_too_many_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "ALWAYS", 1000)
    rows = 100_000
    write_table(
        tmp_path / "bomb.parquet", {name: np.zeros(rows, dtype=np.int64) for name in columns()}
    )
    refused(tmp_path / "bomb.parquet", "declares .* bytes of data")


@pytest.mark.parametrize("suffix", [".npz", ".json", ".parquet"])
def test_mutated_files_load_or_are_refused(tmp_path, suffix):
    rng = np.random.default_rng(0)
    logs = lm.Trajectories.from_arrays(
        rng.integers(0, 3, (9, 5)), rng.integers(0, 2, (9, 4)), rng.integers(0, 2, (9, 4))
    )
    path = tmp_path / f"file{suffix}"
    lm.save(logs if suffix == ".parquet" else random_model(M=2, S=2, A=1), path)
    good = path.read_bytes()
    for _ in range(200):
        data = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(data)
        with suppress(FormatError):
            assert isinstance(lm.load(path), lm.LatentMDP | lm.Trajectories)
