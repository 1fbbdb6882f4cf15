"""Figure 2 of [kwon2021]: initialisation with a PSR and clustering, over delta and H.

Left to right: how far the belief is from the true context at the end of an episode, the M-th
singular value of P_{T,H}, and the model error of PSR-clustering; and, beyond the paper, the errors
of every initialiser on the same data, with two floors. `latentmdp reproduce fig2` runs it in
full.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from latentmdp.belief import posterior
from latentmdp.errors import RecoveryError
from latentmdp.estimation import EM, SubspaceClustering, TrajectoryKMeans, initialize
from latentmdp.experiments.findings import Claim, Findings, Line, Panel, grouped, sizes_of
from latentmdp.experiments.runner import Columns, Setting, settings_of
from latentmdp.instances import make
from latentmdp.logs import Trajectories
from latentmdp.metrics import model_error
from latentmdp.model import LatentMDP
from latentmdp.policies import UniformPolicy
from latentmdp.simulation import simulate
from latentmdp.spectral import PSR, SpectralPSR, count_model, recover

PAPER = {
    **{"delta": (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0), "horizon": (20, 40, 80)},
    **{"contexts": 3, "states": 7, "actions": 2},
    **{"short_episodes": 1_000_000, "short_horizon": 4, "long_episodes": 5_000},
}
QUICK = {
    **PAPER,
    **{"delta": (0.5, 1.0), "horizon": (10, 20)},
    **{"states": 4, "short_episodes": 60_000, "long_episodes": 600},
}
PAPER_METHOD = "PSR-clustering (paper)"
STYLES = ("-", "-", "-", "-", "-", "--", "--", ":")
"""Dashed where curves may lie on one another, so that both can be seen."""
DELTA = "separation delta (L1 distance)"
ERROR = "model error (sum of L1 distances)"
SPREAD = " Lines are means over instances, bands run from the 10th to the 90th percentile."


def sweep(quick: bool = False, seeds: int | None = None) -> list[Setting]:
    """One setting per separation, horizon of the long episodes, and instance."""
    sizes = QUICK if quick else PAPER
    axes = {name: sizes[name] for name in ("delta", "horizon")}
    return settings_of("fig2/delta={delta}/H={horizon}/{seed}", axes, sizes, quick, seeds)


class Data(NamedTuple):
    """What the methods see (the PSR is learned from `short`), and the truth for the floors."""

    model: LatentMDP
    short: Trajectories
    long: Trajectories
    psr: PSR


def work(setting: Setting) -> Columns:
    """Every quantity of the figure; a method that reports its failure has the value NaN."""
    data = _simulated(setting)
    M, true, episodes = setting["contexts"], data.long.contexts, np.arange(len(data.long))
    exact = SpectralPSR(rank=M).from_model(data.model.replace(horizon=setting["short_horizon"]))
    values = {
        "belief": float(1.0 - posterior(data.model, data.long)[episodes, true].mean()),
        "singular value": float(exact.singular_values[:, M - 1].mean()),
        "ratio": float(data.psr.singular_value_ratios().min()),
        **{name: _error(method, data) for name, method in METHODS.items()},
    }
    return {"quantity": list(values), "value": list(values.values())}


def _simulated(setting: Setting) -> Data:
    """The instance and the short episodes do not depend on the horizon of the long ones."""
    seeds = np.random.SeedSequence([round(1000 * setting["delta"]), setting["seed"]]).spawn(3)
    sizes = {name: setting[name] for name in ("contexts", "states", "actions", "delta")}
    model = make(
        "separated", horizon=setting["short_horizon"], rng=np.random.default_rng(seeds[0]), **sizes
    )
    longer = model.replace(horizon=setting["horizon"])
    short = simulate(model, UniformPolicy(), setting["short_episodes"], rng=seeds[1])
    long = simulate(longer, UniformPolicy(), setting["long_episodes"], rng=seeds[2])
    return Data(longer, short, long, SpectralPSR(rank=setting["contexts"]).fit(short))


def _error(method: Callable[[Data], LatentMDP], data: Data) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return model_error(data.model, method(data))
        except RecoveryError:
            return float("nan")


def _refined(data: Data) -> LatentMDP:
    learner = SpectralPSR(rank=data.psr.rank, balanced=True, refinements=2)
    return recover(learner.fit(data.short), data.long, rng=0).model


def _clustered(data: Data, method: type[SubspaceClustering | TrajectoryKMeans]) -> LatentMDP:
    return method(data.model.n_contexts).fit(data.long, rng=0).model


def _from_truth(data: Data) -> LatentMDP:
    learner = EM(data.model.n_contexts, shared_rewards=True)
    return learner.fit([data.short, data.long], start=data.model, rng=0).model


def _known_labels(data: Data) -> LatentMDP:
    both = Trajectories.concat([data.short, data.long])
    assert both.contexts is not None
    return count_model(data.psr, both, np.eye(data.model.n_contexts)[both.contexts])


METHODS: dict[str, Callable[[Data], LatentMDP]] = {
    PAPER_METHOD: lambda d: recover(d.psr, d.long, variant="paper", rng=0).model,
    "PSR-clustering (practical)": lambda d: recover(d.psr, d.long, rng=0).model,
    "PSR-clustering (refined)": _refined,
    "initialize": lambda d: initialize(d.short, d.long, d.model.n_contexts, rng=0).model,
    "trajectory k-means": lambda d: _clustered(d, TrajectoryKMeans),
    "subspace clustering": lambda d: _clustered(d, SubspaceClustering),
    "EM from the truth": _from_truth,
    "known labels": _known_labels,
}
"""Initialisers by name; the last two know the truth and are floors."""


class Point(NamedTuple):
    """One quantity at one (delta, horizon), over instances; failed runs are not in the mean."""

    quantity: str
    delta: float
    horizon: int
    mean: float
    low: float
    high: float
    instances: int
    failures: int


Points = dict[tuple[str, float, int], Point]


def analyse(table: pa.Table) -> Findings:
    """Average over instances, draw, and judge the paper's statements."""
    points = summarise(table)
    instances = max(p.instances for p in points.values())
    description = (
        f"{instances} instances for each separation and horizon, "
        f"{sizes_of(table, ('contexts', 'states', 'actions'))}; PSRs "
        f"from {table['short_episodes'][0].as_py():,} short episodes, clustering of "
        f"{table['long_episodes'][0].as_py():,} long ones. Lines are means, bands run from the "
        "10th to the 90th percentile; runs that reported failure are left out of both."
    )
    return Findings(
        title="Figure 2: initialisation with a PSR and clustering",
        description=description,
        panels=_panels(points),
        claims=_claims(points),
    )


