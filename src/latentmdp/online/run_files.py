"""Runs as Parquet files.

One row per episode: `episode`, `return`, `belief` (in the true context, NaN where unknown) and
`context` (-1 where unknown), so that any tool can plot a run. Everything else, the error curve,
counts, policy and settings, lies in the file's metadata: under the key `latentmdp` a JSON object
with plain values and the type and shape of each array, and the bytes of the array NAME under
`latentmdp.array.NAME`. Reading gives back every array bit for bit.

The object also holds `seconds`, the wall-clock time of the run, and `digest`, of everything but
`seconds`: two runs with the same outcome have the same digest, and a file whose digest is not that
of its contents is refused. Files from before there were these two fields are read without.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from latentmdp._util import digest
from latentmdp._util.arrays import Arrays, frozen
from latentmdp._util.limits import file_size
from latentmdp._util.storage import atomic_write
from latentmdp.errors import FormatError
from latentmdp.io import values
from latentmdp.io.parquet import check_table
from latentmdp.online.counts import Counts
from latentmdp.online.run import Curve, Run
from latentmdp.policies import AlphaVectorPolicy, MarkovPolicy, Policy, UniformPolicy
from latentmdp.space import Space

__all__ = ["RunFileError", "read_run", "write_run"]

KEY = b"latentmdp"
SCHEMA = 1

_COLUMNS = {"return": "f", "belief": "f", "context": "i"}
"""Columns that are read, and the kind of number each must hold."""


class RunFileError(FormatError):
    """The file does not hold a run, or is damaged."""


def write_run(run: Run, path: str | os.PathLike[str]) -> None:
    """Write a run, all or nothing."""
    kind, policy_values, arrays = _policy_fields(run.policy)
    arrays |= {
        "curve_episodes": run.error_curve.episodes,
        "curve_errors": run.error_curve.values,
        "transitions": run.counts.transitions,
        "rewards": run.counts.rewards,
        "initial": run.counts.initial,
    }
    space = run.space
    header = {
        "format": "latentmdp",
        "kind": "run",
        "schema": SCHEMA,
        "optimistic_value": run.optimistic_value.hex(),
        "space": asdict(space),
        "settings": run.settings,
        "policy": {"kind": kind, **policy_values},
        "arrays": {name: [a.dtype.str, list(a.shape)] for name, a in arrays.items()},
    }
    columns: Arrays = {"return": run.returns, "belief": run.beliefs, "context": run.contexts}
    signed = {**header, "digest": _digest(header, arrays, columns), "seconds": run.seconds}
    metadata = {KEY: json.dumps(signed).encode()}
    for name, array in arrays.items():
        metadata[KEY + b".array." + name.encode()] = np.ascontiguousarray(array).tobytes()
    table = pa.table(
        {
            "episode": pa.array(np.arange(run.n_episodes)),
            **{name: pa.array(column, from_pandas=False) for name, column in columns.items()},
        }
    )
    with atomic_write(path) as stream:
        described = table.replace_schema_metadata(metadata)
        pq.write_table(described, stream, compression="zstd", write_page_checksum=True)


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read what `write_run` wrote."""
    with open(path, "rb") as stream:
        try:
            size = file_size(stream)
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            check_table(file, list(_COLUMNS), size)
            table = file.read(columns=list(_COLUMNS))
            metadata = table.schema.metadata or {}
            if KEY not in metadata:
                raise ValueError("its table has no header of a run")
            header = json.loads(metadata[KEY])
            if header["kind"] != "run" or header["schema"] != SCHEMA:
                raise ValueError(f"it holds {header['kind']!r} of schema {header['schema']!r}")
            arrays = {
                name: _array(metadata[KEY + b".array." + name.encode()], *layout)
                for name, layout in header["arrays"].items()
            }
            return _assemble(table, header, arrays)
        # A damaged or hostile file can make any parser beneath raise anything.
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise RunFileError(f"{path} does not hold a run: {reason}") from None


