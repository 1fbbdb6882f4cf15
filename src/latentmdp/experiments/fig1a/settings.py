"""Settings of Figure 1a: the paper's sizes, three arms, ten seeds."""

from latentmdp.experiments.runner import Setting

__all__ = ["ARMS", "sweep"]

ARMS = {
    "revealed": "contexts revealed",
    "good": "inferred, good start",
    "random": "inferred, random start",
}
PAPER = {
    "contexts": 7,
    "states": 15,
    "actions": 3,
    "horizon": 30,
    "episodes": 50_000,
    "reference": 100_000,
}
QUICK = {
    "contexts": 3,
    "states": 6,
    "actions": 2,
    "horizon": 20,
    "episodes": 2_000,
    "reference": 4_000,
}
SAMPLES = 10
"""Labelled samples per (m, s, a) of the good start, and weight of a row of the random one."""


def sweep(quick: bool = False, seeds: int | None = None) -> list[Setting]:
    """One setting per arm and seed."""
    sizes = QUICK if quick else PAPER
    count = seeds if seeds is not None else (2 if quick else 10)
    return [
        Setting(f"fig1a/{arm}/{seed}", {"arm": arm, "seed": seed, "samples": SAMPLES, **sizes})
        for arm in ARMS
        for seed in range(count)
    ]
