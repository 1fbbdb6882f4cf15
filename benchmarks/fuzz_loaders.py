"""Mutated files into every loader: only clean errors, no crash, no hang, memory below 1 GiB.

    python benchmarks/fuzz_loaders.py [files per loader, default 10000] [loader ...]

A file is loaded, or refused with an error of the library that says why. Mutations change bytes,
cut, repeat and splice them, and, where a checksum would catch that, change the parts inside and
pack them again: members of an archive, tokens of a text, metadata of a Parquet file, and values of
the JSON texts within them. Where a file carries a digest, every other file is read as if its digest
were right, as that of one who changes a file on purpose would be.
Seeds are fixed. Every loader has a process of its own, so a crash is seen and memory is its own.
"""

import io
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np

FILES = 10_000
SECONDS = 10
MEMORY = 2**30

NUMBERS = (0, 1, -1, 2**31, 2**63, -(2**40), 1e308, 1e-320, float("nan"), float("inf"))
TOKENS = [
    *(b"0 1 -1 -7 3.5 1e999 1e-400 9999999999999999999 NaN null true [] {} [[]] <a/> \xff".split()),
    b"", b'""', b'"x"', b"\x00" * 8, b"<!DOCTYPE a>", b"&x;", b"9" * 400, b"\n",
]  # fmt: skip
JUNK = [
    *(None, True, 0, -1, 3, 2**40, 10**400, 0.5, -1.5, 1e308, float("nan"), float("inf")),
    *("", "x", "-", "model", "xy", "\u0000", [], [None], [[1.0]], [1, "2"], {}, {"a": 1}),
]


