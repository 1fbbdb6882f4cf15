"""Does a better choice of tests and histories move the point at which PSR-clustering fails?

Model error (the paper's sum over m, s, a) of both variants of `recover` on the same data, paper's
sizes, for several ways to choose: all of length 1, subsets by pivoted QR, longer ones, balanced
ones, and the whole past summarised by the PSR's own state. FAIL counts the instances on which
Algorithm 6 reported failure.
"""

import sys
import warnings

import numpy as np

import latentmdp as lm
from latentmdp.spectral import count_moments, select

DELTAS = (0.5, 0.3, 0.25, 0.2, 0.15)
SHORT, LONG, HORIZON = 1_000_000, 5_000, 40


def choices(short):
    """Name and estimator of each way to choose."""
    kept = select(count_moments(short), 3, 14, 14)
    return {
        "all of length 1": lm.SpectralPSR(rank=3),
        "14 + 14 of 28 + 28, pivoted QR": lm.SpectralPSR(rank=3, selection=kept),
        "histories of length 2": lm.SpectralPSR(rank=3, length=(2, 1)),
        "tests of length 2": lm.SpectralPSR(rank=3, length=(1, 2)),
        "balanced": lm.SpectralPSR(rank=3, balanced=True),
        "balanced, histories of length 2": lm.SpectralPSR(rank=3, length=(2, 1), balanced=True),
        "whole past, once": lm.SpectralPSR(rank=3, refinements=1),
        "balanced, whole past, once": lm.SpectralPSR(rank=3, balanced=True, refinements=1),
        "balanced, whole past, twice": lm.SpectralPSR(rank=3, balanced=True, refinements=2),
    }


def error(model, psr, long, variant):
    try:
        return lm.model_error(model, lm.recover(psr, long, 3, variant=variant, rng=0).model)
    except lm.RecoveryError:
        return np.nan


def main(instances: int = 3) -> None:
    warnings.simplefilter("ignore")
    for delta in DELTAS:
        table = {}
        for seed in range(instances):
            model = lm.make("separated", horizon=4, delta=delta, rng=900 + seed)
            longer = model.replace(horizon=HORIZON)
            short = lm.simulate(model, lm.UniformPolicy(), SHORT, rng=seed)
            long = lm.simulate(longer, lm.UniformPolicy(), LONG, rng=500 + seed)
            for name, estimator in choices(short).items():
                psr = estimator.fit(short)
                errors = [error(longer, psr, long, v) for v in ("practical", "paper")]
                table.setdefault(name, []).append(errors)
        print(f"\ndelta = {delta}")
        for name, values in table.items():
            practical, paper = np.array(values).T
            kept = paper[np.isfinite(paper)]
            shown = f"{kept.mean():5.2f}" if kept.size else "    -"
            print(
                f"  {name:34s} practical {practical.mean():5.2f} "
                f"(to {practical.max():5.2f})   paper {shown}, FAIL {paper.size - kept.size} "
                f"of {paper.size}",
                flush=True,
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
