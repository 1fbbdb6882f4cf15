"""A diagnosis in plain words: one row per assumption, with its number and what follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from latentmdp.theory.diagnosis import Diagnosis

__all__ = ["as_text", "rows"]

Row = tuple[str, str, str]

_TINY = 1e-12


def rows(d: Diagnosis) -> list[Row]:
    """The table of a diagnosis."""
    return [
        _separation(d),
        _horizon(d),
        (
            "Theorem 3.4: alpha, eps_init",
            f"{d.smoothing:.3g}, {d.initialization_error:.3g}",
            "largest smoothing and start error that the theorem admits",
        ),
        _revelation(d),
        _condition_3(d),
        _rank("Condition 1: sigma_tau", d.sigma_tau, d.length, "tests"),
        _rank("Condition 2: sigma_h", d.sigma_h, d.length, "histories"),
        _reach(d),
        _connected(d),
        _diameter(d),
        _sizes("Theorem 3.5: n0 short episodes", d.psr_episodes, d.needed_psr),
        _sizes("Theorem 3.5: n1 long episodes", d.clustering_episodes, d.needed_clustering),
    ]


def as_text(table: Sequence[Row]) -> str:
    """Rows as aligned text."""
    first = max(len(row[0]) for row in table)
    second = max(len(row[1]) for row in table)
    return "\n".join(f"{a:<{first}}  {b:<{second}}  {c}" for a, b, c in table)


def _separation(d: Diagnosis) -> Row:
    if d.closest is None:
        return "Assumption 1: delta", "-", "a single context: nothing is hidden"
    (m, n), s, a = d.closest.contexts, d.closest.state, d.closest.action
    where = f"contexts {m} and {n} in state {s}, action {a}"
    if d.delta <= _TINY:
        return "Assumption 1: delta", "0", f"fails: {where} are the same"
    return "Assumption 1: delta", f"{d.delta:.4g}", f"holds; closest are {where}"


def _horizon(d: Diagnosis) -> Row:
    name = "Theorem 3.4: horizon"
    if math.isinf(d.needed_horizon):
        return name, "inf", "does not apply without separation"
    verdict = "enough" if d.horizon >= d.needed_horizon else "too short for the theorem"
    needs = (
        f"Theorem 3.4 needs H >= {d.needed_horizon:.3g} (C = 1); you have {d.horizon}: {verdict}"
    )
    return name, f"{d.needed_horizon:.3g}", needs


def _revelation(d: Diagnosis) -> Row:
    name = "steps to a 0.99 posterior"
    found = d.revelation
    if found is None:
        return name, "-", "a single context: nothing to reveal"
    half, most, _ = found.quantiles
    shown = f"{_steps(half, found.longest)} / {_steps(most, found.longest)}"
    slowest = d.kl_rate[~np.eye(d.n_contexts, dtype=bool)].min()
    return (
        name,
        shown,
        f"median / 90%; within H = {d.horizon}: {found.share:.1%} ± {found.stderr:.1%} of "
        f"episodes; {_pace(slowest)}",
    )


def _pace(slowest: float) -> str:
    """How fast evidence grows between the two contexts that are hardest to tell apart."""
    if math.isinf(slowest):
        return "every pair has observations that rule one of the two out"
    return f"slowest pair {slowest:.3g} nats a step"


def _steps(value: float, longest: int) -> str:
    return f"{value:.0f}" if math.isfinite(value) else f"> {longest}"


def _condition_3(d: Diagnosis) -> Row:
    name, found = "Condition 3: well separated", d.well_separated
    if found is None:
        return name, "-", "a single context"
    worst = int(np.argmax(found.probabilities))
    p, error = found.probabilities.flat[worst], found.stderr.flat[worst]
    said = {
        True: "holds under this policy",
        False: "fails under this policy",
        None: f"undecided: too few episodes to tell {found.limit:.2g} from 0",
    }[found.holds]
    return name, f"{p:.3g} ± {error:.1g}", f"{said} (must be below {found.limit:.2g}, eps_p = 0.1)"


def _rank(
    name: str, sigma: np.ndarray[tuple[int, ...], np.dtype[np.float64]], length: int, what: str
) -> Row:
    if np.isnan(sigma).all():
        return name, "-", f"not computed: {what} of length {length} are too many, or there are none"
    lost = int(np.isnan(sigma).sum())
    smallest, s = float(np.nanmin(sigma)), int(np.nanargmin(sigma))
    note = f"; {lost} states never reached at that time" if lost else ""
    if smallest <= _TINY:
        return (
            name,
            "0",
            f"fails in state {s}: {what} of length {length} do not span the contexts{note}",
        )
    return (
        name,
        f"{smallest:.3g}",
        f"holds with {what} of length {length}; smallest in state {s}{note}",
    )


def _reach(d: Diagnosis) -> Row:
    name = "Assumption 3: alpha_2"
    if d.hardest is None:
        return name, "-", "not computed: the policy has too many histories"
    m, s = d.hardest
    where = f"state {s} in context {m} at time H - 1"
    if d.alpha_2 <= 0.0:
        return name, "0", f"fails: {where} is never reached"
    return name, f"{d.alpha_2:.3g}", f"holds; rarest is {where}"


def _connected(d: Diagnosis) -> Row:
    name, m = "Assumption 4: alpha_3", int(np.argmin(d.alpha_3))
    if not d.connected.all():
        return name, "0", f"fails: the states of context {m} are not connected"
    return name, f"{d.alpha_3[m]:.3g}", f"holds; weakest is context {m}"


def _diameter(d: Diagnosis) -> Row:
    worst = float(d.diameter.max())
    if math.isnan(worst):
        return "Remark 1: diameter", "-", "not computed: too many states"
    if math.isinf(worst):
        return "Remark 1: diameter", "inf", "some state cannot be reached for sure from another"
    return "Remark 1: diameter", f"{worst:.3g}", "steps between the two states farthest apart"


def _sizes(name: str, formula: float, needed: object) -> Row:
    from latentmdp.theory.requirements import Requirement

    if math.isnan(formula):
        verdict = "not computed, since a number above is not"
    elif math.isinf(formula):
        verdict = "no number suffices: an assumption above fails"
    else:
        verdict = "with all constants 1"
    if isinstance(needed, Requirement):
        verdict += f"; truly needed here: {needed.value:.3g} ± {needed.stderr:.1g}"
    return name, f"{formula:.3g}", verdict
