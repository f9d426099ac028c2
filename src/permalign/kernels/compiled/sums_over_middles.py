"""The innermost loop of the backward pass of split scores, in vectors of 64 bytes.

It is written as LLVM instructions, because LLVM does not find them by itself: sums stay in registers only if the loop
over the middles of splits is the innermost one, and the vectors go across it. LLVM divides vectors that are longer than
those of the processor.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from permalign.kernels.numerics import HASH_MULTIPLIERS

VECTOR_BYTES = 64
_INT32 = ir.IntType(32)


def _loop(with_dropout: bool) -> Any:
    """Make the function that a kernel calls; it is inlined there.

    For the starts i and i + 1, the ends k and k + 1, and all middles j from i + 1 to k, the function adds the gradient
    of a split to sums, where a hidden unit of the split is positive and was not dropped. Hidden units are in blocks of
    two vectors: one of the first half of the units, and the same one of the second half.

        starts, middles, ends          (block, fencepost, half, lane)          what each adds to the hidden units
        of_starts, of_middles, of_ends (block, fencepost, rule, half, lane)    the sums
        steps                          (block, lane)                           see `hash_steps`
        grads                          (split, start, end, rule)               zero if there is no such split
        keys                           (split, start, end)                     the dropout keys of the splits

    ``at`` is the index of the first middle in grads and keys.
    """

    def function(
        typing_context,
        starts,
        middles,
        ends,
        steps,
        of_starts,
        of_middles,
        of_ends,
        grads,
        keys,
        threshold,
        block,
        i,
        k,
        at,
    ):
        arguments = (starts, middles, ends, steps, of_starts, of_middles, of_ends, grads, keys)
        return types.void(*arguments, threshold, block, i, k, at), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit = _Emitter(context, builder, signature, arguments)
        starts, middles, ends, steps, of_starts, of_middles, of_ends, grads, keys = emit.arrays
        threshold, block, i, k, at = arguments[9:]
        both, firsts, lasts = range(2), (i, emit.next(i)), (k, emit.next(k))
        outer = {
            (start, end, half): builder.fadd(
                emit.load(starts, (block, firsts[start], half)), emit.load(ends, (block, lasts[end], half))
            )
            for start in both
            for end in both
            for half in both
        }
        step = emit.load(steps, (block,)) if with_dropout else None
        sums = {
            (start, end, rule, half): cgutils.alloca_once_value(builder, emit.zero)
            for start in both
            for end in both
            for rule in both
            for half in both
        }
        with cgutils.for_range_slice(builder, firsts[1], lasts[1], emit.index(1), emit.index_type) as (j, _):
            split = builder.add(at, builder.sub(j, firsts[1]))
            middle = [emit.load(middles, (block, j, half)) for half in both]
            of_middle: dict[tuple[int, int], Any] = {}
            for start in both:
                for end in both:
                    kept = emit.kept(keys, (split, start, end), step, threshold) if with_dropout else None
                    grad = [emit.broadcast(grads, (split, start, end, rule)) for rule in both]
                    for half in both:
                        unit = builder.fadd(outer[start, end, half], middle[half])
                        used = builder.fcmp_ordered(">", unit, emit.zero)
                        if kept is not None:
                            used = builder.and_(used, kept[half])
                        for rule in both:
                            share = builder.select(used, grad[rule], emit.zero)
                            emit.add_to_register(sums[start, end, rule, half], share)
                            before = of_middle.get((rule, half))
                            of_middle[rule, half] = share if before is None else builder.fadd(before, share)
            for (rule, half), total in of_middle.items():
                emit.add_to(of_middles, (block, j, rule, half), total)
        for (start, end, rule, half), register in sums.items():
            total = builder.load(register)
            emit.add_to(of_starts, (block, firsts[start], rule, half), total)
            emit.add_to(of_ends, (block, lasts[end], rule, half), total)
        return context.get_dummy_value()

    function.__name__ = f"sum_over_middles_{'with' if with_dropout else 'without'}_dropout"
    return intrinsic(function)


class _Emitter:
    """Writes instructions on vectors in the last axis of arrays."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.context, self.builder = context, builder
        kinds = [kind for kind in signature.args if isinstance(kind, types.Array)]
        self.arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(kinds, arguments, strict=False)
        ]
        number = context.get_data_type(kinds[0].dtype)
        self.size = context.get_abi_sizeof(number)
        self.lanes = VECTOR_BYTES // self.size
        self.vector, self.integers = ir.VectorType(number, self.lanes), ir.VectorType(_INT32, self.lanes)
        self.zero = ir.Constant(self.vector, [0.0] * self.lanes)
        self.index_type = context.get_value_type(types.intp)

    def index(self, value: int) -> Any:
        return ir.Constant(self.index_type, value)

    def next(self, value: Any) -> Any:
        return self.builder.add(value, self.index(1))

    def address(self, array: Any, indices: tuple[Any, ...]) -> Any:
        """The address of an element; of the first one of a row, if an index is missing."""
        shape = cgutils.unpack_tuple(self.builder, array.shape)
        offset = self.index(0)
        for axis, size in enumerate(shape):
            offset = self.builder.mul(offset, size)
            if axis < len(indices):
                index = indices[axis]
                offset = self.builder.add(offset, self.index(index) if isinstance(index, int) else index)
        return self.builder.gep(array.data, [offset])

    def load(self, array: Any, row: tuple[Any, ...]) -> Any:
        """Load a vector; integers have the size of hashes."""
        address = self.address(array, row)
        kind = self.integers if address.type.pointee == _INT32 else self.vector
        align = 4 if kind is self.integers else self.size
        return self.builder.load(self.builder.bitcast(address, kind.as_pointer()), align=align)

    def add_to(self, array: Any, row: tuple[Any, ...], value: Any) -> None:
        """Add a vector to one in memory."""
        address = self.builder.bitcast(self.address(array, row), self.vector.as_pointer())
        total = self.builder.fadd(self.builder.load(address, align=self.size), value)
        self.builder.store(total, address, align=self.size)

    def add_to_register(self, register: Any, value: Any) -> None:
        """Add a vector to one that LLVM keeps in a register."""
        self.builder.store(self.builder.fadd(self.builder.load(register), value), register)

    def broadcast(self, array: Any, indices: tuple[Any, ...]) -> Any:
        """Load a number into all lanes of a vector."""
        return self.in_all_lanes(self.builder.load(self.address(array, indices)))

    def in_all_lanes(self, value: Any) -> Any:
        kind = ir.VectorType(value.type, self.lanes)
        undefined = ir.Constant(kind, ir.Undefined)
        single = self.builder.insert_element(undefined, value, ir.Constant(_INT32, 0))
        return self.builder.shuffle_vector(single, undefined, ir.Constant(self.integers, [0] * self.lanes))

    def integer(self, value: int) -> Any:
        return ir.Constant(self.integers, [value] * self.lanes)

    def kept(self, keys: Any, split: tuple[Any, ...], step: Any, threshold: Any) -> tuple[Any, Any]:
        """Which units are kept, in the first half and in the second; see `fill_mask`."""
        builder = self.builder
        bits = self.mixed(builder.add(self.broadcast(keys, split), step))
        least = self.in_all_lanes(threshold)
        low, high = builder.and_(bits, self.integer(0xFFFF)), builder.lshr(bits, self.integer(16))
        return builder.icmp_unsigned(">=", low, least), builder.icmp_unsigned(">=", high, least)

    def mixed(self, bits: Any) -> Any:
        """The hash `mix32`."""
        builder = self.builder
        for shift, multiplier in zip((16, 15), HASH_MULTIPLIERS, strict=True):
            bits = builder.xor(bits, builder.lshr(bits, self.integer(shift)))
            bits = builder.mul(bits, self.integer(multiplier))
        return builder.xor(bits, builder.lshr(bits, self.integer(16)))


sum_over_middles = _loop(with_dropout=False)
sum_over_middles_with_dropout = _loop(with_dropout=True)
