"""Products of short rows of doubles, a vector register at a time.

The rows of a filter have one entry a context, a handful. A compiled loop over so few runs entry by
entry; these intrinsics read `_WIDTH` entries at once, masked at the end of a row, so that rows need
no padding. Sums are added in the order of the row: the results are those of the plain loop, bit for
bit.

On a GPU each thread has rows of its own, and the intrinsics become the plain loops (`_plain_...`).
There a compiler fuses a product and the addition that follows it into one operation; `product` is a
product that it leaves alone. `fused` is one operation on purpose, as the vector code of `simd` has
it.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

__all__ = [
    "fused",
    "product",
    "row_product",
    "set_products",
    "two_entries",
    "weigh_row",
]

_WIDTH = 8
_DOUBLE, _BIT, _INDEX = ir.DoubleType(), ir.IntType(1), ir.IntType(64)
_VECTOR, _MASK = ir.VectorType(_DOUBLE, _WIDTH), ir.VectorType(_BIT, _WIDTH)
_ZERO = ir.Constant(_VECTOR, [0.0] * _WIDTH)
_COUNT = ir.VectorType(_INDEX, _WIDTH)
_STEPS = ir.Constant(_COUNT, list(range(_WIDTH)))


def _spread(builder, scalar, kind):
    """A vector with the same entry everywhere."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.IntType(32)(0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), _WIDTH), [0] * _WIDTH)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), order)


def _row(context, builder, kind, value, index):
    """Where a row of a 2-d array begins, and how long it is."""
    array = context.make_array(kind)(context, builder, value)
    _, width = cgutils.unpack_tuple(builder, array.shape, 2)
    return builder.gep(array.data, [builder.mul(index, width)]), width


def _present(builder, start, width):
    """Which entries of a vector lie within the row."""
    place = builder.add(_spread(builder, start, _COUNT), _STEPS)
    return builder.icmp_signed("<", place, _spread(builder, width, _COUNT))


def _call(builder, name, result, arguments):
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, arguments)


def _load(builder, row, start, mask):
    place = builder.bitcast(builder.gep(row, [start]), _VECTOR.as_pointer())
    return _call(
        builder, "llvm.masked.load.v8f64.p0", _VECTOR, [place, ir.IntType(32)(8), mask, _ZERO]
    )


def _store(builder, vector, row, start, mask):
    place = builder.bitcast(builder.gep(row, [start]), _VECTOR.as_pointer())
    arguments = [vector, place, ir.IntType(32)(8), mask]
    _call(builder, "llvm.masked.store.v8f64.p0", ir.VoidType(), arguments)


def _add_in_order(builder, total, vector):
    return _call(builder, "llvm.vector.reduce.fadd.v8f64", _DOUBLE, [total, vector])


def _any(builder, mask):
    return _call(builder, "llvm.vector.reduce.or.v8i1", _BIT, [mask])


def _vectors(builder, width):
    """A loop over the starts of the vectors of a row."""
    return cgutils.for_range_slice(builder, width.type(0), width, width.type(_WIDTH), inc=True)


def _summed(builder, one, other, width):
    """The ordered sum of the products of two rows."""
    total = cgutils.alloca_once_value(builder, _DOUBLE(0.0))
    with _vectors(builder, width) as (start, _):
        mask = _present(builder, start, width)
        product = builder.fmul(_load(builder, one, start, mask), _load(builder, other, start, mask))
        builder.store(_add_in_order(builder, builder.load(total), product), total)
    return builder.load(total)


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


def _plain_row_product(one, i, other, j):
    total = 0.0
    for m in range(0, other.shape[1], 2):  # the width of a belief is known when this is compiled
        first, second = two_entries(one, i, m)
        total += product(first, other[j, m])
        total += product(second, other[j, m + 1])
    return total


