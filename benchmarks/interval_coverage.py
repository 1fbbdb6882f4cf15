"""How often the interval of `solve` covers what its policy earns, over instances of mixed kinds.

    python benchmarks/interval_coverage.py --out out/coverage [--from 0] [--to 120] [--jobs N]
    python benchmarks/interval_coverage.py --out out/coverage --table
    python docs/tools/results.py out docs

The first runs the instances FROM, FROM + 1, ..., TO - 1 that have no result in the folder yet, in N
processes of one thread each (by default one a core), and writes one JSON file for each; so a run
that was stopped goes on, and several machines can share the instances. Then, or with --table at
once, it prints the shares that cover, by kind, of all that is in the folder. The last command makes
the table and the picture of docs/results.md of it.

Instance i is made from the seed i alone: the kind i mod 6 (see `KINDS`), sizes at random. Each is
solved with the defaults and M found from the data; the policy is then valued in the true model by
100,000 episodes.
"""

import argparse
import json
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
from confounded_logs import confounded_logs, instance

import latentmdp as lm

KINDS = ("far", "near", "long", "confounded", "ending", "costs")


def far(rng, seed):
    model = _separated(rng, seed, float(rng.uniform(0.5, 1.0)), int(rng.integers(5, 16)))
    return model, _uniform(model, rng, seed)


def near(rng, seed):
    model = _separated(rng, seed, float(rng.uniform(0.2, 0.4)), int(rng.integers(8, 21)))
    return model, _uniform(model, rng, seed)


def long(rng, seed):
    model = _separated(rng, seed, float(rng.uniform(0.3, 0.8)), int(rng.integers(30, 51)))
    return model, _uniform(model, rng, seed)


def confounded(rng, seed):
    own = float(rng.uniform(0.2, 0.5))
    model = instance(
        seed, contexts=int(rng.integers(2, 4)), horizon=int(rng.integers(5, 11)), own=own
    )
    return model, confounded_logs(model, _episodes(rng), seed, random=float(rng.uniform(0.2, 0.5)))


def ending(rng, seed):
    """The last state is terminal; it is reached with a probability that depends on the context."""
    M, S, A = int(rng.integers(2, 4)), int(rng.integers(5, 9)), 3
    T = rng.dirichlet(np.full(S, 0.5), size=(M, S, A))
    T = 0.9 * T + 0.1 * np.eye(S)[-1]
    good = rng.uniform(size=(M, S, A))
    allowed = np.ones((S, A), bool)
    allowed[-1] = False
    initial = np.append(np.full(S - 1, 1.0 / (S - 1)), 0.0)
    model = lm.LatentMDP(
        T, np.stack([1.0 - good, good], axis=-1), initial=initial, horizon=15, allowed=allowed
    )
    return model, _uniform(model, rng, seed)


def costs(rng, seed):
    """Rewards of three values, two of them costs, one large and rare."""
    M, S, A = int(rng.integers(2, 4)), int(rng.integers(4, 9)), int(rng.integers(2, 4))
    T = rng.dirichlet(np.full(S, 0.5), size=(M, S, A))
    R = rng.dirichlet([0.4, 3.0, 2.0], size=(M, S, A))
    model = lm.LatentMDP(T, R, horizon=int(rng.integers(6, 16)), reward_values=[-10.0, -1.0, 0.0])
    return model, _uniform(model, rng, seed)


def _separated(rng, seed, delta, horizon):
    sizes = {"contexts": int(rng.integers(2, 4)), "states": int(rng.integers(5, 9)), "actions": 3}
    rewards = str(rng.choice(["shared", "own"]))
    return lm.make(
        "separated", **sizes, horizon=horizon, delta=delta, rewards=rewards,
        reward_density=0.5, rng=seed,
    )  # fmt: skip


def _episodes(rng):
    return int(rng.choice([500, 1_000, 2_000]))


def _uniform(model, rng, seed):
    return lm.simulate(model, lm.UniformPolicy(), _episodes(rng), rng=seed)


def solved(seed):
    """What is found of one instance."""
    rng = np.random.default_rng([seed, 7])
    kind = KINDS[seed % len(KINDS)]
    model, logs = globals()[kind](rng, seed)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = lm.solve(logs.without_contexts(), rng=seed)
    # Where every episode ended early, the policy covers the steps that were seen.
    played = model.replace(horizon=found.model.horizon)
    value = lm.evaluate(played, found.policy, episodes=100_000, rng=seed).mean
    return {
        "seed": seed,
        "kind": kind,
        "contexts": [model.n_contexts, found.model.n_contexts],
        "episodes": logs.n_episodes,
        "value": value,
        "mean": found.value.mean,
        "low": found.value.low,
        "high": found.value.high,
        "covers": bool(found.value.low <= value <= found.value.high),
        "warnings": len(found.warnings),
        "seconds": round(time.perf_counter() - began, 1),
    }


def table(rows):
    """Shares that cover, how far means are off, and how wide intervals are, by kind."""
    print("kind        cover       of   mean off   half-width   missed above / below   seconds")
    for kind in (*KINDS, None):
        some = [row for row in rows if kind in (row["kind"], None)]
        if not some:
            continue
        value, mean, low, high = (
            np.array([r[k] for r in some]) for k in ("value", "mean", "low", "high")
        )
        scale = np.maximum(np.abs(value), 1e-9)
        covers = np.array([r["covers"] for r in some])
        print(
            f"{kind or 'all':<11} {covers.mean():5.1%} {covers.size:8d} "
            f"{np.mean((mean - value) / scale):10.2%} {np.mean((high - low) / 2 / scale):12.2%} "
            f"{np.sum(value > high):13d} / {np.sum(value < low)} "
            f"{np.mean([r['seconds'] for r in some]):16.0f}"
        )


def results(folder):
    """Everything that is in the folder, by seed."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("instance-*.json"))]


def run_one(seed, path):
    """Solve one instance and write its file, whole or not at all."""
    text = json.dumps(solved(seed), indent=1)
    part = path.with_suffix(f".part{os.getpid()}")
    part.write_text(text + "\n")
    part.replace(path)


def run(folder, seeds, jobs):
    """Run the instances that have no file yet; False if one of them failed."""
    paths = {seed: folder / f"instance-{seed:05d}.json" for seed in seeds}
    missing = {seed: path for seed, path in paths.items() if not path.exists()}
    failed = 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        work = {pool.submit(run_one, seed, path): seed for seed, path in missing.items()}
        for number, done in enumerate(as_completed(work), 1):
            problem = done.exception()
            failed += problem is not None
            said = "done" if problem is None else f"failed: {problem!r}"
            print(f"instance {work[done]} {said} ({number} of {len(work)})", flush=True)
    return failed == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of one JSON an instance")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--to", type=int, default=120, dest="end", help="the first seed after them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--table", action="store_true", help="print what is there and run nothing")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    well = asked.table or run(asked.out, range(asked.first, asked.end), asked.jobs)
    table(results(asked.out))
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
