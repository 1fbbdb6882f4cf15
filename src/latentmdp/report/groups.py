"""The groups that a fit found: who belongs to them, and what they are like, in words.

A profile compares a context with the others together, weighed by their sizes: where it begins, what
follows its actions, what it earns, and what its logger did. Of all such shares and means those are
told that differ most, in standard errors of the expected counts behind them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from latentmdp._util import names
from latentmdp._util.arrays import Floats
from latentmdp._util.results import Worded
from latentmdp._util.storage import atomic_write
from latentmdp.fit import Fit
from latentmdp.logs import Logs, cell_counts, first_state_counts
from latentmdp.report.page import context_labels, csv_text


class _Feature(NamedTuple):
    """A share or a mean of each context, what it is called, and the counts behind it, (M,) each."""

    text: str
    values: Floats
    counts: Floats
    variance: Floats

    def against_others(self, m: int, weights: Floats) -> tuple[float, float]:
        """The value of the others together, and how many standard errors context m is above it."""
        others = np.where(np.arange(weights.size) == m, 0.0, weights * (self.counts > 0.0))
        if self.counts[m] <= 0.0 or not others.any():
            return float(self.values[m]), 0.0
        share = others / others.sum()
        number = np.maximum(self.counts, 1e-300)
        error = self.variance[m] / number[m] + (share**2 * self.variance / number).sum()
        mean = float(share @ self.values)
        return mean, float((self.values[m] - mean) / np.sqrt(max(error, 1e-12)))


def assignment(fit: Fit, logs: Logs) -> dict[str, Any]:
    """Facts of p(m | individual) after a fit to these logs: how surely individuals belong to one.

    An individual counts once, whatever its segments, and as often as its multiplicity says. The
    mean probability of the likeliest context is the expected accuracy of the labels.
    """
    first, counts = [], []
    for batch in logs.batches():
        part = batch.read()
        first.append(batch.start + part.beginnings())
        counts.append(part.multiplicities()[part.beginnings()])
    likely = fit.responsibilities[np.concatenate(first)]
    weights, top = np.concatenate(counts).astype(np.float64), likely.max(axis=1)
    sure = float(np.average(top >= 0.95, weights=weights))
    right = float(np.average(top, weights=weights))
    return {
        "share_sure": Worded(
            sure, f"{sure:.1%} of episodes belong to one context with 0.95 or more"
        ),
        "expected_accuracy": Worded(right, f"{right:.1%} of the labels"),
        "expected_episodes": weights @ likely,
    }


def profiles(fit: Fit, logs: Logs, most: int = 3) -> list[str]:
    """A sentence about each context, with the `most` telling of its differences from the others."""
    model, sentences = fit.model, []
    features = list(_features(fit, logs)) if model.n_contexts > 1 else []
    for m, name in enumerate(context_labels(model)):
        told = [(*one.against_others(m, model.weights), one) for one in features]
        told = [one for one in told if abs(one[1]) > 2.0]  # what is less may be chance
        told.sort(key=lambda one: -abs(one[1]))
        words = [f"{one.text} {one.values[m]:.2g} (others {mean:.2g})" for mean, _, one in told]
        like = "; ".join(words[:most]) or "nothing clearly sets it apart"
        sentences.append(f"{name}, {model.weights[m]:.0%} of individuals: {like}")
    return sentences


def _features(fit: Fit, logs: Logs) -> Iterator[_Feature]:
    """What is compared; transitions only of models that are small enough to be read."""
    model = fit.model
    M, S, A, _ = model.dimensions
    shares, sizes = fit.responsibilities, model.dimensions[1:]
    visits = cell_counts(logs, ("state", "action"), sizes, shares)
    states = names.labels("state", model.state_names, S)
    actions = names.labels("action", model.action_names, A)
    earned, first = model.planning_rewards(), first_state_counts(logs, S, shares).sum(axis=1)
    for s in range(S):
        yield _share(f"begins in {states[s]}:", model.initial[:, s], first)
    spread = max(float(np.ptp(model.reward_values)), 1e-300) / 2.0  # at most, by Popoviciu
    for s, a in np.argwhere(visits.sum(axis=0) > 0.0).tolist():
        number, where = visits[:, s, a], f"{actions[a]} in {states[s]}"
        yield _Feature(f"{where} earns", earned[:, s, a], number, np.full(M, spread**2))
        if fit.behaviour_by_context is not None:
            chosen = fit.behaviour_by_context[:, s, a]
            yield _share(f"was given {where}:", chosen, visits[:, s].sum(axis=1))
        if M * S * A * S <= 1_000_000:
            for n in range(S):
                text = f"{where} leads to {states[n]}:"
                yield _share(text, model.transitions[:, s, a, n], number)


def _share(text: str, values: Floats, counts: Floats) -> _Feature:
    return _Feature(text, values, counts, values * (1.0 - values))


def write_groups(path: str | os.PathLike[str], fit: Fit, logs: Logs) -> None:
    """Write a .csv file with a row for each individual: its group, and the probability of each.

    A name that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    labels, shares = context_labels(fit.model), fit.responsibilities
    rows: list[list[str]] = [["individual", "group", *labels]]
    for batch in logs.batches():
        part = batch.read()
        for i in part.beginnings().tolist():
            who = batch.start + i if part.episode_names is None else part.episode_names[i]
            likely = shares[batch.start + i]
            rows.append([str(who), labels[int(likely.argmax())], *(f"{p:.6g}" for p in likely)])
    with atomic_write(path) as file:
        file.write(csv_text(rows))
