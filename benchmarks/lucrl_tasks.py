"""What L-UCRL with revealed contexts earns on stock tasks, with its default bonus.

`python benchmarks/lucrl_tasks.py [--seeds 3,4,5] [TASK ...]`. The hidden context is which variant
of the task it is. The score is (return - random) / (planner - random): the mean of the last fifth
of a run, against Q-MDP on the true model and uniformly random actions.
"""

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gymnasium
import numpy as np

import latentmdp as lm
from latentmdp.envs import tabular_model

ORDERS = ([0, 1, 2, 3], [2, 3, 0, 1], [1, 0, 3, 2])
"""Orders of the first four actions, one for each context."""


def permuted(name, order, **options):
    """A Gymnasium table whose first actions are in another order."""
    env = gymnasium.make(name, **options)
    table = env.unwrapped.P
    order = [*order, *range(len(order), len(table[0]))]
    env.unwrapped.P = {s: {a: row[b] for a, b in enumerate(order)} for s, row in table.items()}
    return env


def lakes(horizon, **options):
    return tabular_model([permuted("FrozenLake-v1", o, **options) for o in ORDERS], horizon)


def slippery_or_not():
    variants = [gymnasium.make("FrozenLake-v1", is_slippery=slips) for slips in (False, True)]
    return tabular_model(variants, 50)


def of_paper_size(**options):
    sizes = {"contexts": 7, "states": 15, "actions": 3, "horizon": 30}
    return lm.make("separated", rng=0, **sizes, **options)


TASKS = {
    "FrozenLake, slippery or not": (slippery_or_not, 3_000),
    "FrozenLake 4x4, permuted": (lambda: lakes(50, is_slippery=False), 3_000),
    "FrozenLake 8x8, permuted": (lambda: lakes(100, is_slippery=False, map_name="8x8"), 5_000),
    "CliffWalking, permuted": (
        lambda: tabular_model([permuted("CliffWalking-v1", o) for o in ORDERS[:2]], 60),
        3_000,
    ),
    "Taxi, permuted": (
        lambda: tabular_model([permuted("Taxi-v4", o) for o in ORDERS[:2]], 60),
        10_000,
    ),
    **{
        name: (lambda name=name: lm.make(name), 5_000)
        for name in ("river-swim", "wait-hub", "treatment", "frozen-lake", "visitor", "lower-bound")
    },
    "deterministic": (lambda: lm.make("deterministic", rng=0), 5_000),
    "separated, delta .5": (lambda: of_paper_size(delta=0.5), 5_000),
    "separated, delta .3, shared": (lambda: of_paper_size(delta=0.3, rewards="shared"), 5_000),
}


def report(name, seeds):
    make, episodes = TASKS[name]
    model = make()
    planner, random = (
        lm.evaluate(model, policy, episodes=20_000, rng=12345).mean
        for policy in (lm.QMDP().plan(model).policy, lm.UniformPolicy())
    )
    runs = [lm.LUCRL().run(model, episodes, rng=seed) for seed in seeds]
    earned = np.array([run.trailing_return(episodes // 5) for run in runs])
    scores = (earned - random) / (planner - random)
    print(
        f"{name}, {episodes:,} episodes: {earned.mean():.3f} (planner {planner:.3f}, random "
        f"{random:.3f}), score {scores.mean():.3f} from {scores.min():.3f} to {scores.max():.3f}, "
        f"{np.mean([run.seconds for run in runs]):.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", default="3,4,5")
    parser.add_argument("tasks", nargs="*", choices=[[], *TASKS])
    given = parser.parse_args()
    for task in given.tasks or TASKS:
        report(task, [int(seed) for seed in given.seeds.split(",")])
