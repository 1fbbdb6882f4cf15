"""The instance of the lower bound [kwon2021, Thm. 3.1, App. A.1]: one sequence in A^M pays.

M deterministic MDPs walk along M stages; each stage either leads to the next or to the SINK. Let
a*_t be the right action of stage t. For t < M,

    context M - t + 1      a*_t sinks, every other action goes on,
    contexts 2 .. M - t    every action goes on,
    every other context    a*_t goes on, every other action sinks;

at stage M only a*_M in context 1 pays. Whatever wrong sequence is played, exactly one of the
contexts still afloat sinks at each stage, so that all A^M - 1 wrong sequences give the same
distribution of observations and nothing can be learned but by playing a* itself. V* = 1/M.

*Amplified*: each stage is a tree of `depth` actions, which makes n = A^depth effective actions out
of (n - 1)/(A - 1) states, so that n is about S A / M and (S A / M)^M sequences hide one.

*Epsilon*: the last reward is Bernoulli(1/2 + epsilon) in context 1 after a*, and Bernoulli(1/2)
otherwise, wherever the episode ends. V* = 1/2 + epsilon/M. The paper's SINK pays nothing before
the last step; a state that pays at one time only must know the time, so here the SINK is a row
of states, one for each time.
"""

import numpy as np

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.validation import require_choice
from latentmdp.instances._parts import number, require_dense, sizes
from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP


@register("lower-bound")
def lower_bound(
    rng: np.random.Generator,
    *,
    contexts: int = 3,
    actions: int = 2,
    variant: str = "plain",
    depth: int | None = None,
    epsilon: float = 0.1,
) -> LatentMDP:
    """The hard instance: all action sequences but one look the same, and it pays in one context.

    Parameters
    ----------
    contexts, actions
        M and A.
    variant
        "plain" (S = M + 1, H = M), "amplified" (trees of actions) or "epsilon" (noisy last reward).
    depth
        Actions per stage: 2 by default in the amplified variant, 1 in the others; H = M depth.
    epsilon
        Of the epsilon variant, in (0, 1/2].

    Notes
    -----
    The right sequence is drawn from `rng`. Sizes: S = M n + 1 with n = (A^depth - 1)/(A - 1)
    states a stage, or M n + (M - 1) depth in the epsilon variant. Separation: 0, since most rows
    agree in most contexts. It is here to show that without assumptions learning needs about A^M
    episodes, whatever the algorithm.
    """
    M, A = sizes(contexts=contexts, actions=actions)
    require_choice("variant", variant, ("plain", "amplified", "epsilon"))
    number("epsilon", epsilon, 0.0, 0.5, open_low=True)
    default = 2 if variant == "amplified" else 1
    D = default if depth is None else arrays.positive_integer("depth", depth)
    if variant == "plain" and D != 1:
        raise ValueError(f"depth must be 1 in the plain variant, got {D}; use 'amplified'")
    n = sum(A**level for level in range(D))
    sinks = 1 if variant != "epsilon" else max(1, (M - 1) * D)
    require_dense(M, M * n + sinks, A)
    right = rng.integers(A, size=(M, D))

    T = np.zeros((M, M * n + sinks, A, M * n + sinks))
    for stage in range(M):
        _fill_stage(T, stage, right[stage], n, sink=M * n + min(stage * D, sinks - 1))
    for k in range(sinks):
        T[:, M * n + k, :, M * n + min(k + 1, sinks - 1)] = 1.0

    means = np.zeros(T.shape[:3])
    last = (M - 1) * n + _right_leaf(right[-1], A)
    means[0, last, right[-1, -1]] = 1.0
    if variant == "epsilon":
        ends = [*range(M * n - A ** (D - 1), M * n), *([M * n + sinks - 1] if M > 1 else [])]
        means[:, ends] = 0.5
        means[0, last, right[-1, -1]] = 0.5 + epsilon
    stages = [f"stage {stage + 1}" for stage in range(M)]
    names = stages if n == 1 else [f"{stage} node {node}" for stage in stages for node in range(n)]
    names += ["sink"] if sinks == 1 else [f"sink {k + 1}" for k in range(sinks)]
    chances = np.stack([1.0 - means, means], axis=-1)
    return LatentMDP(T, chances, initial=0, horizon=M * D, state_names=names)


def _fill_stage(T: Floats, stage: int, right: Integers, n: int, sink: int) -> None:
    """Transitions out of the tree of one stage (0-based); the last stage leads to the sink only."""
    M, A = T.shape[0], T.shape[2]
    root, leaves = stage * n, n - A ** (right.size - 1)
    for node in range(leaves):
        for a in range(A):
            T[:, root + node, a, root + A * node + a + 1] = 1.0
    for node in range(leaves, n):
        for a in range(A):
            is_right = node == _right_leaf(right, A) and a == right[-1]
            for m in range(M):
                # Before the last stage context M - 1 - stage sinks by the right action, contexts
                # from 1 up to it by none, and all others by any but the right one.
                sinks = is_right if m == M - 1 - stage else not (is_right or 1 <= m < M - 1 - stage)
                on = stage < M - 1 and not sinks
                T[m, root + node, a, root + n if on else sink] = 1.0


def _right_leaf(right: Integers, A: int) -> int:
    """Index in its tree (level by level) of the leaf that the right actions lead to."""
    node = 0
    for a in right[:-1]:
        node = A * node + int(a) + 1
    return node
