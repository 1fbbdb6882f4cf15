"""Finding identical episodes by hashing."""

import numpy as np
from numba import njit

_PRIME = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


@njit(cache=True, nogil=True)
def _mixed(h, x):
    h = (h ^ np.uint64(x)) * _PRIME
    return (h ^ (h >> np.uint64(29))) * _MIX


@njit(cache=True, nogil=True)
def _hash(states, actions, rewards, begin, end, i, label):
    h = _mixed(np.uint64(end - begin), label + 1)
    h = _mixed(h, states[begin + i])
    for k in range(begin, end):
        h = _mixed(h, actions[k])
        h = _mixed(h, rewards[k])
        h = _mixed(h, states[k + i + 1])
    return h ^ (h >> np.uint64(32))


@njit(cache=True, nogil=True)
def _equal(states, actions, rewards, offsets, i, j):
    length, a, b = offsets[i + 1] - offsets[i], offsets[i], offsets[j]
    if length != offsets[j + 1] - b or states[a + i] != states[b + j]:
        return False
    for k in range(length):
        same = actions[a + k] == actions[b + k] and rewards[a + k] == rewards[b + k]
        if not same or states[a + i + k + 1] != states[b + j + k + 1]:
            return False
    return True


@njit(cache=True, nogil=True)
def group_identical(states, actions, rewards, offsets, labels):
    """First occurrence of each distinct (episode, label), and for every episode its group."""
    N = offsets.shape[0] - 1
    capacity = 16
    while capacity < 2 * N:
        capacity *= 2
    slots = np.full(capacity, -1, np.int64)
    first, group = np.empty(N, np.int64), np.empty(N, np.int64)
    n_groups = 0
    for i in range(N):
        h = _hash(states, actions, rewards, offsets[i], offsets[i + 1], i, labels[i])
        slot = np.int64(h & np.uint64(capacity - 1))
        while True:
            g = slots[slot]
            if g < 0:
                slots[slot] = n_groups
                first[n_groups] = i
                group[i] = n_groups
                n_groups += 1
                break
            j = first[g]
            if labels[i] == labels[j] and _equal(states, actions, rewards, offsets, i, j):
                group[i] = g
                break
            slot = (slot + 1) & (capacity - 1)
    return first[:n_groups].copy(), group
