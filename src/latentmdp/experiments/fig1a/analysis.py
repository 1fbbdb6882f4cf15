"""What Figure 1a shows, and whether the paper's three statements about it hold."""

import pyarrow as pa

from latentmdp.experiments.curves import Curves, curve_panels, final, group_curves
from latentmdp.experiments.fig1a.settings import ARMS
from latentmdp.experiments.findings import Claim, Findings, sizes_in_words

__all__ = ["analyse"]

NEAR = 0.03
CLEAR = 2.0


def analyse(table: pa.Table, quick: bool) -> Findings:
    """Average over seeds, draw, and judge."""
    arms = {str(key[0]): curves for key, curves in group_curves(table, ["arm"]).items()}
    sizes = {name: table[name][0].as_py() for name in ("contexts", "states", "actions", "horizon")}
    first = arms["revealed"]
    description = (
        f"L-UCRL with Q-MDP on {first.error.shape[0]} random instances with "
        f"{sizes_in_words(sizes)}, for {int(first.episodes[-1]):,} episodes. Rows of T from "
        "Dirichlet(0.3), about one in eleven state-action pairs rewarded. The good start is "
        "10 labelled samples of every (m, s, a); the random start is an unrelated model whose rows "
        "weigh 10 visits. Returns are means of the last 1,000 episodes over Q-MDP's value on the "
        "true model."
        + (" A small version of the experiment: its claims are not the paper's." if quick else "")
    )
    return Findings(
        title="Figure 1a: contexts revealed or inferred",
        description=description,
        panels=curve_panels(
            {ARMS[arm]: arms[arm] for arm in ARMS}, [(i, "-") for i in range(len(ARMS))]
        ),
        claims=_claims(arms["revealed"], arms["good"], arms["random"]),
    )


def _claims(revealed: Curves, good: Curves, random: Curves) -> tuple[Claim, ...]:
    (told, told_se), (well, well_se), (poor, poor_se) = (
        final(curves.share) for curves in (revealed, good, random)
    )
    errors = [final(curves.error)[0] for curves in (revealed, good, random)]
    gap, gap_se = final(revealed.share - random.share)
    return (
        Claim(
            "with true contexts in hindsight L-UCRL converges to the optimal policy.",
            f"its return is {told:.3f} ± {told_se:.3f} of Q-MDP's on the true model.",
            told >= 1.0 - NEAR,
        ),
        Claim(
            "poorly initialised, the model converges to a local optimum and the policy is "
            "sub-optimal.",
            f"return {poor:.3f} ± {poor_se:.3f}, behind revealed contexts by {gap:.3f} ± "
            f"{gap_se:.3f}; model error {errors[2]:.0f} against {errors[0]:.0f}.",
            gap > max(NEAR, CLEAR * gap_se) and errors[2] > CLEAR * errors[0],
        ),
        Claim(
            "well initialised, it performs as well as with true contexts.",
            f"return {well:.3f} ± {well_se:.3f} against {told:.3f}; model error {errors[1]:.0f} "
            f"against {errors[0]:.0f}.",
            well >= told - NEAR,
        ),
    )
