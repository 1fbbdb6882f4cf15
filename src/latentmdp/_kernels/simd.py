"""Vector instructions for the inner loops of backward induction and of the search for plans.

LLVM's own vectoriser guards short loops with alias checks and scalar remainders that cost more than
the arithmetic. These intrinsics emit the loads, fused multiply-adds and maxima on vectors of
`LANES` doubles directly; LLVM lowers them to whatever the machine has. Rows must be padded to a
multiple of `LANES`.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "CONTEXT_LANES",
    "LANES",
    "back_up_state_4",
    "back_up_state_8",
    "best_product",
    "block_products",
    "discounted_maxima",
    "expected_row",
    "expected_values",
    "extent",
    "keep_larger",
    "raised_values",
]

LANES = 8
CONTEXT_LANES = 4  # contexts are few: 5 of them are padded to 8, 3 to 4
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_UNDEFINED = ir.Constant(_VECTOR, ir.Undefined)
_PANELS = (6, 3, 2, 1)  # vectors kept in registers at once
_BEST_PANELS = (3, 1)  # the same where maxima and their places are kept too
_CONTEXTS = ir.VectorType(ir.DoubleType(), CONTEXT_LANES)


def _fused_multiply_add(builder, kind=_VECTOR):
    name = f"llvm.fmuladd.v{kind.count}f64"
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)


def _broadcast(builder, scalar):
    first = builder.insert_element(_UNDEFINED, scalar, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, _UNDEFINED, mask)


def _vector_at(builder, base, index, kind=_VECTOR):
    return builder.bitcast(builder.gep(base, [index]), kind.as_pointer())


def _array(context, builder, kind, value):
    array = context.make_array(kind)(context, builder, value)
    return array.data, cgutils.unpack_tuple(builder, array.shape, kind.ndim)


def _integer(like, value):
    return ir.Constant(like.type, value)


def _emit_panel(builder, pointers, S, n, column, width):
    """One panel: `width` vectors of q accumulate in registers while x runs over next states."""
    T, R, value, q = pointers
    fused = _fused_multiply_add(builder)
    columns = [builder.add(column, _integer(n, LANES * k)) for k in range(width)]
    sums = [cgutils.alloca_once(builder, _VECTOR) for _ in range(width)]
    for place, total in zip(columns, sums):
        builder.store(builder.load(_vector_at(builder, R, place), align=8), total)
    with cgutils.for_range(builder, S) as loop:
        factor = _broadcast(builder, builder.load(builder.gep(value, [loop.index])))
        row = builder.mul(loop.index, n)
        for place, total in zip(columns, sums):
            entry = builder.load(_vector_at(builder, T, builder.add(row, place)), align=8)
            builder.store(builder.call(fused, [factor, entry, builder.load(total)]), total)
    for place, total in zip(columns, sums):
        builder.store(builder.load(total), _vector_at(builder, q, place), align=8)


@intrinsic
def expected_values(typingctx, T, R, value, q, m, t):
    """Set q[m, t, i] = R[m, i] + sum_x value[x] T[m, x, i] for all i of a padded row.

    T is (M, S, n), R (M, n), value at least (S,) and q (M, H, n).
    """

    def emit(context, builder, signature, arguments):
        T_data, (_, S, n) = _array(context, builder, signature.args[0], arguments[0])
        R_data, _ = _array(context, builder, signature.args[1], arguments[1])
        value_data, _ = _array(context, builder, signature.args[2], arguments[2])
        q_data, (_, H, _) = _array(context, builder, signature.args[3], arguments[3])
        m_index, t_index = arguments[4:]
        row = builder.add(builder.mul(m_index, H), t_index)
        pointers = (
            builder.gep(T_data, [builder.mul(m_index, builder.mul(S, n))]),
            builder.gep(R_data, [builder.mul(m_index, n)]),
            value_data,
            builder.gep(q_data, [builder.mul(row, n)]),
        )
        done = _integer(n, 0)
        for width in _PANELS:
            lanes = _integer(n, width * LANES)
            panels = builder.udiv(builder.sub(n, done), lanes)
            with cgutils.for_range(builder, panels) as loop:
                column = builder.add(done, builder.mul(loop.index, lanes))
                _emit_panel(builder, pointers, S, n, column, width)
            done = builder.add(done, builder.mul(panels, lanes))
        return context.get_dummy_value()

    return types.void(T, R, value, q, types.intp, types.intp), emit


def _emit_raised_panel(builder, pointers, scalars, S, n, column, width):
    """One panel of `raised_values`: mean and second moment accumulate side by side."""
    T, value, q, *rows = pointers
    origin, span, room, cap = scalars
    fused = _fused_multiply_add(builder)
    root = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_VECTOR, [_VECTOR]), f"llvm.sqrt.v{LANES}f64"
    )
    columns = [builder.add(column, _integer(n, LANES * k)) for k in range(width)]
    zero = ir.Constant(_VECTOR, [0.0] * LANES)
    means, seconds = (
        [cgutils.alloca_once(builder, _VECTOR) for _ in range(width)] for _ in range(2)
    )
    for total in (*means, *seconds):
        builder.store(zero, total)
    with cgutils.for_range(builder, S) as loop:
        factor = _broadcast(builder, builder.load(builder.gep(value, [loop.index])))
        factor = builder.fsub(factor, origin)
        square = builder.fmul(factor, factor)
        row = builder.mul(loop.index, n)
        for place, mean, second in zip(columns, means, seconds):
            entry = builder.load(_vector_at(builder, T, builder.add(row, place)), align=8)
            builder.store(builder.call(fused, [factor, entry, builder.load(mean)]), mean)
            builder.store(builder.call(fused, [square, entry, builder.load(second)]), second)
    for place, mean, second in zip(columns, means, seconds):
        reward, slope, share, unseen, inverse = (
            builder.load(_vector_at(builder, base, place), align=8) for base in rows
        )
        expected = builder.load(mean)
        squared = builder.fmul(builder.fmul(expected, expected), inverse)
        variance = builder.fsub(builder.load(second), squared)
        variance = builder.select(builder.fcmp_ordered(">", variance, zero), variance, zero)
        deviation = builder.call(root, [variance])
        total = builder.fadd(builder.fadd(expected, origin), reward)
        for left, right in ((unseen, room), (share, span), (slope, deviation)):
            total = builder.call(fused, [left, right, total])
        total = builder.select(builder.fcmp_ordered("<", total, cap), total, cap)
        builder.store(total, _vector_at(builder, q, place), align=8)


@intrinsic
def raised_values(
    typingctx, T, value, q, R, slopes, shares, unseen, inverse, m, t, origin, span, cap
):
    """Set q[m, t, i], for all i of a padded row, to the optimistic value

        min(cap, R + E + origin + slopes sqrt(second - E^2 inverse) + shares span
                 + unseen (cap - origin))

    with E = sum_x (value[x] - origin) T[m, x, i] and `second` the same of squares. T is (M, S, n);
    value is at least (S,), q is (M, H, n); R, slopes, shares, unseen and inverse are (M, n).
    """

    def emit(context, builder, signature, arguments):
        T_data, (_, S, n) = _array(context, builder, signature.args[0], arguments[0])
        value_data, _ = _array(context, builder, signature.args[1], arguments[1])
        q_data, (_, H, _) = _array(context, builder, signature.args[2], arguments[2])
        m_index, t_index = arguments[8:10]
        by_row = (
            builder.gep(_array(context, builder, kind, array)[0], [builder.mul(m_index, n)])
            for kind, array in zip(signature.args[3:8], arguments[3:8])
        )
        row = builder.add(builder.mul(m_index, H), t_index)
        pointers = (
            builder.gep(T_data, [builder.mul(m_index, builder.mul(S, n))]),
            value_data,
            builder.gep(q_data, [builder.mul(row, n)]),
            *by_row,
        )
        origin, span, cap = arguments[10:]
        numbers = (origin, span, builder.fsub(cap, origin), cap)
        scalars = [_broadcast(builder, number) for number in numbers]
        done = _integer(n, 0)
        for width in _PANELS:
            lanes = _integer(n, width * LANES)
            panels = builder.udiv(builder.sub(n, done), lanes)
            with cgutils.for_range(builder, panels) as loop:
                column = builder.add(done, builder.mul(loop.index, lanes))
                _emit_raised_panel(builder, pointers, scalars, S, n, column, width)
            done = builder.add(done, builder.mul(panels, lanes))
        return context.get_dummy_value()

    i, f = types.intp, types.float64
    return types.void(T, value, q, R, slopes, shares, unseen, inverse, i, i, f, f, f), emit


@intrinsic
def extent(typingctx, value, outside, m):
    """The least and the largest value[s] of a padded row, of those s where outside[m, s] is 0.

    `outside` (M, W) is infinite elsewhere; (inf, -inf) if it is infinite everywhere.
    """

    def emit(context, builder, signature, arguments):
        value_data, (W,) = _array(context, builder, signature.args[0], arguments[0])
        outside_data, _ = _array(context, builder, signature.args[1], arguments[1])
        start = builder.mul(arguments[2], W)
        ends = [ir.Constant(_VECTOR, [sign * float("inf")] * LANES) for sign in (1.0, -1.0)]
        low, high = (cgutils.alloca_once(builder, _VECTOR) for _ in ends)
        for place, end in zip((low, high), ends):
            builder.store(end, place)
        with cgutils.for_range(builder, builder.udiv(W, _integer(W, LANES))) as block:
            column = builder.mul(block.index, _integer(W, LANES))
            entry = builder.load(_vector_at(builder, value_data, column), align=8)
            place = _vector_at(builder, outside_data, builder.add(start, column))
            far = builder.load(place, align=8)
            _keep(builder, "<", builder.fadd(entry, far), low)
            _keep(builder, ">", builder.fsub(entry, far), high)
        first = ir.Constant(ir.IntType(32), 0)
        found = []
        for order, place in (("<", low), (">", high)):
            vector, half = builder.load(place), LANES // 2
            while half:  # the better of both halves, until one is left
                turned = [(k + half) % LANES for k in range(LANES)]
                mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), turned)
                other = builder.shuffle_vector(vector, _UNDEFINED, mask)
                larger = builder.fcmp_ordered(order, other, vector)
                vector, half = builder.select(larger, other, vector), half // 2
            found.append(builder.extract_element(vector, first))
        return context.make_tuple(builder, signature.return_type, found)

    pair = types.UniTuple(types.float64, 2)
    return pair(value, outside, types.intp), emit


def _keep(builder, order, new, place):
    old = builder.load(place)
    builder.store(builder.select(builder.fcmp_ordered(order, new, old), new, old), place)


@intrinsic
def discounted_maxima(typingctx, q, m, t, n_actions, discount, value):
    """Set value[s] = discount max_a q[m, t, a W + s] for all s of a padded row of W states."""

    def emit(context, builder, signature, arguments):
        q_data, (_, H, n) = _array(context, builder, signature.args[0], arguments[0])
        value_data, (W,) = _array(context, builder, signature.args[5], arguments[5])
        m_index, t_index, A = arguments[1:4]
        factor = _broadcast(builder, arguments[4])
        row = builder.gep(q_data, [builder.mul(builder.add(builder.mul(m_index, H), t_index), n)])
        best = cgutils.alloca_once(builder, _VECTOR)
        with cgutils.for_range(builder, builder.udiv(W, _integer(W, LANES))) as block:
            start = builder.mul(block.index, _integer(W, LANES))
            builder.store(builder.load(_vector_at(builder, row, start), align=8), best)
            with cgutils.for_range(builder, A, start=_integer(A, 1)) as loop:
                place = builder.add(builder.mul(loop.index, W), start)
                other = builder.load(_vector_at(builder, row, place), align=8)
                current = builder.load(best)
                larger = builder.fcmp_ordered(">", other, current)
                builder.store(builder.select(larger, other, current), best)
            product = builder.fmul(factor, builder.load(best))
            builder.store(product, _vector_at(builder, value_data, start), align=8)
        return context.get_dummy_value()

    arguments = (q, types.intp, types.intp, types.intp, types.float64, value)
    return types.void(*arguments), emit


@intrinsic
def block_products(typingctx, columns, mass, begin, out, place):
    """Set out[place + i] = sum_m mass[m] columns[m, begin + i] for the `LANES` values of i.

    columns is (M, n) in C order, mass (M,), begin + LANES <= n and place + LANES <= len(out).
    """

    def emit(context, builder, signature, arguments):
        columns_data, (M, n) = _array(context, builder, signature.args[0], arguments[0])
        mass_data, _ = _array(context, builder, signature.args[1], arguments[1])
        out_data, _ = _array(context, builder, signature.args[3], arguments[3])
        fused = _fused_multiply_add(builder)
        total = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0.0] * LANES))
        with cgutils.for_range(builder, M) as loop:
            factor = _broadcast(builder, builder.load(builder.gep(mass_data, [loop.index])))
            row = builder.add(builder.mul(loop.index, n), arguments[2])
            entry = builder.load(_vector_at(builder, columns_data, row), align=8)
            builder.store(builder.call(fused, [factor, entry, builder.load(total)]), total)
        builder.store(builder.load(total), _vector_at(builder, out_data, arguments[4]), align=8)
        return context.get_dummy_value()

    return types.void(columns, mass, types.intp, out, types.intp), emit


def _emit_contexts(builder, pointers, ends, width, column, panel):
    """One panel of contexts: `panel` vectors accumulate while k runs over a row's outcomes."""
    probs, length, following, value, stride, shift, reward, out = pointers
    fused = _fused_multiply_add(builder, _CONTEXTS)
    columns = [builder.add(column, _integer(width, CONTEXT_LANES * k)) for k in range(panel)]
    sums = [cgutils.alloca_once(builder, _CONTEXTS) for _ in range(panel)]
    for place, total in zip(columns, sums):
        builder.store(builder.load(_vector_at(builder, reward, place, _CONTEXTS), align=8), total)
    with cgutils.for_range(builder, ends[1], start=ends[0]) as loop:
        n = builder.sext(builder.load(builder.gep(following, [loop.index])), width.type)
        later = builder.mul(builder.add(builder.mul(n, stride), shift), width)
        row = builder.mul(loop.index, length)
        for place, total in zip(columns, sums):
            left, right = (
                builder.load(
                    _vector_at(builder, base, builder.add(start, place), _CONTEXTS), align=8
                )
                for base, start in ((probs, row), (value, later))
            )
            builder.store(builder.call(fused, [left, right, builder.load(total)]), total)
    for place, total in zip(columns, sums):
        builder.store(builder.load(total), _vector_at(builder, out, place, _CONTEXTS), align=8)


