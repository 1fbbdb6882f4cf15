"""What is run: sizes of the hard instance, seeds and three ways to search it."""

from latentmdp.experiments.runner import Setting

__all__ = ["ARMS", "limit", "sequences", "sweep"]

ARMS = {
    "exploration": "Algorithm 5",
    "blind": "blind search",
    "lucrl": "L-UCRL, random start",
}
SIZES = (
    *((2, 2), (3, 2), (2, 4), (4, 2), (3, 3), (2, 6)),
    *((5, 2), (3, 4), (4, 3), (3, 6), (5, 3), (4, 4)),
)
"""(M, A) with A^M from 4 to 256."""

QUICK = ((2, 2), (3, 2), (4, 2))


def sweep(quick: bool = False, seeds: int | None = None) -> list[Setting]:
    """One setting per size, arm and seed."""
    count = seeds if seeds is not None else (2 if quick else 10)
    return [
        Setting(
            f"lower_bound/{arm}-M{M}-A{A}/{seed}",
            {"arm": arm, "contexts": M, "actions": A, "seed": seed},
        )
        for M, A in (QUICK if quick else SIZES)
        for arm in ARMS
        for seed in range(count)
    ]


def sequences(setting: Setting) -> int:
    """A^M, the number of action sequences."""
    return int(setting["actions"] ** setting["contexts"])


def limit(setting: Setting) -> int:
    """Most episodes that are played: 200 times what blind search needs on average."""
    return int(200 * setting["contexts"] * sequences(setting))
