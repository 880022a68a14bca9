"""Rows of numbers as vector instructions, for kernels that numba compiles.

Numba leaves loops over short rows of two-dimensional arrays scalar, since it cannot know that the
arrays are distinct. These functions are called from compiled code only. They take contiguous
arrays `[rows, width]` with row numbers, and handle a row as one vector of `width` numbers; `width`
must be a constant of the kernel. Nothing is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_INT32 = ir.IntType(32)


# Bytes of sums that a product keeps in registers: so many chains of additions hide their latency.
_SUM_BYTES = 512


class _Emitter:
    """Writes the instructions of one function on rows; arguments are known by their place."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any, first: int) -> None:
        """`args[first]` is the first array; its dtype is that of all."""
        self.context = context
        self.builder = builder
        self.types = signature.args
        self.args = args
        self.width = signature.args[0].literal_value
        dtype = signature.args[first].dtype
        self.dtype = dtype
        self.bytes = dtype.bitwidth // 8
        self.number = context.get_value_type(dtype)
        self.vector = ir.VectorType(self.number, self.width)

    def array(self, place: int) -> Any:
        return self.context.make_array(self.types[place])(
            self.context, self.builder, self.args[place]
        )

    def integer(self, place: int) -> Any:
        return self.context.cast(self.builder, self.args[place], self.types[place], types.intp)

    def scalar(self, place: int) -> Any:
        return self.context.cast(self.builder, self.args[place], self.types[place], self.dtype)

    def at(self, array: Any, place: Any) -> Any:
        """Where a vector lies that starts at one number of an array."""
        return self.builder.bitcast(self.builder.gep(array.data, [place]), self.vector.as_pointer())

    def pointer(self, array: Any, row: Any) -> Any:
        """Where a row of `width` numbers lies."""
        return self.at(array, self.builder.mul(row, _whole(self.width)))

    def row(self, place: int) -> Any:
        """Where the row lies that an array and the integer behind it name."""
        return self.pointer(self.array(place), self.integer(place + 1))

    def load(self, pointer: Any) -> Any:
        return self.builder.load(pointer, align=self.bytes)

    def store(self, value: Any, pointer: Any) -> None:
        self.builder.store(value, pointer, align=self.bytes)

    def splat(self, number: Any) -> Any:
        nothing = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(nothing, number, ir.Constant(_INT32, 0))
        return self.shuffle(first, nothing, [0] * self.width)

    def shuffle(self, a: Any, b: Any, order: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(_INT32, len(order)), order)
        return self.builder.shuffle_vector(a, b, mask)

    def multiply(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=("contract",))

    def absolute(self, a: Any) -> Any:
        return self.call(f"llvm.fabs.v{self.width}f{8 * self.bytes}", self.vector, a)

    def number_vector(self, value: float) -> Any:
        return ir.Constant(self.vector, [value] * self.width)

    def call(self, name: str, result: Any, *args: Any) -> Any:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, args)

    def sigmoid(self, x: Any) -> Any:
        one = self.number_vector(1)
        negative = self.builder.fsub(self.number_vector(0), x)
        return self.builder.fdiv(one, self.add(one, self.exp(negative)))

    def exp(self, x: Any) -> Any:
        """`exp(x)` to about the last digit; infinite, or zero, some way before the last numbers.

        With n the whole number next to `x / log 2`, `exp(x) = 2^n exp(r)`, where r is at most
        `log(2) / 2` in size: a few terms of the series suffice. `2^n` is made from its bits.
        """
        b = self.builder
        double = self.bytes == 8
        mantissa, bias, terms = (52, 1023, 14) if double else (23, 127, 8)
        lowest = (2 - bias) * math.log(2)
        highest = bias * math.log(2)
        given = x
        below = b.fcmp_ordered("<", x, self.number_vector(lowest))
        inside = b.fcmp_ordered("<=", x, self.number_vector(highest))  # false for what is no number
        x = b.select(b.and_(inside, b.not_(below)), x, self.number_vector(0))
        suffix = f"v{self.width}f{8 * self.bytes}"
        whole = self.multiply(x, self.number_vector(1 / math.log(2)))
        whole = self.call(f"llvm.rint.{suffix}", self.vector, whole)
        # log 2 in two parts, of which the first has zeros at its end: n times it is exact.
        high = 0.6931471803691238 if double else 0.693359375
        low = 1.9082149292705877e-10 if double else math.log(2) - high
        r = b.fsub(x, b.fmul(whole, self.number_vector(high)))
        r = b.fsub(r, b.fmul(whole, self.number_vector(low)))
        series = self.number_vector(1 / math.factorial(terms - 1))
        for n in range(terms - 2, -1, -1):
            series = self.add(self.multiply(series, r), self.number_vector(1 / math.factorial(n)))
        bits = ir.VectorType(ir.IntType(8 * self.bytes), self.width)
        n = b.fptosi(whole, bits)
        n = b.add(n, ir.Constant(bits, [bias] * self.width))
        power = b.bitcast(b.shl(n, ir.Constant(bits, [mantissa] * self.width)), self.vector)
        value = b.select(below, self.number_vector(0), self.multiply(series, power))
        # Beyond, infinity plus the number is infinite, or not a number if that was not.
        beyond = b.fadd(given, self.number_vector(math.inf))
        return b.select(b.or_(inside, below), value, beyond)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=("contract",))


