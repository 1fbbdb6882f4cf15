"""Work that several threads share: each takes blocks of items until none is left.

A kernel that can be shared has a job as its first argument, and begins

    invite(job)
    for i in items(job): ...

Its caller is in it with the arguments that Python gave. `invite` asks the threads that `serve` the
job into the same function, with the same arguments. They never need the interpreter, which would
let in one after the other and take longer for it than most blocks do.

Whoever is in takes blocks from the same counter and leaves after a few of them, so that the caller
can look at the clock; then it comes again. `close` waits until nobody is in any more: from then on
the arguments may go, and the job may be another.

A job is an array of int64. Numbers that threads write are on cache lines of their own.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from latentmdp._kernels.atomic import add_to, count_up, counted, entry_of, put, wait
from latentmdp._kernels.borrowed import disowned

__all__ = [
    "Job",
    "alone",
    "blocks_left",
    "close",
    "end",
    "goes_on",
    "has_failed",
    "invite",
    "items",
    "new_job",
    "ready",
    "serve",
]

Job = NDArray[np.int64]

_LINE = 16
_FIRST, _LAST, _SIZE, _BLOCKS, _TURN = range(5)
"""Items first..last-1, how many are in a block, how many blocks, and how many of them to take
before leaving."""

_ASKED, _CODE = 5, 6
"""Whether the caller is still to invite others, and the address of what they run."""

_TAKEN, _OPEN, _ROUND, _INSIDE, _FAILED, _ENDED, _ARGUMENTS = (_LINE * k for k in range(1, 8))
"""Blocks taken; whether others may come in; how often they were invited; how many are in; whether
one of them failed; whether there will be no more work; and the arguments of the kernel."""

_ROOM = 2048
"""Of the arguments, in int64: dozens of arrays."""

_WORD = ir.IntType(64)


def new_job() -> Job:
    """A job that others can serve; it has no items yet."""
    return np.zeros(_ARGUMENTS + _ROOM, np.int64)


def alone(first: int, last: int) -> Job:
    """The items first..last-1 as a job for the caller alone, in one block."""
    job = np.zeros(_ARGUMENTS, np.int64)
    ready(job, first, last, last - first, 1, False)
    return job


def ready(job: Job, first: int, last: int, size: int, turn: int, invited: bool) -> None:
    """Make a closed job one of the items first..last-1, in blocks of `size`, `turn` at a time."""
    blocks = -(-(last - first) // size) if last > first else 0
    job[: _ASKED + 1] = first, last, size, blocks, turn, invited
    job[_TAKEN] = job[_FAILED] = 0


def blocks_left(job: Job) -> bool:
    """Whether some blocks were not taken yet."""
    return bool(job[_TAKEN] < job[_BLOCKS])


def has_failed(job: Job) -> bool:
    """Whether a thread that was invited failed: what it had taken is not done."""
    return bool(job[_FAILED])


def _fields(context, builder, signature, values):
    """What points to a place in the job, which is an intrinsic's first argument."""

    def field(place):
        constant = ir.Constant(_WORD, place)
        return entry_of(context, builder, signature.args[0], values[0], constant)

    return field


@intrinsic
def invite(typingctx, job):
    """Ask the threads that serve the job into the function this is in, if they are to be asked."""

    def emit(context, builder, signature, values):
        field = _fields(context, builder, signature, values)
        own, kinds = builder.function, context.fndesc.argtypes
        arguments = [
            # Python takes its references back when the caller leaves, before others may.
            disowned(context, builder, kind, value)
            for kind, value in zip(kinds, context.call_conv.decode_arguments(builder, kinds, own))
        ]
        kept = ir.LiteralStructType([argument.type for argument in arguments])
        if context.get_abi_sizeof(kept) > 8 * _ROOM:
            raise ValueError(f"the arguments of {own.name} take more room than a job has")
        again = _calling_again(context, builder.module, own, kinds, kept)
        zero, one = ir.Constant(_WORD, 0), ir.Constant(_WORD, 1)
        with builder.if_then(builder.icmp_signed("!=", builder.load(field(_ASKED)), zero)):
            builder.store(zero, field(_ASKED))
            room = builder.bitcast(field(_ARGUMENTS), kept.as_pointer())
            for i, argument in enumerate(arguments):
                builder.store(argument, cgutils.gep_inbounds(builder, room, 0, i))
            builder.store(builder.ptrtoint(again, _WORD), field(_CODE))
            builder.atomic_rmw("xchg", field(_OPEN), one, "seq_cst")
            builder.atomic_rmw("add", field(_ROUND), one, "seq_cst")
        return context.get_dummy_value()

    return types.none(job), emit


def _calling_again(context, module, own, kinds, kept):
    """A function that calls `own` with the arguments kept at an address; returns if it failed."""
    again = ir.Function(module, ir.FunctionType(_WORD, [kept.as_pointer()]), own.name + ".again")
    again.linkage = "internal"
    builder = ir.IRBuilder(again.append_basic_block())
    arguments = [
        builder.load(cgutils.gep_inbounds(builder, again.args[0], 0, i)) for i in range(len(kinds))
    ]
    status, _ = context.call_conv.call_function(builder, own, types.none, kinds, arguments)
    builder.ret(builder.zext(status.is_error, _WORD))
    return again


@intrinsic
def _come_in(typingctx, job):
    """Call the function that the caller is in; returns whether it failed."""

    def emit(context, builder, signature, values):
        field = _fields(context, builder, signature, values)
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(_WORD, [byte]).as_pointer()
        code = builder.inttoptr(builder.load(field(_CODE)), kind)
        return builder.call(code, [builder.bitcast(field(_ARGUMENTS), byte)])

    return types.int64(job), emit


@njit
def items(job):
    """The items of blocks that nobody else has taken, of as many blocks as a turn has."""
    for _ in range(job[_TURN]):
        block = count_up(job, _TAKEN)
        if block >= job[_BLOCKS]:
            return
        first = job[_FIRST] + block * job[_SIZE]
        for i in range(first, min(first + job[_SIZE], job[_LAST])):  # noqa: UP028 - in Numba
            yield i


@njit
def goes_on(job):
    """Whether nobody has failed, so that what others do is worth waiting for."""
    return counted(job, _FAILED) == 0


@njit(cache=True, nogil=True)
def serve(job, seen, looks):
    """Come in whenever invited, from round `seen` + 1 on; -1 when there will be no more work.

    Returns the last round seen after so many looks without an invitation.
    """
    while True:
        waited = 0
        while counted(job, _ROUND) == seen:
            if waited == looks:
                return seen
            waited = wait(waited)
        seen = counted(job, _ROUND)
        if counted(job, _ENDED):
            return -1
        count_up(job, _INSIDE)
        # Whoever closes the job looks at who is inside after that, so one of the two knows.
        while counted(job, _OPEN) and counted(job, _TAKEN) < job[_BLOCKS]:
            if _come_in(job):
                put(job, _FAILED, 1)
                put(job, _TAKEN, job[_BLOCKS])
        add_to(job, _INSIDE, -1)


@njit(cache=True, nogil=True)
def close(job):
    """Let nobody in or take a block any more, and wait until all others have left."""
    put(job, _TAKEN, job[_BLOCKS])
    put(job, _OPEN, 0)
    waited = 0
    while counted(job, _INSIDE) > 0:
        waited = wait(waited)


@njit(cache=True, nogil=True)
def end(job):
    """Tell all who serve the job that there will be no more work."""
    put(job, _ENDED, 1)
    count_up(job, _ROUND)
