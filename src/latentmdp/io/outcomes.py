"""The outcomes of `learn` and of `solve` as one .npz file each.

Two kinds of their own beside models, logs and policies (see `latentmdp.io.kinds`), made of theirs:
the fields of each part carry its name as a prefix, `model.`, `logs.` and `policy.`; plain values
stand in `record`, a JSON text. So an outcome is written whole or not at all, and read with the same
checks. Settings are kept as they are, whatever their names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.errors import FormatError
from latentmdp.fit import Fit
from latentmdp.io import kinds, schemas, values  # noqa: F401 (schemas registers the parts)
from latentmdp.io.kinds import Document, Fields, Kind
from latentmdp.offline.off_policy import Interval, LoggedEstimate
from latentmdp.offline.solving import Solved
from latentmdp.online.learned import Learned, Phase
from latentmdp.planning import Plan

__all__: list[str] = []


_KINDS_OF = {
    "model": ("model",),
    "fitted": ("model",),
    "logs": ("trajectories",),
    "policy": ("alpha-vector-policy", "markov-policy", "uniform-policy"),
}
"""What each part may be."""


def _maybe(value: Any, name: str) -> float | None:
    return None if value is None else _any_number(value, name)


def _any_number(value: Any, name: str) -> float:
    return values.number(value, name, finite=False)


_FIT: dict[str, Callable[[Any, str], Any]] = {
    "log_likelihood": _any_number,
    "converged": values.flag,
    "n_iter": values.integer,
    "pseudo_counts": values.number,
    "reward_pseudo_counts": values.number,
    "n_parameters": values.integer,
    "seconds": values.number,
}
_PLAN: dict[str, Callable[[Any, str], Any]] = {
    "lower": _maybe,
    "upper": _maybe,
    "converged": values.flag,
    "n_iter": values.integer,
    "seconds": values.number,
    "message": values.text,
}


def _encode_learned(learned: Learned) -> Fields:
    return {
        **_encode_parts(
            model=learned.model,
            fitted=learned.fit.model,
            logs=learned.logs,
            policy=learned.policy,
        ),
        **_encode_estimate(learned.fit, learned.plan),
        "returns": learned.returns,
        "phases": np.array(learned.phases, dtype=np.float64).reshape(-1, len(Phase._fields)),
        "record": _record(learned.fit, learned.plan, learned.settings, learned.seconds),
    }


def _decode_learned(fields: Fields) -> Learned:
    record = _parsed(fields)
    model, logs, policy = (_part(fields, prefix) for prefix in ("model", "logs", "policy"))
    phases = _rows(fields, "phases", len(Phase._fields))
    returns = _floats(fields, "returns")
    if returns.ndim != 1 or returns.size < len(logs):
        raise FormatError(f"'returns' has shape {returns.shape}, there are {len(logs)} episodes")
    fitted = _part(fields, "fitted")
    return Learned(
        returns=returns,
        policy=policy,
        plan=_plan(fields, record, policy),
        model=model,
        fit=_fit(fields, record, fitted),
        phases=tuple(Phase(*map(int, p[:3]), *map(float, p[3:])) for p in phases),
        logs=logs,
        settings=record["settings"],
        seconds=values.seconds(record["seconds"]),
    )


def _encode_solved(solved: Solved) -> Fields:
    logged = solved.logged
    return {
        **_encode_parts(model=solved.model, policy=solved.policy),
        **_encode_estimate(solved.fit, solved.plan),
        "effective_size": logged.effective_size,
        "record": _record(
            solved.fit,
            solved.plan,
            solved.settings,
            solved.seconds,
            value=solved.value,
            logged=(logged.mean, logged.stderr),
            warnings=solved.warnings,
            final_states=solved.final_states,
            **{name: getattr(solved, name) for name in _SOLVED},
        ),
    }


_SOLVED = ("optimism_bias", "model_first_steps", "unsupported")


def _decode_solved(fields: Fields) -> Solved:
    record = _parsed(fields)
    record.setdefault("optimism_bias", record.get("flattery"))  # its name in files of version 0.1
    model, policy = (_part(fields, prefix) for prefix in ("model", "policy"))
    effective = _floats(fields, "effective_size")
    if effective.ndim != 1:
        raise FormatError(f"'effective_size' has shape {effective.shape}, not one number a step")
    mean, stderr = (_any_number(x, "logged") for x in _list(record, "logged", 2))
    return Solved(
        policy=policy,
        plan=_plan(fields, record, policy),
        model=model,
        fit=_fit(fields, record, model),
        value=Interval(*(_any_number(x, "value") for x in _list(record, "value", 3))),
        logged=LoggedEstimate(mean, stderr, effective.size, effective),
        warnings=tuple(values.text(message, "warnings") for message in _list(record, "warnings")),
        final_states=tuple(
            values.integer(state, "final_states")
            for state in _list({"final_states": [], **record}, "final_states")
        ),
        settings=record["settings"],
        seconds=values.seconds(record["seconds"]),
        **{name: _any_number(record[name], name) for name in _SOLVED},
    )


def _encode_parts(**parts: Any) -> Fields:
    fields: Fields = {}
    for prefix, part in parts.items():
        document = kinds.encode(part)
        fields |= {f"{prefix}.{k}": v for k, v in (document.arrays | document.values).items()}
        fields[f"{prefix}_kind"] = document.kind
    return fields


def _part(fields: Fields, prefix: str) -> Any:
    kind = kinds.by_name(fields[f"{prefix}_kind"])
    if kind.name not in _KINDS_OF[prefix]:
        raise FormatError(f"field '{prefix}_kind' is {kind.name!r}, not {_KINDS_OF[prefix]}")
    own = {k.removeprefix(f"{prefix}."): v for k, v in fields.items() if k.startswith(f"{prefix}.")}
    arrays = {name: value for name, value in own.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in own.items() if name not in arrays}
    return kinds.decode(Document(kind.name, arrays, plain))


def _encode_estimate(fit: Fit, plan: Plan) -> Fields:
    return {
        "responsibilities": fit.responsibilities,
        "fit_history": np.array(fit.history, dtype=np.float64),
        "plan_history": np.array(plan.history, dtype=np.float64).reshape(-1, 3),
    }


def _record(fit: Fit, plan: Plan, settings: Mapping[str, Any], seconds: float, **more: Any) -> str:
    """Everything that is not an array; NaN and infinities are written as Python reads them."""
    return json.dumps(
        {
            "settings": settings,
            "seconds": seconds,
            "fit": {name: getattr(fit, name) for name in _FIT},
            "plan": {name: getattr(plan, name) for name in _PLAN},
            "guarantee": plan.guarantee,
            **more,
        }
    )


def _parsed(fields: Fields) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(fields["record"])
    for name in ("settings", "fit", "plan"):
        if not isinstance(record[name], dict):
            raise FormatError(f"{name!r} of the record is not an object")
    return record


def _fit(fields: Fields, record: dict[str, Any], model: Any) -> Fit:
    shares = _rows(fields, "responsibilities", model.n_contexts)
    return Fit(
        model=model,
        responsibilities=shares,
        history=tuple(_floats(fields, "fit_history").ravel().tolist()),
        **_checked(record["fit"], _FIT),
    )


def _plan(fields: Fields, record: dict[str, Any], policy: Any) -> Plan:
    guarantee = None
    if record["guarantee"] is not None:
        first, second = (_any_number(x, "guarantee") for x in _list(record, "guarantee", 2))
        guarantee = (first, second)
    history = _rows(fields, "plan_history", 3)
    return Plan(
        policy=policy,
        history=tuple((float(t), float(low), float(high)) for t, low, high in history),
        guarantee=guarantee,
        **_checked(record["plan"], _PLAN),
    )


def _checked(
    found: Mapping[str, Any], checks: Mapping[str, Callable[[Any, str], Any]]
) -> dict[str, Any]:
    """The values that are there: one that a file is too old for keeps its default."""
    return {name: check(found[name], name) for name, check in checks.items() if name in found}


def _floats(fields: Fields, name: str) -> Floats:
    return np.asarray(fields[name], dtype=np.float64)


def _rows(fields: Fields, name: str, width: int) -> Floats:
    found = _floats(fields, name)
    if found.ndim != 2 or found.shape[1] != width:
        raise FormatError(f"{name!r} has shape {found.shape}, not rows of {width}")
    return found


def _list(record: dict[str, Any], name: str, length: int | None = None) -> list[Any]:
    found = record[name]
    if not isinstance(found, list) or length not in (None, len(found)):
        raise FormatError(f"{name!r} of the record is not a list of the right length")
    return found


def _kind(
    name: str,
    owner: type,
    codec: tuple[Callable[[Any], Fields], Callable[[Fields], Any]],
    parts: tuple[str, ...],
    own: tuple[str, ...],
) -> Kind:
    """A kind with parts; which fields a part must have, the part's own kind says."""

    def declared(what: str) -> dict[str, Any]:
        return {
            f"{prefix}.{field}": wanted
            for prefix in parts
            for kind in _KINDS_OF[prefix]
            for field, wanted in getattr(kinds.by_name(kind), what).items()
        }

    arrays, plain = declared("arrays"), declared("values")
    named = {"record": str, **{f"{prefix}_kind": str for prefix in parts}}
    return Kind(
        name=name,
        owner=owner,
        encode=codec[0],
        decode=codec[1],
        arrays={**arrays, **dict.fromkeys(own, "float")},
        values={**plain, **named},
        optional=frozenset({*arrays, *plain}),
    )


_ESTIMATE = ("responsibilities", "fit_history", "plan_history")

kinds.register(
    _kind(
        "learned",
        Learned,
        (_encode_learned, _decode_learned),
        ("model", "fitted", "logs", "policy"),
        ("returns", "phases", *_ESTIMATE),
    )
)
kinds.register(
    _kind(
        "solved",
        Solved,
        (_encode_solved, _decode_solved),
        ("model", "policy"),
        ("effective_size", *_ESTIMATE),
    )
)