@intrinsic
def expected_row(
    typingctx, probs, next_state, begin, end, value, stride, shift, rewards, row, out, place
):
    """Set a row of `out` to rewards[row] + sum_k probs[k] value[next_state[k] stride + shift].

    k runs over begin .. end - 1; products are entry by entry over the contexts. value and rewards
    have rows of one width W, a multiple of `CONTEXT_LANES`. Rows of probs may be shorter: W
    entries are read from the beginning of each. In memory, the row of `out` is its entries number
    place .. place + W - 1, wherever its own rows begin.
    """

    def emit(context, builder, signature, arguments):
        kinds = signature.args
        probs_data, (_, length) = _array(context, builder, kinds[0], arguments[0])
        following, _ = _array(context, builder, kinds[1], arguments[1])
        value_data, _ = _array(context, builder, kinds[4], arguments[4])
        rewards_data, (_, width) = _array(context, builder, kinds[7], arguments[7])
        out_data, _ = _array(context, builder, kinds[9], arguments[9])
        pointers = (
            probs_data,
            length,
            following,
            value_data,
            *arguments[5:7],
            builder.gep(rewards_data, [builder.mul(arguments[8], width)]),
            builder.gep(out_data, [arguments[10]]),
        )
        done = _integer(width, 0)
        for panel in _PANELS:
            lanes = _integer(width, panel * CONTEXT_LANES)
            panels = builder.udiv(builder.sub(width, done), lanes)
            with cgutils.for_range(builder, panels) as loop:
                column = builder.add(done, builder.mul(loop.index, lanes))
                _emit_contexts(builder, pointers, arguments[2:4], width, column, panel)
            done = builder.add(done, builder.mul(panels, lanes))
        return context.get_dummy_value()

    i = types.intp
    return types.void(probs, next_state, i, i, value, i, i, rewards, i, out, i), emit


