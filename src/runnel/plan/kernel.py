"""Hot loops over a plan's arrays, compiled by numba when first called and kept on disk for the next process.

A kernel is a plain function over arrays and numbers. It is compiled without checks of bounds: whoever calls it has
checked that every id is within its array (see `validate`), and that what it writes has room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

Given = ParamSpec("Given")
Made = TypeVar("Made")


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
    return cast("Callable[Given, Made]", numba.njit(cache=_cached(function), nogil=True)(function))


def inlined(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """A small function that kernels call; it becomes a part of them."""
    return cast("Callable[Given, Made]", numba.njit(inline="always", nogil=True)(function))


def _cached(function: Callable[..., object]) -> bool:
    """Whether the compiled code can be kept: it cannot for functions that were typed in or generated."""
    return not function.__code__.co_filename.startswith("<")
