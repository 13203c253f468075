"""The talk with an operator's process: a frame in, the frame that answers it out, or an end by a deadline.

Writing, reading and listening to complaints go on together, so that neither side waits for the other for ever.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from contextlib import suppress

from runnel.matching.operators.plugins.operator_child import LENGTH, MAX_FRAME

_CHUNK = 1 << 16
_KEPT_COMPLAINT = 4_096


class DeadlineError(Exception):
    """The deadline passed."""


class ProcessEndedError(Exception):
    """The process ended, or sent what is no frame."""


class Pipes:
    """The three pipes of a process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        streams = (process.stdin, process.stdout, process.stderr)
        self._questions, self._answers, self._complaints = (one.fileno() for one in streams if one is not None)
        for descriptor in (self._questions, self._answers, self._complaints):
            os.set_blocking(descriptor, False)
        self._complaint = b""

    def exchange(self, frame: bytes, deadline: float) -> bytes:
        """Send a frame and wait for the one that answers it, until a moment of the monotonic clock."""
        unsent = memoryview(LENGTH.pack(len(frame)) + frame)
        received = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._questions, selectors.EVENT_WRITE)
            selector.register(self._answers, selectors.EVENT_READ)
            selector.register(self._complaints, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DeadlineError
                ready = {key.fd for key, _ in selector.select(left)}
                if self._complaints in ready and self._listen() == 0:
                    selector.unregister(self._complaints)
                if self._questions in ready:
                    unsent = unsent[self._send(unsent) :]
                    if not unsent:
                        selector.unregister(self._questions)
                if self._answers in ready and (found := self._receive(received)) is not None:
                    return found

    def complaint(self) -> str:
        """The end of what the process said on its standard error."""
        with suppress(OSError):
            while self._listen() > 0:
                pass
        return self._complaint.decode("utf-8", "replace")

    def _listen(self) -> int:
        """Take what was complained; gives its length: nothing at the end, less than nothing before more comes."""
        try:
            data = os.read(self._complaints, _CHUNK)
        except BlockingIOError:
            return -1
        self._complaint = (self._complaint + data)[-_KEPT_COMPLAINT:]
        return len(data)

    def _send(self, unsent: memoryview) -> int:
        try:
            return os.write(self._questions, unsent[:_CHUNK])
        except BlockingIOError:
            return 0
        except BrokenPipeError as error:
            raise ProcessEndedError from error

    def _receive(self, received: bytearray) -> bytes | None:
        """Take what was answered; the whole frame once it is there."""
        try:
            data = os.read(self._answers, _CHUNK)
        except BlockingIOError:
            return None
        if not data:
            raise ProcessEndedError
        received += data
        if len(received) < LENGTH.size:
            return None
        (size,) = LENGTH.unpack_from(received)
        # A process that was taken over could say anything: what it says is measured before it is read.
        if size > MAX_FRAME or len(received) > LENGTH.size + size:
            raise ProcessEndedError
        return bytes(received[LENGTH.size :]) if len(received) == LENGTH.size + size else None