def _plain_weigh_row(one, i, other, j, level, faint):
    total, care = 0.0, False
    for m in range(0, one.shape[1], 2):
        first, second = two_entries(other, j, m)
        total += product(one[i, m], first)
        total += product(one[i, m + 1], second)
    least = product(total, faint)
    for m in range(0, one.shape[1], 2):
        first, second = two_entries(other, j, m)
        for k in range(2):
            entry = first if k == 0 else second
            share = one[i, m + k]
            care |= one[level, m + k] > 0.0
            care |= share > 0.0 and entry > 0.0 and product(share, entry) < least
    return total, care


def _plain_set_products(one, i, other, j, scale):
    for m in range(0, one.shape[1], 2):
        first, second = two_entries(other, j, m)
        one[i, m] = product(product(one[i, m], first), scale)
        one[i, m + 1] = product(product(one[i, m + 1], second), scale)


@intrinsic
def row_product(typingctx, one, i, other, j):
    """The product of row i of one 2-d array with row j of another."""

    def emit(context, builder, signature, arguments):
        if _on_gpu(context):
            return context.compile_internal(builder, _plain_row_product, signature, arguments)
        kinds = signature.args
        left, width = _row(context, builder, kinds[0], arguments[0], arguments[1])
        right, _ = _row(context, builder, kinds[2], arguments[2], arguments[3])
        return _summed(builder, left, right, width)

    return types.float64(one, types.intp, other, types.intp), emit


@intrinsic
def weigh_row(typingctx, one, i, other, j, level, faint):
    """The product of two rows, and whether it needs care.

    It does where an entry of row `level` of the first array is positive, or where the product of
    two positive entries is less than `faint` of the whole.
    """

    def emit(context, builder, signature, arguments):
        if _on_gpu(context):
            return context.compile_internal(builder, _plain_weigh_row, signature, arguments)
        kinds = signature.args
        left, width = _row(context, builder, kinds[0], arguments[0], arguments[1])
        right, _ = _row(context, builder, kinds[2], arguments[2], arguments[3])
        levels, _ = _row(context, builder, kinds[0], arguments[0], arguments[4])
        total = _summed(builder, left, right, width)
        least = _spread(builder, builder.fmul(total, arguments[5]), _VECTOR)
        found = cgutils.alloca_once_value(builder, ir.Constant(_MASK, [0] * _WIDTH))
        with _vectors(builder, width) as (start, _):
            mask = _present(builder, start, width)
            a, b = (_load(builder, row, start, mask) for row in (left, right))
            small = builder.fcmp_ordered("<", builder.fmul(a, b), least)
            for entry in (a, b):
                small = builder.and_(small, builder.fcmp_ordered(">", entry, _ZERO))
            asleep = builder.fcmp_ordered(">", _load(builder, levels, start, mask), _ZERO)
            care = builder.or_(builder.load(found), builder.or_(small, asleep))
            builder.store(care, found)
        care = _any(builder, builder.load(found))
        return context.make_tuple(builder, signature.return_type, (total, care))

    result = types.Tuple((types.float64, types.boolean))
    return result(one, types.intp, other, types.intp, types.intp, types.float64), emit


@intrinsic
def set_products(typingctx, one, i, other, j, scale):
    """Multiply row i of one 2-d array by row j of another and by a number, in place."""

    def emit(context, builder, signature, arguments):
        if _on_gpu(context):
            return context.compile_internal(builder, _plain_set_products, signature, arguments)
        kinds = signature.args
        left, width = _row(context, builder, kinds[0], arguments[0], arguments[1])
        right, _ = _row(context, builder, kinds[2], arguments[2], arguments[3])
        factor = _spread(builder, arguments[4], _VECTOR)
        with _vectors(builder, width) as (start, _):
            mask = _present(builder, start, width)
            product = builder.fmul(
                _load(builder, left, start, mask), _load(builder, right, start, mask)
            )
            _store(builder, builder.fmul(product, factor), left, start, mask)
        return context.get_dummy_value()

    return types.void(one, types.intp, other, types.intp, types.float64), emit
