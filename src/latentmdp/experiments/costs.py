"""What work costs: memory and time to expect, from the sizes of a problem and a short measurement.

With M contexts, n outcomes in the table of a model (K for each state and action, n = S A K) and
N = episodes x horizon steps of logs,

    model            n (8 M + 12) bytes
    Q-MDP            H n M multiplications
    logs             12 N bytes in memory, some 45 N while EM fits them; about 2 N in Parquet files
    reading them     c N seconds: files are checked, and their steps numbered
    one pass of EM   c N seconds; 2 N bytes of cells, 4 N with more than 65,536 of them
    a filter         c N seconds

with another constant c in each line, which grows with M. The constants are measured here, on a
small problem with as many contexts, in seconds of one thread's own, so that other work on the
machine does not count. From disk EM holds no more than some batches and a sample of 2^24 steps,
whatever N is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np

from latentmdp._util.arrays import positive_integer
from latentmdp.belief import posterior
from latentmdp.engines.threads import Threads, thread_count
from latentmdp.estimation.episodes import Episodes
from latentmdp.logs import BATCH_STEPS, HELD_STEPS, open_logs
from latentmdp.model import LatentMDP
from latentmdp.planning import QMDP
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import simulate

__all__ = ["Costs", "Rates", "costs", "measured_rates"]

_STEPS = 400_000
"""Steps that are measured: enough for a stable rate, few enough for a few seconds."""

_FIXED = 0.15 * 2**30
"""Bytes of Python, NumPy and the compiled loops."""

_PEAK_BYTES = 45.0
"""Bytes for each step when a fit in memory needs most: 12 of the logs, 2 of cells, and arrays that
come and go. Measured at 5 to 100 million steps (`benchmarks/scale.py`); within a fifth of it."""

_HELD_BYTES = 52.0
"""Bytes for each step that is looked at side by side with others, to find where EM starts."""

_BATCH_BYTES = 80.0 * BATCH_STEPS
"""Bytes that reading one batch takes, while it is read."""

_TASK_SECONDS = 1e-3
"""What Dask's scheduler needs for one task."""

_TASKS_PER_WORKER = 8

_GPU_STEPS = 112e9
"""Simulated steps a second of one H200 under a uniform policy, at (7, 15, 3, 30), stored there."""

_GPU_THREADS = 220.0
"""Threads that make a pass of EM as fast as one H200: it was 24 to 31 times as fast as 16 cores,
and those 9 times as fast as one."""

_GPU_BYTES = 139.0 * 2**30
"""Memory of one H200, where the steps stay between passes of EM."""


@dataclass(frozen=True)
class Rates:
    """Seconds that one thread of this machine needs.

    Attributes
    ----------
    simulation, reading, filter, em_pass : float
        For one step: to play it, to read it from files before EM, to filter it, and in one pass
        of EM.
    multiplication : float
        For one multiplication of a plan.
    """

    simulation: float
    reading: float
    filter: float
    em_pass: float
    multiplication: float


@dataclass(frozen=True)
class Costs:
    """What to expect of a problem.

    Attributes
    ----------
    steps : float
        Logged steps.
    model_bytes, memory_bytes, disk_bytes, stored_bytes : float
        The model; the logs in memory with EM's cells; the same fit from disk; the files.
    plan_seconds : float
        One plan by Q-MDP.
    simulation_seconds, reading_seconds, filter_seconds, pass_seconds : float
        To play, to read before EM, to filter, and to pass over all steps once, on all cores of
        this machine.
    workers : int
        Workers of one thread each that the next two numbers are for.
    cluster_reading_seconds, cluster_pass_seconds : float
        The same on them, with what the scheduler needs.
    gpu_simulation_seconds, gpu_pass_seconds : float
        To play all steps on one H200, and to pass over them there; NaN if they do not fit.
    """

    steps: float
    model_bytes: float
    memory_bytes: float
    disk_bytes: float
    stored_bytes: float
    plan_seconds: float
    simulation_seconds: float
    reading_seconds: float
    filter_seconds: float
    pass_seconds: float
    workers: int
    cluster_reading_seconds: float
    cluster_pass_seconds: float
    gpu_simulation_seconds: float
    gpu_pass_seconds: float


