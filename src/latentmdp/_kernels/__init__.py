"""Compiled loops that several rooms share: arrays in, arrays out, no validation.

Conventions: `P` is the packed joint table P_m(s', z | s, a) of shape (S, A, S, Z, M), contiguous
along the contexts; kernels release the GIL and never launch threads of their own.

Every module is a part by itself. Whoever needs loops only when it works, not when it is imported,
reaches for them as `_kernels.rollout.decide`: numba takes half a second to import.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numba import njit

    from latentmdp._kernels import alias, belief, bellman, mixture, philox, rollout, rows, tables
else:
    from latentmdp._util.lazy import lazy_names

    _name, __dir__, __all__ = lazy_names(__name__)

    def __getattr__(name: str) -> object:
        from latentmdp._util.clock import compile_announcement  # it imports numba

        compile_announcement()
        return _name(name)
