"""Kernels: hot loops over arrays, compiled by numba at the first call and cached on disk for later processes.

A kernel is a plain function over arrays and numbers. It is compiled without bounds checks, so the caller must ensure
that every index is within its array, and that output arrays are large enough.
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

# Masks are tuples of numbers. SLP vectorization, which Numba disables, makes operations on them single instructions.
if "NUMBA_SLP_VECTORIZE" not in os.environ:
    config.SLP_VECTORIZE = 1

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Number = Any
"""A number inside a kernel, whose type numba infers."""


def kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function over arrays. It runs without the GIL, so other threads can run at the same time.

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
    return _compile(function)


def inlined(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Mark a small function that numba inlines into the kernels that call it."""
    return cast("Callable[Parameters, Result]", numba.njit(inline="always", nogil=True)(function))


def step(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a small function for use in kernels. LLVM's optimizer may inline it."""
    return cast("Callable[Parameters, Result]", numba.njit(nogil=True)(function))


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def lowest_bit(typing: Any, bits: Any) -> Any:
    """Return the position of the lowest set bit of an unsigned 64-bit number other than 0. Only for kernels."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.int64(types.uint64), generate


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def count_bits(typing: Any, bits: Any) -> Any:
    """Return the number of set bits of an unsigned 64-bit number. Only for kernels."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of an array entry that is needed soon. Any index is safe. Only for kernels."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(struct.data, [arguments[1]]), ir.IntType(8).as_pointer())
        int32 = ir.IntType(32)
        prototype = ir.FunctionType(ir.VoidType(), [address.type, int32, int32, int32])
        function = cgutils.get_or_insert_function(builder.module, prototype, "llvm.prefetch.p0")
        builder.call(
            function, [address, int32(0), int32(3), int32(1)]
        )  # for reading, with the highest locality, as data
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


def _compile(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function, and cache the code in a folder for exactly these sources, or in memory if there is none.

    Numba itself only checks whether the file of a kernel has changed. But kernels call functions in other files, and
    after a change of those files numba would run outdated code.
    """
    has_file = not function.__code__.co_filename.startswith("<")  # interactive and generated code has no file
    folder = kernel_folder() if has_file else None
    before = config.CACHE_DIR
    try:
        config.CACHE_DIR = before or folder or ""
        return cast("Callable[Parameters, Result]", numba.njit(cache=folder is not None, nogil=True)(function))
    finally:
        config.CACHE_DIR = before
