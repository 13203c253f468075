"""Hot loops over arrays, compiled by numba when first called and kept on disk for the next process.

A kernel is a plain function over arrays and numbers. It is compiled without checks of bounds: whoever calls it has
checked that every index is within its array, and that what it writes has room.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic

from runnel.kernel_cache import kernel_folder

# Masks are tuples of numbers; with this, operations on them become single instructions. Numba leaves it out.
if "NUMBA_SLP_VECTORIZE" not in os.environ:
    config.SLP_VECTORIZE = 1

Given = ParamSpec("Given")
Made = TypeVar("Made")
Number = Any
"""A number inside a kernel: of the width that its operations gave it."""


def kernel(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """Compile a function over arrays; other threads run while it does.

    >>> import numpy as np
    >>> @kernel
    ... def total(values):
    ...     result = 0
    ...     for value in values:
    ...         result += value
    ...     return result
    >>> total(np.arange(5))
    10
    """
    return _compiled(function)


def inlined(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """A small function that kernels call; it becomes a part of them."""
    return cast("Callable[Given, Made]", numba.njit(inline="always", nogil=True)(function))


def step(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """A small function that kernels call; it is compiled by itself, and the optimiser makes it a part of them."""
    return cast("Callable[Given, Made]", numba.njit(nogil=True)(function))


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def lowest_bit(typing: Any, bits: Any) -> Any:
    """Inside kernels: the number of the lowest bit that is set in an unsigned number of 64 bits, which is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.int64(types.uint64), generate


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Inside kernels: ask for the cache line of an entry that is needed soon; never a fault, whatever the index."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(whole.data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0")
        builder.call(function, [place, number(0), number(3), number(1)])  # to read, into the nearest cache, data
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


def _compiled(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """Compiled code is kept in a folder for exactly these sources; where none can be written, in memory only.

    Numba's own rule is that a kernel is fresh while its file is. But kernels call steps in other files: after a
    change of those it would run the old code.
    """
    kept = not function.__code__.co_filename.startswith("<")  # what was typed in or generated has no place
    folder = kernel_folder() if kept else None
    before = config.CACHE_DIR
    try:
        config.CACHE_DIR = before or folder or ""
        return cast("Callable[Given, Made]", numba.njit(cache=folder is not None, nogil=True)(function))
    finally:
        config.CACHE_DIR = before
