"""Products of doubles that round alike on a CPU and on a GPU.

A GPU's compiler fuses a product and the addition that follows it into one operation; `product` is a
product that it leaves alone. `fused` is one operation on purpose, as the vector code of `simd` has
it.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

__all__ = ["fused", "product"]

_DOUBLE = ir.DoubleType()


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
