"""Belief expansion: from the beliefs at the start to those worth a backup, step by step.

A walk carries weighted points forward, as a particle filter would. Successors are kept with
probabilities proportional to an excess (for HSVI: the probability of being there times the gap
between the bounds) and keep their weight divided by that probability, so the weights stay unbiased
for the chances of being there. Successors that nearly equal a known point continue from it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from latentmdp._util import Floats, Integers
from latentmdp.planning.point_based.bounds import BeliefPoints, Bounds

_FAINTEST = 1e-12
"""Successors less likely than this are left to the bounds as they are: all of them together hold
less of the value than the smallest gap worth asking for, and they are many."""

_NEGLIGIBLE = 1e-200
"""An excess below this share of the largest counts as none: its inverse might overflow."""


def walk(
    bounds: Bounds,
    count: int,
    spare: float,
    resolution: float,
    act: Callable[[BeliefPoints, Integers], Integers],
    excess: Callable[[Floats, Floats], Floats],
    allotment: float,
    rng: np.random.Generator,
) -> list[Integers]:
    """Visit about `count` points a time step, new ones included; returns those visited.

    Parameters
    ----------
    spare
        Make points of so many times more successors, without going on from them.
    resolution
        Beliefs that round to the same multiples of 1 / resolution are one point.
    act
        The action to follow from each of the given points of a time step.
    excess
        What a successor is worth, from its weight and its gap.
    allotment
        A time step gets points in proportion to this power of its total excess.
    """
    weights = bounds.start_weights
    points = bounds.start_points
    bounds.doubt = np.zeros(bounds.depth + 1)
    visited, first = [points], 0.0
    for t in range(bounds.depth):
        bounds.check()
        actions = act(bounds.layer(t), points)
        states, beliefs, chances, gaps = bounds.expand(t, points, weights, actions, _FAINTEST)
        value = excess(chances, gaps)
        total = float(value.sum())
        first = first or total
        # Not a product of BLAS, whose own threads would go on and take the cores of ours.
        bounds.doubt[t + 1] = (chances * (1.0 - beliefs.max(axis=1, initial=0.0))).sum()
        if total <= 0.0:
            points, weights = np.empty(0, np.int64), np.empty(0)
        else:
            share = count * (total / first) ** allotment
            if spare > 0.0:
                more = systematic(inclusion(value, max(1.0, spare * share)), rng)
                locate(bounds, t + 1, states[more], beliefs[more], resolution)
            probabilities = inclusion(value, max(1.0, share))
            kept = systematic(probabilities, rng)
            weights = chances[kept] / probabilities[kept]
            points = locate(bounds, t + 1, states[kept], beliefs[kept], resolution)
            points, where = np.unique(points, return_inverse=True)
            weights = np.bincount(where, weights, points.size).astype(np.float64)
        visited.append(points)
    return visited


def inclusion(excess: Floats, count: float) -> Floats:
    """Probabilities min(1, c excess) that sum to `count`, or all ones of the positive."""
    _, exponent = np.frexp(excess.max(initial=0.0))
    excess = np.ldexp(excess, -exponent)
    excess[excess < _NEGLIGIBLE] = 0.0
    positive = excess > 0.0
    if positive.sum() <= count:
        return positive.astype(np.float64)
    descending = np.sort(excess)[::-1]
    tail = np.cumsum(descending[::-1])[::-1]  # sum of the k-th largest and all smaller ones
    certain = np.arange(int(count) + 1)  # how many have probability one
    scale = (count - certain) / tail[certain]
    k = int(np.argmax(scale * descending[certain] <= 1.0))
    return np.minimum(1.0, scale[k] * excess)


def systematic(probabilities: Floats, rng: np.random.Generator) -> Integers:
    """Indices drawn with the given inclusion probabilities by systematic sampling."""
    reached = np.floor(np.concatenate([[0.0], np.cumsum(probabilities)]) + rng.random())
    return np.flatnonzero(np.diff(reached) > 0.0)


def locate(
    bounds: Bounds, t: int, states: Integers, beliefs: Floats, resolution: float
) -> Integers:
    """Positions of beliefs among the points of time t; those that are new are added."""
    points = bounds.layer(t)
    known = _places(points, resolution)
    keys = belief_keys(states, beliefs, resolution).tolist()
    positions = np.array([known.get(key, -1) for key in keys], np.int64)
    missing = np.flatnonzero(positions < 0)
    if missing.size:
        fresh = dict[int, int]()  # key -> the first belief that has it
        for i in missing.tolist():
            fresh.setdefault(keys[i], i)
        new = np.array(list(fresh.values()))
        known.update(zip(fresh, bounds.add(t, states[new], beliefs[new]).tolist()))
        positions[missing] = [known[keys[i]] for i in missing.tolist()]
    return positions


def _places(points: BeliefPoints, resolution: float) -> dict[int, int]:
    """The position of every point by its key; of several with the same key, the first."""
    if points.resolution != resolution:
        points.resolution, points.places, points.located = resolution, {}, 0
    if points.located < len(points):
        rest = slice(points.located, None)
        keys = belief_keys(points.states[rest], points.beliefs[rest], resolution).tolist()
        for i, key in enumerate(keys, start=points.located):
            points.places.setdefault(key, i)
        points.located = len(points)
    return points.places


def belief_keys(states: Integers, beliefs: Floats, resolution: float) -> NDArray[np.uint64]:
    """A 64-bit key of the state and the rounded belief (a polynomial in a random odd number)."""
    rounded = np.rint(beliefs * resolution).astype(np.uint64)
    keys = states.astype(np.uint64)
    for column in rounded.T:
        keys = (keys + column + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    return keys
