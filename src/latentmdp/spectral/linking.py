"""Matching the cluster labels of different states by context [kwon2021, Alg. 6, lines 14-21].

An episode that carries label c at state s and label d at state s' != s says that (s, c) and (s', d)
are one context. `links[s, c, s', d]` counts such statements; the answer is a permutation for each
state, `contexts[s, c]`.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment

from latentmdp._util.arrays import Flags, Floats, Indices, Integers
from latentmdp.errors import RecoveryError

__all__ = ["count_links", "link_by_tree", "overall_agreement", "require_consistent", "synchronise"]

MAX_ROUNDS = 100
"""Most rounds of best responses. Each round raises the number of links that agree or is the last,
and a few are enough unless the links are noise."""


def count_links(
    episodes: Integers, states: Indices, labels: Integers, n_states: int, n_contexts: int
) -> Floats:
    """Links between the labels of the same episode at different states, shape (S, M, S, M)."""
    order, row = np.unique(episodes, return_inverse=True)
    seen = np.zeros((order.size, n_states * n_contexts))
    np.add.at(seen, (row, states * n_contexts + labels), 1.0)
    links = (seen.T @ seen).reshape(n_states, n_contexts, n_states, n_contexts)
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
    todo = set(np.flatnonzero(present).tolist())
    root = max(todo, key=lambda s: strength[s].sum())
    contexts[root] = np.arange(M)
    done = [root]
    todo.remove(root)
    while todo:
        s, parent = max(
            ((s, parent) for s in todo for parent in done), key=lambda pair: strength[pair]
        )
        if strength[s, parent] == 0.0:
            raise RecoveryError(
                "linking", f"no episode links the labels of state {s} to those of another state"
            )
        contexts[s] = _matching(links[s, :, parent][:, np.argsort(contexts[parent])])
        done.append(s)
        todo.remove(s)
    return contexts


def synchronise(links: Floats, present: Flags) -> Integers:
    """Spectral synchronisation: all links at once.

    The leading M eigenvectors of the normalised link matrix are constant on contexts; their blocks
    give a first set of permutations, which rounds of best responses improve.
    """
    S, M = links.shape[:2]
    matrix = links.reshape(S * M, S * M)
    degree = np.sqrt(matrix.sum(axis=1))
    scale = np.where(degree > 0.0, 1.0 / np.where(degree > 0.0, degree, 1.0), 0.0)
    _, vectors = np.linalg.eigh(scale[:, None] * matrix * scale)
    blocks = vectors[:, -M:].reshape(S, M, M)
    root = int(np.argmax(np.where(present, links.sum(axis=(1, 2, 3)), -1.0)))
    contexts = np.stack([_matching(block @ blocks[root].T) for block in blocks])
    for _ in range(MAX_ROUNDS):
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