def loaders():
    """Name to (file name, how to write a good one, how to read it)."""
    import latentmdp as lm
    from latentmdp.experiments import read_experiment, reproduce
    from latentmdp.experiments.runner import MANIFEST, Setting, read_result, run_sweep
    from latentmdp.testing import random_model

    model = random_model(0, contexts=2, states=3, actions=2, horizon=4)
    logs = lm.simulate(model, lm.UniformPolicy(), 12, rng=0)
    puzzle = lm.make("deterministic", contexts=2, states=3, horizon=3, rng=0)

    def saved(make, *arguments):
        """How to write what `make` returns, made quietly and only when it is wanted."""

        def write(path):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                lm.save(make(*arguments), path)

        return write

    def lucrl(path):
        return lm.LUCRL(contexts="inferred", start=logs).run(model, 6, rng=0, checkpoint=path)

    def learn(path):
        quick = {"explore": 4, "restarts": 1, "planner": lm.QMDP()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return lm.learn(model, 2, 8, rng=0, checkpoint=path, **quick)

    def solve():
        return lm.solve(logs, 2, rng=0, bootstrap=2, planner=lm.HSVI(gap=0.1))

    setting = Setting("toy/0", {"seed": 0, "arm": "a"})

    def result(path):
        columns = {"quantity": ["a", "b"], "value": [0.5, float("nan")], "late": [True, False]}
        run_sweep([setting], lambda _: columns, path.parent, jobs=1)

    def manifest(path):
        made = tempfile.mkdtemp(dir=path.parent)  # its runs have this digest
        outputs = reproduce("lower-bound", quick=True, seeds=1, jobs=1, out=made)
        for file in (outputs.numbers, outputs.manifest):
            (path.parent / file.name).write_bytes(file.read_bytes())

    quick = lm.EM(2, restarts=1)
    plain, psr = lm.QMDP().plan, lm.SpectralPSR(rank=2)
    writers = {
        "model npz": ("m.npz", saved(lambda: model)),
        "model json": ("m.json", saved(lambda: model)),
        "model pomdp": ("m.pomdp", saved(lambda: model)),
        "model pomdpx": ("m.pomdpx", saved(lambda: model)),
        "logs npz": ("l.npz", saved(lambda: logs)),
        "logs parquet": ("l.parquet", saved(lambda: logs)),
        "policy npz": ("p.npz", saved(lambda: plain(model).policy)),
        "markov policy": ("q.npz", saved(lm.MarkovPolicy, [0, 1, 1])),
        "plan": ("b.npz", saved(lm.HSVI(gap=0.1).plan, model)),
        "fit": ("f.npz", saved(lambda: quick.fit(logs, rng=0))),
        "psr": ("t.npz", saved(psr.fit, logs)),
        "exploration": ("x.npz", saved(lambda: lm.deterministic.explore(puzzle, 2, rng=0))),
        "run parquet": ("r.parquet", saved(lambda: lm.LUCRL().run(model, 6, rng=0))),
        "run npz": ("r.npz", saved(lambda: lm.LUCRL().run(model, 6, rng=0))),
        "learn outcome": ("o.npz", saved(learn, None)),
        "solve outcome": ("s.npz", saved(solve)),
    }
    return {
        **{name: (file, write, lm.load) for name, (file, write) in writers.items()},
        "lucrl checkpoint": ("c.npz", lucrl, lucrl),
        "learn checkpoint": ("k.npz", learn, learn),
        "experiment result": (
            setting.file_name,
            result,
            lambda path: read_result(path.parent, setting),
        ),
        "experiment": (MANIFEST, manifest, lambda path: read_experiment(path.parent)),
    }


def mutated(good, suffix, rng):
    """A file like `good`, damaged in one way or several."""
    if suffix == ".npz" and rng.random() < 0.7:
        return _archive(good, rng)
    if suffix == ".parquet" and rng.random() < 0.7:
        return _table(good, rng)
    if suffix == ".json" and rng.random() < 0.5:
        return json.dumps(_value(json.loads(good), rng)).encode()
    if suffix not in (".npz", ".parquet") and rng.random() < 0.7:
        return _tokens(good, rng)
    return _bytes(good, rng)


def _bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        if not data:
            break
        a, b = sorted(rng.integers(0, len(data) + 1, 2))
        kind = rng.integers(6)
        if kind == 0:
            data[min(a, len(data) - 1)] ^= 1 << rng.integers(8)
        elif kind == 1:
            data[min(a, len(data) - 1)] = rng.integers(256)
        elif kind == 2:
            del data[a : min(b, a + 40)]
        elif kind == 3:
            data[a:a] = data[a : min(b, a + 200)]
        elif kind == 4:
            data[a:a] = rng.bytes(rng.integers(1, 30))
        elif rng.random() < 0.3:
            del data[a:]
    return bytes(data)


def _tokens(data, rng):
    """Replace, drop or repeat words, numbers and brackets of a text."""
    parts = re.findall(rb"[\w.+-]+|\s+|.", data, re.DOTALL)
    for _ in range(rng.integers(1, 4)):
        i = rng.integers(len(parts))
        kind = rng.integers(4)
        if kind == 0:
            parts[i] = b""
        elif kind == 1:
            parts[i] = parts[rng.integers(len(parts))]
        else:
            parts[i] = TOKENS[rng.integers(len(TOKENS))]
    return b"".join(parts)


def _archive(data, rng):
    """Change members of an archive and pack them with right checksums."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(i.filename, archive.read(i)) for i in archive.infolist()]
    i = rng.integers(len(members))
    if rng.random() < 0.3:
        i = [name for name, _ in members].index("header.npy")
    name, content = members[i]
    kind = rng.integers(5)
    if name == "header.npy" and rng.random() < 0.7:
        members[i] = (name, _header(content, rng))
    elif kind == 0:
        del members[i]
    elif kind == 1:
        members[i] = (name, members[rng.integers(len(members))][1])
    elif kind == 2:
        members[i] = (name, _bytes(content, rng))
    elif kind == 3:
        members[i] = (name, _tokens(content, rng))
    else:
        members[i] = (name, _array(content, rng))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, written in members:
            archive.writestr(member, written)
    return out.getvalue()


def _header(content, rng):
    """A JSON text in an array of text or of bytes, with another value at some place."""
    array = np.load(io.BytesIO(content), allow_pickle=False)
    text = str(array) if array.dtype.kind == "U" else array.tobytes().decode()
    changed = json.dumps(_value(json.loads(text), rng))
    written = np.array(changed)
    if array.dtype.kind != "U":
        written = np.frombuffer(changed.encode(), np.uint8)
    out = io.BytesIO()
    np.save(out, written)
    return out.getvalue()


def _value(value, rng):
    """A JSON value with one of its parts replaced, renamed or left out, JSON texts opened."""
    if isinstance(value, str) and value.startswith("{"):
        return json.dumps(_value(json.loads(value), rng))
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = list(value)[rng.integers(len(value))]
        if rng.random() < 0.1:
            return {name: part for name, part in value.items() if name != key}
        return {**value, key: _value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        i = rng.integers(len(value))
        return [*value[:i], _value(value[i], rng), *value[i + 1 :]]
    return JUNK[rng.integers(len(JUNK))]


def _array(content, rng):
    """A .npy member with another entry, shape or type."""
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False).copy()
    except ValueError:
        return content
    kind = rng.integers(5)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if kind == 0 and array.size and array.dtype.kind in "fiub":
            value = NUMBERS[rng.integers(len(NUMBERS))]
            array.flat[rng.integers(array.size)] = np.array(value).astype(array.dtype)
        elif kind == 1:
            array = array.ravel()[: rng.integers(array.size + 1)]
        elif kind == 2:
            array = array[None]
        elif kind == 3 and array.dtype.kind in "fiub":
            array = array.astype(
                ("<f4", "<i8", ">f8", "|b1", "<u1", "<c16", "<f2")[rng.integers(7)]
            )
        elif array.ndim:
            array = np.repeat(array, 2, axis=int(rng.integers(array.ndim)))
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _table(data, rng):
    """Change a cell, a column or the metadata of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    metadata = dict(table.schema.metadata or {})
    kind = rng.integers(5)
    if kind == 0 and metadata:
        key = list(metadata)[rng.integers(len(metadata))]
        if rng.random() < 0.5 and metadata.get(b"latentmdp"):
            told = json.loads(metadata[b"latentmdp"])
            metadata[b"latentmdp"] = json.dumps(_value(told, rng)).encode()
        else:
            metadata[key] = (_tokens if rng.random() < 0.7 else _bytes)(metadata[key], rng)
    elif kind == 1 and metadata:
        del metadata[list(metadata)[rng.integers(len(metadata))]]
    else:
        i = int(rng.integers(table.num_columns))
        name, column = table.column_names[i], table.column(i).to_numpy().copy()
        if kind == 2:
            table = table.remove_column(i)
        elif kind == 3 and column.dtype.kind in "fiub":
            values = column.astype(float)
            values[rng.integers(values.size)] = NUMBERS[rng.integers(len(NUMBERS))]
            table = table.set_column(i, name, pa.array(values))
        else:
            table = table.set_column(i, name, pa.array([str(x) for x in column]))
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), out)
    return out.getvalue()


