"""A GPU against the cores of the same machine, at (M, S, A, H) = (7, 15, 3, 30).

For simulate, posterior and evaluate: whether the bits are those of the CPU, and steps a second from
call to result. The bar of `evaluate` is 10 G steps a second for 100 million episodes of Q-MDP's
policy. The pass of EM is measured against all cores and against the speed at which the GPU copies
memory; its sums are alike up to rounding, and the same every time.

`python benchmarks/gpu.py [episodes of evaluate]`; `NUMBA_ENABLE_CUDASIM=1 python benchmarks/gpu.py
600` tries the same commands, very slowly, where there is no GPU.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import best_seconds

import latentmdp as lm
from latentmdp.engines import Cuda, Threads
from latentmdp.engines.cuda.device import gpu
from latentmdp.errors import DeviceError
from latentmdp.estimation.episodes import Episodes
from latentmdp.policies import Policy

CONTEXTS, STATES, ACTIONS, HORIZON = 7, 15, 3, 30
FIELDS = ("contexts", "offsets", "states", "actions", "rewards")


def finished(work: Callable[[], object], calls: int = 10) -> float:
    """Seconds per call of work that a GPU does, many calls in a row."""
    work()
    gpu().wait()
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        gpu().wait()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def bandwidth(entries: int) -> float:
    """Bytes a second that the GPU reads and writes in a copy."""
    from numba import cuda

    source, target = (cuda.device_array(entries, np.float64) for _ in range(2))
    return 2.0 * source.nbytes / finished(lambda: target.copy_to_device(source))


def compared(
    what: str, work: Callable[[Any], Any], same: Callable[[Any, Any], bool], steps: int
) -> None:
    """Print whether GPU and CPU agree, and how many steps a second both make."""
    engines = {"cpu": Threads(), "gpu": Cuda()}
    results = [work(engine) for engine in engines.values()]
    seconds = best_seconds({name: lambda e=e: work(e) for name, e in engines.items()}, rounds=3)
    rates = {name: steps / taken / 1e9 for name, taken in seconds.items()}
    print(
        f"  {what}: same bits {same(*results)}; {rates['gpu']:.3f} G steps/s, "
        f"{engines['cpu'].threads} cores {rates['cpu']:.3f} G, ratio "
        f"{rates['gpu'] / rates['cpu']:.1f}",
        flush=True,
    )


def same_logs(one: lm.Trajectories, other: lm.Trajectories) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in FIELDS)


def playing(model: lm.LatentMDP, name: str, policy: Policy, episodes: int) -> None:
    print(name)
    steps = episodes * HORIZON
    compared(
        "simulate", lambda e: lm.simulate(model, policy, episodes, 0, engine=e), same_logs, steps
    )
    compared(
        "evaluate",
        lambda e: lm.evaluate(model, policy, episodes, 0, "monte-carlo", engine=e),
        lambda one, other: one == other,
        steps,
    )


def long_evaluation(model: lm.LatentMDP, policy: Policy, episodes: int) -> None:
    """Steps a second of one call of `evaluate`, from call to result, once compiled."""
    engine = Cuda()
    lm.evaluate(model, policy, 10, 0, "monte-carlo", engine=engine)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        value = lm.evaluate(model, policy, episodes, 0, "monte-carlo", engine=engine)
        best = min(best, time.perf_counter() - start)
    print(
        f"evaluate, Q-MDP's policy, {episodes:,} episodes: {episodes * HORIZON / best / 1e9:.2f} G "
        f"steps/s end to end in {best:.3f} s (bar: 10); {value}",
        flush=True,
    )


def learning(model: lm.LatentMDP, number: int) -> None:
    logs = lm.simulate(model, lm.UniformPolicy(), number, rng=0)
    print("logs")
    steps = number * HORIZON
    compared("posterior", lambda e: lm.posterior(model, logs, engine=e), np.array_equal, steps)
    episodes, on_gpu, cores = Episodes([logs]), Cuda(), Threads()
    table = model.packed().reshape(-1, CONTEXTS)[episodes.cells]
    first = model.initial.T * model.weights

    def counted(engine: Threads) -> Any:
        return episodes.expected_counts(table, first, engine)

    start = time.perf_counter()
    (again, _), _ = counted(on_gpu)
    made = time.perf_counter() - start
    taken, by_cores = (
        finished(lambda: counted(on_gpu)),
        best_seconds({"": lambda: counted(cores)})[""],
    )
    (by_cell, _), value = counted(cores)
    (found, _), other = counted(on_gpu)
    held = episodes.held_by(on_gpu, CONTEXTS)
    moved = sum(int(array.nbytes) for array in (*held._episodes, *held._lists)) / taken
    copied = float("nan") if gpu().simulated else moved / bandwidth(200_000_000)
    print(
        f"  EM pass: {taken * 1e3:.3f} ms, {steps / taken / 1e9:.1f} G steps/s, "
        f"{by_cores / taken:.1f} times {cores.threads} cores ({by_cores * 1e3:.1f} ms); "
        f"{moved / 1e9:.0f} GB/s, {copied:.2f} of the copy speed; first pass {made:.2f} s"
    )
    print(
        f"  largest difference to the CPU's counts {np.abs(found - by_cell).max():.1e} of "
        f"{by_cell.max():.1e}, log-likelihood {other - value:.1e} of {value:.3e}, "
        f"same bits again: {np.array_equal(found, again)}"
    )


def main() -> None:
    try:
        gpu()
    except DeviceError as error:
        print(error)
        return
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000_000
    rng, shape = np.random.default_rng(0), (CONTEXTS, STATES, ACTIONS)
    transitions = rng.dirichlet(np.full(STATES, 0.3), shape)
    model = lm.LatentMDP(transitions, rng.random(shape), horizon=HORIZON)
    policy, some = lm.QMDP().plan(model).policy, min(most, 1_000_000)
    playing(model, "uniform policy", lm.UniformPolicy(), some)
    playing(model, "Q-MDP's policy", policy, some)
    long_evaluation(model, policy, most)
    learning(model, some)


if __name__ == "__main__":
    main()
