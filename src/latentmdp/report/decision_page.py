"""A policy on one page: what to do in each state, and what that earns in the worst context.

The page holds the decision tables of all phases with what they earn as printed, pictures, and the
values of the policy by context, beside a policy for the worst case with the bounds of `Robust`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from numpy.typing import ArrayLike

from latentmdp._util import require_writable
from latentmdp.model import LatentMDP
from latentmdp.planning import Robust
from latentmdp.policies import AlphaVectorPolicy, MixturePolicy, Policy
from latentmdp.report.decisions import decision_table, page_tables, policy_pictures, reading
from latentmdp.report.page import Section, Table, sizes, write_page
from latentmdp.report.plans import risk_table


def write_decision_page(
    model: LatentMDP,
    policy: Policy,
    out: str | os.PathLike[str],
    belief: ArrayLike | Mapping[str, float] | None = None,
    t: int | None = None,
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
        One time in the episode, from 0; by default all of them, by phases.
    """
    require_writable(out)
    tables = list(_tables(model, policy, belief, t))
    # The best worst case is bounded this closely, or as far as ten seconds lead.
    careful = Robust("worst-case", gap=0.02, time_limit=10.0).plan(model)
    assert careful.lower is not None
    assert careful.upper is not None
    compared = {"this policy": policy, "best for the worst case": careful.policy}
    risk = risk_table(model, compared, (careful.lower, careful.upper))
    pictures = policy_pictures(model, policy) if isinstance(policy, AlphaVectorPolicy) else []
    page = [
        Section("What to do", reading(model), tables),
        Section(
            "What it earns, and in the worst case",
            "Costs are negative numbers. The last column is a policy that is made for the worst "
            "case: it shows what caution would earn in each context, and what it costs on average.",
            [risk],
            pictures,
        ),
    ]
    write_page(out, title, f"{sizes(model)}; which of the models holds is not known.", page)


def _tables(
    model: LatentMDP, policy: Policy, belief: ArrayLike | Mapping[str, float] | None, t: int | None
) -> Iterator[Table]:
    """The decision tables, or those of each policy that a mixture may draw."""
    if not isinstance(policy, MixturePolicy):
        yield from page_tables(decision_table(model, policy, belief, t))
        return
    for i, (part, share) in enumerate(zip(policy.parts, policy.weights.tolist())):
        about = f"Policy {i + 1}, drawn at the start with probability {share:.3g}"
        yield from page_tables(decision_table(model, part, belief, t), about)
