"""`save` and `load`: choose the format by suffix, write atomically, and name the file in errors."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from latentmdp._util.storage import PathLike, atomic_write, require_writable
from latentmdp._util.words import did_you_mean
from latentmdp.errors import FormatError, ModelError
from latentmdp.io import json, kinds, npz, pomdp_file, pomdpx, session_file
from latentmdp.io.solver_files import CHECKER_SUFFIXES
from latentmdp.logs import Trajectories
from latentmdp.model import LatentMDP
from latentmdp.sessions import SavedSession, Session

T = TypeVar("T")


def save(obj: Any, path: PathLike) -> None:
    """Write an object to a file; the suffix chooses the format.

    Parameters
    ----------
    obj : LatentMDP, Trajectories, a policy, Plan, Fit, PSR, or what a learner or `solve` returned
        A model goes to .npz, .json, .csv, .pomdp or .pomdpx, logs and runs to .npz or .parquet, a
        session to .json, others to .npz.
    path
        Where to. An existing file is replaced at once, when the new one is complete.

    Raises
    ------
    FormatError
        If the suffix does not fit the object; nothing is written.
    OSError
        Naming the file, if it cannot be written; an old one stays as it was.
    """
    target = Path(path)
    if isinstance(obj, Session):
        _require_suffix(kinds.by_type(SavedSession), target)
        require_writable(target)
        obj = session_file.put_aside(obj, target, save)
    _require_suffix(kinds.by_type(type(obj)), target)
    _write(target, obj)
    session_file.remember_file(obj, target)


def export(model: LatentMDP, path: PathLike, *, discounted: bool = False) -> None:
    """Write a model for another solver, as .pomdp or .pomdpx.

    Parameters
    ----------
    discounted
        Leave out the horizon: the solver sees the discounted problem without end. By default the
        time is in the state, and the optimum of the file is V*, as with `save`.
    """
    target = Path(path)
    if target.suffix.lower() not in _SOLVERS:
        raise FormatError(f"{target}: export writes {' or '.join(_SOLVERS)}, not {target.suffix!r}")
    _require_suffix(kinds.by_type(type(model)), target)
    _write(target, model, discounted=discounted)


def check_target(owner: type, path: PathLike) -> None:
    """Raise unless an object of this type can be saved at `path`: before long work, not after."""
    _require_suffix(kinds.by_type(owner), Path(path))
    require_writable(path)


def load(path: PathLike, **arguments: Any) -> Any:
    """An object equal to what was saved, or what a file of others holds.

    Parameters
    ----------
    path
        A .npz or .json file that `save` wrote; a .parquet file, also a foreign one that is a long
        table of logs or of a model; a .csv file, likewise; a .pomdp or .pomdpx file, if it is a
        latent MDP: everything hidden follows from how an episode began and from what was seen; a
        .prism, .jani, .drn or .umb file, or a folder with one for each context, through stormpy.
    arguments
        For tables of logs those of `Trajectories.from_table`; for those of models
        `LatentMDP.from_table`: without `horizon` and `discount` the model has no end and the
        discount 0.95, and a warning says so. For .pomdp and .pomdpx `horizon`: without it the
        model has no end, and `max_states` of the model. For models of Storm see
        `latentmdp.io.storm.read`: `hidden`, `goal`, `reward`, `horizon`, `discount`, `max_states`.
        For a session `policy` and `model`, which it otherwise finds by itself.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it: another format, a newer schema, a truncated or
        damaged file, sizes that do not fit, values that are not a model or logs.
    TypeError
        If such a file takes no argument of this name.
    OSError
        If the file cannot be opened.
    """
    source = Path(path)
    if source.is_dir() or source.suffix.lower() in CHECKER_SUFFIXES:
        return _load_from_storm(source, arguments)
    reader = _format(source)
    if source.exists() and not source.is_file():  # a pipe would be waited for, without an end
        raise FormatError(f"{source}: not a regular file")
    _require_known(arguments, reader, source)
    session_arguments = {
        name: arguments.pop(name) for name in _SESSION if reader is json and name in arguments
    }
    with open(source, "rb") as stream:
        try:
            content = reader.read(stream, **arguments)
            if isinstance(content, SavedSession):
                return session_file.resumed(content, source, load, **session_arguments)
            if session_arguments:
                raise FormatError(f"holds no session, load takes no {min(session_arguments)!r}")
            session_file.remember_file(content, source)
            return content
        except FormatError as error:
            raise FormatError(f"{source}: {error}") from error.__cause__
        # A damaged or hostile file can make any parser beneath raise anything.
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise FormatError(f"{source}: {reason}") from error


def _load_from_storm(source: Path, arguments: dict[str, Any]) -> LatentMDP:
    from latentmdp.io import storm

    _require_known(arguments, storm, source)
    try:
        return storm.read(source, **arguments)
    except (FormatError, ModelError) as error:
        raise FormatError(f"{source}: {error}") from None


def load_as(owner: type[T], path: PathLike, what: str, **arguments: Any) -> T:
    """`load`, and refuse what is not of this type; `what` says in words what is wanted."""
    content = load(path, **arguments)
    if not isinstance(content, owner):
        raise FormatError(f"{path} holds {type(content).__name__}, not {what}")
    return content


def _require_known(arguments: dict[str, Any], reader: Any, source: Path) -> None:
    """Refuse an argument that no file of this format takes: not the file is at fault."""
    parameters = signature(reader.read).parameters
    accepted = set(parameters) - {"stream", "path"}
    if "arguments" in parameters:  # a table, of logs or of a model
        tables = (Trajectories.from_table, LatentMDP.from_table, LatentMDP)
        accepted = {name for table in tables for name in signature(table).parameters} - {"table"}
    unknown = sorted(set(arguments) - accepted - set(_SESSION if reader is json else ()))
    if unknown and reader in (npz, json):
        raise TypeError(f"{source}: such a file holds everything, load takes no {unknown[0]!r}")
    if unknown:
        meant = did_you_mean(unknown[0], sorted(accepted))
        raise TypeError(f"{source}: load takes no {unknown[0]!r} for such a file{meant}")


def _require_suffix(kind: kinds.Kind, target: Path) -> None:
    if target.suffix.lower() not in kind.suffixes:
        raise FormatError(
            f"{target}: {kind.class_name} is saved as {' or '.join(kind.suffixes)}, not "
            f"{repr(target.suffix) if target.suffix else 'without a suffix'}"
        )


def _write(target: Path, obj: Any, **options: Any) -> None:
    with atomic_write(target) as stream:
        try:
            _format(target).write(stream, obj, **options)
        except FormatError as error:
            raise FormatError(f"{target}: {error}") from None


_SESSION = ("policy", "model")
_SOLVERS = {".pomdp": pomdp_file.FORMAT, ".pomdpx": pomdpx.FORMAT}
_FORMATS: dict[str, Any] = {".npz": npz, ".json": json, **_SOLVERS}


def _format(path: Path) -> Any:
    suffix, formats = path.suffix.lower(), dict(_FORMATS)
    if suffix not in formats:  # those of tables import pyarrow, which is slow
        from latentmdp.io import csv_table, environments, parquet
        from latentmdp.logs import frames

        formats |= {".csv": csv_table, ".parquet": parquet}
        if suffix == ".txt" and path.is_file() and environments.is_one(path):
            return environments
        if frames.table_suffix(path) in frames.CSV_SUFFIXES:
            return csv_table
    if suffix not in formats:
        raise FormatError(f"{path}: unknown suffix {suffix!r}; known: {', '.join(sorted(formats))}")
    return formats[suffix]