def _state_backup(lanes):
    """An intrinsic that backs up one state where all contexts fit into one vector of `lanes`."""
    vector = ir.VectorType(ir.DoubleType(), lanes)

    @intrinsic
    def back_up_state(
        typingctx, probs, next_state, starts, first, last, later, rewards, q, stride, best, s
    ):
        """Back up the rows first..last-1 of state s, and their maximum, see `best_rows`."""

        def emit(context, builder, signature, arguments):
            kinds = signature.args
            probs_data, (_, length) = _array(context, builder, kinds[0], arguments[0])
            following, _ = _array(context, builder, kinds[1], arguments[1])
            starts_data, _ = _array(context, builder, kinds[2], arguments[2])
            later_data, _ = _array(context, builder, kinds[5], arguments[5])
            rewards_data, _ = _array(context, builder, kinds[6], arguments[6])
            q_data, _ = _array(context, builder, kinds[7], arguments[7])
            best_data, _ = _array(context, builder, kinds[9], arguments[9])
            first, last, stride, state = (arguments[i] for i in (3, 4, 8, 10))
            width = _integer(first, lanes)
            signature_ = ir.FunctionType(vector, [vector] * 3)
            fused = cgutils.get_or_insert_function(
                builder.module, signature_, f"llvm.fmuladd.v{lanes}f64"
            )

            def at(base, place):
                return _vector_at(builder, base, place, vector)

            lowest = ir.Constant(vector, [float("-inf")] * lanes)
            largest = cgutils.alloca_once_value(builder, lowest)
            total = cgutils.alloca_once(builder, vector)
            with cgutils.for_range(builder, last, start=first) as rows:
                row = rows.index
                start = builder.mul(row, width)
                builder.store(builder.load(at(rewards_data, start), align=8), total)
                begin = builder.load(builder.gep(starts_data, [row]))
                end = builder.load(builder.gep(starts_data, [builder.add(row, _integer(row, 1))]))
                with cgutils.for_range(builder, end, start=begin) as steps:
                    n = builder.load(builder.gep(following, [steps.index]))
                    place = builder.mul(builder.sext(n, first.type), width)
                    chance = builder.load(at(probs_data, builder.mul(steps.index, length)), align=8)
                    value = builder.load(at(later_data, place), align=8)
                    builder.store(builder.call(fused, [chance, value, builder.load(total)]), total)
                found, before = builder.load(total), builder.load(largest)
                builder.store(found, at(q_data, builder.mul(row, stride)), align=8)
                larger = builder.fcmp_ordered(">", found, before)
                builder.store(builder.select(larger, found, before), largest)
            target = at(best_data, builder.mul(state, width))
            builder.store(builder.load(largest), target, align=8)
            return context.get_dummy_value()

        i = types.intp
        return types.void(probs, next_state, starts, i, i, later, rewards, q, i, best, i), emit

    return back_up_state


