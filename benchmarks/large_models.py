"""Large, costly and endless models: sizes, times and proved gaps.

`python benchmarks/large_models.py [what ...]` with any of: size, entry, gap, costs, endless,
threads; all but the last by default. Times are wall-clock, after a first run that compiles.

Sparse problems have 5 contexts, 4 actions, 50 steps and 5 successors a row, and a tenth of (s, a)
rewarded: successors are the same in all contexts ("same") or drawn for each ("own").
"""

import resource
import sys
import time
from functools import partial

import numpy as np
import scipy.sparse as sp

import latentmdp as lm


def sparse(S, seed=0, own=False, M=5, A=4, successors=5, horizon=50, matrices=False):
    """A sparse problem, and its matrices [m][a] if asked."""
    rng = np.random.default_rng(seed)
    same = rng.integers(S, size=(A, S, successors))
    rows = np.repeat(np.arange(S), successors)
    T = []
    for _ in range(M):
        by_action = []
        for a in range(A):
            to = rng.integers(S, size=(S, successors)) if own else same[a]
            chances = rng.dirichlet(np.ones(successors), size=S)
            by_action.append(sp.csr_array((chances.ravel(), (rows, to.ravel())), shape=(S, S)))
        T.append(by_action)
    rewarded = rng.random((1, S, A)) < 0.1
    R = np.where(rewarded, rng.random((M, S, A)), 0.0)
    return (T, R) if matrices else lm.LatentMDP(T, R, horizon=horizon)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def size():
    """Model from sparse matrices, Q-MDP's plan and 20,000 evaluated episodes."""
    for S in (2_000, 50_000):
        T, R = sparse(S, matrices=True)
        began = time.perf_counter()
        model = lm.LatentMDP(T, R, horizon=50)
        made = time.perf_counter()
        plan = lm.QMDP().plan(model)
        planned = time.perf_counter()
        value = lm.evaluate(model, plan.policy, episodes=20_000, rng=0)
        ended = time.perf_counter()
        print(
            f"S={S:,}: {ended - began:.2f} s (model {made - began:.2f}, plan "
            f"{planned - made:.2f}, episodes {ended - planned:.2f}), peak {peak():.2f} GiB so far; "
            f"value {value}, bound {plan.upper:.4f}"
        )


def per_entry():
    """Nanoseconds of a Q-MDP plan for each entry: dense and sparse."""
    dense = lm.make("random", contexts=7, states=15, actions=3, horizon=30, rng=0)
    large = sparse(2_000)
    for name, model, entries in (
        ("dense (7, 15, 3, 30)", dense, 7 * 15 * 3 * 15 * 30),
        ("sparse S=2,000", large, large.outcomes.successors().size * 5 * 50),
    ):
        lm.QMDP().plan(model)
        best = min(_seconds(partial(lm.QMDP().plan, model)) for _ in range(20))
        print(f"{name}: {1e6 * best:.1f} us a plan, {1e9 * best / entries:.3f} ns an entry")


