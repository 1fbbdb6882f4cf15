"""The policy page, or explorer: one HTML page on which observations are picked step by step.

The page holds the policy's vectors, the likelihoods of its filter by outcome, and the names. A
script of its own filters the belief, chooses the vector and looks one step ahead, in the order of
operations of the compiled filter and of `Session`, so that beliefs and actions are the same to the
last bit. Of a policy graph it holds the links too, and goes from node to node; of a mixture the
reader says which of its policies was drawn, or lets the page draw one. It needs no network, and its
content security policy forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentmdp._util.storage import atomic_write, require_writable
from latentmdp.belief import filter_tables
from latentmdp.model import LatentMDP, require_model
from latentmdp.planning import policy_values
from latentmdp.policies import AlphaVectorPolicy, MarkovPolicy, MixturePolicy, Policy, PolicyGraph
from latentmdp.report.page import from_template


def write_explorer(
    policy: Policy,
    out: str | os.PathLike[str],
    model: LatentMDP | None = None,
    title: str = "Policy explorer",
    unit: str = "",
) -> None:
    """Write a page on which anybody can follow a policy: pick what was observed, see what to do.

    Parameters
    ----------
    policy
        An `AlphaVectorPolicy`, a `PolicyGraph`, a `MixturePolicy`, or a `MarkovPolicy` that draws
        nothing.
    out
        The HTML file: it is all there is, and opens offline.
    model
        The model that a Markov policy acts in; the others have their own.
    title
        Heading of the page.
    unit
        What rewards are counted in, shown after every amount.

    Raises
    ------
    ValueError
        If the page would be larger than 32 MiB, or the policy draws its actions.
    """
    vectors = _as_vectors(policy, model)
    graph = policy if isinstance(policy, PolicyGraph) else None
    _require_size(vectors, graph)
    require_writable(out)
    data = _data(vectors) | {"usesBelief": isinstance(policy, AlphaVectorPolicy), "unit": unit}
    if graph is not None:
        data |= _links(graph)
    # A link to a history is one of this policy only.
    data["fingerprint"] = hashlib.sha256(json.dumps(data).encode()).hexdigest()[:8]
    text = _page(data, title)
    with atomic_write(out) as stream:
        stream.write(text.encode())


def _as_vectors(policy: Policy, model: LatentMDP | None) -> AlphaVectorPolicy:
    """The policy as alpha vectors: nodes of a graph, exact values of a Markov policy."""
    if isinstance(policy, AlphaVectorPolicy | PolicyGraph):
        if model is not None:
            policy.acting(model)  # raises if the sizes do not fit
        return policy.nodes if isinstance(policy, PolicyGraph) else policy
    if not isinstance(policy, MarkovPolicy) or policy.actions is None:
        draws = "draws its actions by chance" if isinstance(policy, Policy) else "is no policy"
        raise TypeError(
            f"a {type(policy).__name__} {draws}: an explorer shows an AlphaVectorPolicy, a "
            "PolicyGraph, a MixturePolicy, or a MarkovPolicy with one action for each state"
        )
    if model is None:
        raise ValueError("a MarkovPolicy has no model of its own: give model=")
    require_model(model)
    policy.acting(model)
    layers = model.n_layers
    actions = np.broadcast_to(policy.actions, (layers, model.n_states)).astype(np.int64)
    runs = np.tile(~model.terminal, layers)
    values = policy_values(model, actions[:, :, None])
    offsets = np.concatenate([[0], np.cumsum(runs)])
    flat = values.reshape(-1, model.n_contexts)[runs]
    return AlphaVectorPolicy(flat, actions.ravel()[runs], offsets, model)


def _require_size(policy: AlphaVectorPolicy, graph: PolicyGraph | None, most: float = 32.0) -> None:
    """Refuse a page of more MiB than a phone still opens without a long wait."""
    M, S, *_ = policy.model.dimensions
    outcomes = policy.model.outcomes.size
    links = 0 if graph is None else sum(array.size for array in (*graph.links(), graph.first))
    parts = {
        "vectors": (8.0 * M + 4.0) * policy.actions.size + 4.0 * (policy.offsets.size + links),
        "outcomes": (8.0 * M + 8.0) * outcomes + 4.0 * S * policy.model.n_actions + 8.0 * M * S,
    }
    mib = {name: size * 4.0 / 3.0 / 2.0**20 for name, size in parts.items()}
    if sum(mib.values()) > most:
        raise ValueError(
            f"the page would be {sum(mib.values()):,.0f} MiB: {policy.actions.size:,} vectors take "
            f"{mib['vectors']:,.1f} MiB and {outcomes:,} outcomes {mib['outcomes']:,.1f} MiB; at "
            f"most {most:g} MiB are written. plan.compact(vectors=10) makes a plan with few "
            "vectors, and says what that loses"
        )


def _page(data: Mapping[str, Any], title: str) -> str:
    from markupsafe import Markup

    templates = files("latentmdp.report") / "templates"
    return from_template(
        "policy_page.html.j2",
        title=title,
        # Written by us: safe to stand in the page as they are. Of the data, "<" is escaped.
        style=Markup((templates / "policy_page.css").read_text("utf-8")),
        script=Markup((templates / "policy_page.js").read_text("utf-8")),
        data=Markup(json.dumps(data).replace("<", "\\u003c")),
        mixes="weights" in data,
    )


def _data(policy: AlphaVectorPolicy) -> dict[str, Any]:
    """What the script reads; arrays as base64 of their bytes, so that no bit is lost."""
    model, table = policy.model, filter_tables(policy.model, policy.smoothing)
    M, S, A, Z = model.dimensions
    arrays: dict[str, NDArray[Any] | None] = {
        "starts": table.starts.astype(np.int32),
        "nextState": table.next_state.astype(np.int32),
        "reward": table.reward.astype(np.int32),
        "likelihood": table.likelihood[table.pattern],
        "prior": table.prior,
        "initial": table.initial[table.begins],
        "rewardValues": model.reward_values,
        "vectors": policy.vectors,
        "labels": policy.actions,
        "offsets": policy.offsets.astype(np.int32),
        "bonus": model.bonus,
    }
    encoded = {name: None if a is None else _encoded(a) for name, a in arrays.items()}
    return {
        "sizes": {"contexts": M, "states": S, "actions": A, "rewards": Z},
        "contextNames": model.context_names,
        "stateNames": model.state_names,
        "actionNames": model.action_names,
        "horizon": model.horizon,
        "discount": model.discount,
        "smoothing": policy.smoothing,
        "layers": policy.n_layers,
        **encoded,
    }


def _links(graph: PolicyGraph) -> dict[str, Any]:
    """How a graph goes on from node to node; of a mixture, how likely each of them is drawn."""
    arrays = {
        "nodeStarts": graph.node_starts.astype(np.int32),
        "followers": graph.followers,
        "stays": graph.links().stays.astype(np.int32),
        "first": np.atleast_2d(graph.first).astype(np.int32),
    }
    links: dict[str, Any] = {name: _encoded(array) for name, array in arrays.items()}
    if isinstance(graph, MixturePolicy) and graph.weights.size > 1:
        links["weights"] = graph.weights.tolist()
    return links


def _encoded(array: NDArray[Any]) -> str:
    kind = "<f8" if array.dtype.kind == "f" else "<i4"
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode()
