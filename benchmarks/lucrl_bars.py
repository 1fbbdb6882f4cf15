"""What L-UCRL must reach, one figure a line: `python benchmarks/lucrl_bars.py [NUMBER ...]`.

Number 7, fifty kills of one run, takes minutes and runs only where it is asked for.

Instances of the learning benchmark: M=7, S=15, A=3, H=30, rows of T from Dirichlet(.3), 4 of the 45
state-action pairs rewarded, means uniform on [.5, 1], own rewards. Returns are the mean of the last
1,000 episodes as a share of Q-MDP's value on the true model (100,000 episodes).
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import latentmdp as lm
from latentmdp.experiments.lucrl_runs import labelled_samples, unrelated_model

SEEDS = range(5)


def instance(seed):
    return lm.make(
        "random",
        rng=seed,
        contexts=7,
        states=15,
        actions=3,
        horizon=30,
        concentration=0.3,
        reward_density=4 / 45,
        reward_low=0.5,
    )


def qmdp_value(model):
    return lm.evaluate(model, lm.QMDP().plan(model).policy, episodes=100_000, rng=12345).mean


def report(number, text, value, held):
    print(f"bar {number}: {text}: {value}  {'held' if held else 'MISSED'}", flush=True)


def shares(learner, models, values, episodes):
    runs = [learner(m, s).run(m, episodes, rng=s) for s, m in enumerate(models)]
    returns = np.array([run.trailing_return(1_000) / v for run, v in zip(runs, values)])
    errors = np.array([run.error_curve.values[-1] for run in runs])
    return returns, errors


def spread(array):
    return f"mean {array.mean():.3f} (from {array.min():.3f} to {array.max():.3f})"


def bars_1_to_3():
    models = [instance(seed) for seed in SEEDS]
    values = [qmdp_value(model) for model in models]
    returns, _ = shares(lambda m, s: lm.LUCRL(), models, values, 10_000)
    report(1, "revealed, K=1e4, return >= 0.97", spread(returns), returns.mean() >= 0.97)
    _, revealed = shares(lambda m, s: lm.LUCRL(), models, values, 20_000)
    returns, errors = shares(
        lambda m, s: lm.LUCRL(contexts="inferred", start=labelled_samples(m, 10, s)),
        models,
        values,
        20_000,
    )
    ratio = errors / revealed
    report(2, "inferred, good start, return >= 0.97", spread(returns), returns.mean() >= 0.97)
    near = abs(ratio.mean() - 1.0) <= 0.15
    report(2, "its error / revealed's within 15%", spread(ratio), near)
    returns, errors = shares(
        lambda m, s: lm.LUCRL(contexts="inferred", start=unrelated_model(m, s)),
        models,
        values,
        20_000,
    )
    ratio = errors / revealed
    report(3, "inferred, random start, return <= 0.85", spread(returns), returns.mean() <= 0.85)
    report(3, "its error / revealed's >= 4", spread(ratio), ratio.mean() >= 4.0)


def bar_4():
    model = lm.make("river-swim")
    value = qmdp_value(model)
    returns, _ = shares(lambda m, s: lm.LUCRL(), [model] * 5, [value] * 5, 20_000)
    report(4, "river-swim, revealed, K=2e4, return >= 0.9", spread(returns), returns.min() >= 0.9)


def separated(delta, horizon, seed):
    return lm.make(
        "separated",
        rng=seed,
        contexts=7,
        states=15,
        actions=3,
        horizon=horizon,
        delta=delta,
        rewards="shared",
    )


def bar_5():
    final = {}
    for delta, horizon in ((0.4, 30), (0.2, 30), (0.8, 30), (0.4, 15), (0.4, 60)):
        curves = []
        for seed in SEEDS:
            model = separated(delta, horizon, seed)
            start = labelled_samples(model, 10, seed)
            run = lm.LUCRL(contexts="inferred", start=start).run(model, 30_000, rng=seed)
            at = np.searchsorted(run.error_curve.episodes, (300, 30_000))
            curves.append(run.error_curve.values[at])
        early, late = np.mean(curves, axis=0)
        fall = np.array([first / last for first, last in curves])
        final[delta, horizon] = late
        print(f"  delta={delta} H={horizon}: error {early:.1f} at 300, {late:.1f} at 30,000")
        if (delta, horizon) == (0.4, 30):
            report(5, "delta=.4, H=30, error falls by >= 2", spread(fall), fall.mean() >= 2.0)
    by_delta = [final[d, 30] for d in (0.2, 0.4, 0.8)]
    by_horizon = [final[0.4, h] for h in (15, 30, 60)]
    for name, errors in (("delta", by_delta), ("H", by_horizon)):
        falling = all(a > b for a, b in pairwise(errors))
        report(5, f"final error falls with {name}", np.round(errors, 1).tolist(), falling)


def numpy_plan(T, R, H):
    """Batched NumPy Q-MDP: the yardstick of time."""
    M, S, A, _ = T.shape
    rows, V, Q = T.reshape(M, S * A, S), np.zeros((M, S)), np.empty((H, M, S, A))
    for t in range(H - 1, -1, -1):
        Q[t] = R + np.matmul(rows, V[:, :, None]).reshape(M, S, A)
        V = Q[t].max(axis=-1)
    return Q


def bar_6():
    model = instance(0)
    T, R = model.transitions, model.mean_rewards()
    start = labelled_samples(model, 10, 0)
    learners = {
        "revealed": (lm.LUCRL(), 0.04),
        "inferred": (lm.LUCRL(contexts="inferred", start=start), 0.16),
        "inferred, random start": (
            lm.LUCRL(contexts="inferred", start=unrelated_model(model, 0)),
            0.16,
        ),
    }
    K = 5_000
    for learner, _ in learners.values():
        learner.run(model, 10, rng=0)
    best = dict.fromkeys([*learners, "numpy"], np.inf)
    for _ in range(5):
        for name, (learner, _) in learners.items():
            clock = time.thread_time()
            learner.run(model, K, rng=0)
            best[name] = min(best[name], (time.thread_time() - clock) / K)
        clock = time.thread_time()
        for _ in range(300):
            numpy_plan(T, R, model.horizon)
        best["numpy"] = min(best["numpy"], (time.thread_time() - clock) / 300)
    print(f"  batched NumPy plan {best['numpy'] * 1e6:.0f} us")
    for name, (_, bar) in learners.items():
        ratio = best[name] / best["numpy"]
        text = f"{ratio:.4f} ({best[name] * 1e6:.1f} us)"
        report(6, f"{name}: time per episode / NumPy plan <= {bar}", text, ratio <= bar)


KILLED = """
import sys, latentmdp as lm
from latentmdp.experiments.lucrl_runs import labelled_samples
sys.path.insert(0, sys.argv[3])
from lucrl_bars import instance
model = instance(0)
learner = lm.LUCRL(contexts="inferred", start=labelled_samples(model, 10, 0))
print("ready", flush=True)
lm.save(learner.run(model, 1_000_000, rng=0, checkpoint=sys.argv[1]), sys.argv[2])
"""


def bar_7(kills=50):
    with tempfile.TemporaryDirectory() as folder:
        here = str(Path(__file__).parent)
        paths = [
            str(Path(folder) / name) for name in ("c.npz", "r.parquet", "c0.npz", "r0.parquet")
        ]
        rng = np.random.default_rng(0)
        done = 0
        while done < kills:
            child = subprocess.Popen(
                [sys.executable, "-c", KILLED, *paths[:2], here], stdout=subprocess.PIPE
            )
            child.stdout.readline()
            time.sleep(rng.uniform(0.0, 1.5))
            if child.poll() is not None:
                break
            child.send_signal(signal.SIGKILL)
            child.wait()
            done += 1
        subprocess.run([sys.executable, "-c", KILLED, *paths[:2], here], check=True)
        subprocess.run([sys.executable, "-c", KILLED, *paths[2:], here], check=True)
        killed, whole = lm.load(paths[1]), lm.load(paths[3])
    same = all(
        np.array_equal(getattr(killed, name), getattr(whole, name), equal_nan=True)
        for name in ("returns", "beliefs", "contexts")
    )
    same &= np.array_equal(killed.counts.transitions, whole.counts.transitions)
    same &= np.array_equal(killed.policy.vectors, whole.policy.vectors)
    report(7, f"bit-identical after {done} kill -9", same, same and done == kills)


LAKES = (
    ["SFFF", "FHFH", "FFFH", "HFFG"],
    ["SFHF", "FFFF", "HFHF", "FFFG"],
    ["SHFF", "FFHF", "FFFF", "HFHG"],
)


def bar_8():
    import gymnasium

    from latentmdp.envs import MixtureEnv, tabular_model

    for rule, slippery in (("maps", False), ("slippery maps", True)):
        lakes = [gymnasium.make("FrozenLake-v1", desc=d, is_slippery=slippery) for d in LAKES]
        value = qmdp_value(tabular_model(lakes, 40))
        run = lm.LUCRL().run(MixtureEnv(lakes, horizon=40), 20_000, rng=0)
        share = run.trailing_return(1_000) / value
        text = f"{share:.3f} of {value:.3f}"
        report(8, f"FrozenLake, 3 {rule}, K=2e4, return >= 0.9", text, share >= 0.9)


BARS = {"1": bars_1_to_3, "4": bar_4, "5": bar_5, "6": bar_6, "7": bar_7, "8": bar_8}

if __name__ == "__main__":
    for name in sys.argv[1:] or [name for name in BARS if name != "7"]:
        BARS[name]()
