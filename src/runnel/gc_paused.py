"""A context manager that pauses the cyclic garbage collector while many acyclic objects are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable the cyclic garbage collector in the `with` block, where it would traverse new objects without result.

    Reference counting still frees objects immediately. If several threads use this at once, collection may be enabled
    before the last of them has left its block.

    >>> with gc_paused():
    ...     gc.isenabled()
    False
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
