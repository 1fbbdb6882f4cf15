"""Cassandra's .pomdp format: the latent MDP as a flat POMDP.

Written: states are `begin`, then c{m}{node} for each context and node (`solver_files`: s{s}z{z}t{t},
with a time only where there is one, and z only where rewards tell about the context). From `begin`
any action leads to the first node in context m with probability w_m nu_m(s), so that the first
state is seen before the first real action; it earns the expected initial bonus. The agent observes
the node. The value of `begin` is V*. An observation may depend on the action and the next state
only, which is why the last reward is part of the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from latentmdp.io.solver_files import Comments, number, read_model, solver_form, write_model
from latentmdp.model import LatentMDP

__all__ = ["read", "write"]

_COMMENTS = Comments(opening=b"# ")


def write(stream: BinaryIO, model: LatentMDP, *, discounted: bool = False) -> None:
    """Write a model, with its horizon or as a discounted problem without end."""
    write_model(stream, model, _COMMENTS, _lines(model, discounted))


def read(stream: BinaryIO) -> LatentMDP:
    """Read the model in a file that `write` wrote."""
    return read_model(stream, _COMMENTS)


def _lines(model: LatentMDP, discounted: bool) -> Iterator[str]:
    """The file, statement by statement."""
    form = solver_form(model, discounted=discounted, delay=1)
    M, nodes = form.n_contexts, form.nodes
    names = [[_state(m, node) for node in nodes] for m in range(M)]
    states = dict.fromkeys(name for by_node in names for name in by_node)
    yield f"discount: {number(form.discount)}\nvalues: reward\n"
    yield f"states: begin {' '.join(states)}\n"
    yield f"actions: {' '.join(f'a{a}' for a in range(form.n_actions))}\n"
    yield f"observations: {' '.join(nodes)}\n"
    yield "start: begin\n"
    for m, i in np.argwhere(form.first > 0.0):
        yield f"T: * : begin : {names[m][i]} {number(form.first[m, i])}\n"
    written = set()
    for a, m, i, j, p in form.transitions():
        if nodes[i] != "end" or i not in written:
            yield f"T: {'*' if nodes[i] == 'end' else f'a{a}'} : {names[m][i]} : {names[m][j]} {number(p)}\n"
        if nodes[i] == "end":
            written.add(i)
    yield f"O: * : begin : {nodes[0]} 1.0\n"
    for name, node in {names[m][i]: nodes[i] for m in range(M) for i in range(len(nodes))}.items():
        yield f"O: * : {name} : {node} 1.0\n"
    yield f"R: * : begin : * : * {number(model.initial_value())}\n"  # some solvers want one
    for a, m, i, payoff in form.payoffs():
        yield f"R: a{a} : {names[m][i]} : * : * {number(payoff)}\n"


def _state(m: int, node: str) -> str:
    """The end is the same in all contexts."""
    return node if node == "end" else f"c{m}{node}"