def fuzz(name, files, folder):
    """Feed one loader; counts of files loaded and refused, the first faults, the slowest load."""
    from latentmdp._util import storage
    from latentmdp.errors import LatentMDPError

    file_name, write, read = loaders()[name]
    path = Path(folder) / file_name
    digests = (storage.digest_of, lambda *_: "always right")
    goods = []
    for storage.digest_of in digests:
        path.unlink(missing_ok=True)
        write(path)
        goods.append(path.read_bytes())
        read(path)
    loaded, refused, faults, slowest = 0, 0, [], 0.0
    signal.signal(signal.SIGALRM, _too_slow)
    for seed in range(files):
        storage.digest_of, good = digests[seed % 2], goods[seed % 2]
        path.write_bytes(mutated(good, path.suffix, np.random.default_rng(seed)))
        start = time.perf_counter()
        signal.alarm(SECONDS)
        try:
            read(path)
            loaded += 1
        except LatentMDPError as error:
            refused += 1
            if not str(error):
                faults.append(f"seed {seed}: an error that says nothing")
        except Exception as error:
            faults.append(f"seed {seed}: {type(error).__name__}: {error}")
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.perf_counter() - start)
    storage.digest_of = digests[0]
    return {"loaded": loaded, "refused": refused, "faults": faults[:10], "slowest": slowest}


def _too_slow(*_):
    raise TimeoutError(f"not read within {SECONDS} s")


def _child(name, files):
    import resource

    with tempfile.TemporaryDirectory() as folder:
        found = fuzz(name, files, folder)
    found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(found))


def main(files, names):
    print(f"{files} mutated files for each loader")
    print(f"{'loader':18}{'loaded':>8}{'refused':>9}{'faults':>8}{'slowest':>10}{'memory':>10}")
    bad = False
    for name in names or loaders():
        command = [sys.executable, __file__, "--one", name, str(files)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{name:18}crashed with code {done.returncode}\n{done.stderr[-2000:]}")
            bad = True
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        bad |= bool(found["faults"]) or found["memory"] > MEMORY
        print(
            f"{name:18}{found['loaded']:8}{found['refused']:9}{len(found['faults']):8}"
            f"{found['slowest'] * 1e3:7.0f} ms{found['memory'] / 2**20:6.0f} MiB"
        )
        for fault in found["faults"]:
            print(f"    {fault[:300]}")
    sys.exit(bad)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        _child(sys.argv[2], int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else FILES, sys.argv[2:])
