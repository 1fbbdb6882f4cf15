"""The kinds of objects that can be saved: the class of each, its fields, and its formats.

An object turns itself into fields and back (`to_fields`, `from_fields`: `latentmdp._util.fields`).
What each field must be follows from the annotations of the class, so that a file is checked before
an object is made of it, and each format writes any kind. A new kind needs one entry:

    class Curve(Fielded):
        points: Floats
        label: str | None

    register(Kind("curve", "Curve", lambda: Curve))

An array is checked for what it holds, a number for being one, an object for its kind; a field that
may be None may be missing. What cannot be stored by itself (a protocol, a tuple of objects) is left
out, and where the fields that `to_fields` gives are not those of the annotations, the entry says
what they are.

A field may be an object of another kind. In the file its fields carry its name as a prefix
(`policy.vectors`, `policy.model.weights`), and `policy_kind` says which kind it is.

The header of a file names the format, the kind and the schema version, and holds the plain values
and a digest of everything but times: equal results have equal digests however long they took, and
a file whose contents are not those that were written is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
from numpy.typing import NDArray

from latentmdp import offline, online, planning, spectral  # empty until a class is asked for
from latentmdp._util import storage
from latentmdp._util.arrays import Arrays
from latentmdp._util.storage import FORMAT
from latentmdp._util.validation import require_choice
from latentmdp.deterministic import Exploration, Graph, GraphPolicy
from latentmdp.errors import FormatError
from latentmdp.fit import ContextSelection, Fit
from latentmdp.logs import Covariates, Encoder, Trajectories, WeightModel
from latentmdp.model import LatentMDP
from latentmdp.outcomes import Outcomes
from latentmdp.policies import (
    AlphaVectorPolicy,
    MarkovPolicy,
    MixturePolicy,
    Policy,
    PolicyGraph,
    UniformPolicy,
)
from latentmdp.sessions import SavedSession

FieldType = str | tuple[str, ...]
"""What a field must be: one of the words in `_CHECKS`, or the kinds that an object may have. A
"number" is finite, a "number or NaN" and those of a "list of numbers" may be infinite too, an
"object" is any JSON object."""


@dataclass(frozen=True)
class Kind:
    """One kind of object in a file.

    Parameters
    ----------
    name, class_name
        What the file and Python call it; a kind is found by the latter before its class is
        imported.
    owner
        Gives the class, which has `to_fields` and `from_fields`; imports it when first called.
    fields, optional
        What each field must be, and those that may be missing, beyond what the annotations say.
    suffixes
        The formats it may be saved in.
    columns
        Fields, one-dimensional arrays of one length, that are columns of a Parquet table, and what
        these are called there.
    schema
        Version of this layout; a file with a higher one is refused.
    """

    name: str
    class_name: str
    owner: Callable[[], Any]
    fields: Mapping[str, FieldType] = field(default_factory=dict)
    optional: Collection[str] = ()
    suffixes: tuple[str, ...] = (".npz",)
    columns: Mapping[str, str] = field(default_factory=dict)
    schema: int = 1

    @cached_property
    def layout(self) -> tuple[Mapping[str, FieldType], Collection[str]]:
        """What each field must be and which may be missing, those of the annotations included."""
        words, optional = dict[str, FieldType](), set(self.optional)
        for name, hint in get_type_hints(self.owner()).items():
            union = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
            word = None if name.startswith("_") else _word(name, union[0])
            if word is not None:
                words[name] = word
                optional |= {name} if NoneType in union else set()
        return {**words, **self.fields}, optional


@dataclass(frozen=True)
class Document:
    """What a file holds: its kind, arrays by name, and plain values, those of parts prefixed."""

    kind: Kind
    arrays: Arrays
    values: dict[str, Any]


_KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Make `save` and `load` know a kind."""
    if kind.name in _KINDS:
        raise ValueError(f"a kind named {kind.name!r} is registered already")
    for name, form in kind.fields.items():
        if isinstance(form, str):
            require_choice(f"field {name!r}", form, tuple(_CHECKS))
    _KINDS[kind.name] = kind


def by_name(name: object) -> Kind:
    """The kind that a file calls `name`."""
    if not isinstance(name, str) or name not in _KINDS:
        raise FormatError(f"unknown kind {name!r}; known: {', '.join(sorted(_KINDS))}")
    return _KINDS[name]