def measured_rates(n_contexts: int) -> Rates:
    """Measure this machine with one thread, on a small problem with so many contexts."""
    model = _small(positive_integer("n_contexts", n_contexts))
    horizon = model.horizon or 1
    policy, number = UniformPolicy(), _STEPS // horizon
    logs = simulate(model, policy, number, rng=0, threads=1).without_contexts()
    episodes = Episodes([logs])
    table = np.full((episodes.cells.size, n_contexts), 0.05)
    first = np.full((episodes.first_state.size, n_contexts), 0.1 / n_contexts)
    one, N = Threads(1), logs.n_steps
    work = horizon * model.outcomes.probs.size
    with TemporaryDirectory(prefix="latentmdp-") as folder:
        simulate(model, policy, number, rng=0, out=folder, threads=1)
        reading = _seconds(lambda: Episodes([open_logs(folder, engine=one)], engine=one)) / N
    return Rates(
        reading=reading,
        simulation=_seconds(lambda: simulate(model, policy, number, rng=0, threads=1)) / N,
        filter=_seconds(lambda: posterior(model, logs, threads=1)) / N,
        em_pass=_seconds(lambda: episodes.expected_counts(table, first, one)) / N,
        multiplication=_seconds(lambda: QMDP().plan(model)) / work,
    )


def _small(n_contexts: int) -> LatentMDP:
    """A random problem of a common size."""
    rng = np.random.default_rng(0)
    S, A = 20, 3
    return LatentMDP(
        rng.dirichlet(np.ones(S), size=(n_contexts, S, A)),
        rng.uniform(size=(n_contexts, S, A)),
        horizon=50,
    )


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of this thread's own, the fewest of three calls after one that compiles."""
    work()
    found = []
    for _ in range(3):
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
    return min(found)


def costs(
    n_contexts: int,
    n_states: int,
    n_actions: int,
    n_outcomes: float,
    episodes: float,
    horizon: int,
    workers: int = 1,
    rates: Rates | None = None,
) -> Costs:
    """Memory and time to expect of a problem.

    Parameters
    ----------
    n_outcomes
        K: what can follow a state and an action, on average: next states times rewards.
    workers
        Workers of a cluster, of one thread each.
    rates
        By default those of this machine, measured now.
    """
    rates = measured_rates(n_contexts) if rates is None else rates
    threads = thread_count(None)
    table, steps = float(n_states) * n_actions * n_outcomes, float(episodes) * horizon
    cell = 2.0 if table <= 1 << 16 else 4.0
    counts = 8.0 * n_contexts * table
    working = _FIXED + threads * (_BATCH_BYTES + 4.0 * counts)
    handing_out = _TASKS_PER_WORKER * workers * _TASK_SECONDS
    on_gpu = steps * (cell + 4.0) <= _GPU_BYTES
    held = min(steps, float(HELD_STEPS))
    return Costs(
        steps=steps,
        model_bytes=table * (8.0 * n_contexts + 12.0),
        memory_bytes=working + steps * (_PEAK_BYTES + cell - 2.0),
        disk_bytes=working + held * (_HELD_BYTES + cell - 2.0),
        stored_bytes=2.0 * steps,
        plan_seconds=horizon * table * n_contexts * rates.multiplication,
        simulation_seconds=steps * rates.simulation / threads,
        reading_seconds=steps * rates.reading / threads,
        filter_seconds=steps * rates.filter / threads,
        pass_seconds=steps * rates.em_pass / threads,
        workers=workers,
        cluster_reading_seconds=steps * rates.reading / workers + handing_out,
        cluster_pass_seconds=steps * rates.em_pass / workers + handing_out,
        gpu_simulation_seconds=steps / _GPU_STEPS,
        gpu_pass_seconds=steps * rates.em_pass / _GPU_THREADS if on_gpu else float("nan"),
    )
