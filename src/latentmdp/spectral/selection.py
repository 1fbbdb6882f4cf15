"""Selection of a small, well-conditioned set of tests and histories.

Which tests and histories are sufficient is open in [kwon2021, Sec. 6]. Candidates are all tests and
histories of given lengths. At each state, the leading singular vectors of P_{T,H_s}, balanced so
that sampling noise is alike in every entry, span the directions that the data can tell from noise;
a QR decomposition with column pivoting of U^T picks the tests that span those directions best, and
of V^T the histories (subset selection in the sense of Golub). The decomposition of a large sparse
matrix is truncated.

A subset keeps fewer numbers than all tests, but also throws away what the others say: see
`docs/spectral.md` for what that does to recovery.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import qr
from scipy.sparse.linalg import svds

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.results import Result
from latentmdp.spectral.moments import Moments, PopulationMoments


@dataclass(frozen=True, eq=False)
class Selection(Result):
    """Tests and histories to use at each state.

    Attributes
    ----------
    tests, histories : S arrays each
        Numbers of the tests, and of the histories among those that end in s.
    singular_values : (S, rank)
        The leading singular values of P_{T,H_s} restricted to the selection.
    """

    tests: tuple[Integers, ...]
    histories: tuple[Integers, ...]
    singular_values: Floats

    @property
    def condition_numbers(self) -> Floats:
        """sigma_1 / sigma_rank of each state; infinite where the rank is lacking."""
        last = self.singular_values[:, -1]
        return np.divide(
            self.singular_values[:, 0], last, out=np.full(last.size, np.inf), where=last > 0.0
        )

    def __repr__(self) -> str:
        return (
            f"Selection(states={len(self.tests)}, tests={self.tests[0].size}, "
            f"histories={self.histories[0].size}, "
            f"largest condition number={self.condition_numbers.max():.3g})"
        )


def select(
    moments: Moments | PopulationMoments, rank: int, tests: int, histories: int
) -> Selection:
    """Pick `tests` tests and `histories` histories at every state by pivoted QR.

    Parameters
    ----------
    moments
        Of the candidates: all tests and histories of its lengths.
    rank
        How many singular directions to span, the number of contexts.
    tests, histories
        How many to keep, at least `rank`; more keep more of the data.
    """
    rank = arrays.positive_integer("rank", rank)
    for name, number in (("tests", tests), ("histories", histories)):
        if arrays.positive_integer(name, number) < rank:
            raise ValueError(f"{name} must be at least rank={rank}, got {number}")
    chosen_tests, chosen_histories, values = [], [], []
    for s in range(moments.sizes[0]):
        joint = moments.joint_probs(s)
        rows, columns = inverse_roots(row_sums(joint)), inverse_roots(row_sums(joint.T))
        u, _, vt = leading_triplets(joint * rows[:, None] * columns[None, :], rank)
        chosen_tests.append(_pivots(u[:, :rank].T, tests))
        chosen_histories.append(_pivots(vt[:rank], histories))
        part = _dense(joint[chosen_tests[-1]][:, chosen_histories[-1]])
        values.append(np.linalg.svd(part, compute_uv=False)[:rank])
    return Selection(tuple(chosen_tests), tuple(chosen_histories), np.stack(values))


def _pivots(vectors: Floats, keep: int) -> Integers:
    """The columns that span best: pivots of QR, and after those the longest columns."""
    rank = vectors.shape[0]
    first = np.asarray(qr(vectors, mode="r", pivoting=True)[1][:rank], dtype=np.int64)
    lengths = (vectors**2).sum(axis=0)
    lengths[first] = np.inf
    return np.sort(np.argsort(-lengths, kind="stable")[:keep])


def leading_triplets(matrix: Any, k: int) -> tuple[Floats, Floats, Floats]:
    """At least k + 1 singular triplets (all of them where the matrix is small), falling."""
    # The time of a full decomposition grows with the cube of the side: here, several seconds.
    if isinstance(matrix, np.ndarray) or min(matrix.shape) <= 2000:
        full: Any = np.linalg.svd(_dense(matrix), full_matrices=False)
        return full
    some: Any = svds(matrix, k=k + 1, rng=0)
    order = np.argsort(-some[1])
    return some[0][:, order], some[1][order], some[2][order]


def _dense(matrix: Any) -> Any:
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def row_sums(matrix: Any) -> Floats:
    """Sums of the rows of a dense or sparse matrix."""
    return np.asarray(matrix.sum(axis=1)).ravel()


def inverse_roots(values: Floats) -> Floats:
    """1 / sqrt of positive entries, zero for the others."""
    positive = values > 0.0
    return np.where(positive, 1.0 / np.sqrt(np.where(positive, values, 1.0)), 0.0)
