"""Eight numbers at a time, in registers: what LLVM does not find in loops along labels by itself.

LLVM turns a loop into vector instructions only if it knows that the arrays do not overlap. Of Numba's arrays it cannot
know this, a loop along eight labels is too short to check it, and sums of a whole matrix are never kept in registers.
So the few operations that sums over labels consist of are written for LLVM here: on a *vector* of `LANES` doubles and
on a *tile*, a matrix of `LANES` such rows. LLVM maps them to the widest registers that a processor has: with AVX-512, a
vector is one register.

Arrays must be contiguous; ``at`` counts their numbers from the beginning. Bounds are not checked.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.cgutils import pack_array
from numba.extending import intrinsic, models, register_model

LANES = 8
"""How many doubles a vector holds, and how many rows a tile has. Labels are padded to a multiple of it."""

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_FUSED = ("contract",)  # a product and the sum it goes into may become one instruction


class VectorType(types.Type):
    """The type of a vector."""

    def __init__(self) -> None:
        super().__init__(name=f"vector of {LANES} doubles")


class TileType(types.Type):
    """The type of a tile."""

    def __init__(self) -> None:
        super().__init__(name=f"tile of {LANES} x {LANES} doubles")


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):
    """A vector as LLVM keeps it."""

    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, _VECTOR)


@register_model(TileType)
class TileModel(models.PrimitiveModel):
    """A tile as LLVM keeps it."""

    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, ir.ArrayType(_VECTOR, LANES))


VECTOR, TILE = VectorType(), TileType()


def operation(generator: Callable[..., Any]) -> Any:
    """Decorate what gives the signature of an operation and writes its instructions."""
    return intrinsic(generator)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, at: Any, row: Any = None) -> Any:
    """Where the number ``at`` of an array is; with ``row = (number, stride)``, that many strides further on."""
    if row is not None:
        number, stride = row
        at = builder.add(at, builder.mul(ir.Constant(at.type, number), stride))
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [at])


def _load(builder: Any, pointer: Any) -> Any:
    return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=8)


def _store(builder: Any, vector: Any, pointer: Any) -> None:
    builder.store(vector, builder.bitcast(pointer, _VECTOR.as_pointer()), align=8)


def _spread(builder: Any, number: Any) -> Any:
    """A vector that holds one number in all lanes."""
    lane = ir.Constant(ir.IntType(32), 0)
    single = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, lane)
    return _shuffle(builder, single, single, [0] * LANES)


def _shuffle(builder: Any, first: Any, second: Any, lanes: Sequence[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
    return builder.shuffle_vector(first, second, mask)


def _add_product(builder: Any, total: Any, factor: Any, vector: Any) -> Any:
    return builder.fadd(total, builder.fmul(factor, vector, flags=_FUSED), flags=_FUSED)


def _rows(builder: Any, tile: Any) -> list[Any]:
    return [builder.extract_value(tile, row) for row in range(LANES)]


# --- Vectors --------------------------------------------------------------------------------------------------


@operation
def zeros(typing_context):
    """A vector of zeros."""

    def generate(context, builder, signature, arguments):
        return ir.Constant(_VECTOR, [0.0] * LANES)

    return VECTOR(), generate


@operation
def load(typing_context, array, at):
    """The vector that begins at ``array[at]``."""

    def generate(context, builder, signature, arguments):
        return _load(builder, _pointer(context, builder, signature.args[0], *arguments))

    return VECTOR(array, types.intp), generate


@operation
def store(typing_context, array, at, vector):
    """Write a vector to ``array[at]`` and the following."""

    def generate(context, builder, signature, arguments):
        _store(builder, arguments[2], _pointer(context, builder, signature.args[0], *arguments[:2]))
        return context.get_dummy_value()

    return types.none(array, types.intp, VECTOR), generate


@operation
def scaled(typing_context, vector, factor):
    """A vector times a number."""

    def generate(context, builder, signature, arguments):
        return builder.fmul(arguments[0], _spread(builder, arguments[1]), flags=_FUSED)

    return VECTOR(VECTOR, types.float64), generate


@operation
def multiplied(typing_context, first, second):
    """The products of two vectors' numbers."""

    def generate(context, builder, signature, arguments):
        return builder.fmul(*arguments, flags=_FUSED)

    return VECTOR(VECTOR, VECTOR), generate


