"""Multi-environment POMDPs in the text format of Bovy et al. [bovy2025].

One file holds several POMDPs. The first lines declare states, environments, actions, observations
and parameters, whose values
are listed by environment. The sections say how states move, what is seen after an action, what is
paid and how an episode begins; each of their entries is a number, a parameter, or one minus
parameters. So the file is a flat POMDP over pairs of an environment and a state, and is read as one
(`pomdp_file`). All environments are equally likely: the format knows the worst of them only.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from latentmdp.errors import FormatError
from latentmdp.io.determined_pomdp import Pomdp, Variable, as_number
from latentmdp.io.pomdp_file import FlatFile
from latentmdp.io.solver_files import MAX_STATES, Comments, SolverFormat
from latentmdp.model import LatentMDP


def is_one(path: Path) -> bool:
    """Whether a file begins as such files do."""
    with open(path, "rb") as stream:
        return re.match(rb"\s*\d+\s*,\s*\[", stream.read(100)) is not None


def read(
    stream: BinaryIO,
    *,
    horizon: int | None = None,
    discount: float | None = None,
    max_states: int = MAX_STATES,
) -> LatentMDP:
    """The latent MDP of a file; without a horizon and a discount it has no end, and 0.95."""
    if horizon is None and discount is None:
        warnings.warn("no horizon and no discount: no end, and a discount of 0.95", stacklevel=3)
    rate = discount if discount is not None else 0.95 if horizon is None else 1.0
    form = SolverFormat(Comments(b"# "), lambda data: _pomdp(data, rate))
    return form.read(stream, horizon=horizon, max_states=max_states)


def _pomdp(data: bytes, discount: float) -> Pomdp:
    """The flat POMDP of a file, with the environment as a variable."""
    lines = [line.strip() for line in data.decode("latin-1").splitlines() if line.strip()]
    states, environments, *_ = declared = [_declared(line) for line in [*lines, *[""] * 5][:5]]
    pomdp = FlatFile("\n".join(_statements(declared, lines[5:], discount))).pomdp()
    N, S = len(environments), len(states)
    variables = [
        Variable("environment", environments, np.repeat(np.arange(N), S), False),
        Variable("state", states, np.tile(np.arange(S), N), False),
    ]
    return pomdp._replace(variables=variables)


def _statements(declared: list[list[str]], lines: list[str], discount: float) -> Iterator[str]:
    """The file in the statements of a flat one: the state s of environment e is called e/s."""
    states, environments, actions, observations, parameters = declared
    N, S = len(environments), len(states)
    n_rows = N if parameters else 0
    rows = [_words(line) for line in lines[:n_rows]] or [[]] * N
    if [len(row) for row in rows] != [len(parameters)] * N:
        raise FormatError(f"each of {N} environments must have {len(parameters)} parameters")
    known = [dict(zip(parameters, map(as_number, row))) for row in rows]
    yield f"discount: {discount}\nobservations: {' '.join(observations)}"
    here = [[f"{e}/{s}" for s in states] for e in environments]
    yield f"actions: {' '.join(actions)}\nstates: {' '.join(chain(*here))}"
    first, section = np.zeros((N, S)), ""
    for line in lines[n_rows:]:
        if line.startswith("#"):
            section = " ".join(line.split()[1:3])
            continue
        where, _, word = line.partition("->")
        keys = _words(where)
        if section == "Initial tuples":
            n, s = _named(keys, range(N), range(S))
            first[int(n), int(s)] = 1.0
            continue
        for e, values in enumerate(known):
            value = _value(word, values)
            if section == "Transition function":
                s, a, after = _named(keys, here[e], actions, here[e])
                yield f"T: {a} : {s} : {after} {value}"
            elif section == "Observation function":
                a, s, o = _named(keys, actions, here[e], observations)
                yield f"O: {a} : {s} : {o} {value}"
            elif section == "Reward function":
                s, a = _named(keys, here[e], actions)
                yield f"R: {a} : {s} : * : * {value}"
            elif section == "Initial beliefs":
                (s,) = _named(keys, range(S))
                first[e, int(s)] = value
            else:
                raise FormatError(f"{line!r:.60} is in no section that such files have")
    total = first.sum() if section == "Initial tuples" else N
    yield f"start: {' '.join(map(str, (first / max(total, 1.0)).ravel().tolist()))}"


def _named(keys: list[str], *names: Sequence[object]) -> list[str]:
    """The names of an entry's numbers; "_" stands for all."""
    if len(keys) != len(names):
        raise FormatError(f"{','.join(keys)!r:.60} must be {len(names)} numbers")
    called = []
    for key, known in zip(keys, names):
        if key != "_" and not (key.isdigit() and len(key) < 10 and int(key) < len(known)):
            raise FormatError(f"{key!r:.60} in {','.join(keys)!r:.60} must be below {len(known):,}")
        called.append("*" if key == "_" else str(known[int(key)]))
    return called


def _value(word: str, parameters: dict[str, float]) -> float:
    """A number, a parameter, or one minus parameters."""
    first, *others = re.sub(r"^-", "0-", word.strip()).split("-")
    value, *less = (parameters[t] if t in parameters else as_number(t) for t in (first, *others))
    return value - sum(less)


def _declared(line: str) -> list[str]:
    """The names that a line declares, as many as it says."""
    match = re.fullmatch(r"(\d{1,9})\s*,\s*\[(.*)\]", line)
    names = _words(match[2]) if match else []
    if match is None or len(set(names)) != int(match[1]):
        raise FormatError(f"{line!r:.60} must be a number of distinct names: '2, [good, bad]'")
    return names


def _words(text: str) -> list[str]:
    return re.sub(r"[][,]", " ", text).split()
