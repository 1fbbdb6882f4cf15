"""`solve` on logs of a logger that knew the context, and on uniform logs of the same instances.

    python benchmarks/confounded_logs.py [FIRST] [COUNT]

Instances FIRST, FIRST + 1, ...: three contexts, S=6, A=3, H=6, a quarter of each row of transitions
and of the mean rewards is a context's own. 3,000 episodes by a logger that takes the best action of
the true context with probability .7, and any action otherwise; then 3,000 by uniform actions.
Shares are of the value that HSVI proves for the true model.
"""

import os
import sys
import time
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import latentmdp as lm

CONTEXTS, STATES, ACTIONS, HORIZON = 3, 6, 3, 6
OWN, RANDOM, EPISODES = 0.25, 0.3, 3_000


def instance(seed, contexts=CONTEXTS, states=STATES, actions=ACTIONS, horizon=HORIZON, own=OWN):
    """Contexts that share all but a part `own` of every row."""
    rng = np.random.default_rng(seed)
    rows = (1, states, actions), (contexts, states, actions)
    common, each = (rng.dirichlet(np.ones(states), size=size) for size in rows)
    paid, own_paid = (rng.uniform(size=size) for size in rows)
    good = (1.0 - own) * paid + own * own_paid
    return lm.LatentMDP(
        (1.0 - own) * common + own * each, np.stack([1.0 - good, good], axis=-1), horizon=horizon
    )


def informed_policy(model, m, random=RANDOM):
    """The best policy of context m, but any action with probability `random`."""
    one, A = model.context(m), model.n_actions
    value, tables = np.zeros(model.n_states), []
    for _ in range(model.horizon):
        q = one.mean_rewards()[0] + one.transitions[0] @ value
        tables.append(np.full(q.shape, random / A))
        np.put_along_axis(tables[-1], q.argmax(axis=1)[:, None], 1.0 - random + random / A, axis=1)
        value = q.max(axis=1)
    return lm.MarkovPolicy(np.array(tables[::-1]))


def confounded_logs(model, episodes, seed, random=RANDOM):
    """Episodes of a logger that knew the context, in random order, contexts known."""
    rng = np.random.default_rng([seed, 1])
    sizes = rng.multinomial(episodes, model.weights)
    parts = [
        lm.simulate(
            model.context(m),
            informed_policy(model, m, random),
            int(n),
            rng=int(rng.integers(2**31)),
        ).with_contexts(np.full(n, m))
        for m, n in enumerate(sizes)
    ]
    logs = lm.Trajectories.concat(parts)
    return logs[rng.permutation(len(logs))]


def tried(model, logs, seed):
    """Share of the optimum, whether the interval covers, whether the logger was found to know."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solved = lm.solve(logs.without_contexts(), rng=seed)
    value = lm.evaluate(model, solved.policy, episodes=100_000, rng=seed).mean
    best = lm.HSVI(gap=0.002, time_limit=20).plan(model).lower
    covers = solved.value.low <= value <= solved.value.high
    print(
        f"    {seed}: {value / best:.4f} of the optimum, {value:.3f} in {solved.value}: {covers}, "
        f"{solved.model.n_contexts} contexts, shared {', '.join(solved.fit.shared)}, "
        f"{time.perf_counter() - began:.0f} s, {len(solved.warnings)} warnings",
        flush=True,
    )
    return value / best, covers, "behaviour" not in solved.fit.shared


if __name__ == "__main__":
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    for kind in ("confounded", "uniform"):
        print(f"{kind} logs")
        found = []
        for seed in range(first, first + count):
            model = instance(seed)
            if kind == "confounded":
                logs = confounded_logs(model, EPISODES, seed)
            else:
                logs = lm.simulate(model, lm.UniformPolicy(), EPISODES, rng=seed)
            found.append(tried(model, logs, seed))
        share, covers, knew = np.array(found).T
        print(
            f"  value {share.mean():.4f} of the optimum (least {share.min():.4f}), "
            f"{int(covers.sum())} of {count} intervals cover, "
            f"logger by context in {int(knew.sum())}",
            flush=True,
        )
