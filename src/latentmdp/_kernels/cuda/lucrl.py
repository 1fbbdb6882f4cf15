"""Many runs of L-UCRL with Q-MDP on a GPU: a group of threads a run [kwon2021, Alg. 1-3].

The threads of a group, its `lanes`, share the states in backward induction and the visited rows
when counts are absorbed; the first of them plays the episode. They call what the loop of the CPU
calls, so that a run has the CPU's bits. Groups of up to 32 threads lie within a warp and wait for
each other alone, so that several runs share a block; a larger group is a block.

What a run knows lies in the GPU's memory, one row a run in every array; what one episode needs
lies in the memory that a block shares. Sizes are known when the kernel is compiled.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import cuda
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

from latentmdp._kernels.belief import AWAKE
from latentmdp._kernels.cuda.driver import limited_jit
from latentmdp._kernels.empirical import Estimate, distinct_rows
from latentmdp._kernels.lucrl import (
    act,
    count_episode,
    discounted_return,
    refresh_visited,
    weigh_contexts,
)
from latentmdp._kernels.optimism import (
    BY_VARIANCE,
    HIDDEN_REWARDS,
    OptimisticValues,
    add_bonus,
    back_up_optimistically,
    forbid,
    note_plan,
    value_span,
)
from latentmdp._kernels.philox import uniform_pair
from latentmdp._kernels.rollout import WORLD_STREAM, begin_episode

__all__ = ["BatchKind", "Earned", "Learners", "lucrl_kernel", "shared_bytes"]

_WARP = 32


class BatchKind(NamedTuple):
    """What a kernel is compiled for."""

    sizes: tuple[int, int, int, int]  # M, S, A, Z
    horizon: int
    width: int  # of a row of states in lanes
    transition_rewards: bool
    start: int  # how a belief starts
    bonus: int  # its kind
    adaptive: bool
    revealed: bool
    lanes: int  # threads of a run
    runs: int  # of a block


class Learners(NamedTuple):
    """R runs: arrays of `estimate` and `optimistic` that differ between runs have R rows.

    Those that are the same in all runs are as on the CPU, but have an entry at least.
    """

    keys: NDArray[np.uint64]  # (R,)
    estimate: Estimate
    optimistic: OptimisticValues
    n_missing: int  # rows whose action is not allowed


class Earned(NamedTuple):
    """Means over windows of episodes, (R, windows); sums while a window lasts."""

    window: int
    returns: NDArray[np.float64]
    beliefs: NDArray[np.float64]


def shared_bytes(kind: BatchKind) -> int:
    """Bytes that the runs of a block share."""
    M, S, _, _ = kind.sizes
    doubles = 7 * M + 2 * S + kind.horizon
    return kind.runs * (8 * doubles + 4 * (3 * kind.horizon + 3))


def _numpy_row(table, row, shape):
    return table[row].reshape(shape)


@intrinsic
def _compiled_row(typingctx, table, row, shape):
    """Row of a 2-d array as an array whose shape is known."""
    found = table.copy(ndim=len(shape), layout="C")

    def emit(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        _, width = cgutils.unpack_tuple(builder, array.shape, 2)
        view = context.make_array(found)(context, builder)
        sizes = cgutils.unpack_tuple(builder, arguments[2])
        strides = [array.itemsize]
        for size in reversed(sizes[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        data = builder.gep(array.data, [builder.mul(arguments[1], width)])
        populate_array(view, data, sizes, strides, array.itemsize, None)
        return view._getvalue()

    return found(table, row, shape), emit


_SIMULATED = bool(cuda.config.ENABLE_CUDASIM)
_row = _numpy_row if _SIMULATED else _compiled_row


def _device(function):
    """A function for kernels to call; the simulator calls any."""
    return function if _SIMULATED else cuda.jit(device=True)(function)


@_device
def _meet(alone, mask):
    """Wait for the other lanes of the run, and see what they wrote."""
    if alone:
        cuda.syncthreads()
    else:
        cuda.syncwarp(mask)


@_device
def _plan(estimate, optimistic, value, m, lane, lanes, alone, mask):
    """Q-values of one context in the optimistic model; `value` is room for two rows of states."""
    S = value.shape[1]
    if optimistic.kind == HIDDEN_REWARDS:
        add_bonus(estimate, optimistic, m, lane, lanes)
        _meet(alone, mask)
        if lane == 0:
            forbid(estimate, optimistic, m)
    for s in range(lane, S, lanes):
        value[0, s] = 0.0
    _meet(alone, mask)
    now, origin, span = 0, 0.0, 0.0
    for back in range(optimistic.values.shape[1]):
        t = optimistic.values.shape[1] - 1 - back
        later = value[now]
        if optimistic.kind == BY_VARIANCE and back > 0:
            span = value_span(optimistic, m, later)
        for s in range(lane, S, lanes):
            value[1 - now, s] = back_up_optimistically(
                estimate, optimistic, later, m, t, s, origin, span
            )
        origin = later[0]
        _meet(alone, mask)
        now = 1 - now
    if optimistic.growth != 0.0:
        for row in range(lane, estimate.visits.shape[0], lanes):
            optimistic.planned_visits[row, m] = estimate.visits[row, m]
    if lane == 0:
        note_plan(estimate, optimistic, m)


@cache
def lucrl_kernel(kind, registers=None):
    """The compiled rounds of Algorithm 1 of one `BatchKind`."""
    (M, S, A, Z), H, W = kind.sizes, kind.horizon, kind.width
    joint, start, bonus, adaptive = kind[3:7]
    revealed, lanes, runs = kind[7:]
    sizes, n, longest = (S, A, Z), A * W, H + 1
    sources = S * A * S if joint else S * A
    alone = _SIMULATED or lanes > _WARP
    full = (1 << min(lanes, _WARP)) - 1

    @limited_jit(registers)
    def play(chances, learners, first_episode, episodes, earned):
        place = cuda.threadIdx.x
        lane, slot = place % lanes, place // lanes
        run = cuda.blockIdx.x * runs + slot
        if run >= learners.keys.shape[0]:
            return
        mask = np.int32(full << (place % 32 // lanes * lanes))
        e, o = learners.estimate, learners.optimistic
        estimate = Estimate(
            sizes,
            joint,
            start,
            e.reward_values,
            e.smoothing,
            None,
            _row(e.transition_counts, run, (S * A, S, M)),
            _row(e.reward_counts, run, (sources, Z, M)),
            _row(e.initial_counts, run, (S, M)),
            _row(e.visits, run, (S * A, M)),
            _row(e.scale, run, (S * A, M)),
            cuda.shared.array((runs, 3, M), np.float64)[slot],
            _row(e.rows, run, (S * A,)),
            _row(e.seen, run, (S * A,)),
            _row(e.prior, run, (M,)),
            _row(e.initial, run, (S, M)),
            _row(e.transitions, run, (M, S, n)),
            _row(e.means, run, (M, n)),
            _row(e.variances, run, (M, n)),
        )
        optimistic = OptimisticValues(
            bonus,
            o.reach,
            o.width,
            o.lowest,
            adaptive,
            o.deviation,
            o.remainder,
            o.reward_deviation,
            o.reward_remainder,
            o.growth,
            o.discount,
            _row(o.values, run, (M, H, n)),
            o.caps,
            _row(o.bonus, run, (M, n)),
            _row(o.rewards, run, (M, n)),
            _row(o.slopes, run, (M, n)),
            _row(o.shares, run, (M, n)),
            _row(o.unseen, run, (M, n)),
            _row(o.inverse, run, (M, n)),
            _row(o.outside, run, (M, W)),
            o.missing[: learners.n_missing],
            o.penalty,
            o.terminal,
            o.ends,
            _row(o.spread, run, (M,)),
            _row(o.planned_visits, run, (S * A, M)),
            _row(o.changes, run, (M,)),
            _row(o.stale, run, (M,)),
            _row(o.due, run, (1,)),
        )
        belief = cuda.shared.array((runs, 3, M), np.float64)[slot]
        weight = cuda.shared.array((runs, M), np.float64)[slot]
        value = cuda.shared.array((runs, 2, S), np.float64)[slot]
        uniforms = cuda.shared.array((runs, H), np.float64)[slot]
        states = cuda.shared.array((runs, longest), np.int32)[slot]
        actions = cuda.shared.array((runs, H), np.int32)[slot]
        rewards = cuda.shared.array((runs, H), np.int32)[slot]
        told = cuda.shared.array((runs, 2), np.int32)[slot]
        key = learners.keys[run]
        for i in range(first_episode, first_episode + episodes):
            episode = np.uint64(i)
            if optimistic.due[0]:
                for m in range(M):
                    if optimistic.stale[m]:
                        _plan(estimate, optimistic, value, m, lane, lanes, alone, mask)
            for t in range(lane, H, lanes):
                _, uniforms[t] = uniform_pair(key, WORLD_STREAM, episode, np.uint64(t + 1))
            _meet(alone, mask)
            length = 0
            if lane == 0:
                optimistic.due[0] = optimistic.growth == 0.0
                context, s = begin_episode(chances, key, episode)
                length = act(
                    chances, estimate, optimistic, context, s, uniforms, belief, states, actions,
                    rewards,
                )  # fmt: skip
                weigh_contexts(belief, context, revealed, weight)
                told[0] = distinct_rows(estimate, states, actions, length)
                window = earned.window
                earned.returns[run, i // window] += discounted_return(
                    rewards, length, estimate.reward_values, optimistic.discount
                )
                known = belief[AWAKE, context] if context < M else np.nan
                earned.beliefs[run, i // window] += known
            _meet(alone, mask)
            for m in range(M):
                share = weight[m]
                if share == 0.0:
                    continue
                if lane == 0:
                    told[1] = count_episode(
                        estimate, optimistic, m, share, states, actions, rewards, length
                    )
                _meet(alone, mask)
                if told[1] and refresh_visited(estimate, optimistic, told[0], m, lane, lanes):
                    optimistic.due[0] = True
                _meet(alone, mask)

    return play