def summarise(table: pa.Table) -> Points:
    """Mean, 10th and 90th percentile of every quantity, and how often the method failed."""
    points: Points = {}
    groups = grouped(table, ["quantity", "delta", "horizon"])
    for quantity, delta, horizon in sorted(groups):
        key = (quantity, delta, horizon)
        values = groups[key]["value"].to_numpy()
        finite = values[np.isfinite(values)]
        mean, low, high = float("nan"), float("nan"), float("nan")
        if finite.size:
            mean, low, high = float(finite.mean()), *map(float, np.percentile(finite, (10, 90)))
        points[key] = Point(*key, mean, low, high, values.size, values.size - finite.size)
    return points


def _claims(points: Points) -> tuple[Claim, ...]:
    deltas = sorted({delta for _, delta, _ in points})
    horizons = sorted({horizon for _, _, horizon in points})
    beliefs = [[points["belief", d, h].mean for d in deltas] for h in horizons]
    sigmas = [points["singular value", d, horizons[0]].mean for d in deltas]
    falling = bool((np.diff(beliefs, axis=0) < 0).all() and (np.diff(beliefs, axis=1) < 0).all())
    return (
        Claim(
            "the belief is closer to the true context for larger delta and H.",
            f"1 - belief is {beliefs[0][0]:.3f} at delta={deltas[0]:g}, H={horizons[0]} and "
            f"{beliefs[-1][-1]:.1g} at delta={deltas[-1]:g}, H={horizons[-1]}.",
            falling,
        ),
        Claim(
            "the M-th singular value drops as contexts become similar.",
            " < ".join(f"{value:.2g}" for value in sigmas) + " over delta.",
            bool((np.diff(sigmas) > 0).all()),
        ),
        _failures(points),
        _floor(points),
    )


