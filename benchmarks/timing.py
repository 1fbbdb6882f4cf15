"""Timing for noisy machines: candidates take turns in one run, and the best of each counts."""

import time
from collections.abc import Callable, Mapping
from typing import Any


def best_seconds(
    candidates: Mapping[str, Callable[[], Any]], *, rounds: int = 7, calls: int = 1
) -> dict[str, float]:
    """Least seconds per call of each candidate; each is called once beforehand to warm up."""
    for run in candidates.values():
        run()
    best = dict.fromkeys(candidates, float("inf"))
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            for _ in range(calls):
                run()
            best[name] = min(best[name], (time.perf_counter() - start) / calls)
    return best
