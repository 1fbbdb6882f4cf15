"""One EM pass over 10^6 transitions (M = 3) against a bare pass that only gathers logarithms.

The bare pass is what any E-step must at least do: add M numbers per transition. The pass of the
library also turns them into shares, adds those up per cell and gives the log-likelihood.
"""

import numpy as np
from numba import njit
from timing import best_seconds

import latentmdp as lm
from latentmdp.engines import Threads
from latentmdp.estimation.episodes import Episodes

TRANSITIONS = 1_000_000


@njit(cache=True, nogil=True)
def bare_pass(cells, offsets, table, out):
    for i in range(offsets.size - 1):
        for t in range(offsets[i], offsets[i + 1]):
            for m in range(table.shape[1]):
                out[i, m] += table[cells[t], m]


def compare(horizon: int) -> None:
    model = lm.make("separated", contexts=3, states=7, actions=2, horizon=horizon, delta=0.2, rng=0)
    logs = lm.simulate(model, lm.UniformPolicy(), TRANSITIONS // horizon, rng=0)
    episodes = Episodes([logs])
    table = model.packed().reshape(-1, 3)[episodes.cells]
    first = model.initial.T * model.weights
    raw = logs.cells(("state", "action", "next_state", "reward"), (7, 2, 2))
    cells = np.searchsorted(episodes.cells, raw).astype(np.int32)
    log_table, out = np.log(table), np.zeros((len(logs), 3))
    two = Threads(2)
    seconds = best_seconds(
        {
            "bare": lambda: bare_pass(cells, logs.offsets, log_table, out),
            "one thread": lambda: episodes.expected_counts(table, first),
            "two threads": lambda: episodes.expected_counts(table, first, two),
        },
        rounds=30,
    )
    bare = seconds.pop("bare")
    distinct = sum(group.first.size for group in episodes.groups)
    print(f"H={horizon}: {len(logs)} episodes, {distinct} distinct; bare pass {bare * 1e3:.1f} ms")
    for name, value in seconds.items():
        print(f"  EM pass, {name}: {value * 1e3:.1f} ms, {value / bare:.2f} times the bare pass")


def main() -> None:
    for horizon in (4, 20, 80):
        compare(horizon)


if __name__ == "__main__":
    main()
