"""Numbers that several threads share, for compiled loops that run without the GIL.

Every operation is one that no other thread can come between, and all threads see all of them in the
same order.
"""

import os
import platform

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["add_to", "count_up", "counted", "put", "wait"]


def entry_of(context, builder, kind, array, place):
    """A pointer to array[place]."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [place])


@intrinsic
def add_to(typingctx, counters, place, number):
    """Add a number to counters[place] (int64) and return what was there."""

    def emit(context, builder, signature, arguments):
        entry = entry_of(context, builder, signature.args[0], *arguments[:2])
        return builder.atomic_rmw("add", entry, arguments[2], "seq_cst")

    return types.int64(counters, types.intp, types.int64), emit


@njit
def count_up(counters, place):
    """Add one to counters[place] (int64) and return what was there."""
    return add_to(counters, place, 1)


@intrinsic
def put(typingctx, counters, place, number):
    """Set counters[place] (int64) and return what was there."""

    def emit(context, builder, signature, arguments):
        entry = entry_of(context, builder, signature.args[0], *arguments[:2])
        return builder.atomic_rmw("xchg", entry, arguments[2], "seq_cst")

    return types.int64(counters, types.intp, types.int64), emit


@intrinsic
def counted(typingctx, counters, place):
    """What counters[place] (int64) is now: read again every time, unlike an entry of an array."""

    def emit(context, builder, signature, arguments):
        entry = entry_of(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(entry, "seq_cst", 8)

    return types.int64(counters, types.intp), emit


@intrinsic
def _pause(typingctx):
    """Tell the processor, where it can be told, that this loop only waits."""

    def emit(context, builder, signature, arguments):
        if platform.machine() in ("x86_64", "AMD64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause")
            builder.call(hint, [])
        return context.get_dummy_value()

    return types.none(), emit


_YIELD = "SwitchToThread" if os.name == "nt" else "sched_yield"

_give_way = types.ExternalFunction(_YIELD, types.int32())
"""Let another thread of the machine have this core, if one waits for it."""

_PAUSES = 1000
"""Some fifty microseconds: as long as it takes to give way and to have the core again."""


@njit
def wait(waited):
    """Between two looks at a number, the next in a row after so many: returns one more.

    A short while this core is kept, so that nothing is missed.
    """
    if waited < _PAUSES:
        _pause()
    else:
        _give_way()
    return waited + 1
