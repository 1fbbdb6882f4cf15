"""Runs of L-UCRL in the experiments: good and poor starts, learning curves and their panels.

A good start is a few labelled samples of every (m, s, a), a poor one a model that has nothing to
do with the true one [kwon2021, Sec. 5.1]. A run leaves its model error and its trailing return at
a few numbers of episodes, the mean over the last tenth of the episodes played so far; Figures 1a
and 1b average them over seeds and draw two panels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.random import RNGLike, as_generator
from latentmdp.experiments.findings import Line, Panel, grouped
from latentmdp.experiments.runner import Columns
from latentmdp.logs import Trajectories
from latentmdp.metrics import last_tenth, trailing_means
from latentmdp.model import LatentMDP
from latentmdp.online import Run
from latentmdp.planning import QMDP, evaluate


def labelled_samples(model: LatentMDP, per_row: int, rng: RNGLike) -> Trajectories:
    """A good start: `per_row` samples of every (m, s, a), as one-step episodes with contexts."""
    generator = as_generator(rng)
    M, S, A, Z = model.dimensions
    m, s, a, _ = (i.ravel() for i in np.indices((M, S, A, per_row)))
    outcomes = model.observation_probs().reshape(M, S, A, S * Z)
    cumulative = np.cumsum(outcomes, axis=-1)[m, s, a]
    uniform = generator.random(m.size) * cumulative[:, -1]
    outcome = (uniform[:, None] >= cumulative).sum(axis=1)
    steps = (np.stack([s, outcome // Z], axis=1), a[:, None], (outcome % Z)[:, None])
    sizes: Any = {"n_states": S, "n_actions": A, "reward_values": model.reward_values}
    return Trajectories.from_arrays(*steps, contexts=m, **sizes)


def unrelated_model(model: LatentMDP, rng: RNGLike) -> LatentMDP:
    """A poor start: a model of the same sizes that knows nothing of the true one.

    Every row of transitions and of reward probabilities is uniform on its simplex.
    """
    generator = as_generator(rng)
    rows = model.transitions.shape[:-1]
    return model.replace(
        transitions=generator.dirichlet(np.ones(model.n_states), size=rows),
        rewards=generator.dirichlet(np.ones(model.n_rewards), size=rows),
    )


def curves_of_run(run: Run, model: LatentMDP, episodes: int, seed: int) -> Columns:
    """Model error, trailing mean return and Q-MDP-on-truth's value at the run's milestones.

    That value is a Monte Carlo estimate over a number of `episodes`.
    """
    points = run.error_curve.episodes
    windows = np.array([last_tenth(int(point)) for point in points])
    reference = evaluate(model, QMDP().plan(model).policy, episodes=episodes, rng=seed)
    return {
        "episode": points,
        "error": run.error_curve.values,
        "trailing_return": trailing_means(run.returns, points, windows),
        "qmdp_value": np.full(points.size, reference.mean),
    }


class Curves:
    """One arm: rows are seeds, columns are milestones."""

    def __init__(self, table: pa.Table) -> None:
        parts = list(grouped(table, ["seed"]).values())
        self.episodes: Integers = parts[0]["episode"].to_numpy()
        self.error, self.returns, self.reference = (
            np.stack([part[name].to_numpy() for part in parts])
            for name in ("error", "trailing_return", "qmdp_value")
        )

    @property
    def share(self) -> Floats:
        """Trailing return as a share of Q-MDP's value on the true model."""
        return np.asarray(self.returns / self.reference)


def final(values: Floats) -> tuple[float, float]:
    """Mean over seeds of the last column, and its standard error."""
    last = values[:, -1]
    error = last.std(ddof=1) / np.sqrt(last.size) if last.size > 1 else float("nan")
    return float(last.mean()), float(error)


def curve_panels(
    arms: Mapping[str, Curves], looks: Sequence[tuple[int, str]]
) -> tuple[Panel, Panel]:
    """Model error and return against episodes, mean and spread over seeds.

    `looks` gives the colour and the style of each arm.
    """
    lines = [(name, curves, look) for (name, curves), look in zip(arms.items(), looks)]
    first = next(iter(arms.values()))
    whole = (float(first.episodes[0]), float(first.episodes[-1]))
    spread = f" Lines are means over {len(first.error)} instances, bands one standard deviation."
    error = Panel(
        "Model error",
        "Sum over contexts, states and actions of the L1 distance between the estimated and the "
        "true distribution of what follows, up to relabelling. A line that falls steadily is a "
        "model being learned; one that levels off is stuck." + spread,
        "episodes played",
        "model error (sum of L1 distances)",
        tuple(_line(name, c.episodes, c.error, *look) for name, c, look in lines),
        log="xy",
    )
    share = Panel(
        "Return",
        "Mean return over the last tenth of the episodes up to a point, as a share of what Q-MDP "
        "earns on the true model. At the dashed line the learner acts as well as if it had been "
        "given the model; the first points are means of few episodes, and noisy." + spread,
        "episodes played",
        "return / Q-MDP on the truth",
        (
            *(_line(name, c.episodes, c.share, *look) for name, c, look in lines),
            Line("Q-MDP on the truth", whole, (1.0, 1.0), style="--"),
        ),
        log="x",
    )
    return error, share


def _line(name: str, episodes: Integers, values: Floats, colour: int, style: str) -> Line:
    mean, spread = values.mean(axis=0), values.std(axis=0)
    # A logarithmic axis has no room for a band that reaches zero.
    low = np.maximum(mean - spread, 0.05 * mean)
    x, y, below, above = (tuple(map(float, part)) for part in (episodes, mean, low, mean + spread))
    return Line(name, x, y, below, above, colour, style)
