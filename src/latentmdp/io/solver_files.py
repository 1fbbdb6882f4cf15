"""Latent MDPs as problems for other POMDP solvers: what the files of both formats share.

A solver knows a discounted problem without end. There are two ways to put a latent MDP so:

finite      the time is part of the state, and after H steps nothing is earned. A solver needs a
            discount g below one: it is the model's own, or H / (H + 1) for a model without
            discount, and what is earned at time t is multiplied by (discount / g)^t. So the
            optimum of the exported problem is V* itself, bonus included.
discounted  no time and no end, with the model's discount, which must be below one.

The file carries the model as JSON in its comments, with a digest of the rest of the file: what is
loaded is the model bit for bit, and a file that was changed is refused, as its tables no longer say
what its comments say. A file by another program is refused too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from latentmdp._util import storage
from latentmdp._util.arrays import Floats
from latentmdp.errors import FormatError
from latentmdp.io import json
from latentmdp.model import LatentMDP

__all__ = ["Comments", "SolverForm", "number", "read_model", "solver_form", "write_model"]


_TEXT = "latentmdp carries its model in the next {} lines; sha256 {}"
_MARK = re.compile(_TEXT.format(r"(\d{1,9})", "([0-9a-f]{64})").encode())


class Comments(NamedTuple):
    """How a format writes a line of comment, and what must stand before the first one."""

    opening: bytes
    closing: bytes = b""
    preamble: bytes = b""


class SolverForm(NamedTuple):
    """The discount of the file, and what (t, m, s, a) earns; one row of time if there is no end."""

    discount: float
    payoffs: Floats  # (H or 1, M, S, A)


def solver_form(model: LatentMDP, *, discounted: bool, delay: int) -> SolverForm:
    """The model in either form, for a file in which an episode begins at step `delay`."""
    if model.allow_unvisited:
        rows = model.observation_probs().sum(axis=(-2, -1))
        if (rows <= 0.5).any() or (model.initial.sum(axis=1) <= 0.5).any():
            raise FormatError("a model with rows never visited is no POMDP: fill them first")
    H = model.horizon
    if discounted and model.discount >= 1.0:
        raise FormatError("the discounted form needs a model with a discount below 1")
    discount = model.discount if model.discount < 1.0 else H / (H + 1)
    steps = np.arange(1 if discounted else H)
    scale = (model.discount / discount) ** steps / discount**delay
    return SolverForm(discount, scale[:, None, None, None] * model.planning_rewards())


def number(value: float) -> str:
    """A float to its last digit, without an exponent, with digits on both sides of the point."""
    return np.format_float_positional(value, unique=True, trim="0")


def write_model(
    stream: BinaryIO, model: LatentMDP, comments: Comments, body: Iterable[str]
) -> None:
    """Write the body of a file, after the model in comments."""
    data = "".join(body).encode("ascii")
    # XML knows no "--" in a comment; in JSON it can only be part of a string.
    lines = json.to_text(model).encode().replace(b"--", b"-\\u002d").splitlines()
    mark = _TEXT.format(len(lines), hashlib.sha256(data).hexdigest())
    stream.write(comments.preamble)
    for line in [mark.encode(), *lines]:
        stream.write(comments.opening + line + comments.closing + b"\n")
    stream.write(data)


def read_model(stream: BinaryIO, comments: Comments) -> Any:
    """Read the model in a file's comments; refuse what `write_model` did not write."""
    if stream.read(len(comments.preamble)) != comments.preamble:
        raise FormatError(_FOREIGN)
    mark = _MARK.fullmatch(_comment(stream, comments, 200))
    if mark is None:
        raise FormatError(_FOREIGN)
    text, room = [], storage.MAX_TEXT
    for _ in range(int(mark[1])):
        text.append(_comment(stream, comments, room))
        room -= len(text[-1])
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    if digest.hexdigest().encode() != mark[2]:
        raise FormatError("changed or truncated since latentmdp wrote it: write it again")
    model = json.from_text(b"\n".join(text).decode("utf-8"))
    if not isinstance(model, LatentMDP):
        raise FormatError(f"carries a {type(model).__name__}, not a model")
    return model


_FOREIGN = "not written by latentmdp: only its own files of this format can be read"


def _comment(stream: BinaryIO, comments: Comments, room: int) -> bytes:
    """The text of the next line, which must be a comment of at most `room` bytes."""
    line = stream.readline(max(room, 0) + len(comments.opening) + len(comments.closing) + 1)
    end = comments.closing + b"\n"
    if not line.startswith(comments.opening) or not line.endswith(end):
        raise FormatError(_FOREIGN)
    return line[len(comments.opening) : len(line) - len(end)]
