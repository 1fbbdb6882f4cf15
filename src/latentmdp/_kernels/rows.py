"""Products of doubles that round alike on a CPU and on a GPU, and pairs of entries read at once.

A GPU's compiler fuses a product and the addition that follows it into one operation; `product` is a
product that it leaves alone. `fused` is one operation on purpose, as the vector code of `simd` has
it.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

__all__ = ["fused", "product", "two_entries"]

_DOUBLE = ir.DoubleType()


def _row(context, builder, kind, value, index):
    """Where a row of a 2-d array begins, and how long it is."""
    array = context.make_array(kind)(context, builder, value)
    _, width = cgutils.unpack_tuple(builder, array.shape, 2)
    return builder.gep(array.data, [builder.mul(index, width)]), width


def _call(builder, name, result, arguments):
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, arguments)


def _on_gpu(context):
    """Whether code is made for a GPU; `numba.cuda` is not imported to find out."""
    return "CUDA" in type(context).__name__


def product(one: float, other: float) -> float:
    """The product of two doubles, rounded by itself on every machine.

    A GPU's compiler fuses a product and the sum it goes into, with one rounding fewer, unless it is
    told not to: so this function has another body there, and both machines give the same bits.
    """
    return one * other


@overload(product, target="generic")
def _product(one, other):
    return lambda one, other: one * other


@overload(product, target="cuda")
def _product_on_gpu(one, other):
    from numba.cuda import libdevice

    return lambda one, other: libdevice.dmul_rn(one, other)


@intrinsic
def fused(typingctx, one, other, total):
    """The sum total + one other, rounded once where the machine can."""

    def emit(context, builder, signature, arguments):
        name = "llvm.fma.f64" if _on_gpu(context) else "llvm.fmuladd.f64"
        return _call(builder, name, _DOUBLE, list(arguments))

    f = types.float64
    return f(f, f, f), emit


@intrinsic
def two_entries(typingctx, table, i, m):
    """Entries m and m + 1 of row i, read at once: m and the width of the table are even."""

    def emit(context, builder, signature, arguments):
        row, _ = _row(context, builder, signature.args[0], arguments[0], arguments[1])
        pair = ir.VectorType(_DOUBLE, 2)
        place = builder.bitcast(builder.gep(row, [arguments[2]]), pair.as_pointer())
        read = builder.load(place, align=16 if _on_gpu(context) else 8)
        entries = [builder.extract_element(read, ir.IntType(32)(k)) for k in range(2)]
        return context.make_tuple(builder, signature.return_type, entries)

    return types.UniTuple(types.float64, 2)(table, types.intp, types.intp), emit
