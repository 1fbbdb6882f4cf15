"""Checkpoints of runs: everything a run needs to go on as if it had never stopped.

A checkpoint is an archive of `latentmdp._util.storage`: a run killed at any moment leaves the
previous one or the new one. It names the run it belongs to (learner, world, seed and number of
episodes) and carries a digest of that and of its arrays; one of another run, or with other contents
than were written, is refused. No comparison looks at the wall-clock seconds it holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latentmdp._util import storage
from latentmdp._util.arrays import Arrays
from latentmdp._util.storage import PathLike
from latentmdp.errors import LatentMDPError


class CheckpointError(LatentMDPError, ValueError):
    """A checkpoint is damaged or belongs to another run."""


class Checkpoint(NamedTuple):
    """The arrays of a run in progress, and the seconds it has taken so far."""

    arrays: Arrays
    seconds: float


def write_checkpoint(
    path: PathLike, settings: dict[str, Any], arrays: Arrays, seconds: float
) -> None:
    """Replace the checkpoint at `path`, all or nothing."""
    said = {"settings": settings, "digest": _digest(settings, arrays), "seconds": seconds}
    header = storage.file_header("checkpoint") | said
    with storage.atomic_write(path) as stream:
        storage.write_archive(stream, header, arrays, compressed=False)


def read_checkpoint(
    path: PathLike, settings: dict[str, Any], expected: Arrays
) -> Checkpoint | None:
    """What the checkpoint at `path` holds; None if there is none.

    Parameters
    ----------
    settings
        Of the run that wants to go on, which must be those of the checkpoint.
    expected
        Arrays by name that the checkpoint must hold in the same shapes.

    Raises
    ------
    CheckpointError
        If it is damaged, or was written by a run with other settings; the message says which.
    """
    if not Path(path).exists():
        return None
    with open(path, "rb") as stream, whole(path):
        header, arrays = storage.read_archive(stream)
        if (header["kind"], header["schema"]) != ("checkpoint", 1):
            raise ValueError(f"a {header['kind']} of schema {header['schema']!r}")
        stored = dict(header["settings"])
        if header["digest"] != _digest(stored, arrays):
            raise ValueError("its contents are not those that were written")
        seconds = storage.as_seconds(header["seconds"])
    for name in [*settings, *(name for name in stored if name not in settings)]:
        mine, theirs = settings.get(name), stored.get(name)
        if mine != theirs:
            raise CheckpointError(
                f"{path} belongs to another run: its {name} is {theirs!r}, here {mine!r}. Give "
                "another checkpoint file, or remove this one to start again"
            )
    with whole(path):
        for name, array in expected.items():
            if name not in arrays or arrays[name].shape != array.shape:
                raise ValueError(
                    f"array {name!r} is missing or has another shape, as in one of another version"
                )
    return Checkpoint(arrays, seconds)


def packed(prefix: str, fields: dict[str, Any]) -> Arrays:
    """Fields of an object as arrays, whose names begin with the prefix; None is left out."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {f"{prefix}_{name}": np.asarray(value) for name, value in given.items()}


def unpacked(arrays: Arrays, prefix: str) -> dict[str, Any]:
    """The fields that `packed` made arrays of, empty if there are none."""
    start = f"{prefix}_"
    named = {n.removeprefix(start): array for n, array in arrays.items() if n.startswith(start)}
    return {name: array if array.ndim else array.item() for name, array in named.items()}


@contextmanager
def whole(path: PathLike) -> Iterator[None]:
    """Where a checkpoint is read and used: whatever does not fit is reported as damage."""
    try:
        yield
    # A damaged or hostile file can make any parser beneath raise anything.
    except Exception as error:
        raise CheckpointError(
            f"{path} is not a whole checkpoint ({error}); remove it to start the run again"
        ) from None


def _digest(settings: dict[str, Any], arrays: Arrays) -> str:
    return storage.digest_of(arrays, json.dumps(settings, sort_keys=True))