back_up_state_4, back_up_state_8 = _state_backup(4), _state_backup(8)
"""Set q[row] = rewards[row] + sum_k probs[k] later[next_state[k]] for rows first..last-1 of state s
and best[s] to their maximum; k runs from starts[row] to starts[row + 1]. rewards, later and best
have rows of 4, or 8, contexts; as many are read from the beginning of a row of probs. A row of q
begins at entry row `stride` and spills over into what comes after it."""


@intrinsic
def keep_larger(typingctx, best, row, first, other, place):
    """Set best[row] to its maximum with `other`, or to `other` if this is the `first`.

    best has rows of width W; the W entries of `other` lie in memory from number `place` on.
    """

    def emit(context, builder, signature, arguments):
        best_data, (_, width) = _array(context, builder, signature.args[0], arguments[0])
        other_data, _ = _array(context, builder, signature.args[3], arguments[3])
        start = builder.mul(arguments[1], width)
        with cgutils.for_range(
            builder, builder.udiv(width, _integer(width, CONTEXT_LANES))
        ) as loop:
            column = builder.mul(loop.index, _integer(width, CONTEXT_LANES))
            target = _vector_at(builder, best_data, builder.add(start, column), _CONTEXTS)
            source = builder.add(arguments[4], column)
            new = builder.load(_vector_at(builder, other_data, source, _CONTEXTS), align=8)
            old = builder.load(target, align=8)
            larger = builder.fcmp_ordered(">", new, old)
            kept = builder.select(larger, new, old)
            builder.store(builder.select(arguments[2], new, kept), target, align=8)
        return context.get_dummy_value()

    i = types.intp
    return types.void(best, i, types.boolean, other, i), emit


