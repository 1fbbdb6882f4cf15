"""Returns of `learn` and values of `solve`, as shares of what they are asked to reach.

    python benchmarks/learning_bars.py [FIRST] [COUNT]

Instances FIRST, FIRST + 1, ... of `separated` with M=7, S=15, A=3, H=30; settings are the defaults.
`learn` has neither an initialisation nor hindsight, and its exploration counts. It is told M, once
it also finds M. L-UCRL plays the same instances with contexts revealed after each episode. Shares
are of Q-MDP's value on the true model (100,000 episodes).
"""

import os
import sys
import time
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import latentmdp as lm

EPISODES, LONGER = 3_000, 5_000
LATE, LEAST = 1_000, 0.985
LOGGED = 2_000
SETTINGS = (("own rewards, delta = .5", "own", 0.5), ("shared, delta = .3", "shared", 0.3))


def instance(rewards, delta, seed):
    sizes = {"contexts": 7, "states": 15, "actions": 3, "horizon": 30}
    return lm.make("separated", **sizes, delta=delta, rewards=rewards, rng=seed)


def qmdp_value(model):
    return lm.evaluate(model, lm.QMDP().plan(model).policy, episodes=100_000, rng=12345).mean


def spread(values):
    values = np.asarray(values)
    return f"mean {values.mean():.3f} (from {values.min():.3f} to {values.max():.3f})"


def report(text, values, least):
    verdict = "held" if np.mean(values) >= least else "MISSED"
    print(f"  {text}: {spread(values)}, asked for {least:g}: {verdict}", flush=True)


def learned_shares(model, seed, n_contexts):
    """The last 1,000 of 3,000 episodes as a share of Q-MDP's value; 5,000 as one of hindsight's."""
    learned = lm.learn(model, n_contexts, EPISODES, rng=seed, planner=lm.QMDP())
    longer = lm.learn(model, n_contexts, LONGER, rng=seed, planner=lm.QMDP())
    revealed = lm.LUCRL(contexts="revealed").run(model, LONGER, rng=seed)
    late = learned.returns[-LATE:].mean() / qmdp_value(model)
    return late, longer.returns.sum() / revealed.returns.sum(), learned.seconds


def learn_bars(seeds):
    for name, rewards, delta in SETTINGS:
        found = [learned_shares(instance(rewards, delta, s), s, 7) for s in seeds]
        late, total, seconds = np.array(found).T
        print(f"learn, {name}: {spread(seconds)} seconds")
        report("last 1,000 of 3,000 episodes, share of Q-MDP", late, LEAST)
        report("5,000 episodes, share of revealed L-UCRL", total, 1.0)
    late, total, seconds = learned_shares(instance("own", 0.5, seeds[0]), seeds[0], "auto")
    print(f"learn, M found, one instance: {late:.3f}, {total:.3f}, {seconds:.0f} s", flush=True)


def solve_bars(seeds):
    shares, covered, seconds = [], 0, []
    for seed in seeds:
        model = instance("own", 0.5, seed)
        logs = lm.simulate(model, lm.UniformPolicy(), LOGGED, rng=seed).without_contexts()
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lm.offline.SolveWarning)
            solved = lm.solve(logs, 7, rng=seed)
        seconds.append(time.perf_counter() - began)
        value = lm.evaluate(model, solved.policy, episodes=100_000, rng=seed).mean
        shares.append(value / qmdp_value(model))
        covered += solved.value.low <= value <= solved.value.high
        width = (solved.value.high - solved.value.low) / value
        print(
            f"    instance {seed}: {shares[-1]:.3f}, true value {value:.3f}, interval "
            f"{solved.value.low:.3f} to {solved.value.high:.3f} ({width:.1%} wide)",
            flush=True,
        )
    print(f"solve, {LOGGED} logged episodes: {spread(seconds)} seconds")
    report("value, share of Q-MDP", shares, 0.97)
    print(f"  intervals that cover the true value: {covered} of {len(seeds)}", flush=True)


if __name__ == "__main__":
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    learn_bars(range(first, first + count))
    solve_bars(range(first, first + 2 * count))
