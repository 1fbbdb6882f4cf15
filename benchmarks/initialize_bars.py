"""What `initialize` must reach: `python benchmarks/initialize_bars.py [FIRST] [COUNT] [GRID]`.

Instances FIRST, FIRST + 1, ... of `separated` with M=3, S=7, A=2 and shared rewards; 10^6 short
episodes of 4 steps and 5,000 long ones, all of random actions. Errors are the sum over all rows.
GRID is the file of the grid of [kausik2023], where it is at hand.
"""

import os
import sys
import time
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import latentmdp as lm
from latentmdp.fit import FitWarning

SHORT, LONG = 1_000_000, 5_000
LIKELIHOOD = (  # horizon, delta, short episodes, asked for
    (80, 0.2, SHORT, 0.60),
    (80, 0.1, SHORT, 0.85),
    (20, 0.2, SHORT, 0.85),
    (20, 0.1, SHORT, 1.60),
    (80, 0.1, SHORT // 100, 1.15),
)
PAPER = ((0.5, 3.0), (1.0, 2.0))


def instance(seed, delta, horizon):
    sizes = {"contexts": 3, "states": 7, "actions": 2, "horizon": horizon}
    return lm.make("separated", **sizes, delta=delta, rewards="shared", rng=seed)


def logs_of(model, seed, short=SHORT):
    few = lm.simulate(model.replace(horizon=4), lm.UniformPolicy(), short, rng=seed)
    full = lm.simulate(model, lm.UniformPolicy(), LONG, rng=seed + 1)
    return few.without_contexts(), full.without_contexts()


def report(text, values, most):
    values = np.asarray(values)
    verdict = "held" if values.mean() <= most else "MISSED"
    spread = f"mean {values.mean():.3f} (from {values.min():.3f} to {values.max():.3f})"
    print(f"{text}: {spread}, asked for {most:g}: {verdict}", flush=True)


def likelihood_bars(seeds):
    for horizon, delta, short, most in LIKELIHOOD:
        errors, seconds = [], []
        for seed in seeds:
            model = instance(seed, delta, horizon)
            few, full = logs_of(model, seed, short)
            began = time.perf_counter()
            fit = lm.initialize(few, full, 3, rng=seed)
            seconds.append(time.perf_counter() - began)
            errors.append(lm.model_error(model, fit.model))
        report(f"initialize, H={horizon}, delta={delta}, {short} short", errors, most)
        print(f"  {np.mean(seconds):.1f} s each", flush=True)


def spectral_bars(seeds):
    for delta, most in PAPER:
        errors = []
        for seed in seeds:
            model = instance(seed, delta, 40)
            few, full = logs_of(model, seed)
            psr = lm.SpectralPSR(rank=3).fit(few)
            errors.append(lm.model_error(model, lm.recover(psr, full, 3, "paper", rng=seed).model))
        report(f"recover as printed, delta={delta}", errors, most)
    told = 0
    for seed in seeds:
        few, full = logs_of(instance(seed, 0.1, 40), seed)
        with warnings.catch_warnings():
            warnings.simplefilter("error", FitWarning)
            try:
                lm.recover(lm.SpectralPSR(rank=3).fit(few), full, 3, "paper", rng=seed)
            except (lm.RecoveryError, FitWarning):
                told += 1
    print(f"recover as printed, delta=0.1: unreliable and said so in {told} of {len(seeds)}")


def selection_bars(seeds):
    found = []
    for seed in seeds:
        full = lm.simulate(instance(seed, 0.3, 40), lm.UniformPolicy(), LONG, rng=seed)
        fit = lm.initialize(None, full.without_contexts(), "auto", rng=seed)
        found.append(fit.model.n_contexts)
    print(f"number of contexts, truly 3: {found}", flush=True)
    model = instance(seeds[0], 0.3, 40)
    same = model.replace(transitions=np.repeat(model.transitions[:1], 3, axis=0))
    logs = lm.simulate(same, lm.UniformPolicy(), LONG, rng=0).without_contexts()
    print(f"truly 1: {lm.initialize(None, logs, 'auto', rng=0).model.n_contexts}", flush=True)


def grid_bars(file, seeds):
    grid = np.load(file)
    for horizon, least in ((20, 0.93), (60, 0.96), (100, 0.975)):
        model = lm.LatentMDP(
            grid["transitions"],
            np.ones((2, 64, 4, 1)),
            initial=grid["initial"],
            horizon=horizon,
            reward_values=[0.0],
        )
        policy = lm.MarkovPolicy(np.broadcast_to(grid["behaviour"], (horizon, 64, 4)))
        wrong = []
        for seed in seeds:
            logs = lm.simulate(model, policy, 1_000, rng=seed)
            fit = lm.EM(n_contexts=2).fit(logs.without_contexts(), rng=seed)
            wrong.append(1.0 - lm.clustering_accuracy(logs.contexts, fit.labels))
        report(f"grid, H={horizon}, share of episodes assigned wrong", wrong, 1.0 - least)


if __name__ == "__main__":
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    warnings.simplefilter("ignore", FitWarning)
    likelihood_bars(range(first, first + count))
    spectral_bars(range(first, first + count))
    selection_bars(range(first, first + 2 * count))
    if len(sys.argv) > 3:
        grid_bars(sys.argv[3], range(first, first + count))
