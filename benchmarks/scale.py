"""EM from disk against EM in memory: bits, seconds, peak memory; and Dask with 1, 2 and 4 workers.

    python benchmarks/scale.py [--episodes 100000] [--twice] [--dask] [--keep FOLDER]

Episodes of 100 steps of a random model (3 contexts, 20 states, 3 actions) are written in shards and
fitted by EM with two starts, from disk and in memory, each in a process of its own. With --twice,
twice as many are fitted from disk as well: the memory should be the same. With --dask the same fit
runs on local workers.

Bars: the model equal to the last bit; from disk at most twice the seconds of memory, and below 1.5
GiB at a million episodes and at two; two workers at least 1.6 times as fast as one.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from hashlib import sha256

import latentmdp as lm
from latentmdp.testing import random_model

HORIZON = 100


def model() -> lm.LatentMDP:
    return random_model(0, contexts=3, states=20, actions=3, horizon=HORIZON)


def fitted(logs, engine=None) -> dict:
    em = lm.EM(3, restarts=2, pseudo_counts=1.0, initial="own", tolerance=0.1, max_iter=60)
    warnings.simplefilter("ignore")
    em.fit(lm.simulate(model(), lm.UniformPolicy(), 500, rng=1), rng=0)  # compile
    began = time.perf_counter()
    fit = em.fit(logs, rng=0, engine=engine)
    digest = sha256(fit.model.transitions.tobytes() + fit.model.weights.tobytes())
    digest.update(fit.responsibilities[: 1 << 16].tobytes())
    return {
        "seconds": time.perf_counter() - began,
        "passes": fit.n_iter,
        "log_likelihood": fit.log_likelihood.hex(),
        "digest": digest.hexdigest()[:16],
    }


def one(kind: str, folder: str, episodes: int) -> None:
    """One measurement, in this process; told as a line of JSON."""
    began = time.perf_counter()
    if kind == "write":
        lm.simulate(model(), lm.UniformPolicy(), episodes, rng=0, out=folder)
        found = {}
    elif kind == "disk":
        logs = lm.open_logs(folder)
        opened = time.perf_counter() - began
        found = {"opened": opened, **fitted(logs)}
    elif kind == "memory":
        found = fitted(lm.simulate(model(), lm.UniformPolicy(), episodes, rng=0))
    else:
        from distributed import Client, LocalCluster

        workers = int(kind.removeprefix("dask"))
        settings = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(**settings) as cluster, Client(cluster) as client:
            engine = lm.engines.Dask(client)
            logs = lm.open_logs(folder)
            fitted(lm.simulate(model(), lm.UniformPolicy(), 30_000, rng=2), engine)
            found = fitted(logs, engine)
    found["whole"] = time.perf_counter() - began
    found["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(found))


def measured(kind: str, folder: str, episodes: int) -> dict:
    command = [sys.executable, __file__, "--one", kind, "--keep", folder]
    command += ["--episodes", str(episodes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    told = ", ".join(f"{k} {v:.3g}" for k, v in found.items() if isinstance(v, float))
    print(f"{kind:>7} {episodes:>9,} episodes: {told}, bits {found.get('digest', '')}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--dask", action="store_true")
    parser.add_argument("--keep", default=None)
    parser.add_argument("--one", default=None)
    given = parser.parse_args()
    if given.one:
        one(given.one, given.keep, given.episodes)
        return
    with tempfile.TemporaryDirectory() as room:
        folder = given.keep or f"{room}/logs"
        measured("write", folder, given.episodes)
        disk = measured("disk", folder, given.episodes)
        memory = measured("memory", folder, given.episodes)
        print(f"same bits: {disk['digest'] == memory['digest']}, seconds from disk over memory: ")
        print(f"  {disk['seconds'] / memory['seconds']:.2f} (at most 2)")
        if given.dask:
            runs = {n: measured(f"dask{n}", folder, given.episodes) for n in (1, 2, 4)}
            print(f"same bits: {all(run['digest'] == disk['digest'] for run in runs.values())}")
            print(f"two workers: {runs[1]['seconds'] / runs[2]['seconds']:.2f} times one")
        if given.twice:
            measured("write", f"{room}/more", 2 * given.episodes)
            measured("disk", f"{room}/more", 2 * given.episodes)


if __name__ == "__main__":
    main()
