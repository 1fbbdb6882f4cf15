"""Playing episodes: the world draws, the policy acts on the state and its memory.

What a policy does next is decided here and nowhere else. Its memory is a belief and a node: the
vector of a policy graph that is in force. `followed` says which vector that is for any policy, and
`next_node` which one comes next. A policy plays whole episodes (`play_episodes`), or decides for
individuals, each with a memory of its own (`observe_first`, `decide`, `observe_next`).

A rollout plays `_LANES` episodes side by side, step by step and phase by phase: each is a long
chain of dependent operations, and the processor works on several such chains at once.

What takes a whole policy or world as an argument is inlined by numba: compiled by itself, most of
its code would unpack the argument for a caller in Python.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from latentmdp._kernels import njit
from latentmdp._kernels.alias import alias_draw, draw_entry
from latentmdp._kernels.belief import (
    AWAKE,
    Filter,
    find_outcome,
    reset_belief,
    sum_likelihoods,
    update_belief,
)
from latentmdp._kernels.philox import uniform_pair
from latentmdp._kernels.rows import product
from latentmdp._util.arrays import Floats, read_only

# Steps whose uniform numbers a lane draws at once: a loop that only draws runs in vector
# registers, and the numbers of all lanes stay in the fastest cache.
_BUFFER = 64
# Episodes side by side: enough chains for the processor to overlap, few enough beliefs to stay in
# the fastest cache.
_LANES = 16
SUMMED = 256
"""Neighbouring episodes of one context whose returns are added up at a time, a power of two; a
block of threads on a GPU, so that their sum needs no way through its memory."""

WORLD_STREAM, _DECISION_STREAM, _PART_STREAM = np.uint64(0), np.uint64(1), np.uint64(2)


class Chances(NamedTuple):
    """Alias tables of everything that chance decides in a world, by the outcomes of its table.

    Rows of outcomes with the same probabilities share their alias tables, of N entries in all; and
    so do the first states of all contexts where they are the same.
    """

    sizes: tuple[int, int, int]  # S, A, Z
    starts: NDArray[np.int64]  # (S A + 1,)
    next_state: NDArray[np.int32]  # (n,)
    reward: NDArray[np.int32]  # (n,)
    tables: NDArray[np.int64]  # (S A,): where the alias tables of each row begin
    terminal: NDArray[np.bool_]  # (S,)
    context_threshold: Floats  # (1, M)
    context_alias: NDArray[np.int32]
    initial_threshold: Floats  # (M or 1, S)
    initial_alias: NDArray[np.int32]
    outcome_threshold: Floats  # (M, N)
    outcome_alias: NDArray[np.int32]


class Links(NamedTuple):
    """The links of n nodes of a policy graph: which node follows each outcome of a node's action.

    A node lists its followers, one for each outcome, or it *stays*: then it goes on with the node
    at its own place among those of whatever state comes next. Nodes are in the order of groups
    t S + s, or s where the graph does not depend on time.
    """

    node_starts: NDArray[np.int64]  # (n + 1,): a node that stays has no followers of its own
    followers: NDArray[np.int32]  # of node i after each outcome of its action: from node_starts[i]
    stays: NDArray[np.bool_]  # (n,)


class Acting(NamedTuple):
    """A policy as arrays; time-independent ones have a single layer.

    A stochastic policy is an alias table over actions by (layer, s). Any other is alpha vectors
    with action labels, those of (layer, s) at group offsets[layer S + s]; `filters` says whether a
    belief is needed to choose among them. A policy graph `follows`: its vectors are nodes, one of K
    parts is drawn at the start, and a node says which one is next; the belief chooses it where
    something happened that the graph does not know. Arrays are read-only, those that a policy does
    not need too: one kernel is compiled for all policies.
    """

    n_layers: int
    stochastic: bool = False
    filters: bool = False
    follows: bool = False
    action_threshold: Floats = read_only(np.zeros((1, 1)))  # (layers S, A)
    action_alias: NDArray[np.int32] = read_only(np.zeros((1, 1), np.int32))
    vectors: Floats = read_only(np.zeros((1, 1)))  # (n, M)
    labels: NDArray[np.int32] = read_only(np.zeros(1, np.int32))  # (n,)
    offsets: NDArray[np.int64] = read_only(np.arange(2))  # (layers S + 1,)
    filter: Filter = Filter()
    reached: Floats = read_only(np.ones(1))  # (K,): cumulative, of the parts
    # (K, S): -1 in terminal states
    first: NDArray[np.int64] = read_only(np.zeros((1, 1), np.int64))
    node_starts: NDArray[np.int64] = read_only(np.arange(2))  # (n + 1,), see `Links` for these
    followers: NDArray[np.int32] = read_only(np.zeros(1, np.int32))
    stays: NDArray[np.bool_] = read_only(np.zeros(1, np.bool_))  # (n,)


class Playing(NamedTuple):
    """What is played: a world, a policy, and which of the episodes that chance may bring.

    Row rows[k] of the likelihoods of the policy's filter is that for outcome k of the world, -1
    where it has none; `places` are these outcomes in its table, -1 for none, if it `follows`.
    """

    chances: Chances
    acting: Acting
    rows: NDArray[np.int32]  # (n,)
    places: NDArray[np.int64]  # (n,) if the policy follows
    key: np.uint64
    first_episode: int  # the number of the first one
    horizon: int  # steps after which they are cut off


class Earning(NamedTuple):
    """What an episode earns: discount, rewards, and hidden rewards where there are any."""

    discount: float
    values: Floats  # (Z,)
    initial_bonus: Floats  # (M,)
    hidden: bool
    bonus: Floats  # (Q, M) if hidden
    rows: NDArray[np.int64]  # (S A,): row of `bonus`


@njit(cache=True, nogil=True, forceinline=True)
def best_vector(vectors, begin, end, belief):
    """The vector in begin..end-1 with the largest product with a belief; -1 if there is none.

    The first of equally good ones. Products are added in the order of the contexts and each is
    rounded by itself, so that a GPU chooses the same. The belief is (3, M), see `belief`.
    """
    if end - begin == 1:
        return np.int64(begin)
    best, winner = -np.inf, np.int64(-1)
    for k in range(begin, end):
        value = 0.0
        for m in range(belief.shape[1]):
            value += product(vectors[k, m], belief[AWAKE, m])
        if value > best:
            best, winner = value, np.int64(k)
    return winner


@njit(cache=True, nogil=True, inline="always")
def first_node(acting, key, episode, s):
    """The node of a policy graph at the first state of an episode; the part is drawn."""
    uniform, _ = uniform_pair(key, _PART_STREAM, np.uint64(episode), np.uint64(0))
    part = 0
    while part < acting.reached.shape[0] - 1 and uniform >= acting.reached[part]:
        part += 1
    return acting.first[part, s]


@njit(cache=True, nogil=True, inline="always")
def followed(acting, t, s, belief, node):
    """The vector in force at time t in state s; -1 if there is none.

    A policy graph is at its node. Any other policy follows the vector that is best at the belief,
    at every step anew.
    """
    if acting.follows and node >= 0:
        return np.int64(node)
    if t >= acting.n_layers > 1:
        return np.int64(-1)
    group = s
    if acting.n_layers > 1:
        group += t * (acting.offsets.shape[0] - 1) // acting.n_layers
    return best_vector(acting.vectors, acting.offsets[group], acting.offsets[group + 1], belief)


@njit(cache=True, nogil=True, inline="always")
def next_node(acting, node, s, a, k, t, n, belief):
    """The node after outcome k of the policy's table, with which state n is reached at time t.

    k is -1 for an outcome that the table does not list. Then, and after an action that is not the
    node's own, it is the node that is best at the belief.
    """
    S, A, _ = acting.filter.sizes
    if k < 0 or node < 0 or acting.labels[node] != a:
        return followed(acting, t, n, belief, -1)
    if not acting.stays[node]:
        link = acting.node_starts[node] + k - acting.filter.starts[s * A + a]
        return np.int64(acting.followers[link])
    if t >= acting.n_layers > 1:
        return np.int64(-1)
    layer = t if acting.n_layers > 1 else 0
    group = layer * S + n
    same = acting.offsets[group] + node - acting.offsets[max(layer - 1, 0) * S + s]
    return same if same < acting.offsets[group + 1] else np.int64(-1)


@njit(cache=True, nogil=True, inline="always")
def draw_of_row(uniform, threshold, alias, m, row, starts, tables):
    """The outcome of a row that a uniform number selects, from fields of `Chances`."""
    begin, base = starts[row], tables[row]
    end = base + starts[row + 1] - begin
    return begin - base + draw_entry(uniform, threshold, alias, m, base, end)


@njit(cache=True, nogil=True, inline="always")
def begin_episode(chances, key, episode, context=-1):
    """Context and first state of an episode; the context is drawn unless it is given."""
    first, second = uniform_pair(key, WORLD_STREAM, episode, np.uint64(0))
    return begin_by(chances, first, second, context)


@njit(cache=True, nogil=True, inline="always")
def begin_by(chances, first, second, context):
    """`begin_episode` by the two uniform numbers of its block 0."""
    m = np.int64(context)
    if context < 0:
        m = alias_draw(first, chances.context_threshold, chances.context_alias, 0)
    row = m if chances.initial_threshold.shape[0] > 1 else np.int64(0)
    return m, alias_draw(second, chances.initial_threshold, chances.initial_alias, row)


@njit(cache=True, nogil=True)
def world_step(chances, key, episode, t, m, s, a):
    """Next state and reward index at step t of an episode."""
    _, uniform = uniform_pair(key, WORLD_STREAM, episode, np.uint64(t + 1))
    row, starts = s * chances.sizes[1] + a, chances.starts
    threshold, alias = chances.outcome_threshold, chances.outcome_alias
    k = draw_of_row(uniform, threshold, alias, m, row, starts, chances.tables)
    return np.int64(chances.next_state[k]), np.int64(chances.reward[k])


@njit(cache=True, nogil=True, inline="always")
def add_scaled(total, scale, earned):
    """The sum total + scale earned, rounded twice on every machine."""
    return total + product(scale, earned)


@njit(cache=True, nogil=True)
def draw_uniforms(key, episode, start, count, first, second):
    """Fill both arrays with the uniform numbers of blocks start, start + 1, ...

    Block 0 begins an episode, and block t + 1 is its step t.
    """
    for j in range(count):
        first[j], second[j] = uniform_pair(key, WORLD_STREAM, episode, np.uint64(start + j))


@njit(cache=True, nogil=True)
def play_episodes(
    start, stop, playing, contexts, lengths, states, actions, rewards, earning, returns
):
    """Play the episodes of rows start..stop-1, and note there what is asked for.

    Row i is episode number first_episode + i, in the context contexts[i], or in one that is drawn
    and noted there if that is -1. Fills lengths (N,), states (N, H+1), actions (N, H) and rewards
    (N, H) unless they have no rows, and the returns (N,) by `earning` unless they have none: arrays
    of one type in every case, so that one kernel is compiled.
    """
    chances, acting, rows, places, key, first_episode, horizon = playing
    stores, earns = states.shape[0] > 0, returns.shape[0] > 0
    S, A = chances.sizes[0], chances.sizes[1]
    # Fields are read once: a field that is read in the loop counts a reference there.
    starts, next_state, reward = chances.starts, chances.next_state, chances.reward
    outcome_threshold, outcome_alias = chances.outcome_threshold, chances.outcome_alias
    tables, likelihood = chances.tables, acting.filter.likelihood
    action_threshold, action_alias = acting.action_threshold, acting.action_alias
    vectors, labels, offsets = acting.vectors, acting.labels, acting.offsets
    prior, initial, terminal = acting.filter.prior, acting.filter.initial, chances.terminal
    values, bonus, hidden = earning.values, earning.bonus, earning.hidden
    paid, begins_at = earning.rows, acting.filter.begins
    beliefs = np.empty((_LANES, 3, prior.shape[0]))
    first, second = np.empty((_LANES, _BUFFER)), np.empty((_LANES, _BUFFER))
    state, context = np.empty(_LANES, np.int64), np.empty(_LANES, np.int64)
    action, outcome = np.empty(_LANES, np.int64), np.empty(_LANES, np.int64)
    node = np.empty(_LANES, np.int64)
    zero = np.int64(0)  # not written out in a call, which would compile the callee anew
    for begins in range(start, stop, _LANES):
        count = min(_LANES, stop - begins)
        running = 0
        for e in range(count):
            i = begins + e
            episode, numbers = np.uint64(first_episode + i), min(_BUFFER, horizon + 1)
            draw_uniforms(key, episode, zero, numbers, first[e], second[e])
            m, s = begin_by(chances, first[e, 0], second[e, 0], contexts[i])
            context[e], state[e], contexts[i] = m, s, m
            lengths[i] = 0 if terminal[s] else horizon
            running += not terminal[s]
            if acting.filters:
                reset_belief(beliefs[e], prior, initial, begins_at[s])
            if acting.follows:
                node[e] = first_node(acting, key, first_episode + i, s)
            if stores:
                states[i, 0] = s
            if earns:
                returns[i] = earning.initial_bonus[m]
        scale = 1.0
        for t in range(horizon):
            if running == 0:
                break
            j = (t + 1) % _BUFFER
            if j == 0:  # in one go, since this loop runs in vector registers
                for e in range(count):
                    if lengths[begins + e] == horizon:
                        episode = np.uint64(first_episode + begins + e)
                        draw_uniforms(
                            key, episode, t + 1, min(_BUFFER, horizon - t), first[e], second[e]
                        )
            # One phase after the other for all lanes: what a lane waits for, others overlap.
            for e in range(count):
                if lengths[begins + e] == horizon:
                    group = t * S + state[e] if acting.n_layers > 1 else state[e]
                    if acting.stochastic:
                        a = alias_draw(first[e, j], action_threshold, action_alias, group)
                    elif acting.follows:
                        a = np.int64(labels[node[e]])
                    else:
                        begin, end = offsets[group], offsets[group + 1]
                        a = np.int64(labels[best_vector(vectors, begin, end, beliefs[e])])
                    action[e] = a
            for e in range(count):
                if lengths[begins + e] == horizon:
                    outcome[e] = draw_of_row(
                        second[e, j], outcome_threshold, outcome_alias, context[e],
                        state[e] * A + action[e], starts, tables,
                    )  # fmt: skip
            for e in range(count):
                i, k = begins + e, outcome[e]
                if lengths[i] < horizon:
                    continue
                n, z = np.int64(next_state[k]), np.int64(reward[k])
                if acting.filters and rows[k] >= 0:
                    update_belief(beliefs[e], likelihood, np.int64(rows[k]))
                if acting.follows:
                    belief = beliefs[e]
                    node[e] = next_node(
                        acting, node[e], state[e], action[e], places[k], t + 1, n, belief
                    )
                if stores:
                    actions[i, t], rewards[i, t], states[i, t + 1] = action[e], z, n
                if earns:
                    earned = values[z]
                    if hidden:
                        earned += bonus[paid[state[e] * A + action[e]], context[e]]
                    returns[i] = add_scaled(returns[i], scale, earned)
                state[e] = n
                if terminal[n]:
                    lengths[i] = t + 1
                    running -= 1
            if earns:
                scale *= earning.discount


class ContextRuns(NamedTuple):
    """Episodes 0, 1, ... that go through the contexts one after the other, cut into blocks.

    A block has `SUMMED` neighbouring episodes of one context, the last of a context what is left.
    """

    episodes: NDArray[np.int64]  # (M + 1,): the first episode of each context, and their number
    blocks: NDArray[np.int64]  # (M + 1,): the first block of each context, and their number

    @classmethod
    def of(cls, counts: NDArray[np.int64]) -> Self:
        """So many episodes in each context."""
        sizes = (counts, -(-counts // SUMMED))
        return cls(*(np.concatenate([[0], np.cumsum(size)]) for size in sizes))

    def spans(self, start: int, stop: int) -> tuple[NDArray[np.int64], ...]:
        """Of the blocks start..stop-1: the context, the first episode, and how many they have."""
        block = np.arange(start, stop)
        m = np.searchsorted(self.blocks, block, side="right") - 1
        first = self.episodes[m] + (block - self.blocks[m]) * SUMMED
        return m, first, np.minimum(SUMMED, self.episodes[m + 1] - first)


def sum_blocks(returns: Floats, sizes: NDArray[np.int64]) -> Floats:
    """Sums (B, 2) of blocks of returns: of themselves, and of squared distances from their mean.

    Block b has the next sizes[b] of the returns. They are added in halves: i and i + 128 for
    i < 128, then with 64, and so on to 1; what is beyond the size is zero. A GPU adds in the same
    order.
    """
    room, listed = np.zeros((sizes.size, SUMMED)), np.arange(SUMMED) < sizes[:, None]
    room[listed] = returns
    totals = _added(room)
    squares = np.where(listed, (room - (totals / sizes)[:, None]) ** 2, 0.0)
    return np.stack([totals, _added(squares)], axis=1)


def _added(room: Floats) -> Floats:
    while room.shape[1] > 1:
        half = room.shape[1] // 2
        room = room[:, :half] + room[:, half:]
    return room[:, 0]


def sum_returns(
    start: int, stop: int, playing: Playing, earning: Earning, runs: ContextRuns, sums: Floats
) -> None:
    """Fill sums[b] (2,) with what `sum_blocks` makes of the returns of the blocks start..stop-1.

    The episodes and their contexts are those of `runs`, with numbers from first_episode on. Not
    compiled: the sums are next to nothing beside the episodes.
    """
    context, first, sizes = runs.spans(start, stop)
    contexts = np.repeat(context, sizes).astype(np.int32)
    lengths, returns = np.empty(contexts.size, np.int64), np.empty(contexts.size)
    nothing = np.empty((0, 0), np.int32)
    playing = playing._replace(first_episode=playing.first_episode + int(first[0]))
    noted = (contexts, lengths, nothing, nothing, nothing)
    play_episodes(0, contexts.size, playing, *noted, earning, returns)
    sums[start:stop] = sum_blocks(returns, sizes)


@njit(cache=True, nogil=True)
def observe_first(acting, key, beliefs, nodes, states):
    """Begin an episode for every individual: its prior, the belief so far, on its first state.

    Beliefs are (N, 3, M), nodes and states (N,).
    """
    for i in range(states.shape[0]):
        if acting.filters:
            update_belief(beliefs[i], acting.filter.initial, acting.filter.begins[states[i]])
        if acting.follows:
            nodes[i] = first_node(acting, key, i, states[i])


@njit(cache=True, nogil=True)
def observe_next(acting, t, beliefs, nodes, running, before, actions, states, rewards):
    """Condition each belief on (s', z), reached at time t, and go on to the next nodes.

    An impossible observation leaves a belief as it was. A reward of -1 is missing.
    """
    table = acting.filter
    starts, next_state, reward, likelihood = (
        table.starts, table.next_state, table.reward, table.likelihood
    )  # fmt: skip
    scratch = np.empty((1, beliefs.shape[2]))
    for i in range(states.shape[0]):
        if not (running[i] and acting.filters):
            continue
        s, a, n, z = before[i], actions[i], states[i], np.int32(rewards[i])
        k = np.int64(-1)
        if z < 0:
            sum_likelihoods(table, s, a, n, z, scratch)
            update_belief(beliefs[i], scratch, np.int64(0))
        else:
            k = find_outcome(table.sizes, starts, next_state, reward, s, a, n, z)
            if k >= 0:  # an outcome that is not listed leaves the belief alone
                update_belief(beliefs[i], likelihood, np.int64(table.pattern[k]))
        if acting.follows:
            nodes[i] = next_node(acting, nodes[i], s, a, k, t, n, beliefs[i])


@njit(cache=True, nogil=True, inline="always")
def decision_uniform(key, individual, t):
    """The uniform number by which a stochastic policy decides for an individual at time t."""
    return uniform_pair(key, _DECISION_STREAM, np.uint64(individual), np.uint64(t))[0]


@njit(cache=True, nogil=True, inline="always")
def choose(acting, t, s, belief, node, uniform):
    """The action of a policy at time t in state s; a number draws that of a stochastic one."""
    if acting.stochastic:
        group = s
        if acting.n_layers > 1:
            group += t * acting.action_threshold.shape[0] // acting.n_layers
        return alias_draw(uniform, acting.action_threshold, acting.action_alias, group)
    return np.int64(acting.labels[followed(acting, t, s, belief, node)])


@njit(cache=True, nogil=True)
def decide(acting, t, key, running, beliefs, nodes, states, actions):
    """The action of every individual at time t, -1 for those whose episode is over."""
    for i in range(states.shape[0]):
        actions[i] = -1
        if running[i]:
            uniform = decision_uniform(key, i, t) if acting.stochastic else 0.0
            actions[i] = choose(acting, t, states[i], beliefs[i], nodes[i], uniform)
