"""The best Markov policy: branch and bound against the mixed-integer program, 20 instances a size.

Prints for each size the share of instances proven optimal within the limit and the median and
largest time; what is not solved counts as the limit.
"""

import argparse

import numpy as np

import latentmdp as lm

SIZES = ((3, 4, 3, 4), (3, 7, 2, 7), (2, 6, 3, 6))
METHODS = ("branch-and-bound", "mip")


def instance(seed: int, contexts: int, states: int, actions: int, horizon: int) -> lm.LatentMDP:
    rng = np.random.default_rng(seed)
    shape = (contexts, states, actions)
    transitions = rng.dirichlet(np.ones(states), shape)
    rewards = np.where(rng.random(shape) < 0.2, rng.random(shape), 0.0)
    return lm.LatentMDP(transitions, rewards, initial=0, horizon=horizon)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--time-limit", type=float, default=10.0)
    options = parser.parse_args()
    for method in METHODS:
        lm.Memoryless(method).plan(instance(0, *SIZES[0]))
    print(f"{'M, S, A, H':12s} {'method':18s} {'solved':>7s} {'median s':>9s} {'largest s':>9s}")
    for size in SIZES:
        models = [instance(seed, *size) for seed in range(options.instances)]
        values = {}
        for method in METHODS:
            planner = lm.Memoryless(method, time_limit=options.time_limit)
            plans = [planner.plan(model) for model in models]
            seconds = [p.seconds if p.converged else options.time_limit for p in plans]
            solved = np.mean([p.converged for p in plans])
            values[method] = np.array([p.lower if p.converged else np.nan for p in plans])
            print(
                f"{str(size)[1:-1]:12s} {method:18s} {solved:7.0%} {np.median(seconds):9.3f} "
                f"{max(seconds):9.3f}"
            )
        first, second = (values[method] for method in METHODS)
        both = ~(np.isnan(first) | np.isnan(second))
        np.testing.assert_allclose(first[both], second[both], rtol=1e-6)


if __name__ == "__main__":
    main()
