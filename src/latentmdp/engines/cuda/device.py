"""The memory of a GPU, and how kernels are started there.

With `NUMBA_ENABLE_CUDASIM=1` in the environment numba simulates a GPU, thread by thread: slow, and
meant for tests.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from latentmdp.errors import DeviceError

T = TypeVar("T")


@cache
def gpu() -> Gpu:
    """The GPU of this process.

    Raises
    ------
    DeviceError
        There is no GPU, or what is needed to use it is not installed.
    """
    return Gpu()


class Gpu:
    """Memory and kernels of a GPU."""

    def __init__(self) -> None:
        self._cuda = _cuda_module()
        self.simulated = bool(self._cuda.config.ENABLE_CUDASIM)

    @property
    def _free_bytes(self) -> float:
        if self.simulated:
            return 2.0**26
        return float(self._cuda.current_context().get_memory_info().free)

    def require_memory(self, needed: float, what: str) -> None:
        """Raise `DeviceError` if so many bytes, of work that cannot be cut, do not fit."""
        free = self._free_bytes
        if needed > 0.9 * free:  # kernels need some themselves
            raise DeviceError(
                f"{what} take {needed:.3g} bytes of the GPU's memory, {free:.3g} are free; "
                'device="cpu" uses the memory of this machine'
            )

    def pieces(self, total: int, bytes_each: float, most: int) -> list[tuple[int, int]]:
        """Cut range(total) into intervals of `most` episodes at most that fit into memory."""
        from latentmdp.engines.threads import blocks

        free = 0.4 * self._free_bytes  # the rest is for tables, and for other threads
        fitting = int(free / max(bytes_each, 1.0))
        if fitting < 1:
            raise DeviceError(
                f"one episode takes {bytes_each:.3g} bytes of the GPU's memory, {free:.3g} are free"
            )
        return blocks(total, min(most, fitting))

    def put(self, content: T) -> T:
        """A copy on the GPU: of an array, or of the arrays in a tuple."""
        if isinstance(content, tuple):
            parts = [self.put(part) for part in content]
            return type(content)(*parts) if hasattr(content, "_fields") else tuple(parts)  # type: ignore[return-value]
        if not isinstance(content, np.ndarray) or self.simulated:
            return content
        return self._cuda.to_device(np.ascontiguousarray(content))

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Any:
        """An array on the GPU, its content undefined."""
        shape = (shape,) if isinstance(shape, int) else shape
        shape = tuple(max(n, 1) for n in shape)
        return np.empty(shape, dtype) if self.simulated else self._cuda.device_array(shape, dtype)

    def fetch(self, array: Any) -> NDArray[Any]:
        """An array of the GPU as one of this machine."""
        return array if self.simulated else array.copy_to_host()

    def launch(self, kernel: Any, threads: int, *arguments: Any) -> None:
        """Start a kernel for `threads` threads; it may still run when this returns."""
        block = 4 if self.simulated else 256  # a simulated thread is one of the system, and polls
        self.launch_blocks(kernel, -(-threads // block), block, *arguments)

    def launch_blocks(self, kernel: Any, blocks: int, block: int, *arguments: Any) -> None:
        """Start a kernel for so many blocks of `block` threads each."""
        with warnings.catch_warnings():
            if blocks < 1024:  # that little work leaves much of a GPU idle needs no warning
                warnings.filterwarnings("ignore", ".*Grid size")
            kernel[blocks, block](*arguments)

    def wait(self) -> None:
        """Wait until all that was started has ended."""
        self._cuda.synchronize()


def _cuda_module() -> Any:
    """The CUDA module of numba, where it can be used."""
    # Functions that numpy has renamed and that numba-cuda still asks for when it is imported.
    for old, new in {"row_stack": "vstack", "in1d": "isin", "trapz": "trapezoid"}.items():
        if not hasattr(np, old):
            setattr(np, old, getattr(np, new))
    try:
        import numba_cuda  # noqa: F401
        from numba import cuda
    except ImportError as error:
        raise DeviceError(
            'device="cuda" needs numba-cuda: pip install "latentmdp[gpu]" '
            f"({type(error).__name__}: {error})"
        ) from error
    if not cuda.config.ENABLE_CUDASIM and not cuda.is_available():
        raise DeviceError(
            'device="cuda" needs an NVIDIA GPU and its driver, and finds none; what numba sees is '
            'printed by: python -m numba -s. device="cpu" works everywhere'
        )
    return cuda


def limited_jit(registers: int | None) -> Callable[..., Any]:
    """`cuda.jit` with so many registers for a thread; the simulator has none."""
    jit: Any = gpu()._cuda.jit
    return jit if registers is None or gpu().simulated else jit(max_registers=registers)