def _assemble(table: pa.Table, header: dict[str, Any], arrays: Arrays) -> Run:
    fields = header["space"]
    space = Space(**{**fields, "reward_values": tuple(fields["reward_values"])})
    counts = Counts(arrays["transitions"], arrays["rewards"], arrays["initial"])
    expected = (space.n_contexts, space.n_states, space.n_actions, space.n_states)
    if counts.transitions.shape != expected:
        raise ValueError(f"counts have shape {counts.transitions.shape}, sizes say {expected}")
    columns = {name: _column(table, name, kind) for name, kind in _COLUMNS.items()}
    if "digest" in header and header["digest"] != _digest(header, arrays, columns):
        raise ValueError("it is damaged: its contents are not those that were written")
    if arrays["curve_episodes"].shape != arrays["curve_errors"].shape:
        raise ValueError("the two arrays of the error curve differ in shape")
    return Run(
        returns=columns["return"],
        beliefs=columns["belief"],
        contexts=columns["context"],
        error_curve=Curve(frozen(arrays["curve_episodes"]), frozen(arrays["curve_errors"])),
        counts=counts,
        model=counts.model(space),
        policy=_policy(header["policy"], arrays, counts, space),
        optimistic_value=float.fromhex(header["optimistic_value"]),
        space=space,
        settings=dict(header["settings"]),
        seconds=None if header.get("seconds") is None else values.seconds(header["seconds"]),
    )


def _digest(header: dict[str, Any], arrays: Arrays, columns: Arrays) -> str:
    """Of everything but the digest itself and the time the run took."""
    told = {name: v for name, v in header.items() if name not in ("digest", "seconds")}
    every = arrays | {f"column {name}": column for name, column in columns.items()}
    return digest.digest_of(every, json.dumps(told, sort_keys=True))


def _column(table: pa.Table, name: str, kind: str) -> NDArray[Any]:
    column = table[name].to_numpy().copy()
    if column.dtype.kind != kind:
        raise ValueError(f"column {name!r} holds {column.dtype}")
    return frozen(column)


def _policy_fields(policy: Policy) -> tuple[str, dict[str, Any], Arrays]:
    """How a policy is stored: its kind, plain values and arrays."""
    if isinstance(policy, UniformPolicy):
        return "uniform", {}, {}
    if isinstance(policy, MarkovPolicy):
        table = policy.actions if policy.actions is not None else policy.probabilities
        assert table is not None
        return "markov", {}, {"policy_table": table}
    if isinstance(policy, AlphaVectorPolicy):
        arrays = {
            "policy_vectors": policy.vectors,
            "policy_actions": policy.actions,
            "policy_offsets": policy.offsets,
            "policy_weights": policy.model.weights,
            "policy_initial": policy.model.initial,
            "policy_transitions": policy.model.transitions,
            "policy_rewards": policy.model.reward_probs,
        }
        return "alpha-vectors", {"smoothing": policy.smoothing}, arrays
    raise TypeError(f"a run with a {type(policy).__name__} cannot be saved")


def _policy(fields: dict[str, Any], arrays: Arrays, counts: Counts, space: Space) -> Policy:
    if fields["kind"] == "uniform":
        return UniformPolicy()
    if fields["kind"] == "markov":
        return MarkovPolicy(arrays["policy_table"])
    model = counts.model(space).replace(
        transitions=arrays["policy_transitions"],
        rewards=arrays["policy_rewards"],
        weights=arrays["policy_weights"],
        initial=arrays["policy_initial"],
        context_names=None,
    )
    vectors = (arrays["policy_vectors"], arrays["policy_actions"], arrays["policy_offsets"])
    return AlphaVectorPolicy(*vectors, model, fields["smoothing"])


def _array(data: bytes, dtype: str, shape: list[int]) -> NDArray[Any]:
    return np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape).copy()