def _whole(value: int) -> ir.Constant:
    return ir.Constant(ir.IntType(64), value)


def _on_rows(
    emit: Callable[[_Emitter], Any], returns_number: bool = False, first: int = 1
) -> Callable[[Any, Any], tuple[Any, Callable[..., Any]]]:
    """What numba wants of an intrinsic: its types, and what writes it."""

    def typed(*arguments: Any) -> tuple[Any, Callable[..., Any]]:
        result = arguments[first].dtype if returns_number else types.void

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = emit(_Emitter(context, builder, signature, args, first))
            return value if returns_number else context.get_dummy_value()

        return result(*arguments), codegen

    return typed


@intrinsic(prefer_literal=True)
def copy(typing, width, Y, i, X, j):
    """`Y[i] = X[j]`."""
    return _on_rows(lambda e: e.store(e.load(e.row(3)), e.row(1)))(width, Y, i, X, j)


@intrinsic(prefer_literal=True)
def fill(typing, width, Y, i, a):
    """`Y[i] = a`."""
    return _on_rows(lambda e: e.store(e.splat(e.scalar(3)), e.row(1)))(width, Y, i, a)


@intrinsic(prefer_literal=True)
def scale(typing, width, Y, i, a, X, j):
    """`Y[i] = a X[j]`."""

    def emit(e: _Emitter) -> None:
        e.store(e.multiply(e.splat(e.scalar(3)), e.load(e.row(4))), e.row(1))

    return _on_rows(emit)(width, Y, i, a, X, j)


@intrinsic(prefer_literal=True)
def add_scaled(typing, width, Y, i, a, X, j):
    """`Y[i] += a X[j]`."""

    def emit(e: _Emitter) -> None:
        more = e.multiply(e.splat(e.scalar(3)), e.load(e.row(4)))
        e.store(e.add(more, e.load(e.row(1))), e.row(1))

    return _on_rows(emit)(width, Y, i, a, X, j)


@intrinsic(prefer_literal=True)
def multiply(typing, width, Y, i, a, X, j, W, k):
    """`Y[i] = a X[j] W[k]`, number by number."""

    def emit(e: _Emitter) -> None:
        both = e.multiply(e.load(e.row(4)), e.load(e.row(6)))
        e.store(e.multiply(e.splat(e.scalar(3)), both), e.row(1))

    return _on_rows(emit)(width, Y, i, a, X, j, W, k)


@intrinsic(prefer_literal=True)
def decay(typing, width, Y, i, a, X, j, smallest):
    """`Y[i] = a X[j]`, and 0 where that is below `smallest`: denormal numbers are slow."""

    def emit(e: _Emitter) -> None:
        value = e.multiply(e.splat(e.scalar(3)), e.load(e.row(4)))
        small = e.builder.fcmp_ordered("<", value, e.splat(e.scalar(6)))
        e.store(e.builder.select(small, ir.Constant(e.vector, None), value), e.row(1))

    return _on_rows(emit)(width, Y, i, a, X, j, smallest)


@intrinsic(prefer_literal=True)
def dot(typing, width, X, j, W, k):
    """`X[j] . W[k]`."""

    def emit(e: _Emitter) -> Any:
        number = e.number
        total = cgutils.get_or_insert_function(
            e.builder.module,
            ir.FunctionType(number, [number, e.vector]),
            f"llvm.vector.reduce.fadd.v{e.width}f{8 * e.bytes}",
        )
        products = e.multiply(e.load(e.row(1)), e.load(e.row(3)))
        return e.builder.call(total, [ir.Constant(number, 0.0), products], fastmath=("reassoc",))

    return _on_rows(emit, returns_number=True)(width, X, j, W, k)


