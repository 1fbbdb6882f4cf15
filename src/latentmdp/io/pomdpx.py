"""The POMDPX format of the APPL toolkit: the latent MDP as a factored POMDP [ong2010].

Written: the state variable `context` is hidden, `node` is fully observed (`solver_files`: the
state, the time where there is one, and what the last reward tells), and there is no other
observation. The reward variable is called `payoff`. In the discounted form there is no place for an
initial bonus, so a model with one has no such form. One observed variable, with no parent in its
own time slice, is what SARSOP reads and does best with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from latentmdp.errors import FormatError
from latentmdp.io.solver_files import (
    Comments,
    SolverForm,
    number,
    read_model,
    solver_form,
    write_model,
)
from latentmdp.model import LatentMDP

__all__ = ["read", "write"]


_COMMENTS = Comments(
    opening=b"<!-- ", closing=b" -->", preamble=b'<?xml version="1.0" encoding="ISO-8859-1"?>\n'
)


def write(stream: BinaryIO, model: LatentMDP, *, discounted: bool = False) -> None:
    """Write a model, with its horizon or as a discounted problem without end."""
    write_model(stream, model, _COMMENTS, _document(model, discounted))


def read(stream: BinaryIO) -> LatentMDP:
    """Read the model in a file that `write` wrote; its XML is never parsed."""
    return read_model(stream, _COMMENTS)


def _document(model: LatentMDP, discounted: bool) -> Iterator[str]:
    form = solver_form(model, discounted=discounted, delay=0)
    endless = discounted or model.horizon is None
    if endless and model.initial_bonus is not None:
        raise FormatError("the discounted form of POMDPX has no place for an initial bonus")
    yield (
        '<pomdpx version="1.0" id="latentmdp" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:noNamespaceSchemaLocation="pomdpx.xsd">\n'
    )
    yield "<Description>A latent MDP: the context is hidden</Description>\n"
    yield f"<Discount>{number(form.discount)}</Discount>\n"
    yield from _variables(form)
    yield from _initial_belief(form, model)
    yield from _transitions(form)
    yield from _payoffs(form, model)
    yield "</pomdpx>\n"


def _variables(form: SolverForm) -> Iterator[str]:
    contexts = " ".join(f"c{m}" for m in range(form.n_contexts))
    actions = " ".join(f"a{a}" for a in range(form.n_actions))
    yield "<Variable>\n"
    yield _state_variable("context", contexts, "false")
    yield _state_variable("node", " ".join(form.nodes), "true")
    yield f'<ActionVar vname="action"><ValueEnum>{actions}</ValueEnum>'
    yield '</ActionVar>\n<RewardVar vname="payoff"/>\n</Variable>\n'


def _state_variable(name: str, values: str, observed: str) -> str:
    return (
        f'<StateVar vnamePrev="{name}_0" vnameCurr="{name}_1" fullyObs="{observed}">'
        f"<ValueEnum>{values}</ValueEnum></StateVar>\n"
    )


def _initial_belief(form: SolverForm, model: LatentMDP) -> Iterator[str]:
    first = form.first.sum(axis=0)
    starts = np.flatnonzero(first)
    yield "<InitialStateBelief>\n"
    yield _table("node_0", "null", ((form.nodes[i], number(first[i])) for i in starts))
    prior = _numbers(model.weights)
    if (model.initial == model.initial[0]).all():
        yield _table("context_0", "null", [("-", prior)])
    else:
        # Where no episode begins there is the prior, as every row must sum to one.
        posterior = form.first[:, starts] / first[starts]
        given = {form.nodes[i]: _numbers(posterior[:, k]) for k, i in enumerate(starts)}
        rows = ((f"{node} -", given.get(node, prior)) for node in form.nodes)
        yield _table("context_0", "node_0", rows)
    yield "</InitialStateBelief>\n"


def _transitions(form: SolverForm) -> Iterator[str]:
    yield "<StateTransitionFunction>\n"
    yield _table("context_1", "context_0", [("- -", _numbers(np.eye(form.n_contexts)))])
    entries = (
        (f"a{a} c{m} {form.nodes[i]} {form.nodes[j]}", number(p))
        for a, m, i, j, p in form.transitions()
    )
    yield _table("node_1", "action context_0 node_0", entries)
    yield "</StateTransitionFunction>\n"


def _payoffs(form: SolverForm, model: LatentMDP) -> Iterator[str]:
    yield "<RewardFunction>\n"
    yield _table("payoff", "action context_0 node_0", _earned(form, model), "Func", "ValueTable")
    yield "</RewardFunction>\n"


def _earned(form: SolverForm, model: LatentMDP) -> Iterator[tuple[str, str]]:
    """What is earned, with the initial bonus at the first nodes; only an end is not left again."""
    yield "* * *", "0.0"
    extra = np.zeros(form.n_contexts) if model.initial_bonus is None else model.initial_bonus
    starts = form.first.any(axis=0)
    for step in form.steps:
        payoffs = step.payoffs + extra if starts[step.node] else step.payoffs
        for m in np.flatnonzero(payoffs):
            yield f"a{step.action} c{m} {form.nodes[step.node]}", number(payoffs[m])


def _numbers(values: np.ndarray) -> str:
    return " ".join(number(x) for x in values.ravel())


def _table(
    variable: str,
    parents: str,
    entries: object,
    element: str = "CondProb",
    values: str = "ProbTable",
) -> str:
    parts = [f'<{element}><Var>{variable}</Var><Parent>{parents}</Parent><Parameter type="TBL">\n']
    for instance, text in entries:
        parts.append(f"<Entry><Instance>{instance}</Instance><{values}>{text}</{values}></Entry>\n")
    return "".join([*parts, f"</Parameter></{element}>\n"])