def _seconds(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def gap():
    """Proved gaps of HSVI on sparse problems, and whether its policy beats Q-MDP's."""
    for S, limit in ((1_000, 30.0), (5_000, 60.0)):
        for own in (False, True):
            model = sparse(S, seed=1, own=own)
            wall = time.perf_counter()
            plan = lm.HSVI(gap=0.0, time_limit=limit).plan(model)
            wall = time.perf_counter() - wall
            quick = lm.evaluate(model, lm.QMDP().plan(model).policy, episodes=20_000, rng=0)
            found = lm.evaluate(model, plan.policy, episodes=20_000, rng=0)
            print(
                f"S={S:,}, {'own' if own else 'same'} successors: [{plan.lower:.4f}, "
                f"{plan.upper:.4f}] gap {100 * plan.gap:.3f} % in {wall:.1f} s, "
                f"{plan.policy.actions.size:,} vectors; earns {found}, Q-MDP {quick}"
            )


def costs():
    """Costs that all differ, seen and not; then not seen and by context, for two kinds of rows."""
    for observed in (True, False):
        for shared in (True, False):
            rng = np.random.default_rng(2)
            T = rng.dirichlet(np.full(100, 0.1), size=(3, 100, 4))
            amounts = -rng.random((100, 4) if shared else (3, 100, 4))
            model = lm.LatentMDP.from_amounts(T, amounts, observed=observed, horizon=30, initial=0)
            plan = lm.HSVI(gap=0.0, time_limit=5.0).plan(model)
            print(
                f"costs {'seen' if observed else 'not seen'}, "
                f"{'the same in all contexts' if shared else 'by context'}: "
                f"gap {100 * plan.gap:.4f} % in {plan.seconds:.1f} s"
            )
    for successors in (5, 100):
        for horizon in (20, 50):
            plan = lm.HSVI(gap=0.0, time_limit=5.0).plan(unseen_costs(successors, horizon))
            print(
                f"costs not seen, by context, {successors} successors a row, horizon {horizon}: "
                f"gap {100 * plan.gap:.4f} % in {plan.seconds:.1f} s, "
                f"{plan.policy.actions.size:,} vectors"
            )


def unseen_costs(successors, horizon, seed=2, S=100):
    """Three contexts with costs of their own that are not seen, and the same successors."""
    rng = np.random.default_rng(seed)
    T = np.zeros((3, S, 4, S))
    for s, a in np.ndindex(S, 4):
        to = rng.choice(S, successors, replace=False)
        T[:, s, a, to] = rng.dirichlet(np.ones(successors), size=3)
    amounts = -rng.random((3, S, 4))
    return lm.LatentMDP.from_amounts(T, amounts, observed=False, horizon=horizon, initial=0)


def endless():
    """Problems without an end, discount .95."""
    for M, S, A in ((3, 7, 2), (5, 10, 3), (7, 15, 3)):
        gaps, vectors = [], []
        for seed in range(20, 23):
            model = lm.make("random", contexts=M, states=S, actions=A, rng=seed)
            plan = lm.HSVI(gap=0.0, time_limit=10.0).plan(
                model.replace(horizon=None, discount=0.95)
            )
            gaps.append(100 * plan.gap)
            vectors.append(plan.policy.actions.size)
        print(
            f"no end, {(M, S, A)}: gap median {np.median(gaps):.4f} %, worst {max(gaps):.4f} % "
            f"after 10 s, at most {max(vectors):,} vectors"
        )


def threads():
    """The same work with 1 thread and with more: HSVI, and evaluate."""
    import os

    cores = len(os.sched_getaffinity(0))
    dense = lm.make("random", contexts=7, states=15, actions=3, horizon=30, rng=0)
    large = sparse(1_000)
    ends = dense.replace(horizon=None, discount=0.95)
    for name, model, wanted in (
        ("dense (7, 15, 3, 30)", dense, 0.004),
        ("sparse S=1,000", large, 0.012),
        ("no end (7, 15, 3)", ends, 0.003),
    ):
        one, more = (
            _timed(
                lambda n=n, m=model, g=wanted: lm.HSVI(gap=g, time_limit=None, threads=n).plan(m)
            )
            for n in (1, cores)
        )
        same = one[1] == more[1]
        print(
            f"HSVI on {name} to a gap of {wanted:.2%}: {one[0]:.2f} s with 1 thread, "
            f"{more[0]:.2f} s with {cores}: x{one[0] / more[0]:.2f}; same bits: {same}"
        )
    policy = lm.QMDP().plan(dense).policy
    one, more = (
        _timed(lambda n=n: lm.evaluate(dense, policy, episodes=4_000_000, rng=0, threads=n))
        for n in (1, cores)
    )
    print(
        f"evaluate: {one[0]:.2f} s with 1 thread, {more[0]:.2f} s with {cores}: "
        f"x{one[0] / more[0]:.2f}; same bits: {one[1].mean == more[1].mean}"
    )


def _timed(work):
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def main():
    parts = {
        "size": size,
        "entry": per_entry,
        "gap": gap,
        "costs": costs,
        "endless": endless,
        "threads": threads,
    }
    wanted = sys.argv[1:] or [name for name in parts if name != "threads"]
    small = sparse(30, horizon=4)
    for model in (small, small.replace(horizon=None, discount=0.9)):  # compile
        for planner in (lm.QMDP(), lm.HSVI(time_limit=None), lm.PBVI(beliefs=20)):
            lm.evaluate(model, planner.plan(model).policy, episodes=100, rng=0)
    for name in wanted:
        print(f"== {name}: {parts[name].__doc__}", flush=True)
        parts[name]()


if __name__ == "__main__":
    main()
