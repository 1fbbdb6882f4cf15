"""Products of doubles that round alike on a CPU and on a GPU.

A GPU's compiler fuses a product and the addition that follows it into one operation; `product` is a
product that it leaves alone.
"""

from numba.extending import overload


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