def _failures(points: Points, below: float = 0.2, above: float = 0.5) -> Claim:
    """Algorithm 6 works with enough separation and fails without.

    The paper says that it fails `below`; from `above` on, where its figure shows small errors, it
    should not.
    """
    runs = [p for p in points.values() if p.quantity == PAPER_METHOD]
    low = [p.failures / p.instances for p in runs if p.delta < below]
    high = [p.failures / p.instances for p in runs if p.delta >= above]
    paper = f"PSR-clustering fails when delta < {below:g}, due to the small singular value."
    there = f"{np.mean(high):.0%} of the runs with delta >= {above:g}"
    if not low:
        return Claim(paper, f"no smaller delta was run; it reported failure in {there}.", None)
    return Claim(
        paper,
        f"it reported failure in {np.mean(low):.0%} of the runs with delta < {below:g} and "
        f"in {there}.",
        bool(np.mean(low) > 0.5 and np.mean(high) < 0.5),
    )


def _floor(points: Points, near: float = 1.25) -> Claim:
    """Beyond the paper: how close the library's initialiser comes to what is possible.

    It is near a floor if its mean error is less than `near` times the floor's.
    """
    pairs = [
        (points["initialize", d, h].mean, points["EM from the truth", d, h].mean)
        for name, d, h in points
        if name == "initialize"
    ]
    worst = max(ours / floor for ours, floor in pairs)
    return Claim(
        "(not in the paper) maximum likelihood from the same data needs no good initialisation.",
        f"the mean error of `initialize` is at most {worst:.2f} times that of EM started at the "
        "truth.",
        worst < near,
    )


def _panels(points: Points) -> tuple[Panel, ...]:
    """Over delta: belief, singular value, error of PSR-clustering, error of all methods."""
    horizons = sorted({horizon for _, _, horizon in points})
    middle = horizons[len(horizons) // 2]
    named = [(h, f"H = {h}", i) for i, h in enumerate(horizons)]
    return (
        Panel(
            "Belief at the end",
            "One minus the belief in the true context at the end of a long episode, under the true "
            "model: 0 means that an episode gives its context away. It should fall to the right "
            "and from one horizon to the next." + SPREAD,
            DELTA,
            "1 - belief in the true context",
            tuple(_line(points, "belief", h, name, i) for h, name, i in named),
        ),
        Panel(
            "Singular value",
            "The M-th singular value of the matrix of tests and histories, from exact moments: "
            "what must be told from noise for a PSR of rank M to be learned. It drops as contexts "
            "become similar." + SPREAD,
            DELTA,
            "M-th singular value",
            (_line(points, "singular value", horizons[0], "exact", 0),),
            log="y",
        ),
        Panel(
            "PSR-clustering",
            "Error of the model that Algorithm 6 recovers. A gap is a separation at which it "
            "reported failure on every instance." + SPREAD,
            DELTA,
            ERROR,
            tuple(_line(points, PAPER_METHOD, h, name, i) for h, name, i in named),
        ),
        Panel(
            f"All initialisers, H = {middle}",
            "Error of every initialiser on the same data; the last two know the truth, so no "
            "method can be expected to lie below them. The nearer to those floors, the better."
            + SPREAD,
            DELTA,
            ERROR,
            tuple(
                _line(points, name, middle, name, i, style)
                for i, (name, style) in enumerate(zip(METHODS, STYLES))
            ),
            log="y",
        ),
    )


def _line(
    points: Points, quantity: str, horizon: int, name: str, colour: int, style: str = "-"
) -> Line:
    """A mean with its band; where every instance failed there is a gap."""
    curve = [p for p in points.values() if (p.quantity, p.horizon) == (quantity, horizon)]
    delta, mean, low, high = (
        tuple(getattr(p, part) for p in curve) for part in ("delta", "mean", "low", "high")
    )
    return Line(name, delta, mean, low, high, colour, style)
