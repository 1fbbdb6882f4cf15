"""Random input, as SPEC 7 of scientific Python asks: `rng` is a seed, a `Generator` or None."""

import numpy as np

from latentmdp._util.arrays import Floats

RNGLike = int | np.random.Generator | np.random.SeedSequence | None


def as_generator(rng: RNGLike) -> np.random.Generator:
    """Return `rng` itself if it is a `Generator`, else a generator seeded by it."""
    if isinstance(rng, np.random.Generator):
        return rng
    return np.random.default_rng(_checked_seed(rng))


def philox_key(rng: RNGLike) -> int:
    """Return the 64-bit key of the counter-based generator that `rng` stands for.

    A seed always gives the same key; a `Generator` is advanced by one draw, so that successive
    calls with the same generator are independent.
    """
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(0, 2**64, dtype=np.uint64))
    seed = _checked_seed(rng)
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return int(sequence.generate_state(1, np.uint64)[0])


def given_seed(rng: RNGLike) -> int | None:
    """The seed as the user gave it, for the record; None where `rng` is not a number."""
    return int(rng) if isinstance(rng, int | np.integer) else None


def _checked_seed(rng: RNGLike) -> int | np.random.SeedSequence | None:
    if rng is None or isinstance(rng, np.random.SeedSequence):
        return rng
    if isinstance(rng, bool) or not isinstance(rng, int | np.integer):
        raise TypeError(
            "rng must be a non-negative integer seed, a numpy Generator, a SeedSequence or None, "
            f"got {type(rng).__name__}"
        )
    if rng < 0:
        raise ValueError(f"rng must be a non-negative seed, got {rng}")
    return int(rng)


def drawn(probabilities: Floats, uniform: float) -> int:
    """The outcome that a uniform number in [0, 1) selects from a distribution."""
    outcome = int(np.searchsorted(np.cumsum(probabilities), uniform, side="right"))
    return min(outcome, int(np.flatnonzero(probabilities)[-1]))
