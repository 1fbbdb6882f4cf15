"""The POMDPX format of the APPL toolkit: the latent MDP as a factored POMDP [ong2010].

State variables: `context` is hidden; `state`, `reward` (the index of the last one) and `time` are
fully observed. There is no other observation. In the discounted form there is no `time`. The
reward variable is called `payoff`: R_m(s, a) with the bonus, and at time 0 the initial bonus too.
Without time there is no place for an initial bonus, so a model with one has no discounted form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.errors import FormatError
from latentmdp.io.solver_files import Comments, number, read_model, solver_form, write_model
from latentmdp.model import LatentMDP

__all__ = ["read", "write"]


_COMMENTS = Comments(
    opening=b"<!-- ", closing=b" -->", preamble=b'<?xml version="1.0" encoding="ISO-8859-1"?>\n'
)


def write(stream: BinaryIO, model: LatentMDP, *, discounted: bool = False) -> None:
    """Write a model, with its horizon or as a discounted problem without end."""
    write_model(stream, model, _COMMENTS, _document(model, discounted))


def read(stream: BinaryIO) -> Any:
    """Read the model in a file that `write` wrote; its XML is never parsed."""
    return read_model(stream, _COMMENTS)


def _document(model: LatentMDP, discounted: bool) -> Iterator[str]:
    form = solver_form(model, discounted=discounted, delay=0)
    if discounted and model.initial_bonus is not None:
        raise FormatError("the discounted form of POMDPX has no place for an initial bonus")
    yield (
        '<pomdpx version="1.0" id="latentmdp" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:noNamespaceSchemaLocation="pomdpx.xsd">\n'
    )
    yield "<Description>A latent MDP: the context is hidden</Description>\n"
    yield f"<Discount>{number(form.discount)}</Discount>\n"
    yield from _variables(model, discounted)
    yield from _initial_belief(model, discounted)
    yield from _transitions(model, discounted)
    yield from _payoffs(model, form.payoffs, discounted)
    yield "</pomdpx>\n"


def _variables(model: LatentMDP, discounted: bool) -> Iterator[str]:
    observed = {"state": ("s", model.n_states), "reward": ("z", model.n_rewards)}
    if not discounted:
        observed["time"] = ("t", model.horizon + 1)
    yield "<Variable>\n"
    yield _state_variable("context", "c", model.n_contexts, "false")
    for name, (letter, size) in observed.items():
        yield _state_variable(name, letter, size, "true")
    yield f'<ActionVar vname="action"><ValueEnum>{_values("a", model.n_actions)}</ValueEnum>'
    yield '</ActionVar>\n<RewardVar vname="payoff"/>\n</Variable>\n'


def _state_variable(name: str, letter: str, size: int, observed: str) -> str:
    return (
        f'<StateVar vnamePrev="{name}_0" vnameCurr="{name}_1" fullyObs="{observed}">'
        f"<ValueEnum>{_values(letter, size)}</ValueEnum></StateVar>\n"
    )


def _values(letter: str, size: int) -> str:
    return " ".join(f"{letter}{i}" for i in range(size))


def _initial_belief(model: LatentMDP, discounted: bool) -> Iterator[str]:
    joint = model.weights[:, None] * model.initial
    first = joint.sum(axis=0)
    yield "<InitialStateBelief>\n"
    yield _table("state_0", "null", [("-", first)])
    if (model.initial == model.initial[0]).all():
        yield _table("context_0", "null", [("-", model.weights)])
    else:
        # A state in which no episode begins gets the prior, as a row must sum to one.
        posterior = np.where(first > 0.0, joint, model.weights[:, None])
        posterior = posterior / posterior.sum(axis=0)
        yield _table("context_0", "state_0", [("- -", posterior.T)])
    yield _table("reward_0", "null", [("-", np.eye(model.n_rewards)[0])])
    if not discounted:
        yield _table("time_0", "null", [("-", np.eye(model.horizon + 1)[0])])
    yield "</InitialStateBelief>\n"


def _transitions(model: LatentMDP, discounted: bool) -> Iterator[str]:
    M, A, H = model.n_contexts, model.n_actions, model.horizon
    pairs = list(np.ndindex(A, M))
    given = "action context_0 state_0"
    rewards = model.reward_probs
    yield "<StateTransitionFunction>\n"
    yield _table("context_1", "context_0", [("- -", np.eye(M))])
    yield _table(
        "state_1", given, [(f"a{a} c{m} - -", model.transitions[m, :, a]) for a, m in pairs]
    )
    if model.reward_model == "transition":
        given += " state_1"
        impossible = rewards.sum(axis=-1, keepdims=True) == 0.0
        rewards = np.where(impossible, 1.0 / model.n_rewards, rewards)
    dashes = "- - -" if model.reward_model == "transition" else "- -"
    yield _table("reward_1", given, [(f"a{a} c{m} {dashes}", rewards[m, :, a]) for a, m in pairs])
    if not discounted:
        step = np.eye(H + 1)[np.minimum(np.arange(H + 1) + 1, H)]
        yield _table("time_1", "time_0", [("- -", step)])
    yield "</StateTransitionFunction>\n"


def _payoffs(model: LatentMDP, payoffs: Floats, discounted: bool) -> Iterator[str]:
    if not discounted:
        if model.initial_bonus is not None:
            payoffs[0] += model.initial_bonus[:, None, None]
        payoffs = np.concatenate([payoffs, np.zeros_like(payoffs[:1])])
    dashes = "-" if discounted else "- -"
    entries = [
        (f"a{a} c{m} {dashes}", payoffs[:, m, :, a].T)
        for a, m in np.ndindex(model.n_actions, model.n_contexts)
    ]
    given = "action context_0 state_0" + ("" if discounted else " time_0")
    yield "<RewardFunction>\n"
    yield _table("payoff", given, entries, element="Func", values="ValueTable")
    yield "</RewardFunction>\n"


def _table(
    variable: str,
    parents: str,
    entries: list[tuple[str, Floats]],
    element: str = "CondProb",
    values: str = "ProbTable",
) -> str:
    parts = [f'<{element}><Var>{variable}</Var><Parent>{parents}</Parent><Parameter type="TBL">\n']
    for instance, table in entries:
        numbers = " ".join(number(x) for x in table.ravel())
        parts.append(
            f"<Entry><Instance>{instance}</Instance><{values}>{numbers}</{values}></Entry>\n"
        )
    return "".join([*parts, f"</Parameter></{element}>\n"])
