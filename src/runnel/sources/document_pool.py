"""Documents read side by side: small ones here, large ones in processes of their own.

In: the bytes of fetched documents. Out: what `adapt(decode(…))` gives, or its refusal. A large document would keep
the thread that polls busy for seconds, and Python reads only one at a time. A process that dies or does not come to
an end over a document is replaced; the document is refused as broken, and no other is touched, because a process has
one document at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from types import TracebackType

from runnel.errors import BrokenDocumentError, InputError
from runnel.sandbox.rdf_reader import RdfForm
from runnel.sources.document_child import Document, read_document
from runnel.sources.documents.adapt import AdaptedFeed
from runnel.sources.documents.decode import MAX_DOCUMENT

logger = logging.getLogger("runnel")

INLINE_BYTES = 32 << 10
"""Up to this size a document is read here, in some 8 ms. Handing over a larger one costs a tenth of reading it."""

_SECONDS = 60.0
_MODULE = "runnel.sources.document_child"


class DocumentPool:
    """Reads documents in up to `workers` processes, which are started when they are first needed.

    >>> with DocumentPool(workers=1) as pool:
    ...     pool.decode_and_adapt(b'{"id": 1}', "a.jsonl", "News").items[0].id
    '1'
    """

    def __init__(self, workers: int, *, inline_bytes: int = INLINE_BYTES, seconds: float = _SECONDS) -> None:
        self._inline_bytes = inline_bytes
        self._seconds = seconds
        self._idle: queue.LifoQueue[_Reader | None] = queue.LifoQueue()
        self._lock = threading.Lock()
        self._closed = False
        for _ in range(max(1, workers)):
            self._idle.put(None)

    def __enter__(self) -> DocumentPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def decode_and_adapt(
        self,
        data: bytes,
        name: str,
        feed: str,
        *,
        limit: int = MAX_DOCUMENT,
        charset: str | None = None,
        base: str | None = None,
        form: RdfForm | None = None,
    ) -> AdaptedFeed:
        """What a document says, as items of a feed; raises BrokenDocument where it cannot be read.

        Safe to call from many threads; waits while all processes are busy. Documents in a notation of RDF are always
        read in a process: a small one can keep its reader busy for long.
        """
        document = Document(data, name, feed, limit, charset, base, form)
        if (len(data) <= self._inline_bytes and form is None) or len(data) > limit:
            return read_document(document)
        reader = self._idle.get()
        try:
            with self._lock:
                if self._closed:
                    raise RuntimeError("the pool was closed")
            reader = reader if reader is not None and reader.is_alive() else _Reader()
            answer = reader.read(document, self._seconds)
        except _ProcessEndedError as ended:
            logger.warning("a reader ended over %s: %s", name, ended)
            reader = None
            raise BrokenDocumentError(
                f"the document could not be read: {ended}",
                place=f"{name}:1",
                hint="it is unusually large or deep; ask its publisher for a smaller one",
            ) from None
        finally:
            self._put_back(reader)
        if isinstance(answer, InputError):
            raise answer
        return answer

    async def read(
        self,
        data: bytes,
        name: str,
        feed: str,
        *,
        limit: int = MAX_DOCUMENT,
        charset: str | None = None,
        base: str | None = None,
        form: RdfForm | None = None,
    ) -> AdaptedFeed:
        """The same for a loop that must not wait: a large document is read while others are polled."""
        if len(data) <= self._inline_bytes and form is None:
            return self.decode_and_adapt(data, name, feed, limit=limit, charset=charset, base=base)
        return await asyncio.to_thread(
            self.decode_and_adapt, data, name, feed, limit=limit, charset=charset, base=base, form=form
        )

    def close(self) -> None:
        """End the processes that have nothing to do; the others end with their document."""
        with self._lock:
            self._closed = True
        while True:
            try:
                reader = self._idle.get_nowait()
            except queue.Empty:
                break
            if reader is not None:
                reader.end()
        self._idle.put(None)  # whoever still waits is told that the pool was closed

    def _put_back(self, reader: _Reader | None) -> None:
        with self._lock:
            closed = self._closed
        if closed and reader is not None:
            reader.end()
            reader = None
        self._idle.put(reader)


class _ProcessEndedError(Exception):
    """A process gave no answer."""


class _Reader:
    """A process that reads documents, one at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", _MODULE, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=environment | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._connection: Connection = Connection(ours.detach())

    def read(self, document: Document, seconds: float) -> AdaptedFeed | InputError:
        """The process's answer; where there is none, the process is gone as well."""
        try:
            self._connection.send_bytes(pickle.dumps(document, protocol=pickle.HIGHEST_PROTOCOL))
            if not self._connection.poll(seconds):
                raise _ProcessEndedError(f"there was no end to it in {seconds:g} seconds")
            answer: AdaptedFeed | InputError = pickle.loads(self._connection.recv_bytes())  # noqa: S301
        except (OSError, EOFError) as error:
            code = self.end()
            raise _ProcessEndedError(f"the process that read it ended with code {code}") from error
        except _ProcessEndedError:
            self.end()
            raise
        return answer

    def is_alive(self) -> bool:
        """Whether the process is still there; it may have been ended while it had nothing to do."""
        return self._process.poll() is None

    def end(self) -> int:
        """Hang up, and see to it that the process is gone."""
        self._connection.close()
        try:
            return self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