@intrinsic(prefer_literal=True)
def transpose(typing, width, Y, column, X, i):
    """`Y[:, column : column + width] = X[i : i + width].T`; `width` is a power of two."""

    def emit(e: _Emitter) -> None:
        b = e.builder
        X, Y = e.array(3), e.array(1)
        x_columns, y_columns = (b.extract_value(array.shape, 1) for array in (X, Y))
        x_start = b.gep(X.data, [b.mul(e.integer(4), x_columns)])
        y_start = b.gep(Y.data, [e.integer(2)])

        def x(row: int, column: Any) -> Any:
            return b.gep(x_start, [b.add(b.mul(_whole(row), x_columns), column)])

        def y(row: Any, column: int) -> Any:
            return b.gep(y_start, [b.add(b.mul(row, y_columns), _whole(column))])

        def vector(pointer: Any) -> Any:
            return b.bitcast(pointer, e.vector.as_pointer())

        # Interleaving the first half of a square's rows with the second, log2(width) times,
        # transposes it.
        squares = b.sdiv(x_columns, _whole(e.width))
        half = e.width // 2
        low = [lane for n in range(half) for lane in (n, e.width + n)]
        high = [lane + half for lane in low]
        with cgutils.for_range(b, squares) as loop:
            first = b.mul(loop.index, _whole(e.width))
            rows = [e.load(vector(x(r, first))) for r in range(e.width)]
            for _ in range(e.width.bit_length() - 1):
                pairs = list(zip(rows[:half], rows[half:], strict=True))
                rows = [e.shuffle(*pair, order) for pair in pairs for order in (low, high)]
            for r, row in enumerate(rows):
                e.store(row, vector(y(b.add(first, _whole(r)), 0)))
        done = b.mul(squares, _whole(e.width))
        with cgutils.for_range_slice(b, done, x_columns, _whole(1)) as (column, _):
            for r in range(e.width):
                b.store(b.load(x(r, column)), y(column, r))

    return _on_rows(emit)(width, Y, column, X, i)


@intrinsic(prefer_literal=True)
def product(typing, width, accumulate, transposed, Y, i, n, X, j, W, k, m):
    """`Y[i : i + n] = X W[k : k + m]`, or `+=` if `accumulate`.

    X is `X[j : j + n, :m]`, or `X[j : j + m, :n].T` if `transposed`; both are constants.
    """

    def emit(e: _Emitter) -> None:
        b = e.builder
        Y, X, W = e.array(3), e.array(6), e.array(8)
        i, n, j, k, m = (e.integer(place) for place in (4, 5, 7, 9, 10))
        columns = b.extract_value(X.shape, 1)
        down, along = (_whole(1), columns) if transposed.literal_value else (columns, _whole(1))
        start = b.gep(X.data, [b.mul(j, columns)])

        def rows_from(first: Any, count: int) -> None:
            places = [e.pointer(Y, b.add(b.add(i, first), _whole(r))) for r in range(count)]
            numbers = [b.gep(start, [b.mul(b.add(first, _whole(r)), down)]) for r in range(count)]

            def add_one(total: Any, r: int, index: Any, row: Any) -> Any:
                x = e.splat(b.load(b.gep(numbers[r], [b.mul(index, along)])))
                return e.add(e.multiply(x, row), total)

            _sums(
                e, places, m, lambda x: e.pointer(W, b.add(k, x)), add_one, accumulate.literal_value
            )

        _in_blocks(e, n, rows_from)

    return _on_rows(emit, first=3)(width, accumulate, transposed, Y, i, n, X, j, W, k, m)


@intrinsic(prefer_literal=True)
def distances(typing, width, Y, column, n, X, j, W, m):
    """`Y[:n, column : column + width] = sum_c |X[j : j + n, c] - W[c]|` over c < m."""

    def emit(e: _Emitter) -> None:
        b = e.builder
        Y, X, W = e.array(1), e.array(4), e.array(6)
        column, n, j, m = (e.integer(place) for place in (2, 3, 5, 7))
        x_columns, y_columns = (b.extract_value(array.shape, 1) for array in (X, Y))

        def rows_from(first: Any, count: int) -> None:
            rows = [b.add(first, _whole(r)) for r in range(count)]
            places = [e.at(Y, b.add(b.mul(row, y_columns), column)) for row in rows]
            numbers = [b.gep(X.data, [b.mul(b.add(j, row), x_columns)]) for row in rows]

            def add_one(total: Any, r: int, index: Any, row: Any) -> Any:
                x = e.splat(b.load(b.gep(numbers[r], [index])))
                return e.add(e.absolute(b.fsub(x, row)), total)

            _sums(e, places, m, lambda x: e.pointer(W, x), add_one, accumulate=False)

        _in_blocks(e, n, rows_from)

    return _on_rows(emit)(width, Y, column, n, X, j, W, m)