@intrinsic
def best_product(typingctx, columns, mass, begin, end):
    """The largest sum_m mass[m] columns[m, i] of begin <= i < end, and the first i that has it.

    (-inf, -1) if there is none. columns is (M, n) in C order, mass (M,); `LANES` entries are read
    at once, so what lies beyond the last of them must belong to the array or to its base.
    """

    def emit(context, builder, signature, arguments):
        columns_data, (M, n) = _array(context, builder, signature.args[0], arguments[0])
        mass_data, _ = _array(context, builder, signature.args[1], arguments[1])
        first, last = arguments[2:]
        whole, lanes = ir.IntType(64), ir.VectorType(ir.IntType(64), LANES)
        nothing = ir.Constant(lanes, ir.Undefined)

        def spread(value):
            place = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
            mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            return builder.shuffle_vector(place, nothing, mask)

        fused = _fused_multiply_add(builder)
        best = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [float("-inf")] * LANES))
        where = cgutils.alloca_once_value(builder, ir.Constant(lanes, [-1] * LANES))
        ends, steps = spread(last), ir.Constant(lanes, list(range(LANES)))
        length = builder.add(builder.sub(last, first), _integer(first, LANES - 1))
        rest, done = builder.sdiv(length, _integer(first, LANES)), first
        for width in _BEST_PANELS:
            panels = builder.sdiv(rest, _integer(first, width))
            size = _integer(first, width * LANES)
            totals = [cgutils.alloca_once(builder, _VECTOR) for _ in range(width)]
            with cgutils.for_range(builder, panels) as panel:
                start = builder.add(done, builder.mul(panel.index, size))
                starts = [builder.add(start, _integer(first, LANES * k)) for k in range(width)]
                for total in totals:
                    builder.store(ir.Constant(_VECTOR, [0.0] * LANES), total)
                with cgutils.for_range(builder, M) as loop:
                    factor = _broadcast(builder, builder.load(builder.gep(mass_data, [loop.index])))
                    row = builder.mul(loop.index, n)
                    for begin_at, total in zip(starts, totals):
                        place = _vector_at(builder, columns_data, builder.add(row, begin_at))
                        entry = builder.load(place, align=8)
                        product = builder.call(fused, [factor, entry, builder.load(total)])
                        builder.store(product, total)
                for begin_at, total in zip(starts, totals):
                    found, places = builder.load(total), builder.add(spread(begin_at), steps)
                    larger = builder.fcmp_ordered(">", found, builder.load(best))
                    larger = builder.and_(larger, builder.icmp_signed("<", places, ends))
                    builder.store(builder.select(larger, found, builder.load(best)), best)
                    builder.store(builder.select(larger, places, builder.load(where)), where)
            rest = builder.sub(rest, builder.mul(panels, _integer(first, width)))
            done = builder.add(done, builder.mul(panels, size))
        values, places = builder.load(best), builder.load(where)
        most, place = ir.Constant(ir.DoubleType(), float("-inf")), ir.Constant(whole, -1)
        for k in range(LANES):
            lane = ir.Constant(ir.IntType(32), k)
            value, index = (
                builder.extract_element(values, lane),
                builder.extract_element(places, lane),
            )
            earlier = builder.and_(
                builder.fcmp_ordered("==", value, most), builder.icmp_signed("<", index, place)
            )
            better = builder.or_(builder.fcmp_ordered(">", value, most), earlier)
            most, place = builder.select(better, value, most), builder.select(better, index, place)
        return context.make_tuple(builder, signature.return_type, (most, place))

    pair = types.Tuple((types.float64, types.int64))
    return pair(columns, mass, types.int64, types.int64), emit
