"""Settings of Figure 2: separation, horizon of the long episodes, ten instances of each."""

from latentmdp.experiments.runner import Setting

__all__ = ["sweep"]

PAPER = {
    "contexts": 3,
    "states": 7,
    "actions": 2,
    "short_episodes": 1_000_000,
    "short_horizon": 4,
    "long_episodes": 5_000,
}
QUICK = {**PAPER, "states": 4, "short_episodes": 60_000, "long_episodes": 600}
DELTAS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
HORIZONS = (20, 40, 80)


def sweep(quick: bool = False, seeds: int | None = None) -> list[Setting]:
    """One setting per separation, horizon and instance."""
    sizes = QUICK if quick else PAPER
    deltas, horizons = ((0.5, 1.0), (10, 20)) if quick else (DELTAS, HORIZONS)
    count = seeds if seeds is not None else (2 if quick else 10)
    return [
        Setting(
            f"fig2/delta={delta}/H={horizon}/{seed}",
            {"delta": delta, "horizon": horizon, "seed": seed, **sizes},
        )
        for delta in deltas
        for horizon in horizons
        for seed in range(count)
    ]
