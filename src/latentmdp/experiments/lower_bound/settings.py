"""What is run: sizes of the hard instance, seeds and the three ways to search it."""

from dataclasses import dataclass

__all__ = ["ARMS", "FULL", "QUICK", "Setting"]

ARMS = ("exploration", "blind", "lucrl")
"""Algorithm 5; uniformly random actions until a reward; L-UCRL, contexts inferred, random start."""


@dataclass(frozen=True)
class Setting:
    """One run; `id` is stable."""

    contexts: int
    actions: int
    arm: str
    seed: int

    @property
    def id(self) -> str:
        """For instance "lower_bound/exploration-M3-A2-0"."""
        return f"lower_bound/{self.arm}-M{self.contexts}-A{self.actions}-{self.seed}"

    @property
    def sequences(self) -> int:
        """A^M, the number of action sequences."""
        return int(self.actions**self.contexts)


def _grid(sizes: tuple[tuple[int, int], ...], seeds: int) -> tuple[Setting, ...]:
    return tuple(
        Setting(M, A, arm, seed) for M, A in sizes for arm in ARMS for seed in range(seeds)
    )


FULL = _grid(
    (
        (2, 2),
        (3, 2),
        (2, 4),
        (4, 2),
        (3, 3),
        (2, 6),
        (5, 2),
        (3, 4),
        (4, 3),
        (3, 6),
        (5, 3),
        (4, 4),
    ),
    seeds=10,
)
QUICK = _grid(((2, 2), (3, 2), (4, 2)), seeds=2)