@intrinsic(prefer_literal=True)
def signed_sums(typing, width, Y, n, W, G, column, m, A, a):
    """`Y[c] = sum_r G[r, column : column + width] sign(W[c] - A[a + r, c])`, c < n and r < m."""

    def emit(e: _Emitter) -> None:
        b = e.builder
        Y, W, G, A = e.array(1), e.array(3), e.array(4), e.array(7)
        n, column, m, a = (e.integer(place) for place in (2, 5, 6, 8))
        g_columns, a_columns = (b.extract_value(array.shape, 1) for array in (G, A))
        start = b.gep(A.data, [b.mul(a, a_columns)])

        def rows_from(first: Any, count: int) -> None:
            rows = [b.add(first, _whole(r)) for r in range(count)]
            own = [e.load(e.pointer(W, row)) for row in rows]

            def add_one(total: Any, r: int, index: Any, g: Any) -> Any:
                other = b.gep(start, [b.add(b.mul(index, a_columns), rows[r])])
                x = e.splat(b.load(other))
                more = b.select(b.fcmp_ordered(">", own[r], x), b.fadd(total, g), total)
                return b.select(b.fcmp_ordered("<", own[r], x), b.fsub(more, g), more)

            def g_row(index: Any) -> Any:
                return e.at(G, b.add(b.mul(index, g_columns), column))

            places = [e.pointer(Y, row) for row in rows]
            _sums(e, places, m, g_row, add_one, accumulate=False)

        _in_blocks(e, n, rows_from)

    return _on_rows(emit)(width, Y, n, W, G, column, m, A, a)


def _in_blocks(e: _Emitter, n: Any, rows_from: Callable[[Any, int], None]) -> None:
    """Calls for `n` rows in all: as many at once as registers hold, then fewer, then single."""
    b = e.builder
    done = _whole(0)
    count = max(1, min(8, _SUM_BYTES // (e.width * e.bytes)))
    while count:
        blocks = b.sdiv(b.sub(n, done), _whole(count))
        with cgutils.for_range(b, blocks) as loop:
            rows_from(b.add(done, b.mul(loop.index, _whole(count))), count)
        done = b.add(done, b.mul(blocks, _whole(count)))
        count = 0 if count == 1 else max(1, count // 4)


def _sums(
    e: _Emitter,
    places: list[Any],
    terms: Any,
    row_at: Callable[[Any], Any],
    add_one: Callable[[Any, int, Any, Any], Any],
    accumulate: bool,
) -> None:
    """Store at every place a sum of `terms` terms, kept in a register meanwhile.

    `add_one(total, r, index, row)` is the total of place r with the term of `index`, which uses the
    row at `row_at(index)`; `accumulate` says whether to start from what is there.
    """
    b = e.builder
    totals = [cgutils.alloca_once(b, e.vector) for _ in places]
    for place, total in zip(places, totals, strict=True):
        old = e.load(place) if accumulate else ir.Constant(e.vector, None)
        b.store(old, total)
    with cgutils.for_range(b, terms) as loop:
        row = e.load(row_at(loop.index))
        for r, total in enumerate(totals):
            b.store(add_one(b.load(total), r, loop.index, row), total)
    for place, total in zip(places, totals, strict=True):
        e.store(b.load(total), place)


@intrinsic(prefer_literal=True)
def add_product(typing, width, Y, i, a, X, j, W, k):
    """`Y[i] += a X[j] W[k]`, number by number."""

    def emit(e: _Emitter) -> None:
        both = e.multiply(e.splat(e.scalar(3)), e.multiply(e.load(e.row(4)), e.load(e.row(6))))
        e.store(e.add(both, e.load(e.row(1))), e.row(1))

    return _on_rows(emit)(width, Y, i, a, X, j, W, k)


@intrinsic(prefer_literal=True)
def silu_product(typing, width, Y, i, X, j, W, k):
    """`Y[i] = silu(X[j]) W[k]`, number by number, with `silu(x) = x / (1 + exp(-x))`."""

    def emit(e: _Emitter) -> None:
        x = e.load(e.row(3))
        e.store(e.multiply(e.multiply(x, e.sigmoid(x)), e.load(e.row(5))), e.row(1))

    return _on_rows(emit)(width, Y, i, X, j, W, k)


@intrinsic(prefer_literal=True)
def silu_product_gradients(typing, width, dX, j, dW, k, X, x, W, w, dY, i):
    """Into `dX[j]` and `dW[k]` the gradients of `X[x]` and `W[w]`, for `dY[i]` of the product."""

    def emit(e: _Emitter) -> None:
        b = e.builder
        x, w, d = (e.load(e.row(place)) for place in (5, 7, 9))
        s = e.sigmoid(x)
        # silu'(x) = s (1 + x (1 - s))
        slope = e.multiply(
            s, e.add(e.multiply(x, b.fsub(e.number_vector(1), s)), e.number_vector(1))
        )
        e.store(e.multiply(e.multiply(d, w), slope), e.row(1))
        e.store(e.multiply(d, e.multiply(x, s)), e.row(3))

    return _on_rows(emit)(width, dX, j, dW, k, X, x, W, w, dY, i)
