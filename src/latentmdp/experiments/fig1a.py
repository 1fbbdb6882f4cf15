"""Figure 1a [kwon2021]: contexts revealed, or inferred from a poor or a good start.

L-UCRL with Q-MDP on random instances, in three arms: the true context is told after each episode;
it is inferred, starting from a few labelled samples of every (m, s, a); it is inferred, starting
from an unrelated model. `latentmdp reproduce fig1a` runs it in full.
"""

from __future__ import annotations

import pyarrow as pa

from latentmdp.experiments.findings import Claim, Findings, grouped, sizes_of
from latentmdp.experiments.lucrl_runs import (
    Curves,
    curve_panels,
    curves_of_run,
    final,
    labelled_samples,
    unrelated_model,
)
from latentmdp.experiments.runner import Columns, Setting, settings_of
from latentmdp.instances import make
from latentmdp.online import LUCRL

ARMS = {
    "revealed": "contexts revealed",
    "good": "inferred, good start",
    "random": "inferred, random start",
}
PAPER = {
    **{"contexts": 7, "states": 15, "actions": 3, "horizon": 30, "samples": 10},
    **{"episodes": 50_000, "reference": 100_000, "returns": "last tenth"},
}
"""Sizes and numbers of episodes. `samples` are labelled samples per (m, s, a) of the good start,
and the weight of a row of the random one; `returns` says what a point of the curve averages."""

QUICK = {
    **PAPER,
    **{"contexts": 3, "states": 6, "actions": 2, "horizon": 20},
    **{"episodes": 2_000, "reference": 4_000},
}


def sweep(quick: bool = False, seeds: int | None = None) -> list[Setting]:
    """One setting per arm and seed."""
    return settings_of("fig1a/{arm}/{seed}", {"arm": ARMS}, QUICK if quick else PAPER, quick, seeds)


def work(setting: Setting) -> Columns:
    """Learn in one random instance; all arms of a seed share the instance."""
    seed = setting["seed"]
    # Sparse rows and few rewards: "set to be 0 for most state-action pairs" [kwon2021].
    sparse = {"concentration": 0.3, "reward_density": 4 / 45, "reward_low": 0.5}
    sizes = {name: setting[name] for name in ("contexts", "states", "actions", "horizon")}
    model = make("random", rng=seed, **sparse, **sizes)
    if setting["arm"] == "revealed":
        learner = LUCRL(contexts="revealed")
    elif setting["arm"] == "good":
        samples = labelled_samples(model, setting["samples"], seed)
        learner = LUCRL(contexts="inferred", start=samples)
    else:
        start, weight = unrelated_model(model, seed), float(setting["samples"])
        learner = LUCRL(contexts="inferred", start=start, prior_count=weight)
    run = learner.run(model, setting["episodes"], rng=seed)
    return curves_of_run(run, model, setting["reference"], seed)


def analyse(table: pa.Table) -> Findings:
    """Average over seeds, draw, and judge the paper's three statements."""
    arms = {arm: Curves(rows) for (arm,), rows in grouped(table, ["arm"]).items()}
    first = arms["revealed"]
    description = (
        f"L-UCRL with Q-MDP on {first.error.shape[0]} random instances with "
        f"{sizes_of(table, ('contexts', 'states', 'actions', 'horizon'))}, for "
        f"{int(first.episodes[-1]):,} episodes. Rows of T from "
        "Dirichlet(0.3), about one in eleven state-action pairs rewarded. The good start is "
        "10 labelled samples of every (m, s, a); the random start is an unrelated model whose rows "
        "weigh 10 visits. Returns are means over the last tenth of the episodes, over Q-MDP's "
        "value on the true model."
    )
    return Findings(
        title="Figure 1a: contexts revealed or inferred",
        description=description,
        panels=curve_panels(
            {name: arms[arm] for arm, name in ARMS.items()}, [(i, "-") for i in range(len(ARMS))]
        ),
        claims=_claims(arms["revealed"], arms["good"], arms["random"]),
    )


def _claims(
    revealed: Curves, good: Curves, random: Curves, near: float = 0.03, clear: float = 2.0
) -> tuple[Claim, ...]:
    """The paper's statements against the ends of the curves.

    Shares of Q-MDP's value closer than `near` count as equal; a difference is clear beyond `clear`
    standard errors, a model error beyond so many times the other.
    """
    arms = (revealed, good, random)
    (full, full_se), (well, well_se), (poor, poor_se) = (final(curves.share) for curves in arms)
    errors = [final(curves.error)[0] for curves in arms]
    gap, gap_se = final(revealed.share - random.share)
    return (
        Claim(
            "with true contexts in hindsight L-UCRL converges to the optimal policy.",
            f"its return is {full:.3f} ± {full_se:.3f} of Q-MDP's on the true model.",
            full >= 1.0 - near,
        ),
        Claim(
            "poorly initialised, the model converges to a local optimum and the policy is "
            "sub-optimal.",
            f"return {poor:.3f} ± {poor_se:.3f}, behind revealed contexts by {gap:.3f} ± "
            f"{gap_se:.3f}; model error {errors[2]:.0f} against {errors[0]:.0f}.",
            gap > max(near, clear * gap_se) and errors[2] > clear * errors[0],
        ),
        Claim(
            "well initialised, it performs as well as with true contexts.",
            f"return {well:.3f} ± {well_se:.3f} against {full:.3f}; model error {errors[1]:.0f} "
            f"against {errors[0]:.0f}.",
            well >= full - near,
        ),
    )