def by_type(owner: type) -> Kind:
    """The kind of the objects of a class."""
    names = {base.__name__ for base in owner.__mro__}
    for kind in _KINDS.values():
        if kind.class_name in names and issubclass(owner, kind.owner()):
            return kind
    classes = ", ".join(kind.class_name for kind in _KINDS.values())
    raise TypeError(f"cannot save a {owner.__name__}; what can be saved: {classes}")


def is_array(kind: Kind, name: str) -> bool:
    """Whether a field of a kind is an array."""
    return str(kind.layout[0].get(name)).startswith("array of ")


def is_policy(obj: object) -> bool:
    """Whether an object is a policy that a file can hold."""
    names = {base.__name__ for base in type(obj).__mro__}
    return any(
        kind.class_name in names and kind.name.endswith(("-policy", "policy-graph"))
        for kind in _KINDS.values()
    )


# ---------------------------------------------------------------------------------------- headers


def header_of(kind: Kind) -> dict[str, Any]:
    """What every file of a kind begins with."""
    return storage.file_header(kind.name, kind.schema)


def check_header(header: object) -> Kind:
    """The kind a file's header declares; refuse other formats and newer schemas."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FormatError(f'not a {FORMAT} file: it does not say "format": "{FORMAT}"')
    kind = by_name(header.get("kind"))
    schema = header.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise FormatError(f"schema version {schema!r} is not a positive integer")
    if schema > kind.schema:
        raise FormatError(
            f"schema version {schema} of {kind.name} is newer than {kind.schema}, the newest this "
            f"version of {FORMAT} reads: upgrade {FORMAT}"
        )
    return kind


def signed_header(document: Document) -> dict[str, Any]:
    """The header of a file that holds this document."""
    digest = _digest(document)
    return {**header_of(document.kind), "values": document.values, "digest": digest}


def document_of(header: dict[str, Any], arrays: Arrays) -> Document:
    """The document that `signed_header` signed; refuse other contents."""
    kind, values = check_header(header), header.get("values")
    if not isinstance(values, dict):
        raise FormatError("the header has no 'values'")
    document = Document(kind, arrays, values)
    if header.get("digest") != _digest(document):
        raise FormatError("it is damaged: its contents are not those that were written")
    return document


def _digest(document: Document) -> str:
    """Of the kind and all fields but times."""
    values = document.values.items()
    lasting = {name: value for name, value in values if name.rpartition(".")[2] != "seconds"}
    content = [document.kind.name, document.kind.schema, lasting]
    return storage.digest_of(document.arrays, json.dumps(content, sort_keys=True))


# -------------------------------------------------------------------------- from objects and back


def encode(obj: Any) -> Document:
    """The document of an object."""
    kind = by_type(type(obj))
    layout, _ = kind.layout
    arrays: Arrays = {}
    values: dict[str, Any] = {}
    for name, value in obj.to_fields().items():
        if value is None:
            continue
        if name not in layout:
            raise TypeError(f"the kind {kind.name!r} knows no field {name!r}")
        form = layout[name]
        if isinstance(form, tuple):
            part = encode(value)
            if part.kind.name not in form:
                raise TypeError(f"field {name!r} of a {kind.name} is a {part.kind.name}")
            arrays |= {f"{name}.{inner}": array for inner, array in part.arrays.items()}
            values |= {f"{name}.{inner}": plain for inner, plain in part.values.items()}
            values[f"{name}_kind"] = part.kind.name
        elif is_array(kind, name):
            arrays[name] = np.asarray(value)
        else:
            plain = value.item() if isinstance(value, np.generic) else value
            plain = list(plain) if isinstance(plain, tuple) else plain
            values[name] = _CHECKS[form](plain, name)
    return Document(kind, arrays, values)


def decode(document: Document) -> Any:
    """The object of a document, after a check of every field."""
    kind = document.kind
    remaining: dict[str, Any] = {**document.values, **document.arrays}
    if len(remaining) < len(document.values) + len(document.arrays):
        raise FormatError("a field is both an array and a plain value")
    fields: dict[str, Any] = {}
    layout, optional = kind.layout
    for name, form in layout.items():
        if isinstance(form, tuple):
            if f"{name}_kind" in remaining:
                fields[name] = _part(remaining, name, form)
        elif name in remaining:
            fields[name] = _CHECKS[form](remaining.pop(name), name)
        if name not in fields and name not in optional:
            raise FormatError(f"field {name!r} is missing")
    for name in sorted(remaining):
        raise FormatError(f"unknown field {name!r} (kind {kind.name!r})")
    return kind.owner().from_fields(fields)


def _part(remaining: dict[str, Any], name: str, allowed: tuple[str, ...]) -> Any:
    """The object in the field `name`, whose fields are taken out of `remaining`."""
    kind = by_name(remaining.pop(f"{name}_kind"))
    if kind.name not in allowed:
        raise FormatError(f"field '{name}_kind' is {kind.name!r}, not {' or '.join(allowed)}")
    prefix = f"{name}."
    prefixed = {key: remaining.pop(key) for key in list(remaining) if key.startswith(prefix)}
    inner = {key.removeprefix(prefix): value for key, value in prefixed.items()}
    arrays = {key: value for key, value in inner.items() if isinstance(value, np.ndarray)}
    values = {key: value for key, value in inner.items() if key not in arrays}
    return decode(Document(kind, arrays, values))


def _array(value: Any, name: str, *, holds: str, dtypes: str) -> NDArray[Any]:
    if not isinstance(value, np.ndarray) or (value.dtype.kind not in dtypes and value.size):
        got = f"dtype {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise FormatError(f"field {name!r} must be an array of {holds}, got {got}")
    return value


def _list(value: Any, name: str, *, holds: str, check: Callable[[Any, str], Any]) -> list[Any]:
    try:
        if isinstance(value, list):
            return [check(item, name) for item in value]
    except FormatError:
        pass
    raise FormatError(f"field {name!r} must be a list of {holds}, got {value!r:.60}")


_any_number = partial(storage.as_number, finite=False)

_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "array of floats": partial(_array, holds="floats", dtypes="fiu"),
    "array of integers": partial(_array, holds="integers", dtypes="iu"),
    "array of flags": partial(_array, holds="flags", dtypes="b"),
    "integer": storage.as_integer,
    "number": storage.as_number,
    "number or NaN": _any_number,
    "seconds": lambda value, _: storage.as_seconds(value),
    "flag": storage.as_flag,
    "text": storage.as_text,
    "object": storage.as_object,
    "list of integers": partial(_list, holds="integers", check=storage.as_integer),
    "list of numbers": partial(_list, holds="numbers", check=_any_number),
    "list of texts": partial(_list, holds="texts", check=storage.as_text),
}

_SCALARS: dict[Any, str] = {bool: "flag", int: "integer", float: "number or NaN", str: "text"}

_ARRAYS = {
    "f": "array of floats",
    "i": "array of integers",
    "b": "array of flags",
    "O": "list of texts",  # names, which JSON holds
}


def _word(name: str, hint: Any) -> FieldType | None:
    """What a field with this annotation must be; None where it cannot be stored by itself."""
    if name == "seconds":
        return name
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (np.ndarray, NDArray):  # from NumPy 2.5 on, NDArray[T] is no more an ndarray[...]
        scalar = get_args(inside[1])[0] if origin is np.ndarray else inside[0]
        return _ARRAYS[np.dtype(scalar).kind]
    if origin is tuple and (inside == (float, ...) or get_origin(inside[0]) is tuple):
        return "array of floats"  # a history: long, and one row each
    if origin in (tuple, list) and inside[0] is float:
        return "list of numbers"
    if origin is tuple and inside[1:] == (...,):
        return {int: "list of integers", str: "list of texts"}.get(inside[0])
    if is_typeddict(hint) or (origin is dict and inside[0] is str):
        return "object"
    if not isinstance(hint, type):
        return None
    if issubclass(hint, tuple):  # an interval
        return "list of numbers" if set(get_type_hints(hint).values()) == {float} else None
    if hint is Policy:
        return _POLICY
    return tuple(kind.name for kind in _KINDS.values() if kind.class_name == hint.__name__) or None


# ----------------------------------------------------------------------------------- the registry


def _each(form: FieldType, *names: str) -> dict[str, FieldType]:
    return dict.fromkeys(names, form)


_FLOATS, _INTEGERS, _FLAGS = "array of floats", "array of integers", "array of flags"
_POLICY = (
    "alpha-vector-policy",
    "markov-policy",
    "uniform-policy",
    "policy-graph",
    "mixture-policy",
)
_NODES: dict[str, FieldType] = {
    "nodes": ("alpha-vector-policy",),
    **_each(_INTEGERS, "followers", "first"),
    "stays": _FLAGS,
}
_SINCE_0_2 = ("checks", "references", "support")
"""Fields of a `Solved` that files of version 0.2 lack."""

_DENSE = ("transitions", "reward_probs")
_TABLE = (*(f"outcome_{name}" for name in Outcomes._fields), "outcome_probs")  # probs until 0.2
# Those of the tables of counts; version 0.2 wrote arrays, or one table of outcomes.
_COUNT_TABLES = ("move", "payment", "outcome")
_COUNTS = (
    *("count_initial", "count_transitions", "count_rewards"),
    *(f"count_{table}_counts" for table in _COUNT_TABLES),
)
_COUNTED = tuple(
    f"count_{table}_{name}" for table in _COUNT_TABLES for name in Outcomes._fields[:3]
)

for _kind in (
    Kind(
        "model",
        "LatentMDP",
        lambda: LatentMDP,
        {
            **_each(_FLOATS, *_DENSE, "initial", "bonus", "outcome_distinct", "outcome_probs"),
            **_each(_INTEGERS, *_TABLE[:3], "outcome_pattern"),
            "reward_model": "text",
        },
        optional=("allowed", "bonus", *_DENSE, *_TABLE, "reward_model"),
        suffixes=(".npz", ".json", ".csv", ".pomdp", ".pomdpx"),
    ),
    Kind(
        "trajectories",
        "Trajectories",
        lambda: Trajectories,
        {"missing": "object"},
        optional=("missing",),
        suffixes=(".npz", ".parquet"),
    ),
    Kind("covariates", "Covariates", lambda: Covariates),
    Kind("encoder", "Encoder", lambda: Encoder),
    Kind("weight-model", "WeightModel", lambda: WeightModel),
    Kind("uniform-policy", "UniformPolicy", lambda: UniformPolicy),
    Kind("markov-policy", "MarkovPolicy", lambda: MarkovPolicy),
    Kind(
        "alpha-vector-policy",
        "AlphaVectorPolicy",
        lambda: AlphaVectorPolicy,
        {
            "vectors": _FLOATS,
            **_each(_INTEGERS, "actions", "offsets"),
            "model": ("model",),
            "smoothing": "number",
        },
    ),
    Kind("session", "SavedSession", lambda: SavedSession, suffixes=(".json",)),
    Kind(
        "mixture-policy",
        "MixturePolicy",
        lambda: MixturePolicy,
        {**_NODES, "weights": _FLOATS},
        optional=("stays",),
    ),
    Kind("policy-graph", "PolicyGraph", lambda: PolicyGraph, _NODES, optional=("stays",)),
    Kind("robust-plan", "RobustPlan", lambda: planning.RobustPlan),
    Kind("plan", "Plan", lambda: planning.Plan),
    Kind("fit", "Fit", lambda: Fit),
    Kind(
        "context-selection",
        "ContextSelection",
        lambda: ContextSelection,
        optional=("individuals", "sizes", "entropy", "stability"),
    ),
    Kind("psr", "PSR", lambda: spectral.PSR),
    Kind(
        "graph",
        "Graph",
        lambda: Graph,
        {
            **_each(_INTEGERS, "node_states", "node_levels", "observations"),
            **_each(_INTEGERS, "observation_offsets", "edges", "edge_visits", "start_nodes"),
            **_each(_FLOATS, "edge_shares", "start_probabilities"),
        },
    ),
    Kind(
        "graph-policy",
        "GraphPolicy",
        lambda: GraphPolicy,
        {"graph": ("graph",), "actions": _INTEGERS},
    ),
    Kind(
        "exploration",
        "Exploration",
        lambda: Exploration,
        _each("number", "value", "stderr", "failure_probability", "max_noise"),
        optional=("max_noise",),
    ),
    Kind(
        "solved",
        "Solved",
        lambda: offline.Solved,
        {
            **_each("number or NaN", "logged_mean", "logged_stderr"),
            "effective_size": _FLOATS,
            **_each("object", *_SINCE_0_2),
        },
        # the policy and the model are those of the plan and of the fit
        optional=("policy", "model", *_SINCE_0_2, "standard_errors"),
    ),
    Kind("standard-errors", "StandardErrors", lambda: offline.StandardErrors),
    Kind("sensitivity", "Sensitivity", lambda: offline.Sensitivity),
    Kind(
        "run",
        "Run",
        lambda: online.Run,
        {
            **_each(_FLOATS, "curve_errors", "phases", *_COUNTS),
            **_each(_INTEGERS, "curve_episodes", *_COUNTED),
        },
        optional=(*_COUNTS, *_COUNTED, "policy", "warnings"),
        suffixes=(".parquet", ".npz"),
        columns={"returns": "return", "beliefs": "belief", "contexts": "context"},
    ),
):
    register(_kind)
