"""Spectral learning at the paper's sizes: the counting pass, the filter and a whole run.

The yardstick of the counting pass is a bare compiled loop that adds one number per window to a
table of the same size; that of the filter is the context filter of the true model.
"""

import numpy as np
from numba import njit
from timing import best_seconds

import latentmdp as lm
from latentmdp.spectral import count_moments

CONTEXTS, STATES, ACTIONS, DELTA = 3, 7, 2, 0.5
SHORT, SHORT_HORIZON = 1_000_000, 4
LONG, LONG_HORIZON = 5_000, 40


@njit(nogil=True)
def bare_count(states, actions, rewards, table):
    N, H = actions.shape
    for i in range(N):
        for t in range(H - 2):
            table[
                states[i, t], actions[i, t], rewards[i, t], states[i, t + 1],
                actions[i, t + 1], rewards[i, t + 1], states[i, t + 2],
                actions[i, t + 2], rewards[i, t + 2], states[i, t + 3],
            ] += 1.0  # fmt: skip


def main() -> None:
    model = lm.make(
        "separated",
        contexts=CONTEXTS,
        states=STATES,
        actions=ACTIONS,
        horizon=SHORT_HORIZON,
        delta=DELTA,
        rng=0,
    )
    longer = model.replace(horizon=LONG_HORIZON)
    short = lm.simulate(model, lm.UniformPolicy(), SHORT, rng=1)
    long = lm.simulate(longer, lm.UniformPolicy(), LONG, rng=2)
    psr = lm.SpectralPSR(rank=CONTEXTS).fit(short)
    table = np.zeros((STATES, *(ACTIONS, 2, STATES) * 3))
    arrays = short.as_arrays()

    def whole_run() -> None:
        data = lm.simulate(model, lm.UniformPolicy(), SHORT, rng=3)
        episodes = lm.simulate(longer, lm.UniformPolicy(), LONG, rng=4)
        lm.recover(lm.SpectralPSR(rank=CONTEXTS).fit(data), episodes, rng=0)

    seconds = best_seconds(
        {
            "bare count of windows": lambda: bare_count(*arrays, table),
            "count_moments": lambda: count_moments(short),
            "posterior of the true model": lambda: lm.posterior(longer, long, threads=1),
            "PSR filter": lambda: psr.filter(long, threads=1),
            "SpectralPSR.fit": lambda: lm.SpectralPSR(rank=CONTEXTS).fit(short),
            "recover, paper": lambda: lm.recover(psr, long, variant="paper", rng=0),
            "recover, practical": lambda: lm.recover(psr, long, rng=0),
            "simulate, fit and recover": whole_run,
        },
        rounds=3,
    )
    for name, value in seconds.items():
        print(f"{name:30s} {value * 1e3:9.1f} ms")
    counting = seconds["count_moments"] / seconds["bare count of windows"]
    filtering = seconds["PSR filter"] / seconds["posterior of the true model"]
    print(f"count_moments is {counting:.1f} times the bare count")
    print(f"the PSR filter is {filtering:.1f} times the context filter")


if __name__ == "__main__":
    main()
