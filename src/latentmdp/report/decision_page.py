"""A policy on one page: what to do in each state, and what that earns in the worst context.

The page holds the decision table, a map of the beliefs where there are two or three contexts, and
the values of the policy by context, beside a policy for the worst case with the bounds of `Robust`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from numpy.typing import ArrayLike

from latentmdp._util import listed, plural, require_writable
from latentmdp.model import LatentMDP
from latentmdp.planning import Robust
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, Policy, PolicyGraph
from latentmdp.report.decisions import decision_table, page_table
from latentmdp.report.explanations import policy_map
from latentmdp.report.page import Section, Table, write_page
from latentmdp.report.plans import risk_table


def write_decision_page(
    model: LatentMDP,
    policy: Policy,
    out: str | os.PathLike[str],
    belief: ArrayLike | Mapping[str, float] | None = None,
    t: int = 0,
    title: str = "Decision table",
) -> None:
    """Write what a policy does, and what it earns in each context, as one HTML page.

    Parameters
    ----------
    out
        The HTML file.
    belief
        Where the lines of the table begin; by default the weights of the contexts.
    t
        Time in the episode, from 0.
    """
    require_writable(out)
    tables = list(_tables(model, policy, belief, t))
    # The best worst case is bounded this closely, or as far as ten seconds lead.
    careful = Robust("worst-case", gap=0.02, time_limit=10.0).plan(model)
    assert careful.lower is not None
    assert careful.upper is not None
    compared = {"this policy": policy, "best for the worst case": careful.policy}
    risk = risk_table(model, compared, (careful.lower, careful.upper))
    maps = policy_map(model, policy, t) if isinstance(policy, AlphaVectorPolicy) else None
    page = [
        Section(
            "What to do",
            _reading(policy) + _drawn(tables),
            tables,
        ),
        Section(
            "What it earns, and in the worst case",
            "Costs are negative numbers. The last column is a policy that is made for the worst "
            "case: it shows what caution would earn in each context, and what it costs on average.",
            [risk],
            [] if maps is None else [maps],
        ),
    ]
    write_page(out, title, _in_words(model), page)


def _tables(
    model: LatentMDP,
    policy: Policy,
    belief: ArrayLike | Mapping[str, float] | None,
    t: int,
) -> Iterator[Table]:
    """The decision table, or one for each policy that a mixture may draw."""
    if not isinstance(policy, MixturePolicy):
        yield page_table(decision_table(model, policy, belief, t))
        return
    for i, (part, share) in enumerate(zip(policy.parts, policy.weights.tolist())):
        table = page_table(decision_table(model, part, belief, t))
        yield replace(table, title=f"Policy {i + 1}, drawn with probability {share:.3g}")


def _reading(policy: Policy) -> str:
    """How to read a decision table."""
    text = "Find the row of the state. The second column is the action at the belief in its heading"
    if isinstance(policy, PolicyGraph) and policy.nodes.n_layers > 1:
        return (
            f"{text}, at the step that the table is of. From there on the policy goes by what is "
            "seen: the explorer page follows it step by step."
        )
    return (
        f"{text}. Later, when what was seen makes one context likelier, the column of that context "
        "says from which probability on something else is done."
    )


def _drawn(tables: Sequence[Table]) -> str:
    if len(tables) == 1:
        return ""
    return (
        f" One of {len(tables)} policies is drawn at the start, with the probabilities given, and "
        "followed to the end: each has a table."
    )


def _in_words(model: LatentMDP) -> str:
    sizes = listed(
        [
            plural(model.n_contexts, "possible model"),
            plural(model.n_states, "state"),
            plural(model.n_actions, "action"),
        ]
    )
    return f"{sizes}, {model.duration}; which of the models holds is not known."
