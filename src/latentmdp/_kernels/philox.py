"""Philox4x32-10, the counter-based generator of [salmon2011]: a pure function of key and counter.

The key is the 64-bit seed. The four counter words are (block, stream, episode low, episode high):
block 0 starts an episode and block t+1 is its step t, so any episode can be replayed alone and
shards of a batch equal the whole. One block gives two doubles in [0, 1) with 53 random bits each.
"""

import numpy as np

from latentmdp._kernels import njit

_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)
_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_TO_DOUBLE = 1.0 / 9007199254740992.0  # 2^-53


@njit(cache=True, nogil=True, inline="always")
def philox4x32(c0, c1, c2, c3, k0, k1):
    """Ten rounds on 32-bit words held in uint64; returns the four output words."""
    for _ in range(10):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0 = (p1 >> _SHIFT) ^ c1 ^ k0
        c1 = p1 & _MASK
        c2 = (p0 >> _SHIFT) ^ c3 ^ k1
        c3 = p0 & _MASK
        k0 = (k0 + _W0) & _MASK
        k1 = (k1 + _W1) & _MASK
    return c0, c1, c2, c3


@njit(cache=True, nogil=True, inline="always")
def uniform_pair(key, stream, episode, block):
    """The two doubles in [0, 1) of one block."""
    x0, x1, x2, x3 = philox4x32(
        block, stream, episode & _MASK, episode >> _SHIFT, key & _MASK, key >> _SHIFT
    )
    first = ((x0 << _SHIFT) | x1) >> np.uint64(11)
    second = ((x2 << _SHIFT) | x3) >> np.uint64(11)
    return np.float64(first) * _TO_DOUBLE, np.float64(second) * _TO_DOUBLE
