"""Coverage of off-policy intervals: how often the 95 % interval holds the exact value.

    python benchmarks/off_policy.py --instances 40

Random models (3 contexts, 4 states, 2 actions), logs by a random stationary policy, whose
probabilities are given or estimated, or by a logger that knew the context. The policy evaluated is
Q-MDP's in the true model. Printed by kind and method: coverage, mean half-width relative to that of
per-decision importance sampling, mean error in standard errors.
"""

import argparse
import warnings

import numpy as np

import latentmdp as lm
from latentmdp.testing import random_model

KINDS = ("given", "estimated", "by context", "ending", "costs")


def instance(kind, seed, horizon, episodes):
    """A model, logs, the behaviour to pass on, and the policy to evaluate."""
    rng = np.random.default_rng(seed)
    values = (-3.0, 0.0, -1.0) if kind == "costs" else (0.0, 1.0)
    model = random_model(
        seed, contexts=3, states=4, actions=2, horizon=horizon, reward_values=values
    )
    if kind == "ending":
        allowed = np.ones((4, 2), bool)
        allowed[3] = False
        model = model.replace(allowed=allowed)
    rows = rng.dirichlet([3.0, 3.0], (3, 4))
    if kind != "by context":
        rows[:] = rows[0]
    counts = rng.multinomial(episodes, model.weights)
    parts = []
    for m in range(3):
        one = model.replace(weights=np.eye(3)[m])
        parts.append(lm.simulate(one, lm.MarkovPolicy(rows[m]), max(1, int(counts[m])), rng=rng))
    logs = lm.Trajectories.concat(parts).without_contexts()
    behaviour = {"estimated": None, "by context": rows}.get(kind, rows[0])
    return model, logs, behaviour, lm.QMDP().plan(model).policy


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=40)
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--horizon", type=int, default=4)
    given = parser.parse_args()
    ways = [(m, w) for m in ("importance", "per-decision", "doubly-robust") for w in (False, True)]
    ways += [("fitted-q", True)]
    print(f"{'logs':<12}{'method':<16}{'weighted':<10}{'covers':<10}{'width':<8}error")
    for kind in KINDS:
        found = {way: [] for way in (ways[:-1] if kind == "by context" else ways)}
        for seed in range(given.instances):
            model, logs, behaviour, policy = instance(kind, seed, given.horizon, given.episodes)
            truth = lm.evaluate(model, policy, method="exact").mean
            for method, weighted in found:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    value = lm.off_policy_value(
                        logs, policy, behaviour, method, model, seed, weighted=weighted
                    )
                inside = value.low <= truth <= value.high
                error = (value.mean - truth) / value.stderr
                found[method, weighted].append((inside, value.high - value.low, error))
        base = np.mean([width for _, width, _ in found["per-decision", False]])
        for (method, weighted), rows in found.items():
            inside, width, error = np.array(rows, float).T
            print(
                f"{kind:<12}{method:<16}{weighted!s:<10}{int(inside.sum())}/{len(rows):<7}"
                f"{width.mean() / base:<8.2f}{error.mean():+.2f}"
            )


if __name__ == "__main__":
    main()
