"""Recovery of a latent MDP from a PSR, by clustering long episodes [kwon2021, Algs. 4 and 6].

Near its end, an episode's history has revealed its context m, so the PSR's prediction at the state
s it is in is close to P_m(s', r | s, a): the predictions at s fall into M clusters, whose centres
are the rows of the M models at s (lines 4-13). The clusters of each state are labelled on their
own; the labels of different states are put together by the episodes that pass from one state to
another (lines 14-21). An episode that carries label c at state s and label d at state s' != s says
that (s, c) and (s', d) are one context: `links[s, c, s', d]` counts such statements, and the answer
is a permutation for each state, `contexts[s, c]`.

`variant="paper"` is Algorithm 6 as printed: a third of the episodes to find the centres at time
H-1, a third to link the labels at times H-1 and H, a third to count first states by the label at
time H. `variant="practical"` uses every episode in each step and its last states, not only two;
links the labels of all states at once by spectral synchronisation; and counts the model anew, from
the posterior of every episode under the centres, with the centres as a prior whose strength is
chosen by held-out likelihood.

Repetitions boost the probability of success as after [kwon2021, Thm. 3.5]: the model chosen is the
one that is close to most of the others.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.cluster.vq import ClusterError, kmeans2, vq
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.special import logsumexp

from latentmdp._util import arrays
from latentmdp._util.arrays import Flags, Floats, Indices, Integers, normalised
from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.validation import require_choice
from latentmdp.errors import RecoveryError, TrajectoryError
from latentmdp.fit import Fit, FitWarning
from latentmdp.logs import Trajectories, cell_counts, first_state_counts, require_trajectories
from latentmdp.metrics import model_error
from latentmdp.model import LatentMDP
from latentmdp.spectral.psr import PSR
from latentmdp.spectral.selection import inverse_roots

_CELL = ("state", "action", "next_state", "reward")


def recover(
    psr: PSR,
    logs: Trajectories,
    n_contexts: int | None = None,
    variant: str = "practical",
    rng: RNGLike = None,
    repeats: int = 1,
) -> Fit:
    """Recover the latent MDP behind long episodes with the help of a PSR.

    Parameters
    ----------
    psr
        Learned from short episodes of the same latent MDP, of rank at least `n_contexts`.
    logs
        Long episodes of an exploring policy that reaches every state.
    n_contexts
        M; the rank of the PSR by default.
    variant
        "paper" (Algorithm 6) or "practical".
    rng
        Decides the thirds and the starts of k-means++.
    repeats
        Run as many times and choose by majority.

    Returns
    -------
    Fit
        `converged` says whether the PSR's rank stands out of the noise and the labels of different
        states agree.

    Raises
    ------
    RecoveryError
        Algorithm 6's FAIL, with the step and the evidence.

    Warns
    -----
    FitWarning
        The singular values say that the PSR is not to be trusted, or a state could not be
        estimated.
    """
    started = time.perf_counter()
    M = _check(psr, logs, n_contexts, variant, repeats)
    if not psr.sufficient:
        warnings.warn(f"recovery is unreliable: {psr.verdict()}", FitWarning, stacklevel=2)
    generator = as_generator(rng)
    attempt = _paper if variant == "paper" else _practical
    one_by_one = logs  # with multiplicities written out
    if logs.counts is not None:
        one_by_one = logs[np.repeat(np.arange(len(logs)), logs.counts)]
    states, _ = psr.filter(one_by_one)
    model, consistent = _majority(lambda: attempt(psr, one_by_one, states, M, generator), repeats)
    shares, totals = _responsibilities(model, logs)
    return Fit(
        model=model,
        responsibilities=shares,
        log_likelihood=float(logs.multiplicities() @ totals),
        converged=consistent and psr.sufficient,
        seconds=time.perf_counter() - started,
    )


def _paper(
    psr: PSR, logs: Trajectories, psr_states: Floats, M: int, rng: np.random.Generator
) -> tuple[LatentMDP, bool]:
    """Algorithm 6 as printed."""
    S = psr.sizes[0]
    first, second, third = np.array_split(rng.permutation(len(logs)), 3)
    # States are s_1 .. s_{H+1}, so that s_H is the last but one of the L + 1 states.
    centres = _find_centres(_predictions_at(psr, logs, psr_states, first, (2,)), S, M, rng)
    present = _require_present(centres, logs, second, third)

    pairs = _predictions_at(psr, logs, psr_states, second, (2, 1))
    links = count_links(pairs.episodes, pairs.states, _nearest_centres(pairs, centres), S, M)
    contexts = link_by_tree(links, present)
    require_consistent(links, contexts, present)

    last = _predictions_at(psr, logs, psr_states, third, (1,))
    labels = contexts[last.states, _nearest_centres(last, centres)]
    shares = np.zeros((len(logs), M))
    shares[last.episodes, labels] = 1.0
    return _model_from_centres(psr, logs, centres, contexts, present, shares), True


def _practical(
    psr: PSR, logs: Trajectories, psr_states: Floats, M: int, rng: np.random.Generator
) -> tuple[LatentMDP, bool]:
    """All episodes in every step, more than two states of each, one synchronisation."""
    S = psr.sizes[0]
    points = _last_predictions(psr, logs, psr_states, M)
    centres = _find_centres(points, S, M, rng)
    present = np.asarray(centres.any(axis=(1, 2)))
    links = count_links(points.episodes, points.states, _nearest_centres(points, centres), S, M)
    contexts = synchronise(links, present)
    agreement = overall_agreement(links, contexts, present)
    if agreement <= 0.5:
        warnings.warn(
            f"the labels of different states hardly agree: {agreement:.0%} of the links are "
            "consistent",
            FitWarning,
            stacklevel=4,
        )
    shares = np.full((len(logs), M), 1.0 / M)
    rough = _model_from_centres(psr, logs, centres, contexts, present, shares)
    # A hundredth of the average over contexts goes into each: a probability which noise made zero
    # must not rule a context out. A tenth of as much changes nothing, ten times as much raises the
    # error at delta = 1 by 27%.
    average_share = 0.01
    shares, _ = _responsibilities(rough, logs, average_share)
    model = _count_towards(psr, logs, shares, rough, present, average_share)
    return model, agreement > 0.5


def _count_towards(
    psr: PSR, logs: Trajectories, shares: Floats, centres: LatentMDP, present: Flags, mixed: float
) -> LatentMDP:
    """Counts shrunk towards the centres as much as predicts held-out episodes best.

    The centres carry what the short episodes say; how much they are worth depends on the PSR. A
    row of them may be worth as many transitions as `strengths` say, from nothing to more than the
    long episodes hold.
    """
    strengths = (0.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 100_000.0)
    held = np.arange(len(logs)) >= len(logs) // 2  # copies of an episode lie side by side
    scores = []
    for strength in strengths:
        model = count_model(psr, logs[~held], shares[~held], centres, strength, present)
        scores.append(_responsibilities(model, logs[held], mixed)[1].sum())
    best = strengths[int(np.argmax(scores))]
    return count_model(psr, logs, shares, centres, best, present)


def _majority(
    attempt: Callable[[], tuple[LatentMDP, bool]], repeats: int
) -> tuple[LatentMDP, bool]:
    """The attempt that is close to most of the others; fails if most attempts fail."""
    results: list[tuple[LatentMDP, bool]] = []
    failures: list[RecoveryError] = []
    for _ in range(repeats):
        try:
            results.append(attempt())
        except RecoveryError as error:
            failures.append(error)
    if repeats == 1 and failures:
        raise failures[0]
    if 2 * len(failures) >= repeats:
        raise RecoveryError(
            "majority vote",
            f"{len(failures)} of {repeats} repetitions failed, the last because {failures[-1]}",
        )
    models = [model for model, _ in results]
    distances = [[model_error(first, second) for second in models] for first in models]
    return results[int(np.argmin(np.median(distances, axis=1)))]


class _Predictions(NamedTuple):
    """One-step predictions P(s', r | history || do a) of all actions at once.

    `values` (n, A S Z) holds those at the states `states` (n,) of the episodes `episodes` (n,).
    """

    episodes: Integers
    states: Indices
    values: Floats


def _predictions_at(
    psr: PSR, logs: Trajectories, psr_states: Floats, episodes: Integers, back: Sequence[int]
) -> _Predictions:
    """Predictions at the states `back` places before the last one of each episode."""
    which = np.repeat(episodes, len(back))
    steps_back = np.tile(np.asarray(back), len(episodes))
    reached = steps_back <= logs.lengths[which]
    which, steps_back = which[reached], steps_back[reached]
    flat = logs.offsets[which + 1] + which - steps_back
    S, A, Z = psr.sizes
    states, followed = logs.states[flat], psr_states[flat]
    values = np.zeros((states.size, A * S * Z))
    for s in range(S):
        here = states == s
        values[here] = psr.predictions(s, followed[here]).reshape(-1, A * S * Z)
    return _Predictions(which, states, values)


def _last_predictions(psr: PSR, logs: Trajectories, psr_states: Floats, M: int) -> _Predictions:
    """Predictions at the last states, as many of them as give every state enough points.

    They are the last 8: more are more points, of histories that have revealed less of their
    context (at delta = 0.35 half as many raise the error by 10%, twice as many change nothing).
    Until every state has 10 for each context, enough for the mean of a cluster, more are taken, as
    far back as the middle of the episodes.
    """
    everyone = np.arange(len(logs))
    occurs = np.bincount(logs.states, minlength=psr.sizes[0])
    needed = np.minimum(10 * M, occurs)
    depth, deepest = 8, int(logs.lengths.max()) // 2
    while True:
        points = _predictions_at(psr, logs, psr_states, everyone, range(depth))
        available = np.bincount(points.states, minlength=psr.sizes[0])
        if (available >= needed).all() or depth > deepest:
            break
        depth *= 2
    usable = (available >= M) & psr.visited
    short = f"has fewer than {M} predictions in the second half of episodes"
    _warn_of(~usable, f"{short} and is left out of the clustering")
    is_usable = usable[points.states]
    return _Predictions._make(part[is_usable] for part in points)


def _find_centres(
    points: _Predictions, n_states: int, n_contexts: int, rng: np.random.Generator
) -> Floats:
    """M centres for each state by k-means++, shape (S, M, A S Z); zero where no point lies.

    A single start misses a cluster at some state of one instance in ten; four times as many as
    five find nothing better. Clusters that are there have settled after five iterations. Raises
    `RecoveryError` if there are fewer than M distinct points at a state.
    """
    centres = np.zeros((n_states, n_contexts, points.values.shape[1]))
    for s in np.unique(points.states):
        data = points.values[points.states == s]
        best = k_means(data, n_contexts, rng, 5, 20) if len(data) >= n_contexts else None
        if best is None:
            raise RecoveryError(
                "clustering",
                f"the {len(data)} predictions at state {s} do not make {n_contexts} clusters",
            )
        centres[s] = best[0]
    return centres


def k_means(
    points: Floats, number: int, rng: np.random.Generator, starts: int, iterations: int
) -> tuple[Floats, Integers] | None:
    """Centres and labels with the least sum of squares among several k-means++ starts.

    A start that loses a cluster is passed over; None if all do.
    """
    best, least = None, np.inf
    for _ in range(starts):
        try:
            centres, labels = kmeans2(
                points, number, iter=iterations, minit="++", missing="raise", rng=rng
            )
        except ClusterError:
            continue
        spread = float(((points - centres[labels]) ** 2).sum())
        if spread < least:
            best, least = (centres, np.asarray(labels, np.int64)), spread
    return best


def _require_present(centres: Floats, logs: Trajectories, *later: Integers) -> Flags:
    """States that have centres; the others must not occur where labels are needed."""
    present = np.asarray(centres.any(axis=(1, 2)))
    needed = np.concatenate([logs.offsets[part + 1] + part - 1 for part in later])
    needed = np.concatenate([needed, logs.offsets[later[0] + 1] + later[0] - 2])
    missing = ~present[logs.states[needed]]
    if missing.any():
        s = int(logs.states[needed][missing][0])
        raise RecoveryError(
            "clustering",
            f"no episode of the first third is in state {s} at time H-1, but {int(missing.sum())} "
            "labels are needed there",
        )
    same = "its rows are the same in all contexts"
    _warn_of(~present, f"never occurs near the end of an episode: {same}")
    return present


def _warn_of(states: Flags, what: str) -> None:
    if states.any():
        which = ", ".join(map(str, np.flatnonzero(states)))
        warnings.warn(f"state {which} {what}", FitWarning, stacklevel=7)


def _nearest_centres(points: _Predictions, centres: Floats) -> Integers:
    """Label of each point: the nearest centre of its state."""
    labels = np.zeros(points.states.size, dtype=np.int64)
    for s in np.unique(points.states):
        here = points.states == s
        labels[here] = vq(points.values[here], centres[s])[0]
    return labels


def _model_from_centres(
    psr: PSR,
    logs: Trajectories,
    centres: Floats,
    contexts: Integers,
    present: Flags,
    shares: Floats,
) -> LatentMDP:
    """The model whose rows at s are the centres of s, in the order of `contexts[s]`.

    First states and weights are counted with `shares` (N, M); rows at states that are not
    `present` are the pooled ones.
    """
    S, A, Z = psr.sizes
    M = shares.shape[1]
    rows = np.repeat(psr.pooled[None], M, axis=0)
    for s in np.flatnonzero(present):
        rows[contexts[s], s] = np.maximum(centres[s], 0.0).reshape(M, A, S, Z)
    return _model(psr, logs, rows, shares)


def count_model(
    psr: PSR,
    logs: Trajectories,
    shares: Floats,
    prior: LatentMDP | None = None,
    strength: float = 0.0,
    present: Flags | bool = True,
) -> LatentMDP:
    """The model counted from episodes that belong to the contexts by `shares` (N, M).

    With a prior, each of its rows at the states `present` counts as `strength` transitions.
    """
    S = psr.sizes[0]
    rows = cell_counts(logs, _CELL, psr.sizes, shares)
    if prior is not None:
        counted = np.broadcast_to(present, (S,))
        rows += strength * prior.observation_probs() * counted[:, None, None, None]
    empty = ~(rows.sum(axis=(3, 4)) > 0.0)
    rows[empty] = np.broadcast_to(psr.pooled, rows.shape)[empty]
    return _model(psr, logs, rows, shares)


def _model(psr: PSR, logs: Trajectories, rows: Floats, shares: Floats) -> LatentMDP:
    """Normalise: rows (M, S, A, S, Z) of any scale, first states and weights by shares."""
    S, _, Z = psr.sizes
    initial = normalised(first_state_counts(logs, S, shares), first_state_counts(logs, S))
    rows = np.where(rows.sum(axis=(3, 4), keepdims=True) > 0.0, rows, 1.0)
    values = np.arange(Z, dtype=np.float64) if psr.reward_values is None else psr.reward_values
    return LatentMDP(
        normalised(rows.sum(axis=4)),
        normalised(rows.sum(axis=3)),
        initial=initial,
        weights=normalised(shares.sum(axis=0)),
        horizon=int(logs.lengths.max()),
        reward_values=values,
    )


def _responsibilities(
    model: LatentMDP, logs: Trajectories, mixed: float = 0.0
) -> tuple[Floats, Floats]:
    """p(m | episode), shape (N, M), and log p(episode || its actions), shape (N,).

    `mixed` is that of `log_likelihoods`.
    """
    joint = log_likelihoods(model, logs, mixed) + _log(model.weights)
    return arrays.shares_of_logs(joint), np.asarray(logsumexp(joint, axis=1))


def log_likelihoods(model: LatentMDP, logs: Trajectories, mixed: float = 0.0) -> Floats:
    """Logarithm of P_m(s_1, r_1, s_2, ...) without the policy's part, shape (N, M).

    With `mixed`, that share of the average over contexts takes the place of as much of each. What
    is impossible counts as the smallest normal number, 1e-308, so that all logarithms are finite.
    """
    M, S, A, Z = model.dimensions
    outcomes = model.outcomes.find(logs.cells(_CELL, (S, A, Z)), S, Z)
    # Outcome -1, which the table does not list, is the last row: impossible in every context.
    steps = _log(np.concatenate([model.outcomes.probs, np.zeros((1, M))]), mixed)
    scores, episodes = _log(model.initial.T, mixed)[logs.first_states], logs.steps().episode
    for m in range(M):
        scores[:, m] += np.bincount(episodes, steps[outcomes, m], minlength=len(logs))
    return scores


def _log(table: Floats, mixed: float = 0.0) -> Floats:
    table = (1.0 - mixed) * table + mixed * table.mean(axis=-1, keepdims=True)
    return np.log(np.maximum(table, np.finfo(np.float64).tiny))


def _check(psr: PSR, logs: Trajectories, n_contexts: int | None, variant: str, repeats: int) -> int:
    arrays.require_instance("psr", psr, PSR)
    require_trajectories("logs", logs)
    M = psr.rank if n_contexts is None else arrays.positive_integer("n_contexts", n_contexts)
    arrays.positive_integer("repeats", repeats)
    require_choice("variant", variant, ("paper", "practical"))
    if psr.rank < M:
        raise ValueError(
            f"n_contexts={M} needs a PSR of at least that rank, this one has rank {psr.rank}"
        )
    logs.require_sizes(*psr.sizes)
    if len(logs) == 0:
        raise TrajectoryError("the logs hold no episodes")
    short = int(logs.lengths.min())
    if short < 2 and variant == "paper":
        raise TrajectoryError(
            f"Algorithm 6 labels the last two steps: episode {int(logs.lengths.argmin())} has "
            f"{short} steps, at least 2 are needed"
        )
    if logs.n_episodes < 3 * M:
        raise TrajectoryError(
            f"{logs.n_episodes} episodes cannot show {M} contexts: at least {3 * M} are needed"
        )
    return M


# -------------------------------------------------------------- labels of different states


def count_links(
    episodes: Integers, states: Indices, labels: Integers, n_states: int, n_contexts: int
) -> Floats:
    """Links between the labels of the same episode at different states, shape (S, M, S, M)."""
    order, row = np.unique(episodes, return_inverse=True)
    visits = np.zeros((order.size, n_states * n_contexts))
    np.add.at(visits, (row, states * n_contexts + labels), 1.0)
    links = (visits.T @ visits).reshape(n_states, n_contexts, n_states, n_contexts)
    same = np.arange(n_states)
    links[same, :, same, :] = 0.0
    return links


def link_by_tree(links: Floats, present: Flags) -> Integers:
    """Spread the labels of one state along the pairs of states with the most links.

    Raises `RecoveryError` if some state has no link to the others.
    """
    S, M = links.shape[:2]
    strength = links.sum(axis=(1, 3))
    contexts = np.zeros((S, M), dtype=np.int64)
    root = int(np.argmax(np.where(present, strength.sum(axis=1), -1.0)))
    contexts[root] = np.arange(M)
    order, parents = breadth_first_order(minimum_spanning_tree(-strength), root, directed=False)
    for s in order[1:]:
        parent = parents[s]
        contexts[s] = _matching(links[s, :, parent][:, np.argsort(contexts[parent])])
    alone = np.setdiff1d(np.flatnonzero(present), order)
    if alone.size:
        raise RecoveryError(
            "linking", f"no episode links the labels of state {alone[0]} to those of another state"
        )
    return contexts


def synchronise(links: Floats, present: Flags) -> Integers:
    """Spectral synchronisation: all links at once.

    The leading M eigenvectors of the normalised link matrix are constant on contexts; their blocks
    give a first set of permutations, which rounds of best responses improve.
    """
    S, M = links.shape[:2]
    matrix = links.reshape(S * M, S * M)
    scale = inverse_roots(matrix.sum(axis=1))
    _, vectors = np.linalg.eigh(scale[:, None] * matrix * scale)
    blocks = vectors[:, -M:].reshape(S, M, M)
    root = int(np.argmax(np.where(present, links.sum(axis=(1, 2, 3)), -1.0)))
    contexts = np.stack([_matching(block @ blocks[root].T) for block in blocks])
    # Each round raises the number of links that agree or is the last; a few suffice unless the
    # links are noise.
    for _ in range(100):
        before = contexts.copy()
        for s in range(S):
            votes = np.einsum("ctd,tdm->cm", links[s], np.eye(M)[contexts])
            contexts[s] = _matching(votes)
        if (contexts == before).all():
            break
    return contexts


def agreement(links: Floats, contexts: Integers) -> Floats:
    """Share of the links of each label (s, c) that agree with its context, shape (S, M)."""
    M = links.shape[1]
    votes = np.einsum("sctd,tdm->scm", links, np.eye(M)[contexts])
    totals = votes.sum(axis=2)
    agreeing = np.take_along_axis(votes, contexts[:, :, None], axis=2)[:, :, 0]
    return np.asarray(agreeing / np.where(totals > 0.0, totals, 1.0))


def require_consistent(links: Floats, contexts: Integers, present: Flags) -> None:
    """Raise `RecoveryError` unless most links of every label agree with its context.

    Where a single state is `present` there is nothing to link.
    """
    if present.sum() <= 1:
        return
    shares = np.where(present[:, None], agreement(links, contexts), 1.0)
    s, c = np.unravel_index(int(np.argmin(shares)), shares.shape)
    if shares[s, c] <= 0.5:
        total = int(links[s, c].sum())
        if total == 0:
            raise RecoveryError(
                "linking", f"no episode that carries label {c} at state {s} passes to another state"
            )
        overall = overall_agreement(links, contexts, present)
        raise RecoveryError(
            "linking",
            f"the labels of different states are inconsistent: of the {total} links of label {c} "
            f"at state {s}, {shares[s, c]:.0%} agree with its context ({overall:.0%} over all "
            "labels), and a majority is needed",
        )


def overall_agreement(links: Floats, contexts: Integers, present: Flags) -> float:
    """Share of all links that agree; all where a single state is `present`: it needs none."""
    if present.sum() <= 1:
        return 1.0
    weights = links.sum(axis=(2, 3))
    return float((agreement(links, contexts) * weights).sum() / max(weights.sum(), 1.0))


def _matching(score: Floats) -> Integers:
    """The permutation c -> m with the largest total score."""
    return np.asarray(linear_sum_assignment(score, maximize=True)[1], dtype=np.int64)
