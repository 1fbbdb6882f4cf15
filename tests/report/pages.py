"""A small report of each kind, made once for several tests."""

import warnings
from pathlib import Path

import latentmdp as lm
from latentmdp.experiments import reproduce
from latentmdp.offline import Solved
from latentmdp.report.report import write_report


def small_world() -> lm.LatentMDP:
    return lm.make("separated", 0, contexts=3, states=4, actions=2, horizon=8, delta=0.8)


def solve_small_world() -> Solved:
    logs = lm.simulate(small_world(), lm.UniformPolicy(), 400, rng=0).without_contexts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lm.solve(logs, 3, rng=0, bootstrap=2)


def write_small_report(folder: Path) -> Path:
    """Something of every kind that a report takes, compared with the truth."""
    world = small_world()
    paths = [folder / "a.npz", folder / "b.npz", folder / "c.parquet", folder / "visitor.json"]
    for seed, path in enumerate(paths[:2]):
        planner = lm.HSVI(gap=0.05, time_limit=1.0)
        lm.save(lm.learn(world, 3, episodes=60, explore=30, rng=seed, planner=planner), path)
    lm.save(lm.LUCRL().run(world, 40, rng=0), paths[2])
    lm.save(lm.make("visitor"), paths[3])
    lm.save(solve_small_world(), folder / "solved.npz")
    experiments = [
        reproduce(name, quick=True, seeds=2, jobs=1, out=folder).folder
        for name in ("fig1a", "lower_bound")
    ]
    paths += [folder / "solved.npz", *experiments]
    out = folder / "report.html"
    write_report(paths, out, truth=world, title="A <small> report")
    return out
