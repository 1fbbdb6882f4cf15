"""Arrays of a tuple without their owners, for loops that count no references.

numba counts a reference whenever an array is taken out of a tuple or passed on, with an atomic
operation that costs as much as a step of a short loop, and proves only some of them needless. An
array without an owner is never counted.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["borrowed"]


@intrinsic
def borrowed(typingctx, arrays):
    """The same tuple, whose arrays have no owner; the caller must keep the given one meanwhile."""

    def emit(context, builder, signature, arguments):
        return disowned(context, builder, signature.args[0], arguments[0])

    return arrays(arrays), emit


def disowned(context, builder, kind, value):
    """The value, whose arrays have no owner."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        for name in ("meminfo", "parent"):
            setattr(array, name, ir.Constant(getattr(array, name).type, None))
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        items = cgutils.unpack_tuple(builder, value, len(kind))
        owned = [disowned(context, builder, k, item) for k, item in zip(kind, items)]  # type: ignore[call-overload]
        return context.make_tuple(builder, kind, owned)
    return value
