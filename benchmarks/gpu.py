"""A GPU against the cores of the same machine, at (M, S, A, H) = (7, 15, 3, 30).

Simulation is timed as it stands in the GPU's memory, states, actions and rewards stored, and once
more with the way to this machine's memory. The pass of EM is measured against all cores and against
the speed at which the GPU copies memory.
"""

import time
from collections.abc import Callable

import numpy as np
from timing import best_seconds

import latentmdp as lm
from latentmdp._util.random import philox_key
from latentmdp.engines import Cuda, Threads
from latentmdp.engines.cuda.device import gpu
from latentmdp.errors import DeviceError
from latentmdp.estimation.episodes import Episodes
from latentmdp.policies import Policy
from latentmdp.simulation import Rollouts
from latentmdp.worlds import ModelWorld

CONTEXTS, STATES, ACTIONS, HORIZON = 7, 15, 3, 30
EPISODES = 1_000_000
LAUNCHED, COPIED = 16 * EPISODES, 200 * EPISODES
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


def bandwidth() -> float:
    """Bytes a second that the GPU reads and writes in a copy."""
    from numba import cuda

    source, target = (cuda.device_array(COPIED, np.float64) for _ in range(2))
    return 2.0 * source.nbytes / finished(lambda: target.copy_to_device(source))


def stored_steps(model: lm.LatentMDP, policy: Policy) -> float:
    """Steps a second that are played and stored in the GPU's memory."""
    world = ModelWorld(model)
    rollouts = Rollouts(world, policy, world.space, philox_key(0))
    noted = rollouts.room(LAUNCHED)
    return LAUNCHED * HORIZON / finished(lambda: rollouts.start(0, noted))


def simulation(model: lm.LatentMDP, name: str, policy: Policy) -> None:
    print(f"{name}: {stored_steps(model, policy) / 1e9:6.1f} G steps/s stored on the GPU")
    seconds = best_seconds(
        {
            device: lambda device=device: lm.simulate(model, policy, EPISODES, rng=0, device=device)
            for device in ("cpu", "cuda")
        },
        rounds=3,
    )
    one, other = (lm.simulate(model, policy, EPISODES, rng=0, device=d) for d in seconds)
    same = all(np.array_equal(getattr(one, f), getattr(other, f)) for f in FIELDS)
    rates = {device: EPISODES * HORIZON / s / 1e9 for device, s in seconds.items()}
    print(f"  simulate: {rates['cuda']:.2f} G steps/s, all cores {rates['cpu']:.2f} G")
    print(f"  {EPISODES:,} episodes bit-identical to the CPU's: {same}")
    values = {
        device: lm.evaluate(model, policy, EPISODES, rng=0, method="monte-carlo", device=device)
        for device in ("cpu", "cuda")
    }
    seconds = best_seconds(
        {
            device: lambda device=device: lm.evaluate(
                model, policy, EPISODES, rng=0, method="monte-carlo", device=device
            )
            for device in ("cpu", "cuda")
        },
        rounds=3,
    )
    print(
        f"  evaluate: {seconds['cpu'] / seconds['cuda']:.1f} times all cores, "
        f"bit-identical: {values['cpu'] == values['cuda']}"
    )


def learning(model: lm.LatentMDP) -> None:
    logs = lm.simulate(model, lm.UniformPolicy(), EPISODES, rng=0)
    seconds = best_seconds(
        {
            device: lambda device=device: lm.posterior(model, logs, device=device)
            for device in ("cpu", "cuda")
        },
        rounds=3,
    )
    same = np.array_equal(*(lm.posterior(model, logs, device=d) for d in ("cpu", "cuda")))
    print(
        f"posterior: {seconds['cpu'] / seconds['cuda']:.1f} times all cores, bit-identical: {same}"
    )
    episodes = Episodes([logs])
    table = model.packed().reshape(-1, CONTEXTS)[episodes.cells]
    first, passes = model.initial.T * model.weights, Cuda()
    start = time.perf_counter()
    episodes.expected_counts(table, first, passes)
    made = time.perf_counter() - start
    on_gpu = finished(lambda: episodes.expected_counts(table, first, passes))
    every = Threads(None)
    cores = best_seconds({"": lambda: episodes.expected_counts(table, first, every)})[""]
    (by_cell, _), value = episodes.expected_counts(table, first, every)
    (found, _), other = episodes.expected_counts(table, first, passes)
    (again, _), _ = episodes.expected_counts(table, first, passes)
    steps = EPISODES * HORIZON
    moved = episodes.held_by(passes, CONTEXTS).bytes_read / on_gpu
    print(
        f"EM pass: {on_gpu * 1e3:.3f} ms, {steps / on_gpu / 1e9:.1f} G steps/s, "
        f"{cores / on_gpu:.1f} times {every.threads} cores ({cores * 1e3:.1f} ms); "
        f"{moved / 1e9:.0f} GB/s, {moved / bandwidth():.2f} of the copy speed; "
        f"first pass {made:.2f} s"
    )
    print(
        f"  largest difference to the CPU's counts {np.abs(found - by_cell).max():.1e} of "
        f"{by_cell.max():.1e}, log-likelihood {other - value:.1e} of {value:.3e}, "
        f"same bits again: {np.array_equal(found, again)}"
    )


def random_model(M: int, S: int, A: int, H: int) -> lm.LatentMDP:
    rng, shape = np.random.default_rng(0), (M, S, A)
    return lm.LatentMDP(rng.dirichlet(np.full(S, 0.3), shape), rng.random(shape), horizon=H)


def main() -> None:
    try:
        gpu()
    except DeviceError as error:
        print(error)
        return
    model = random_model(CONTEXTS, STATES, ACTIONS, HORIZON)
    simulation(model, "uniform policy", lm.UniformPolicy())
    simulation(model, "Q-MDP policy", lm.QMDP().plan(model).policy)
    learning(model)


if __name__ == "__main__":
    main()
