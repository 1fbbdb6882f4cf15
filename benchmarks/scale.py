"""EM from disk against EM in memory: bits, seconds, peak memory; Dask; and what grows with what.

    python benchmarks/scale.py [--episodes 100000] [--twice] [--dask] [--keep FOLDER]
    python benchmarks/scale.py --exponents

Episodes of 100 steps of a random model (3 contexts, 20 states, 3 actions) are written in shards and
fitted by EM with two starts, from disk and in memory, each in a process of its own. With --twice,
twice as many are fitted from disk as well: the memory should be the same. With --dask the same fit,
figure 1a and the evaluation of a policy run on 1, 2 and 4 local workers. Seconds of wall
clock mean little on a machine that others use too, so the seconds of the processors are told
beside them: `own` of this process, which no worker takes off it, and `work` of the workers. On idle
cores two workers are about (own + work) / (own + work / 2) times as fast as one.

With --exponents, the b of seconds ~ size^b for each kind of work, by seconds of one thread.

Bars: the model equal to the last bit; from disk at most twice the seconds of memory, and below 1.5
GiB at a million episodes and at two; two workers at least 1.6 times as fast as one.
"""

import argparse
import json
import math
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
        found = on_workers(int(kind.removeprefix("dask")), folder)
    found["whole"] = time.perf_counter() - began
    found["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(found))


def on_workers(workers: int, folder: str) -> dict:
    """EM, figure 1a and an evaluation on local workers, each after a small one that compiles."""
    from distributed import Client, LocalCluster

    from latentmdp.experiments import fig1a, run_sweep

    policy = lm.QMDP().plan(model()).policy
    small = lm.simulate(model(), lm.UniformPolicy(), 30_000, rng=2)

    def sweep(engine, quick, seeds):
        with tempfile.TemporaryDirectory() as runs:
            table = run_sweep(fig1a.sweep(quick, seeds), fig1a.work, runs, engine=engine)
        return {"digest": sha256(table["error"].to_numpy().tobytes()).hexdigest()[:16]}

    def value(engine, episodes):
        return {"digest": lm.evaluate(model(), policy, episodes, rng=0, engine=engine).mean.hex()}

    settings = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**settings) as cluster, Client(cluster) as client:
        engine = lm.engines.Dask(client)
        logs = lm.open_logs(folder, engine=engine)
        jobs = {
            "EM": (fitted, (small, engine), (logs, engine)),
            "fig1a": (sweep, (engine, True, 1), (engine, False, 10)),
            "evaluation": (value, (engine, 10_000), (engine, 4_000_000)),
        }
        found = {}
        for name, (job, warm, full) in jobs.items():
            job(*warm)
            before = sum(client.run(time.process_time).values())
            wall, own = time.perf_counter(), time.process_time()
            found[name] = job(*full)["digest"]
            found[f"{name} wall"] = time.perf_counter() - wall
            found[f"{name} own"] = time.process_time() - own
            found[f"{name} work"] = sum(client.run(time.process_time).values()) - before
    return {**found, "digest": found["EM"]}


def compared_workers(folder: str, episodes: int) -> None:
    runs = {n: measured(f"dask{n}", folder, episodes) for n in (1, 2, 4)}
    for name in ("EM", "fig1a", "evaluation"):
        same = len({run[name] for run in runs.values()}) == 1
        own, work = runs[1][f"{name} own"], runs[1][f"{name} work"]
        wall = runs[1][f"{name} wall"] / runs[2][f"{name} wall"]
        idle = (own + work) / (own + work / 2.0)
        print(
            f"{name}: same bits {same}; two workers {wall:.2f} times one, on idle cores {idle:.2f}"
        )


def exponents() -> None:
    """The b of seconds ~ size^b, between the smallest and the largest of three sizes."""
    from latentmdp.engines import Threads
    from latentmdp.estimation.episodes import Episodes

    one, uniform = Threads(1), lm.UniformPolicy()

    def seconds(work) -> float:
        work()
        found = []
        for _ in range(5):
            began = time.thread_time()
            work()
            found.append(time.thread_time() - began)
        return min(found)

    def plan(contexts=4, states=40, horizon=50):
        sizes = {"contexts": contexts, "states": states, "actions": 3, "horizon": horizon}
        problem = random_model(0, **sizes)
        return seconds(lambda: lm.QMDP().plan(problem))

    def over_logs(kind, contexts=4, steps=400_000, states=20):
        problem = random_model(0, contexts=contexts, states=states, actions=3, horizon=50)
        logs = lm.simulate(problem, uniform, steps // 50, rng=0).without_contexts()
        if kind == "simulation":
            return seconds(lambda: lm.simulate(problem, uniform, steps // 50, rng=0, threads=1))
        if kind == "filter":
            return seconds(lambda: lm.posterior(problem, logs, threads=1))
        episodes = Episodes([logs])
        table = problem.packed().reshape(-1, contexts)[episodes.cells]
        first = problem.initial.T * problem.weights
        return seconds(lambda: episodes.expected_counts(table, first, one))

    grids = {"contexts": (4, 8, 16), "steps": (200_000, 400_000, 800_000), "states": (20, 40, 80)}
    for size, values in {**grids, "horizon": (50, 100, 200)}.items():
        for kind in ("Q-MDP", "simulation", "filter", "EM pass"):
            if (kind == "Q-MDP" and size == "steps") or (kind != "Q-MDP" and size == "horizon"):
                continue
            found = [
                plan(**{size: v}) if kind == "Q-MDP" else over_logs(kind, **{size: v})
                for v in values
            ]
            slope = math.log(found[-1] / found[0]) / math.log(values[-1] / values[0])
            told = ", ".join(f"{1e3 * s:.3g}" for s in found)
            print(f"{kind:>10} ~ {size}^{slope:.2f}   ({told} ms at {values})", flush=True)


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
    parser.add_argument("--exponents", action="store_true")
    given = parser.parse_args()
    if given.exponents:
        exponents()
        return
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
            compared_workers(folder, given.episodes)
        if given.twice:
            measured("write", f"{room}/more", 2 * given.episodes)
            measured("disk", f"{room}/more", 2 * given.episodes)


if __name__ == "__main__":
    main()
