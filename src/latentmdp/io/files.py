"""`save` and `load`: choose the format by suffix, write atomically, and name the file in errors."""

from __future__ import annotations

import errno
import os
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from latentmdp._util.storage import atomic_write
from latentmdp.errors import FormatError
from latentmdp.io import kinds, schemas  # noqa: F401 (schemas fills the registry)

__all__ = ["check_target", "load", "save"]

_FORMATS = {
    ".npz": "npz",
    ".json": "json",
    ".parquet": "parquet",
    ".pomdp": "pomdp_file",
    ".pomdpx": "pomdpx",
}


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write a model, logs, a policy or an outcome to a file; the suffix chooses the format.

    Parameters
    ----------
    obj : LatentMDP, Trajectories, a policy, or what `learn` or `solve` returned
        A model goes to .npz, .json, .pomdp or .pomdpx, logs to .npz or .parquet, others to .npz.
    path
        Where to. An existing file is replaced at once, when the new one is complete.

    Raises
    ------
    FormatError
        If the suffix does not fit the object; nothing is written.
    """
    target = Path(path)
    check_target(type(obj), target)
    with atomic_write(target) as stream:
        try:
            _format(target).write(stream, obj)
        except FormatError as error:
            raise FormatError(f"{target}: {error}") from None


def check_target(owner: type, path: str | os.PathLike[str]) -> None:
    """Raise unless an object of this type can be saved at `path`: before long work, not after."""
    target = Path(path)
    kind = kinds.by_type(owner)
    if target.suffix.lower() not in kind.suffixes:
        raise FormatError(
            f"{target}: a {kind.owner.__name__} is saved as {' or '.join(kind.suffixes)}, not "
            f"{repr(target.suffix) if target.suffix else 'without a suffix'}"
        )
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder", str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(target.parent))


def load(path: str | os.PathLike[str]) -> Any:
    """Read what `save` wrote, or a foreign Parquet table with the columns of logs.

    Parameters
    ----------
    path
        A .npz, .json or .parquet file, or a .pomdp or .pomdpx file that `save` wrote.

    Returns
    -------
    LatentMDP, Trajectories, a policy, or the outcome of `learn` or `solve`
        Equal to what was saved.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it: another format, a newer schema, a truncated or
        damaged file, sizes that do not fit, values that are not a model or logs.
    OSError
        If the file cannot be opened.
    """
    source = Path(path)
    reader = _format(source)
    with open(source, "rb") as stream:
        try:
            return reader.read(stream)
        except FormatError as error:
            raise FormatError(f"{source}: {error}") from error.__cause__
        # A damaged or hostile file can make any parser beneath raise anything.
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise FormatError(f"{source}: {reason}") from error


def _format(path: Path) -> ModuleType:
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise FormatError(
            f"{path}: unknown suffix {suffix!r}; known: {', '.join(sorted(_FORMATS))}"
        )
    return import_module(f"latentmdp.io.{_FORMATS[suffix]}")
