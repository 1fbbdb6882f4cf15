"""The best memoryless policy: what branch and bound proves, and how soon, beside coordinate ascent.

Prints for each size, for Markov and stationary policies, the share of instances proven optimal
within the limit, the median and largest time (what is not solved counts as the limit), the largest
gap left, and how often coordinate ascent alone, which takes no time, had found the policy.
"""

import argparse

import numpy as np

import latentmdp as lm

SIZES = ((3, 4, 3, 4), (3, 7, 2, 7), (2, 6, 3, 6), (4, 8, 3, 8), (3, 10, 3, 20))


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
    print(
        f"{'M, S, A, H':12s} {'policy':10s} {'solved':>7s} {'median s':>9s} {'largest s':>9s} "
        f"{'gap':>7s} {'ascent':>7s}"
    )
    for size in SIZES:
        models = [instance(seed, *size) for seed in range(options.instances)]
        for stationary in (False, True):
            planner = lm.Memoryless(stationary=stationary, time_limit=options.time_limit)
            ascent = lm.Memoryless("cadp", stationary=stationary)
            plans = [planner.plan(model) for model in models]
            seconds = [p.seconds if p.converged else options.time_limit for p in plans]
            gaps = [(p.upper - p.lower) / abs(p.lower) for p in plans]
            quick = [
                ascent.plan(model).lower >= p.lower - 1e-9 * abs(p.lower)
                for model, p in zip(models, plans)
            ]
            print(
                f"{str(size)[1:-1]:12s} {'stationary' if stationary else 'Markov':10s} "
                f"{np.mean([p.converged for p in plans]):7.0%} {np.median(seconds):9.3f} "
                f"{max(seconds):9.3f} {max(gaps):7.1%} {np.mean(quick):7.0%}"
            )


if __name__ == "__main__":
    main()
