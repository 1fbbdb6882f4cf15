"""Checkpoints of runs: everything a run needs to go on as if it had never stopped.

A checkpoint is a .npz file, written beside its final place and moved there once it is whole, so a
run killed at any moment leaves the previous checkpoint or the new one. It names the run it belongs
to: learner, world, seed and number of episodes; and it carries a digest of its arrays. One of
another run, or one whose arrays are not those that were written, is refused. Beside them it holds
the wall-clock seconds the run has taken, which no comparison looks at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latentmdp._util import digest
from latentmdp._util.arrays import Arrays
from latentmdp._util.storage import atomic_write
from latentmdp.errors import LatentMDPError
from latentmdp.io import values
from latentmdp.io.npz import read_arrays

__all__ = ["Checkpoint", "CheckpointError", "read_checkpoint", "whole", "write_checkpoint"]

SCHEMA = 2
_HEADER = "header"


class CheckpointError(LatentMDPError, ValueError):
    """A checkpoint is damaged or belongs to another run."""


class Checkpoint(NamedTuple):
    """The arrays of a run in progress, and the seconds it has taken so far."""

    arrays: Arrays
    seconds: float


def write_checkpoint(
    path: str | os.PathLike[str], settings: dict[str, Any], arrays: Arrays, seconds: float
) -> None:
    """Replace the checkpoint at `path`, all or nothing."""
    described = {
        "schema": SCHEMA,
        "settings": settings,
        "digest": digest.digest_of(arrays),
        "seconds": seconds,
    }
    header = json.dumps(described, sort_keys=True)
    with atomic_write(path) as stream:
        everything: dict[str, Any] = {_HEADER: np.frombuffer(header.encode(), np.uint8), **arrays}
        np.savez(stream, **everything)


def read_checkpoint(
    path: str | os.PathLike[str], settings: dict[str, Any], expected: Arrays
) -> Checkpoint | None:
    """What the checkpoint at `path` holds; None if there is none.

    Raises
    ------
    CheckpointError
        If it is damaged, or was written by a run with other settings; the message says which.
    """
    if not Path(path).exists():
        return None
    with open(path, "rb") as stream:
        try:
            arrays = read_arrays(stream)
            header = json.loads(arrays.pop(_HEADER).tobytes())
            schema, found = header["schema"], dict(header["settings"])
            whole = schema != SCHEMA or header["digest"] == digest.digest_of(arrays)
            seconds = values.seconds(header.get("seconds", 0.0))
        # A damaged or hostile file can make any parser beneath raise anything.
        except Exception as error:
            raise _damaged(path, error) from None
    if schema != SCHEMA:
        raise CheckpointError(f"{path}: checkpoint schema {schema!r}, this version reads {SCHEMA}")
    if not whole:
        raise _damaged(path, "its arrays are not those that were written")
    for name in sorted({*settings, *found}):
        mine, theirs = settings.get(name), found.get(name)
        if mine != theirs:
            raise CheckpointError(
                f"{path} belongs to another run: its {name} is {theirs!r}, here {mine!r}. Give "
                "another checkpoint file, or remove this one to start again"
            )
    for name, array in expected.items():
        if name not in arrays or arrays[name].shape != array.shape:
            raise _damaged(path, f"array {name!r} is missing or has another shape")
    return Checkpoint(arrays, seconds)


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[None]:
    """Where the arrays of a checkpoint are used: whatever does not fit is reported as damage."""
    try:
        yield
    except Exception as error:
        raise _damaged(path, error) from None


def _damaged(path: str | os.PathLike[str], reason: object) -> CheckpointError:
    return CheckpointError(
        f"{path} is not a whole checkpoint ({reason}); remove it to start the run again"
    )
