"""Standard streams that tolerate a reader that exits early, as `head` does after its first lines."""

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
    """Discard output that is written to standard output or standard error after the reader has closed the pipe.

    The command runs to its end and returns its own exit code: a script is executed and a runner keeps running even if
    nobody reads the output. `BrokenPipeError` is not caught here, because it may also come from a connection to a
    server or a child process, where it is an error.
    """
    original = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _reopened(sys.stdout), _reopened(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # it is None after `runnel … >&-`
                stream.flush()
        sys.stdout, sys.stderr = original


class _Pipe(io.FileIO):
    """A file for output that is redirected to the null device once the reader has closed the pipe."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return cast(int, super().write(data))
        except BrokenPipeError:
            null_device = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null_device, self.fileno())
            os.close(null_device)
            return memoryview(data).nbytes


def _reopened(stream: TextIO) -> TextIO:
    """Return a stream with the options of `stream` that writes to the same file descriptor."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # None, or a replacement such as that of a test runner
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Pipe(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
