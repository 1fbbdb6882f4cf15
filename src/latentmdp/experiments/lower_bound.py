"""The lower bound [kwon2021, Thm. 3.1] watched: episodes needed against A^M.

On the hard instance one action sequence in A^M pays. Three ways of searching for it:

- *exploration*: Algorithm 5 with failure probability 0.01, all its episodes.
- *blind*: random action sequences until one pays. One in A^M is right and it pays in one context of
  M, so M A^M episodes on average.
- *lucrl*: L-UCRL with inferred contexts and a start that knows nothing, until a window of 20 M
  episodes earns half of what the optimal policy would. Where that does not happen within the
  limit, the run counts as that many episodes, and as censored.

For each of them  ln(episodes) = c + b ln(A^M) + noise  is fitted to all runs by maximum likelihood
with normal noise; a run that was stopped at its limit contributes the probability of needing more.
The theorem says that b cannot be below 1 for any algorithm, on average over where the right
sequence hides. `latentmdp reproduce lower-bound` runs it in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from latentmdp._util.arrays import Flags, Floats, Integers
from latentmdp.deterministic import explore
from latentmdp.experiments.findings import Claim, Findings, Line, Panel, grouped
from latentmdp.experiments.lucrl_runs import unrelated_model
from latentmdp.experiments.runner import Columns, Setting, settings_of
from latentmdp.instances import make
from latentmdp.metrics import trailing_means
from latentmdp.model import LatentMDP
from latentmdp.online import LUCRL
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import simulate

ARMS = {"exploration": "Algorithm 5", "blind": "blind search", "lucrl": "L-UCRL, random start"}
SIZES = (
    *((2, 2), (3, 2), (2, 4), (4, 2), (3, 3), (2, 6)),
    *((5, 2), (3, 4), (4, 3), (3, 6), (5, 3), (4, 4)),
)
"""(M, A) with A^M from 4 to 256."""

QUICK = ((2, 2), (3, 2), (4, 2))


def sweep(quick: bool = False, seeds: int | None = None) -> list[Setting]:
    """One setting per size, arm and seed."""
    name, sizes = "lower_bound/{arm}-M{contexts}-A{actions}/{seed}", QUICK if quick else SIZES
    problems = [{"contexts": M, "actions": A} for M, A in sizes]
    each = (settings_of(name, {"arm": ARMS}, problem, quick, seeds) for problem in problems)
    return [setting for settings in each for setting in settings]


def sequences(setting: Setting) -> int:
    """A^M, the number of action sequences."""
    return int(setting["actions"] ** setting["contexts"])


def limit(setting: Setting) -> int:
    """Most episodes that are played: 200 times what blind search needs on average."""
    return int(200 * setting["contexts"] * sequences(setting))


def work(setting: Setting) -> Columns:
    """Search one instance in one way."""
    M, A, seed = setting["contexts"], setting["actions"], setting["seed"]
    model = make("lower-bound", seed, contexts=M, actions=A)
    search = {"exploration": _exploration, "blind": _blind, "lucrl": _lucrl}[setting["arm"]]
    episodes = search(model, setting)
    return {
        "sequences": [sequences(setting)],
        "episodes": [limit(setting) if episodes is None else episodes],
        "censored": [episodes is None],
    }


def _exploration(model: LatentMDP, setting: Setting) -> int:
    return explore(model, model.n_contexts, rng=setting["seed"] + 1).episodes


def _blind(model: LatentMDP, setting: Setting) -> int | None:
    played, block = 0, 4 * sequences(setting)
    while played < limit(setting):
        logs = simulate(model, UniformPolicy(), block, setting["seed"] + 1, first_episode=played)
        paid = np.flatnonzero(logs.returns() > 0.0)
        if paid.size:
            return played + int(paid[0]) + 1
        played += block
    return None


def _lucrl(model: LatentMDP, setting: Setting) -> int | None:
    start = unrelated_model(model, setting["seed"] + 1)
    learner = LUCRL(contexts="inferred", start=start)
    run = learner.run(model, limit(setting), rng=setting["seed"] + 2)
    return first_success(np.asarray(run.returns), model.n_contexts)


def first_success(returns: Floats, contexts: int) -> int | None:
    """Episodes until the end of the first window of 20 M that earns half the optimum, 1/(2 M)."""
    window = 20 * contexts
    ends = np.arange(window, returns.size + 1)
    good = ends[trailing_means(returns, ends, window) >= 0.5 / contexts]
    return int(good[0]) if good.size else None


@dataclass(frozen=True)
class Exponent:
    """Slope of ln(episodes) over ln(A^M), and its standard error."""

    value: float
    stderr: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.stderr:.2f}"


class Runs(NamedTuple):
    """All runs of an arm: M, A^M, episodes, and whether the limit came first."""

    contexts: Integers
    sequences: Integers
    episodes: Floats
    censored: Flags


def analyse(table: pa.Table) -> Findings:
    """Fit, draw and judge."""
    arms = {arm: _runs(rows) for (arm,), rows in grouped(table, ["arm"]).items()}
    slopes = {arm: fit(runs) for arm, runs in arms.items()}
    sizes = arms["exploration"].sequences
    seeds = len(set(table["seed"].to_pylist()))
    return Findings(
        title="Theorem 3.1: what it costs to find one sequence in A^M",
        description=(
            f"The hard instance, A^M from {sizes.min()} to {sizes.max()}, {seeds} seeds a size. "
            "Algorithm 5 has failure probability 0.01. Blind search stops at its first reward, as "
            "if it knew that there is no other to find. L-UCRL infers contexts from a start that "
            "knows nothing, and has got there when 20 M episodes earn half the optimum; it is "
            "stopped after 200 M A^M episodes (triangles)."
        ),
        panels=(_panel(arms, slopes),),
        claims=tuple(_claim(arm, arms[arm], slopes[arm]) for arm in ARMS),
    )


def _runs(rows: pa.Table) -> Runs:
    return Runs(*(np.array(rows[name].to_pylist()) for name in Runs._fields))


def medians(runs: Runs) -> list[tuple[int, float, float, float, bool]]:
    """(A^M, median, smallest, largest, censored) for every size, by A^M.

    A median is censored if half of its runs or more are.
    """
    rows = []
    for n, M in sorted(set(zip(runs.sequences.tolist(), runs.contexts.tolist()))):
        same = (runs.sequences == n) & (runs.contexts == M)
        middle, low, high = (float(f(runs.episodes[same])) for f in (np.median, np.min, np.max))
        rows.append((n, middle, low, high, bool(runs.censored[same].mean() >= 0.5)))
    return rows


def fit(runs: Runs) -> Exponent:
    """Censored regression over all runs; NaN if they have a single size."""
    from scipy.optimize import minimize
    from scipy.stats import norm

    x, y, late = np.log(runs.sequences), np.log(runs.episodes), runs.censored
    if np.unique(x).size < 2:
        return Exponent(float("nan"), float("nan"))

    def loss(parameters: Floats) -> float:
        c, b, log_spread = parameters
        z = (y - c - b * x) / np.exp(log_spread)
        return float(np.where(late, -norm.logsf(z), 0.5 * z**2 + log_spread).sum())

    optimum = minimize(loss, np.array([y.mean() - x.mean(), 1.0, 0.0]), method="BFGS")
    return Exponent(float(optimum.x[1]), float(np.sqrt(np.asarray(optimum.hess_inv)[1, 1])))


def _claim(arm: str, runs: Runs, slope: Exponent) -> Claim:
    least = min(row[1] / row[0] for row in medians(runs))
    late = int(runs.censored.sum())
    return Claim(
        "any algorithm needs about A^M episodes at least: an exponent of 1 or more.",
        f"{ARMS[arm]} has exponent {slope} and medians of at least {least:.1f} A^M; {late} of "
        f"{runs.censored.size} runs did not get there in time.",
        least >= 1.0 and slope.value >= 1.0 - 2.0 * slope.stderr,
    )


def _panel(arms: dict[str, Runs], slopes: dict[str, Exponent]) -> Panel:
    sizes = arms["exploration"].sequences
    ends = (float(sizes.min()), float(sizes.max()))
    lines = []
    for i, (arm, runs) in enumerate(arms.items()):
        x, median, low, high, late = zip(*medians(runs))
        name = f"{ARMS[arm]}: exponent {slopes[arm]}"
        lines.append(Line(name, x, median, low, high, i, "o", late))
    return Panel(
        "One sequence in A^M pays",
        "Episodes until the sequence that pays is found: medians, with bars from the luckiest to "
        "the unluckiest seed. On average no way of searching can stay below the line or grow more "
        "slowly, though a few lucky seeds may; both axes are logarithmic, so an exponent is a "
        "slope. A triangle is a median of runs that were stopped first: the true one lies above.",
        "action sequences A^M",
        "episodes needed",
        (*lines, Line("A^M, the lower bound", ends, ends)),
        log="xy",
    )
