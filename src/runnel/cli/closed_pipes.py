"""Standard streams whose reader may leave early, as `head` does after its first lines."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@contextmanager
def tolerating_closed_pipes() -> Iterator[None]:
    """Discard what is written to standard output or standard error after its reader left.

    The command goes on to its end, with its own exit code: a script is executed and a runner keeps running whether or
    not anybody reads about it. `BrokenPipeError` is not caught here, because it may also come from a connection to a
    server or a child process, where it is an error.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _reopened(sys.stdout), _reopened(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # as after `runnel … >&-`
                stream.flush()
        sys.stdout, sys.stderr = before


class _Pipe(io.FileIO):
    """A file descriptor to write to, which leads nowhere after its reader left."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return cast(int, super().write(data))
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


def _reopened(stream: TextIO) -> TextIO:
    """A stream that behaves as `stream` and writes to the same file descriptor."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # none, or not the process's own
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Pipe(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