@operation
def added(typing_context, first, second):
    """The sums of two vectors' numbers."""

    def generate(context, builder, signature, arguments):
        return builder.fadd(*arguments, flags=_FUSED)

    return VECTOR(VECTOR, VECTOR), generate


@operation
def total(typing_context, vector):
    """The sum of a vector's numbers."""

    def generate(context, builder, signature, arguments):
        (vector,), width = arguments, LANES
        while width > 1:  # the upper half is added to the lower one
            width //= 2
            halves = [_shuffle(builder, vector, vector, range(at, at + width)) for at in (0, width)]
            vector = builder.fadd(*halves)
        return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))

    return types.float64(VECTOR), generate


# --- Tiles ----------------------------------------------------------------------------------------------------


@operation
def zero_tile(typing_context):
    """A tile of zeros."""

    def generate(context, builder, signature, arguments):
        return ir.Constant(ir.ArrayType(_VECTOR, LANES), None)

    return TILE(), generate


@operation
def load_tile(typing_context, array, at, stride):
    """The tile whose rows begin at ``array[at]``, ``array[at + stride]`` and so on."""

    def generate(context, builder, signature, arguments):
        array, at, stride = arguments
        places = (
            _pointer(context, builder, signature.args[0], array, at, (row, stride)) for row in range(LANES)
        )
        return pack_array(builder, [_load(builder, place) for place in places])

    return TILE(array, types.intp, types.intp), generate


@operation
def store_tile(typing_context, array, at, stride, tile):
    """Write a tile's rows to ``array[at]``, ``array[at + stride]`` and so on."""

    def generate(context, builder, signature, arguments):
        array, at, stride, tile = arguments
        for row, vector in enumerate(_rows(builder, tile)):
            place = _pointer(context, builder, signature.args[0], array, at, (row, stride))
            _store(builder, vector, place)
        return context.get_dummy_value()

    return types.none(array, types.intp, types.intp, TILE), generate


@operation
def add_outer_product(typing_context, tile, array, at, stride, vector):
    """tile[b, c] + array[at + b * stride] * vector[c]."""

    def generate(context, builder, signature, arguments):
        tile, array, at, stride, vector = arguments
        rows = []
        for row, before in enumerate(_rows(builder, tile)):
            number = builder.load(_pointer(context, builder, signature.args[1], array, at, (row, stride)))
            rows.append(_add_product(builder, before, _spread(builder, number), vector))
        return pack_array(builder, rows)

    return TILE(TILE, array, types.intp, types.intp, VECTOR), generate


@operation
def combined_rows(typing_context, tile, array, at):
    """The sum over rows r of ``array[at + r] * tile[r]``, a vector."""

    def generate(context, builder, signature, arguments):
        tile, array, at = arguments
        one, sums = ir.Constant(at.type, 1), [ir.Constant(_VECTOR, [0.0] * LANES)] * 2
        for row, vector in enumerate(_rows(builder, tile)):
            number = builder.load(_pointer(context, builder, signature.args[1], array, at, (row, one)))
            # two sums at a time: each addition waits for the one before
            sums = [sums[1], _add_product(builder, sums[0], _spread(builder, number), vector)]
        return builder.fadd(*sums, flags=_FUSED)

    return VECTOR(TILE, array, types.intp), generate


@operation
def transposed(typing_context, tile):
    """The tile with rows and columns exchanged."""

    def generate(context, builder, signature, arguments):
        rows, step = _rows(builder, arguments[0]), 1
        while step < LANES:  # exchange blocks of step x step numbers: above the diagonal with below
            low = [lane if lane & step == 0 else LANES + lane - step for lane in range(LANES)]
            high = [lane + step if lane & step == 0 else LANES + lane for lane in range(LANES)]
            for row in (row for row in range(LANES) if row & step == 0):
                pair = rows[row], rows[row + step]
                rows[row], rows[row + step] = (_shuffle(builder, *pair, lanes) for lanes in (low, high))
            step *= 2
        return pack_array(builder, rows)

    return TILE(TILE), generate
