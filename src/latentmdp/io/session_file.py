"""Files of sessions: where an episode is, and a reference to the file of the policy.

A policy remembers the file that it was loaded from or saved to. One without a file is saved beside
the session, as `policy-DIGEST.npz`: all sessions of the folder share it. The reference is a path
seen from the session's own folder where the policy lies in it, so that both can be moved together,
and a fingerprint, so that a session never goes on with another policy. The model of a session is
treated alike where it is not the policy's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from latentmdp._util import storage
from latentmdp.errors import FormatError
from latentmdp.io import kinds
from latentmdp.model import LatentMDP
from latentmdp.sessions import SavedSession, Session


def remember_file(obj: Any, path: Path) -> None:
    """Let a policy or a model know the file it is in, and what that file looks like now."""
    if isinstance(obj, LatentMDP) or kinds.is_policy(obj):
        obj.__dict__["_file"] = (path.resolve(), storage.file_stamp(path))


def put_aside(session: Session, target: Path, save: Callable[[Any, Path], None]) -> SavedSession:
    """What the file `target` of a session will hold; saves the policy beside it if need be."""
    policy, model = session.policy, session.model
    if not kinds.is_policy(policy):
        raise TypeError(
            f"a session of a {type(policy).__name__} cannot be saved: no file can hold its policy"
        )
    folder = target.resolve().parent
    has_model = getattr(policy, "model", None) is model
    return session.put_aside(
        _reference(policy, "policy", folder, save),
        None if has_model else _reference(model, "model", folder, save),
    )


def _reference(
    obj: Any, what: str, folder: Path, save: Callable[[Any, Path], None]
) -> tuple[str, str]:
    """The path and the fingerprint of what a session needs."""
    digest = obj.__dict__.get("_digest") or obj.fingerprint()
    obj.__dict__["_digest"] = digest
    path, stamp = obj.__dict__.get("_file", (None, None))
    if path is None or not path.exists() or storage.file_stamp(path) != stamp:
        path = folder / f"{what}-{digest[:16]}.npz"
        if not path.exists():
            save(obj, path)
        remember_file(obj, path)
    inside = path.is_relative_to(folder)
    return (path.relative_to(folder).as_posix() if inside else str(path)), digest


def resumed(
    saved: SavedSession,
    source: Path,
    load: Callable[[Path], Any],
    policy: Any = None,
    model: LatentMDP | None = None,
) -> Session:
    """The session in the file `source`, with the policy and model given, or those it names."""
    folder = source.resolve().parent
    if policy is None:
        policy = _found(saved.policy_file, "policy", folder, load)
    _require_same(policy, saved.policy_digest, "policy", saved.policy_file)
    if saved.model_file is None:
        model = getattr(policy, "model", None)
        if model is None:
            raise FormatError("it names no model, and its policy has none")
    else:
        if model is None:
            model = _found(saved.model_file, "model", folder, load)
        _require_same(model, saved.model_digest, "model", saved.model_file)
    if not isinstance(model, LatentMDP):
        raise FormatError(f"its model is a {type(model).__name__}")
    return Session.resume(saved, policy, model)


def _found(path: str, what: str, folder: Path, load: Callable[[Path], Any]) -> Any:
    """The policy or model at a path seen from the session's folder, or moved into that folder."""
    for file in (folder / path, folder / Path(path).name):
        if file.exists():
            return load(file)
    raise FormatError(
        f"its {what} should be in {path}, which does not exist; load(..., {what}=...) gives it"
    )


def _require_same(obj: Any, digest: str | None, what: str, path: str) -> None:
    if not hasattr(obj, "fingerprint") or not (what == "model" or kinds.is_policy(obj)):
        raise FormatError(f"its {what} is a {type(obj).__name__}")
    mine = obj.__dict__.get("_digest") or obj.fingerprint()
    if mine != digest:
        raise FormatError(f"its {what} was another one than that in {path}")
    obj.__dict__["_digest"] = mine
