"""Probabilities of reaching a goal without a discount, beside independent computations.

Random latent MDPs with cycles, traps and 2 to 4 contexts. In half of them outcomes are equally
likely in all contexts in which they are possible, so that the belief is the prior on the contexts
that are left, and V* is the value of a linear program; in the others chances differ too, and what
is reached within six steps, by all histories, is a lower bound. Printed are how many bounds enclose
these and how many close to 1e-4.

    python benchmarks/goals.py --first 1000 --models 300
"""

import argparse
import time

import numpy as np
from scipy.optimize import linprog

import latentmdp as lm


def transitions(rng, noisy):
    """T of a random problem: the last state is the goal, the one before it a trap."""
    M, S, A = rng.integers(2, 5), rng.integers(4, 9), rng.integers(2, 4)
    T = np.zeros((M, S, A, S))
    for s in range(S - 2):
        for a in range(A):
            common = rng.choice(S, rng.integers(1, 3), replace=False)
            share = rng.dirichlet(np.ones(common.size))
            tells = 0.0 if rng.random() < 0.5 else rng.choice([rng.uniform(0.2, 1.0), 1.0])
            T[:, s, a, common] = (1.0 - tells) * share
            others = np.setdiff1d(np.arange(S), common)
            T[np.arange(M), s, a, rng.choice(others, M)] += tells
            if noisy and rng.random() < 0.5:
                some = rng.choice(S, rng.integers(2, 4), replace=False)
                T[:, s, a] = 0.0
                T[:, s, a, some] = rng.dirichlet(np.ones(some.size), size=M)
    T[:, -1, :, -1] = T[:, -2, :, -2] = 1.0
    return T


def by_linear_program(T, w):
    """V* where the belief is w on the contexts that are left."""
    M, S, A, _ = T.shape
    nodes, todo, rows = {(0, tuple(range(M))): 0}, [(0, tuple(range(M)))], []
    while todo:
        s, G = todo.pop()
        for a in range(A if s < S - 1 else 0):
            row = {}
            for n in range(S):
                H = tuple(m for m in G if T[m, s, a, n] > 0.0)
                if H:
                    if (n, H) not in nodes:
                        nodes[n, H] = len(nodes)
                        todo.append((n, H))
                    row[nodes[n, H]] = T[H[0], s, a, n]
            rows.append((nodes[s, G], row))
    bellman = np.zeros((len(rows), len(nodes)))
    for i, (x, row) in enumerate(rows):
        bellman[i, x] -= 1.0
        for y, p in row.items():
            bellman[i, y] += p
    ends = [(w[list(G)].sum(),) * 2 if s == S - 1 else (0.0, None) for s, G in nodes]
    return linprog(np.ones(len(nodes)), A_ub=bellman, b_ub=np.zeros(len(rows)), bounds=ends).x[0]


def within(T, s, joint, steps):
    """The most that is reached in so many steps, by all histories."""
    S = T.shape[1]
    if s >= S - 2 or steps == 0:
        return joint.sum() if s == S - 1 else 0.0
    return max(
        sum(within(T, n, joint * T[:, s, a, n], steps - 1) for n in range(S) if T[:, s, a, n].any())
        for a in range(T.shape[2])
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--steps", type=int, default=4)
    settings = parser.parse_args()
    enclosed = closed = done = 0
    longest = 0.0
    for seed in range(settings.first, settings.first + settings.models):
        rng, noisy = np.random.default_rng(seed), bool(seed % 2)
        T = transitions(rng, noisy)
        M, S, A, _ = T.shape
        w = rng.dirichlet(np.ones(M))
        model = lm.LatentMDP(T, np.zeros((M, S, A)), initial=0, weights=w, horizon=1)
        model = model.reaching(S - 1, horizon=None, discount=1)
        began = time.process_time()
        planner = lm.HSVI(gap=0.0, absolute_gap=1e-4, time_limit=10.0, threads=1)
        plan = planner.plan(model)
        longest = max(longest, time.process_time() - began)
        earned = lm.evaluate(model, plan.policy)
        if noisy:
            good = within(T, 0, w, settings.steps) <= plan.upper + 1e-9
        else:
            value = by_linear_program(T, w)
            good = plan.lower - 1e-8 <= value <= plan.upper + 1e-8
        good = good and earned.exact and abs(earned.mean - plan.lower) <= 1e-7
        done, enclosed, closed = done + 1, enclosed + good, closed + plan.converged
        if not (good and plan.converged):
            print(f"{seed}: [{plan.lower:.6f}, {plan.upper:.6f}] {'' if good else 'WRONG'}")
        if done % 50 == 0 or done == settings.models:
            print(
                f"{done} models: {enclosed} enclosed, {closed} closed to 1e-4, "
                f"longest {longest:.1f} s of CPU time",
                flush=True,
            )


if __name__ == "__main__":
    main()
