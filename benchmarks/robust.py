"""Robust objectives and compact plans: how close their bounds come, and how soon.

Robust: conservation problems without an end, in which four experts disagree about which of the
measures helps, and dense random instances with an end (Dirichlet rows, a fifth of (m, s, a)
rewarded). A row is one instance and objective: the gap that was reached, the seconds it took
(wall-clock; other work on the machine counts), the policies in the mixture, and by how many
standard errors the simulated values by context differ from the proved ones, at worst.

Compact: problems of the same two kinds. A row is one instance: the vectors of the plan, the most
that are kept for a state (and time), and the loss that is proved.

`python benchmarks/robust.py [seeds] [first seed] [--part robust|compact]`; the words at the end of
a row say whether it is within its limit.
"""

import argparse
import time
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np

import latentmdp as lm


class Size(NamedTuple):
    """M, S, A, H of an instance, and the gap that is asked for."""

    sizes: tuple[int, int, int, int | None]
    gap: float


SIZES = (Size((4, 2, 4, None), 0.02), Size((5, 10, 3, 20), 0.02), Size((7, 15, 3, 30), 0.05))
OBJECTIVES = (("worst-case", None), ("cvar", 0.5), ("regret", None))
SECONDS, DISCOUNT, EPISODES = 60.0, 0.9, 100_000
CONSERVED = (2, 3, 5, 10)
LOSS = 0.01


def instance(sizes: tuple[int, int, int, int | None], seed: int) -> lm.LatentMDP:
    """A dense random instance; without an end a conservation problem."""
    M, S, A, H = sizes
    if H is None:
        return conservation(S, seed)
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(S), (M, S, A))
    means = np.where(rng.random((M, S, A)) < 0.2, rng.random((M, S, A)), 0.0)
    return lm.LatentMDP(transitions, means, initial=0, horizon=H)


def conservation(states: int, seed: int) -> lm.LatentMDP:
    """A population from rare to abundant; each expert believes in another of three measures.

    A measure that helps makes it grow, all cost something, and the fourth expert believes that
    none does much. Rewards are what the population is worth less the cost, so they tell nothing.
    """
    rng = np.random.default_rng([seed, states])
    M, A = 4, 4
    transitions = np.zeros((M, states, A, states))
    for m, s, a in np.ndindex(M, states, A):
        helps = a > 0 and a == m + 1
        up = rng.uniform(0.5, 0.8) if helps else rng.uniform(0.05, 0.3)
        down = (1.0 - up) * rng.uniform(0.2, 0.6)
        transitions[m, s, a, min(s + 1, states - 1)] += up
        transitions[m, s, a, max(s - 1, 0)] += down
        transitions[m, s, a, s] += 1.0 - up - down
    worth = 20.0 * np.arange(states) / (states - 1)
    costs = np.concatenate([[0.0], rng.uniform(1.0, 5.0, A - 1)])
    amounts = worth[:, None] - costs
    return lm.LatentMDP.from_amounts(
        transitions, amounts, initial=0, horizon=None, discount=DISCOUNT
    )


def robust_rows(seeds: range) -> Iterator[tuple[str, ...]]:
    """One row for each instance and objective."""
    for (sizes, gap), seed in ((size, seed) for size in SIZES for seed in seeds):
        model = instance(sizes, seed)
        for objective, level in OBJECTIVES:
            started = time.perf_counter()
            plan = lm.Robust(objective, level, gap=gap, time_limit=SECONDS).plan(model)
            seconds = time.perf_counter() - started
            value = lm.evaluate(model, plan.policy, EPISODES, rng=seed, method="monte-carlo")
            off = np.abs(value.by_context - plan.by_context) - value.truncation
            worst = float((np.maximum(off, 0.0) / value.stderr_by_context).max())
            yield (
                f"{sizes}",
                f"{seed}",
                objective,
                f"{plan.lower:.4f}",
                f"{100 * plan.gap:.2f} %",
                f"{seconds:.1f}",
                f"{plan.policy.weights.size}",
                f"{worst:.1f}",
                _verdict(plan.gap <= gap and worst < 5.0),
            )


def compact_rows(seeds: range) -> Iterator[tuple[str, ...]]:
    """One row for each instance."""
    cases = [(f"conservation, {S} states", S, 10) for S in CONSERVED]
    cases.append(("(5, 10, 3, 20)", 0, 20))
    for (name, states, few), seed in ((case, seed) for case in cases for seed in seeds):
        model = conservation(states, seed) if states else instance(SIZES[1].sizes, seed)
        plan = lm.HSVI(gap=1e-3, time_limit=20.0).plan(model)
        started = time.perf_counter()
        small = plan.compact(vectors=few)
        seconds = time.perf_counter() - started
        assert small.loss is not None
        most = int(np.diff(small.policy.offsets).max())
        counts = f"{plan.policy.actions.size:,}", f"{most}"
        told = f"{100 * plan.gap:.2f} %", f"{100 * small.loss:.2f} %", f"{seconds:.1f}"
        yield name, f"{seed}", *counts, *told, _verdict(small.loss <= LOSS)


def _verdict(holds: bool) -> str:
    return "holds" if holds else "misses"


PARTS = {
    "robust": (
        robust_rows,
        ("(M, S, A, H)", "seed", "objective", "lower", "gap", "seconds", "policies", "off", ""),
        (18, 4, 10, 9, 8, 7, 8, 4, 6),
    ),
    "compact": (
        compact_rows,
        ("problem", "seed", "vectors", "kept", "gap", "loss", "seconds", ""),
        (24, 4, 9, 4, 8, 8, 7, 6),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=3)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--part", choices=tuple(PARTS))
    given = parser.parse_args()
    lm.Robust(gap=0.1, time_limit=5.0).plan(instance((3, 3, 2, 4), 0))  # compile
    for name, (rows, header, widths) in PARTS.items():
        if given.part not in (None, name):
            continue
        for row in chain([header], rows(range(given.first, given.first + given.seeds))):
            print("  ".join(f"{cell:>{width}s}" for cell, width in zip(row, widths)), flush=True)
        print()


if __name__ == "__main__":
    main()
