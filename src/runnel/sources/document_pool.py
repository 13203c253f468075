"""Documents, read in sandboxes.

In: the bytes of documents from feeds, files and publishers. Out: their items, checked, or a BrokenDocumentError. No
document is decoded in the process that asks, however small it is. A sandbox that ends over a document is replaced,
and the document is refused as broken.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

from runnel.entry_points import plugin_packages
from runnel.errors import BrokenDocumentError, InputError, RunnelError
from runnel.families import GROUP
from runnel.sandbox.pool import SandboxPool
from runnel.sandbox.process import EndCause, SandboxError, SandboxProgram
from runnel.sources.document_child import DocumentSource, pack_request
from runnel.sources.document_reply import read_reply
from runnel.sources.documents.adapt import AdaptedFeed

logger = logging.getLogger("runnel")

T = TypeVar("T")

READERS = 2
"""Sandboxes that read documents at the same time."""

READER_MEGABYTES = 1024
"""Memory that a sandbox may take for a document, beyond that of its program."""

READER_CPU_SECONDS = 20.0
"""CPU time that a sandbox may take for a document."""

_WALL_SECONDS = 180.0
"""Much longer than the CPU time: the machine may be busy."""
_MAX_REPLY = 64 << 20
_REPLY_PER_BYTE = 4
_PACKAGES = ("lxml", "nh3", "idna", "yarl", "multidict", "propcache", "pyoxigraph", "feedparser", "sgmllib")
"""What readers import, and what the sandboxes import that they start for RDF and for broken feeds."""

_FILES = 28
"""Open files of a reader. It starts sandboxes itself, for RDF and for broken feeds."""


class DocumentPool:
    """Reads documents in up to `workers` sandboxes, which are started when they are first needed.

    >>> with DocumentPool(workers=1) as pool:
    ...     pool.read(b'{"id": 1}', DocumentSource("a.jsonl", "News")).items[0].id
    '1'
    """

    def __init__(
        self,
        workers: int = READERS,
        *,
        seconds: float = _WALL_SECONDS,
        cpu_seconds: float = READER_CPU_SECONDS,
        megabytes: int = READER_MEGABYTES,
    ) -> None:
        self._seconds = seconds
        program = SandboxProgram(
            "runnel.sources.document_child",
            (*_PACKAGES, *plugin_packages(GROUP)),
            megabytes,
            cpu_seconds,
            files=_FILES,
            can_start_processes=True,
        )
        self.sandboxes = SandboxPool(program, workers)
        self._threads = ThreadPoolExecutor(workers, "runnel-document")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def read(self, data: bytes, source: DocumentSource) -> AdaptedFeed:
        """The items of a document; raises a BrokenDocumentError where it cannot be read.

        Safe to call from many threads. It waits while all sandboxes are busy.
        """
        if len(data) > source.limit:
            raise BrokenDocumentError(
                f"the document has {len(data)} bytes; the limit is {source.limit}",
                place=f"{source.name}:1",
                hint="split it into smaller ones",
            )

        def check(reply: memoryview) -> AdaptedFeed | InputError:
            return read_reply(reply, source.feed, source.max_items)

        def ask(*, fresh: bool = False) -> AdaptedFeed | InputError:
            return self.sandboxes.ask(
                pack_request(data, source),
                check,
                seconds=self._seconds,
                max_reply=max(_MAX_REPLY, _REPLY_PER_BYTE * source.limit),
                fresh=fresh,
            )

        try:
            try:
                answer = ask()
            except SandboxError as error:
                # The kernel may have killed it, or earlier documents left too little memory.
                if error.cause is not EndCause.ENDED and not (error.cause is EndCause.MEMORY and error.served):
                    raise
                answer = ask(fresh=True)
        except SandboxError as error:
            if error.cause in (EndCause.NOT_STARTED, EndCause.CLOSED):
                raise RunnelError(f"no document can be read now: {error.reason}", hint="try again later") from error
            logger.warning("the reader of %s was stopped: %s", source.name, error.reason)
            raise BrokenDocumentError(
                f"reading the document was stopped: {error.reason}",
                place=f"{source.name}:1",
                hint="ask its publisher for a smaller or simpler document",
            ) from error
        if isinstance(answer, InputError):
            raise answer
        return answer

    async def in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """The result of a function that reads a document, for an event loop, which goes on meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self) -> None:
        """End the sandboxes."""
        self.sandboxes.close()
        self._threads.shutdown(wait=False)


_pools: dict[int, DocumentPool] = {}


def document_pool() -> DocumentPool:
    """The pool of this process, which all of its workspaces share; a fork has one of its own."""
    pool = _pools.get(os.getpid())
    if pool is None:
        pool = _pools.setdefault(os.getpid(), DocumentPool())
        atexit.register(pool.close)
    return pool
