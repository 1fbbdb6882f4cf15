"""Numba's CUDA module: found, and its kernels started."""

import warnings

import numpy as np

__all__ = ["launch", "limited_jit", "numba_cuda"]

_MISSING_NAMES = {"row_stack": "vstack", "in1d": "isin", "trapz": "trapezoid"}
"""Functions that numpy has renamed and that numba-cuda still asks for when it is imported."""

_MANY_BLOCKS = 1024


def numba_cuda():
    """The module; raises ImportError if it, or numba-cuda behind it, is not installed."""
    for old, new in _MISSING_NAMES.items():
        if not hasattr(np, old):
            setattr(np, old, getattr(np, new))
    import numba_cuda  # noqa: F401
    from numba import cuda

    return cuda


def limited_jit(registers):
    """`cuda.jit` with so many registers for a thread; the simulator has none."""
    from numba import cuda

    if registers is None or cuda.config.ENABLE_CUDASIM:
        return cuda.jit
    return cuda.jit(max_registers=registers)


def launch(kernel, blocks, block, arguments):
    """Start a kernel; that little work leaves much of a GPU idle is no reason for a warning."""
    if blocks >= _MANY_BLOCKS:
        kernel[blocks, block](*arguments)
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Grid size")
        kernel[blocks, block](*arguments)
