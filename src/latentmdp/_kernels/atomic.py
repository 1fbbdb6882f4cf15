"""Counters that several threads share, for compiled loops that run without the GIL."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["count_up", "counted"]


def _entry(context, builder, kind, array, place):
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [place])


@intrinsic
def count_up(typingctx, counters, place):
    """Add one to counters[place] (int64) and return what was there, as one operation.

    What a thread wrote before is seen by every thread that reads the new number.
    """

    def emit(context, builder, signature, arguments):
        entry = _entry(context, builder, signature.args[0], *arguments)
        return builder.atomic_rmw("add", entry, ir.Constant(ir.IntType(64), 1), "acq_rel")

    return types.int64(counters, types.intp), emit


@intrinsic
def counted(typingctx, counters, place):
    """What counters[place] (int64) is now: read again every time, unlike an entry of an array."""

    def emit(context, builder, signature, arguments):
        entry = _entry(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(entry, "acquire", 8)

    return types.int64(counters, types.intp), emit
