"""What Figure 1b shows, and whether the paper's statements about it hold."""

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from latentmdp.experiments.curves import Curves, curve_panels, final, group_curves
from latentmdp.experiments.findings import Claim, Findings, sizes_in_words

__all__ = ["analyse"]

OPTIMAL = 0.95
STYLES = (":", "--", "-")
"""By horizon, from short to long; the colour tells delta."""

Arms = dict[tuple[float, int], Curves]


def analyse(table: pa.Table, quick: bool) -> Findings:
    """Average over seeds, draw, and judge."""
    arms: Arms = {
        (float(str(delta)), int(str(horizon))): curves
        for (delta, horizon), curves in group_curves(table, ["delta", "horizon"]).items()
    }
    first = next(iter(arms.values()))
    sizes = {name: table[name][0].as_py() for name in ("contexts", "states", "actions")}
    description = (
        f"L-UCRL with Q-MDP and inferred contexts on {first.error.shape[0]} instances for each "
        f"separation and horizon, {sizes_in_words(sizes)}, "
        f"{int(first.episodes[-1]):,} episodes, started from 10 labelled samples of every "
        "(m, s, a). Contexts share their rewards and differ by delta to 2 delta in every row of T."
        + (" A small version of the experiment: its claims are not the paper's." if quick else "")
    )
    names = {f"delta={delta:g}, H={horizon}": arms[delta, horizon] for delta, horizon in arms}
    return Findings(
        title="Figure 1b: separation and horizon",
        description=description,
        panels=curve_panels(names, _looks(arms)),
        claims=_claims(arms),
    )


def _looks(arms: Arms) -> list[tuple[int, str]]:
    deltas, horizons = (sorted({arm[axis] for arm in arms}) for axis in (0, 1))
    styles = STYLES[-len(horizons) :]
    return [(deltas.index(delta), styles[horizons.index(horizon)]) for delta, horizon in arms]


def _claims(arms: Arms) -> tuple[Claim, ...]:
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
            share[worst] >= OPTIMAL,
        ),
    )


def _falls(paper: str, error: dict[tuple[float, int], float], axis: int) -> Claim:
    """Whether the final error falls along one axis, for every value of the other."""
    chains = list(_chains(error, axis))
    steps = [a > b for chain in chains for a, b in pairwise(chain)]
    text = "; ".join(" > ".join(f"{e:.0f}" for e in chain) for chain in chains)
    return Claim(
        paper,
        f"the final error fell in {sum(steps)} of {len(steps)} comparisons ({text}).",
        all(steps),
    )


def _chains(error: dict[tuple[float, int], float], axis: int) -> Iterator[list[float]]:
    for other in sorted({arm[1 - axis] for arm in error}):
        yield [error[arm] for arm in sorted(error) if arm[1 - axis] == other]
