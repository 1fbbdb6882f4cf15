"""Small loops that several kernels share; a loop compiles faster than an assignment of slices."""

from numba import njit


@njit(cache=True, nogil=True)
def copy(source, target):
    """Copy an array (n, m)."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@njit(cache=True, nogil=True)
def sort_down(items, keys):
    """Sort items (n,) in place by falling keys[item]; ties keep their order.

    An insertion sort: items are few (contexts, actions or states) and this runs very often.
    """
    for i in range(1, items.shape[0]):
        item = items[i]
        j = i
        while j > 0 and keys[items[j - 1]] < keys[item]:
            items[j] = items[j - 1]
            j -= 1
        items[j] = item


@njit(cache=True, nogil=True)
def next_action(limits, tried):
    """The untried action with the largest bound, marked as tried."""
    best = -1
    for a in range(limits.shape[0]):
        if not tried[a] and (best < 0 or limits[a] > limits[best]):
            best = a
    tried[best] = True
    return best
