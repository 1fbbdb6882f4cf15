"""The outcome of `learn` as one .npz file.

A kind of its own beside models, logs and policies (see `latentmdp.io.kinds`), made of theirs: the
fields of each part carry its name as a prefix, `model.`, `logs.` and `policy.`. So it is written
whole or not at all, and read with the same checks.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from latentmdp.fit import Fit
from latentmdp.io import kinds, schemas  # noqa: F401 (schemas registers the parts)
from latentmdp.io.kinds import Document, Fields, Kind
from latentmdp.pipeline.online import Learned
from latentmdp.pipeline.saving import Phase
from latentmdp.planning import Plan

__all__: list[str] = []

_PARTS = {
    "model": ("model",),
    "logs": ("trajectories",),
    "policy": ("alpha-vector-policy", "markov-policy", "uniform-policy"),
}
_FIT = (
    "log_likelihood",
    "converged",
    "n_iter",
    "smoothing",
    "reward_smoothing",
    "n_parameters",
    "seconds",
)
_PLAN = ("lower", "upper", "converged", "n_iter", "seconds", "message")


def _encode(learned: Learned) -> Fields:
    parts = {"model": learned.model, "logs": learned.logs, "policy": learned.policy}
    fields: Fields = {}
    for prefix, part in parts.items():
        document = kinds.encode(part)
        fields |= {f"{prefix}.{k}": v for k, v in (document.arrays | document.values).items()}
        fields[f"{prefix}_kind"] = document.kind
    plan, fit = learned.plan, learned.fit
    return {
        **fields,
        "returns": learned.returns,
        "phases": np.array(learned.phases, dtype=np.float64),
        "responsibilities": fit.responsibilities,
        "fit_history": np.array(fit.history),
        "plan_history": np.array(plan.history, dtype=np.float64).reshape(-1, 3),
        "record": json.dumps(
            {
                "settings": learned.settings,
                "seconds": learned.seconds,
                "fit": {name: getattr(fit, name) for name in _FIT},
                "plan": {name: getattr(plan, name) for name in _PLAN},
                "guarantee": plan.guarantee,
            }
        ),
    }


def _decode(fields: Fields) -> Learned:
    record = json.loads(fields["record"])
    model, logs, policy = (_part(fields, prefix) for prefix in _PARTS)
    guarantee = record["guarantee"]
    fit = Fit(
        model=model,
        responsibilities=fields["responsibilities"],
        history=tuple(fields["fit_history"].tolist()),
        **{name: record["fit"][name] for name in _FIT},
    )
    plan = Plan(
        policy=policy,
        history=tuple(tuple(point) for point in fields["plan_history"].tolist()),
        guarantee=None if guarantee is None else (guarantee[0], guarantee[1]),
        **{name: record["plan"][name] for name in _PLAN},
    )
    return Learned(
        returns=fields["returns"],
        policy=policy,
        plan=plan,
        model=model,
        fit=fit,
        phases=tuple(Phase(*map(int, p[:3]), *map(float, p[3:])) for p in fields["phases"]),
        logs=logs,
        settings=record["settings"],
        seconds=record["seconds"],
    )


def _part(fields: Fields, prefix: str) -> Any:
    kind = kinds.by_name(fields[f"{prefix}_kind"])
    if kind.name not in _PARTS[prefix]:
        raise ValueError(f"field '{prefix}_kind' is {kind.name!r}, not {_PARTS[prefix]}")
    own = {k.removeprefix(f"{prefix}."): v for k, v in fields.items() if k.startswith(f"{prefix}.")}
    arrays = {name: value for name, value in own.items() if isinstance(value, np.ndarray)}
    values = {name: value for name, value in own.items() if name not in arrays}
    return kinds.decode(Document(kind.name, arrays, values))


def _declared(what: str) -> dict[str, Any]:
    return {
        f"{prefix}.{name}": declared
        for prefix, names in _PARTS.items()
        for kind in names
        for name, declared in getattr(kinds.by_name(kind), what).items()
    }


_OWN = ("returns", "phases", "responsibilities", "fit_history", "plan_history")

kinds.register(
    Kind(
        name="learned",
        owner=Learned,
        encode=_encode,
        decode=_decode,
        arrays={**_declared("arrays"), **dict.fromkeys(_OWN, "float")},
        values={
            **_declared("values"),
            "record": str,
            **{f"{prefix}_kind": str for prefix in _PARTS},
        },
        # Which fields a part must have, its own kind says.
        optional=frozenset({*_declared("arrays"), *_declared("values")}),
    )
)
