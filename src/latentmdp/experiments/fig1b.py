"""Figure 1b [kwon2021]: EM and L-UCRL under different separation and horizon.

L-UCRL with Q-MDP and inferred contexts from a good start, on instances whose contexts share their
rewards and differ by delta in every row of T. `latentmdp reproduce fig1b` runs it in full.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa

from latentmdp.experiments.findings import Claim, Findings, grouped, sizes_of
from latentmdp.experiments.lucrl_runs import (
    Curves,
    curve_panels,
    curves_of_run,
    final,
    labelled_samples,
)
from latentmdp.experiments.runner import Columns, Setting, settings_of
from latentmdp.instances import make
from latentmdp.online import LUCRL

PAPER = {
    **{"delta": (0.2, 0.4, 0.8), "horizon": (15, 30, 60)},
    **{"contexts": 7, "states": 15, "actions": 3, "episodes": 30_000, "reference": 100_000},
    **{"samples": 10, "returns": "last tenth"},
}
"""Sizes and numbers of episodes; `samples` are labelled samples per (m, s, a) of the start, and
`returns` says what a point of the curve averages."""

QUICK = {
    **PAPER,
    **{"delta": (0.4, 0.8), "horizon": (10, 20)},
    **{"contexts": 3, "states": 6, "actions": 2, "episodes": 2_000, "reference": 4_000},
}
STYLES = (":", "--", "-")
"""By horizon, from short to long; the colour tells delta."""


def sweep(quick: bool = False, seeds: int | None = None) -> list[Setting]:
    """One setting per separation, horizon and seed."""
    sizes = QUICK if quick else PAPER
    axes = {name: sizes[name] for name in ("delta", "horizon")}
    return settings_of("fig1b/delta={delta}/H={horizon}/{seed}", axes, sizes, quick, seeds)


def work(setting: Setting) -> Columns:
    """Learn from a good start in one instance with the given separation.

    Rewards are shared: own rewards alone would give the context away.
    """
    seed = setting["seed"]
    sizes = {name: setting[name] for name in ("contexts", "states", "actions", "horizon", "delta")}
    model = make("separated", rng=seed, rewards="shared", **sizes)
    start = labelled_samples(model, setting["samples"], seed)
    run = LUCRL(contexts="inferred", start=start).run(model, setting["episodes"], rng=seed)
    return curves_of_run(run, model, setting["reference"], seed)


def analyse(table: pa.Table) -> Findings:
    """Average over seeds, draw, and judge the paper's statements."""
    arms = {arm: Curves(rows) for arm, rows in grouped(table, ["delta", "horizon"]).items()}
    first = next(iter(arms.values()))
    description = (
        f"L-UCRL with Q-MDP and inferred contexts on {first.error.shape[0]} instances for each "
        f"separation and horizon, {sizes_of(table, ('contexts', 'states', 'actions'))}, "
        f"{int(first.episodes[-1]):,} episodes, started from 10 labelled samples of every "
        "(m, s, a). Contexts share their rewards and differ by delta to 2 delta in every row of T."
    )
    deltas, horizons = (sorted({arm[axis] for arm in arms}) for axis in (0, 1))
    styles = STYLES[-len(horizons) :]
    looks = [(deltas.index(delta), styles[horizons.index(horizon)]) for delta, horizon in arms]
    names = {f"delta={delta:g}, H={horizon}": arms[delta, horizon] for delta, horizon in arms}
    return Findings(
        title="Figure 1b: separation and horizon",
        description=description,
        panels=curve_panels(names, looks),
        claims=_claims(arms),
    )


def _claims(arms: dict[tuple[Any, ...], Curves], optimal: float = 0.95) -> tuple[Claim, ...]:
    """The paper's statements; from this share of Q-MDP's value on a policy counts as optimal."""
    error = {arm: final(curves.error)[0] for arm, curves in arms.items()}
    share = {arm: final(curves.share)[0] for arm, curves in arms.items()}
    worst = min(share, key=lambda arm: share[arm])
    return (
        _falls("larger delta gives faster convergence of EM.", error, 0),
        _falls("longer H gives faster convergence of EM.", error, 1),
        Claim(
            "L-UCRL finds the optimal policy for all delta and H.",
            f"the smallest return is {share[worst]:.3f} of Q-MDP's on the true model, at delta="
            f"{worst[0]:g}, H={worst[1]}.",
            share[worst] >= optimal,
        ),
    )


def _falls(paper: str, error: dict[tuple[Any, ...], float], axis: int) -> Claim:
    """Whether the final error falls along one axis, for every value of the other."""
    chains = [
        [error[arm] for arm in sorted(error) if arm[1 - axis] == other]
        for other in sorted({arm[1 - axis] for arm in error})
    ]
    steps = [a > b for chain in chains for a, b in pairwise(chain)]
    text = "; ".join(" > ".join(f"{e:.0f}" for e in chain) for chain in chains)
    return Claim(
        paper,
        f"the final error fell in {sum(steps)} of {len(steps)} comparisons ({text}).",
        all(steps),
    )
