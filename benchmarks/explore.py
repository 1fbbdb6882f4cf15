"""Algorithm 5: episodes against its box as printed, and time per episode against bare simulation.

As printed, every action of every node is tried at every level at which the node occurs, each in
episodes of its own; with a union bound over them that number is known once the graph is.
"""

import math
import time

import numpy as np

import latentmdp as lm
from latentmdp.deterministic import Exploration, explore

FAILURE = 0.01


def box_episodes(found: Exploration) -> int:
    """Episodes of the box with the same guarantee, for the graph that was found."""
    M, A = found.n_contexts, found.graph.n_actions
    following: dict[int, set[int]] = {}
    for edge in found.graph.edges:
        following.setdefault(edge.source, set()).add(edge.target)
    level, triples = set(found.graph.starts), 0
    for _ in range(found.horizon):
        triples += A * len(level)
        level = {target for n in level for target in following.get(n, ())}
    repeats = math.ceil(math.log(M * (triples + 1) / FAILURE) / -math.log1p(-1 / M))
    return repeats * (triples + 1)


def main() -> None:
    sizes = [(2, 6, 3, 6), (3, 6, 3, 6), (4, 6, 3, 6)]
    for M, S, A, H in sizes:
        ratios, microseconds, bare = [], [], []
        for seed in range(10):
            model = lm.make(
                "deterministic", contexts=M, states=S, actions=A, horizon=H, variation=0.4, rng=seed
            )
            start = time.process_time()
            found = explore(model, M, failure_probability=FAILURE, rng=seed)
            microseconds.append(1e6 * (time.process_time() - start) / found.episodes)
            ratios.append(box_episodes(found) / found.episodes)
            start = time.process_time()
            lm.simulate(model, lambda history: 0, 200, rng=seed)
            bare.append(1e6 * (time.process_time() - start) / 200)
        slower = np.median(microseconds) / np.median(bare)
        print(
            f"(M, S, A, H) = {(M, S, A, H)}: the box needs {np.median(ratios):.1f} times the "
            f"episodes (10 instances, {min(ratios):.1f} to {max(ratios):.1f}); "
            f"{np.median(microseconds):.0f} us an episode, {slower:.1f} times simulating a "
            "callable policy"
        )
    for M, A in ((2, 2), (3, 3), (4, 4)):
        found = explore(lm.make("lower-bound", contexts=M, actions=A, rng=0), M, rng=0)
        ratio = box_episodes(found) / found.episodes
        print(
            f"lower bound, A^M = {A**M}: {found.episodes} episodes; the box needs {ratio:.1f} times"
        )


if __name__ == "__main__":
    main()
