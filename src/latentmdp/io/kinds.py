"""The kinds of objects that can be saved: the class of each, its fields, and its formats.

An object turns itself into fields and back (`to_fields`, `from_fields`: `latentmdp._util.fields`).
A kind says what each field must be, so that a file is checked before an object is made of it, and
each format writes any kind. A new kind needs one entry:

    register(Kind("curve", "Curve", lambda: Curve, {"points": "array of floats", "label": "text"}))

A field may be an object of another kind. In the file its fields carry its name as a prefix
(`policy.vectors`, `policy.model.weights`), and `policy_kind` says which kind it is.

The header of a file names the format, the kind and the schema version, and holds the plain values
and a digest of everything but times: equal results have equal digests however long they took, and
a file whose contents are not those that were written is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import storage
from latentmdp._util.arrays import Arrays
from latentmdp._util.validation import require_choice
from latentmdp._version import __version__
from latentmdp.deterministic import Exploration, Graph, GraphPolicy
from latentmdp.errors import FormatError
from latentmdp.fit import ContextSelection, Fit
from latentmdp.logs import Covariates, Encoder, Trajectories, WeightModel
from latentmdp.model import LatentMDP
from latentmdp.policies import (
    AlphaVectorPolicy,
    MarkovPolicy,
    MixturePolicy,
    PolicyGraph,
    UniformPolicy,
)
from latentmdp.sessions import SavedSession

__all__ = [
    "FORMAT",
    "Document",
    "Kind",
    "by_name",
    "by_type",
    "check_header",
    "decode",
    "document_of",
    "encode",
    "header_of",
    "is_array",
    "is_policy",
    "register",
    "signed_header",
]

FORMAT = "latentmdp"

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
        What each field must be, and those that may be missing.
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
    fields: Mapping[str, FieldType]
    optional: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = (".npz",)
    columns: Mapping[str, str] = field(default_factory=dict)
    schema: int = 1


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
    for name, wanted in kind.fields.items():
        if isinstance(wanted, str):
            require_choice(f"field {name!r}", wanted, tuple(_CHECKS))
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
    known = ", ".join(kind.class_name for kind in _KINDS.values())
    raise TypeError(f"cannot save a {owner.__name__}; what can be saved: {known}")


def is_array(kind: Kind, name: str) -> bool:
    """Whether a field of a kind is an array."""
    return str(kind.fields.get(name)).startswith("array of ")


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
    return {
        "format": FORMAT,
        "kind": kind.name,
        "schema": kind.schema,
        "written_by": f"{FORMAT} {__version__}",
    }


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
    told = [document.kind.name, document.kind.schema, lasting]
    return storage.digest_of(document.arrays, json.dumps(told, sort_keys=True))


# -------------------------------------------------------------------------- from objects and back


def encode(obj: Any) -> Document:
    """The document of an object."""
    kind = by_type(type(obj))
    arrays: Arrays = {}
    values: dict[str, Any] = {}
    for name, value in obj.to_fields().items():
        if value is None:
            continue
        if name not in kind.fields:
            raise TypeError(f"the kind {kind.name!r} knows no field {name!r}")
        wanted = kind.fields[name]
        if isinstance(wanted, tuple):
            part = encode(value)
            if part.kind.name not in wanted:
                raise TypeError(f"field {name!r} of a {kind.name} is a {part.kind.name}")
            arrays |= {f"{name}.{inner}": array for inner, array in part.arrays.items()}
            values |= {f"{name}.{inner}": plain for inner, plain in part.values.items()}
            values[f"{name}_kind"] = part.kind.name
        elif is_array(kind, name):
            arrays[name] = np.asarray(value)
        else:
            plain = value.item() if isinstance(value, np.generic) else value
            plain = list(plain) if isinstance(plain, tuple) else plain
            values[name] = _CHECKS[wanted](plain, name)
    return Document(kind, arrays, values)


def decode(document: Document) -> Any:
    """The object of a document, after a check of every field."""
    kind = document.kind
    left: dict[str, Any] = {**document.values, **document.arrays}
    if len(left) < len(document.values) + len(document.arrays):
        raise FormatError("a field is both an array and a plain value")
    fields: dict[str, Any] = {}
    for name, wanted in kind.fields.items():
        if isinstance(wanted, tuple):
            if f"{name}_kind" in left:
                fields[name] = _part(left, name, wanted)
        elif name in left:
            fields[name] = _CHECKS[wanted](left.pop(name), name)
        if name not in fields and name not in kind.optional:
            raise FormatError(f"field {name!r} is missing")
    for name in sorted(left):
        raise FormatError(f"unknown field {name!r} (kind {kind.name!r})")
    return kind.owner().from_fields(fields)


def _part(left: dict[str, Any], name: str, allowed: tuple[str, ...]) -> Any:
    """The object in the field `name`, whose fields are taken out of `left`."""
    kind = by_name(left.pop(f"{name}_kind"))
    if kind.name not in allowed:
        raise FormatError(f"field '{name}_kind' is {kind.name!r}, not {' or '.join(allowed)}")
    prefix = f"{name}."
    own = {key: left.pop(key) for key in list(left) if key.startswith(prefix)}
    inner = {key.removeprefix(prefix): value for key, value in own.items()}
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


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"field {name!r} must be an object, got {type(value).__name__}")
    return value


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
    "object": _object,
    "list of integers": partial(_list, holds="integers", check=storage.as_integer),
    "list of numbers": partial(_list, holds="numbers", check=_any_number),
    "list of texts": partial(_list, holds="texts", check=storage.as_text),
}

# ----------------------------------------------------------------------------------- the registry


def _planning() -> ModuleType:
    from latentmdp import planning

    return planning


def _spectral() -> ModuleType:
    from latentmdp import spectral

    return spectral


def _offline() -> ModuleType:
    from latentmdp import offline

    return offline


def _online() -> ModuleType:
    from latentmdp import online

    return online


def _each(wanted: FieldType, *names: str) -> dict[str, FieldType]:
    return dict.fromkeys(names, wanted)


_FLOATS, _INTEGERS, _FLAGS = "array of floats", "array of integers", "array of flags"
_MODEL = ("model",)
_POLICY = (
    "alpha-vector-policy",
    "markov-policy",
    "uniform-policy",
    "policy-graph",
    "mixture-policy",
)

_PLAN: dict[str, FieldType] = {
    "policy": _POLICY,
    **_each("number or NaN", "lower", "upper"),
    "converged": "flag",
    "n_iter": "integer",
    "seconds": "seconds",
    "history": _FLOATS,
    "guarantee": "list of numbers",
    "message": "text",
    "loss": "number",
}
_PLAN_OPTIONAL = frozenset({"lower", "upper", "guarantee", "loss"})

_LABELS = ("context_names", "state_names", "action_names")
_HIDDEN = ("bonus", "initial_bonus")
_MEASURED = ("propensities", "amounts", "reward_edges")
_DENSE = ("transitions", "reward_probs")
_TABLE = (
    "outcome_starts",
    "outcome_next_state",
    "outcome_reward",
    "outcome_probs",
    "reward_model",
)
_COUNTS = ("count_transitions", "count_rewards", "count_initial", "count_outcome_counts")
_COUNTED = tuple(f"count_outcome_{name}" for name in ("starts", "next_state", "reward"))

for _kind in (
    Kind(
        "model",
        "LatentMDP",
        lambda: LatentMDP,
        {
            "horizon": "integer",
            "discount": "number",
            "allow_unvisited": "flag",
            **_each("list of texts", *_LABELS),
            **_each(_FLOATS, *_DENSE, "reward_values"),
            **_each(_FLOATS, "initial", "weights", *_HIDDEN, "reward_edges"),
            "allowed": _FLAGS,
            **_each(_INTEGERS, "outcome_starts", "outcome_next_state", "outcome_reward"),
            "outcome_probs": _FLOATS,
            "reward_model": "text",
        },
        optional=frozenset(
            {"horizon", *_LABELS, *_HIDDEN, "reward_edges", "allowed", *_DENSE, *_TABLE}
        ),
        suffixes=(".npz", ".json", ".csv", ".pomdp", ".pomdpx"),
    ),
    Kind(
        "trajectories",
        "Trajectories",
        lambda: Trajectories,
        {
            **_each(_INTEGERS, "states", "actions", "rewards", "offsets", "contexts", "counts"),
            "reward_values": _FLOATS,
            **_each("integer", "n_states", "n_actions"),
            "continues": _FLAGS,
            **_each(_FLOATS, *_MEASURED),
            "covariates": ("covariates",),
            **_each("list of texts", *_LABELS[1:], "episode_names"),
            "missing": "object",
        },
        optional=frozenset(
            {"contexts", "counts", "reward_values", "continues", *_MEASURED, "covariates"}
            | {*_LABELS[1:], "episode_names", "missing"}
        ),
        suffixes=(".npz", ".parquet"),
    ),
    Kind(
        "covariates",
        "Covariates",
        lambda: Covariates,
        {"names": "list of texts", "values": _FLOATS, "levels": "object"},
    ),
    Kind(
        "encoder",
        "Encoder",
        lambda: Encoder,
        {"names": "list of texts", "levels": "object", **_each(_FLOATS, "means", "scales")},
    ),
    Kind(
        "weight-model",
        "WeightModel",
        lambda: WeightModel,
        {"encoder": ("encoder",), **_each(_FLOATS, "intercepts", "coefficients")},
    ),
    Kind("uniform-policy", "UniformPolicy", lambda: UniformPolicy, {}),
    Kind(
        "markov-policy",
        "MarkovPolicy",
        lambda: MarkovPolicy,
        {"actions": _INTEGERS, "probabilities": _FLOATS},
        optional=frozenset({"actions", "probabilities"}),
    ),
    Kind(
        "alpha-vector-policy",
        "AlphaVectorPolicy",
        lambda: AlphaVectorPolicy,
        {
            "vectors": _FLOATS,
            **_each(_INTEGERS, "actions", "offsets"),
            "model": _MODEL,
            "smoothing": "number",
            "weight_model": ("weight-model",),
        },
        optional=frozenset({"weight_model"}),
    ),
    Kind(
        "session",
        "SavedSession",
        lambda: SavedSession,
        {
            **_each("text", "policy_file", "policy_digest", "model_file", "model_digest", "key"),
            **_each("integer", "t", "state", "action", "node"),
            **_each("list of numbers", "belief", "asleep"),
            "history": "object",
        },
        optional=frozenset(
            {"model_file", "model_digest", "state", "action", "asleep", "node", "history"}
        ),
        suffixes=(".json",),
    ),
    Kind(
        "mixture-policy",
        "MixturePolicy",
        lambda: MixturePolicy,
        {
            "nodes": ("alpha-vector-policy",),
            **_each(_INTEGERS, "followers", "first"),
            "weights": _FLOATS,
            "stays": _FLAGS,
        },
        optional=frozenset({"stays"}),
    ),
    Kind(
        "policy-graph",
        "PolicyGraph",
        lambda: PolicyGraph,
        {
            "nodes": ("alpha-vector-policy",),
            **_each(_INTEGERS, "followers", "first"),
            "stays": _FLAGS,
        },
        optional=frozenset({"stays"}),
    ),
    Kind(
        "robust-plan",
        "RobustPlan",
        lambda: _planning().RobustPlan,
        {
            **_PLAN,
            "objective": "text",
            **_each("number", "level", "given_up"),
            **_each(_FLOATS, "worst_weights", "by_context", "upper_by_context", "reference"),
        },
        optional=frozenset({*_PLAN_OPTIONAL, "level"}),
    ),
    Kind("plan", "Plan", lambda: _planning().Plan, _PLAN, optional=_PLAN_OPTIONAL),
    Kind(
        "fit",
        "Fit",
        lambda: Fit,
        {
            "model": _MODEL,
            **_each(_FLOATS, "responsibilities", "history"),
            "log_likelihood": "number or NaN",
            "converged": "flag",
            **_each("integer", "n_iter", "n_parameters"),
            **_each("number or NaN", "pseudo_counts", "reward_pseudo_counts"),
            "behaviour_pseudo_counts": "number or NaN",
            "behaviour": _FLOATS,
            "weight_model": ("weight-model",),
            **_each("list of texts", "shared", "decisions"),
            "selection": ("context-selection",),
            "seconds": "seconds",
        },
        optional=frozenset({"selection", "behaviour", "weight_model"}),
    ),
    Kind(
        "context-selection",
        "ContextSelection",
        lambda: ContextSelection,
        {
            "n_contexts": "integer",
            "candidates": "list of integers",
            **_each(_FLOATS, "log_likelihood", "held_out", "held_out_loss", "held_out_error"),
            "n_parameters": _INTEGERS,
            "statement": "text",
        },
    ),
    Kind(
        "psr",
        "PSR",
        lambda: _spectral().PSR,
        {
            **_each(_FLOATS, "operators", "normalisers", "starts", "homes", "pooled"),
            **_each(_FLOATS, "singular_values", "reward_values"),
            "visited": _FLAGS,
            "visible_contexts": _INTEGERS,
            "safeguards": "flag",
        },
        optional=frozenset({"reward_values"}),
    ),
    Kind(
        "graph",
        "Graph",
        lambda: Graph,
        {
            **_each(_INTEGERS, "node_states", "node_levels", "observations"),
            **_each(_INTEGERS, "observation_offsets", "edges", "edge_visits", "start_nodes"),
            **_each(_FLOATS, "edge_shares", "start_probabilities", "reward_values"),
            **_each("integer", "n_actions", "horizon"),
            "discount": "number",
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
        {
            "policy": ("graph-policy",),
            **_each("number", "value", "stderr", "failure_probability"),
            "bound": "number or NaN",
            "exact": "flag",
            **_each("integer", "episodes", "n_contexts", "horizon", "repeats", "restarts"),
            "max_noise": "number",
        },
        optional=frozenset({"max_noise"}),
    ),
    Kind(
        "solved",
        "Solved",
        lambda: _offline().Solved,
        {
            "plan": ("plan",),
            "fit": ("fit",),
            "value": "list of numbers",
            **_each("number or NaN", "optimism_bias", "unsupported"),
            **_each("number or NaN", "logged_mean", "logged_stderr", "model_first_steps"),
            "effective_size": _FLOATS,
            "final_states": "list of integers",
            "warnings": "list of texts",
            "settings": "object",
            "seconds": "seconds",
        },
    ),
    Kind(
        "run",
        "Run",
        lambda: _online().Run,
        {
            **_each(_FLOATS, "returns", "beliefs", "curve_errors", "phases"),
            **_each(_INTEGERS, "contexts", "curve_episodes", *_COUNTED),
            **_each(_FLOATS, *_COUNTS),
            "model": _MODEL,
            "policy": _POLICY,
            "settings": "object",
            "optimistic_value": "number or NaN",
            "plan": ("plan",),
            "fit": ("fit",),
            "logs": ("trajectories",),
            "value": "list of numbers",
            "warnings": "list of texts",
            "seconds": "seconds",
        },
        optional=frozenset(
            {*_COUNTS, *_COUNTED, "policy", "plan", "fit", "logs", "value", "warnings"}
        ),
        suffixes=(".parquet", ".npz"),
        columns={"returns": "return", "beliefs": "belief", "contexts": "context"},
    ),
):
    register(_kind)
