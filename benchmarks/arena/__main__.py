"""Learners on the tasks of the arena: scores against certified optima, table and picture.

    cd benchmarks; python -m arena [--tasks a,b] [--learners x,y] [--seeds 3] [--first-seed 0]
                                   [--episodes K] [--jobs N] [--cluster ADDRESS] [--out DIR]
                                   [--quick]

Finished cells are kept in DIR/arena/runs, so the command goes on where it was interrupted, and
more tasks, learners or seeds can be added later. `--list` names all of them. Recurrent PPO joins
where sb3-contrib is installed.
"""

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from latentmdp.engines import Dask

from . import LEARNERS, TASKS, compare_learners


def names(text):
    return [name.strip() for name in text.split(",") if name.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=names)
    parser.add_argument("--learners", type=names)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--cluster")
    parser.add_argument("--out", default="../out")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if given.list:
        for task in TASKS.values():
            print(f"{task.name:16} {task.summary}, {task.episodes:,} episodes of {task.horizon}")
        for name, learner in LEARNERS.items():
            print(f"{name:16} {learner.summary}")
        return
    arena = compare_learners(
        given.tasks,
        given.learners,
        seeds=range(given.first_seed, given.first_seed + given.seeds),
        episodes=given.episodes,
        quick=given.quick,
        out=given.out,
        jobs=given.jobs,
        progress=True,
        engine=None if given.cluster is None else Dask(given.cluster),
    )
    print((arena.folder / "arena.md").read_text())


if __name__ == "__main__":
    main()
