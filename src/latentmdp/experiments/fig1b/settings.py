"""Settings of Figure 1b: separation and horizon, shared rewards, ten seeds."""

from latentmdp.experiments.runner import Setting

__all__ = ["sweep"]

PAPER = {"contexts": 7, "states": 15, "actions": 3, "episodes": 30_000, "reference": 100_000}
QUICK = {"contexts": 3, "states": 6, "actions": 2, "episodes": 2_000, "reference": 4_000}
DELTAS = (0.2, 0.4, 0.8)
HORIZONS = (15, 30, 60)
SAMPLES = 10
"""Labelled samples per (m, s, a) of the start."""


def sweep(quick: bool = False, seeds: int | None = None) -> list[Setting]:
    """One setting per separation, horizon and seed."""
    sizes = QUICK if quick else PAPER
    horizons = (10, 20) if quick else HORIZONS
    deltas = (0.4, 0.8) if quick else DELTAS
    count = seeds if seeds is not None else (2 if quick else 10)
    return [
        Setting(
            f"fig1b/delta={delta}/H={horizon}/{seed}",
            {"delta": delta, "horizon": horizon, "seed": seed, "samples": SAMPLES, **sizes},
        )
        for delta in deltas
        for horizon in horizons
        for seed in range(count)
    ]
