"""A small report of each kind, made once for several tests."""

from pathlib import Path

import latentmdp as lm
from latentmdp.report.runs import write_report


def small_world() -> lm.LatentMDP:
    return lm.make("separated", 0, contexts=3, states=4, actions=2, horizon=8, delta=0.8)


def write_small_report(folder: Path) -> Path:
    """Two runs of `learn`, one of L-UCRL and a named model, compared with the truth."""
    world = small_world()
    paths = [folder / "a.npz", folder / "b.npz", folder / "c.parquet", folder / "visitor.json"]
    for seed, path in enumerate(paths[:2]):
        planner = lm.HSVI(gap=0.05, time_limit=1.0)
        lm.learn(world, 3, episodes=60, explore=30, rng=seed, planner=planner).save(path)
    lm.LUCRL().run(world, 40, rng=0).save(paths[2])
    lm.save(lm.make("visitor"), paths[3])
    out = folder / "report.html"
    write_report(paths, out, truth=world, title="A <small> report")
    return out
