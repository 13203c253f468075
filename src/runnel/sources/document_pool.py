"""A pool of sandboxes that read documents.

In: the bytes of documents from feeds, files and publishers. Out: their validated items, or a BrokenDocumentError. No
document is decoded in the calling process, not even a small one. If a document ends its sandbox, the sandbox is
replaced and the document is rejected as broken.
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
"""Number of sandboxes that read documents concurrently."""

READER_MEGABYTES = 1024
"""Memory that a sandbox may use for a document, in addition to the memory of its program."""

READER_CPU_SECONDS = 20.0
"""CPU time that a sandbox may use for a document."""

_WALL_SECONDS = 180.0
"""Wall-clock limit per document. Much longer than the CPU time, because the machine may be busy."""
_MAX_REPLY = 64 << 20
_REPLY_PER_BYTE = 4
_PACKAGES = ("lxml", "nh3", "idna", "yarl", "multidict", "propcache", "pyoxigraph", "feedparser", "sgmllib")
"""Packages that the sandbox imports, and those of the sandboxes that it starts for RDF and for broken feeds."""

_MAX_OPEN_FILES = 28
"""Limit of open files. The sandbox needs some to start further sandboxes, for RDF and for broken feeds."""


class DocumentPool:
    """Reads documents in up to `workers` sandboxes, which are started on first use.

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
            files=_MAX_OPEN_FILES,
            can_start_processes=True,
        )
        self.sandboxes = SandboxPool(program, workers)
        self._executor = ThreadPoolExecutor(workers, "runnel-document")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def read(self, data: bytes, source: DocumentSource) -> AdaptedFeed:
        """Read a document, or raise BrokenDocumentError if it is invalid, too large or stops its sandbox.

        Raise RunnelError if no sandbox can be used. Thread-safe. Blocks while all sandboxes are busy.
        """
        if len(data) > source.limit:
            raise BrokenDocumentError(
                f"the document has {len(data)} bytes; the limit is {source.limit}",
                place=f"{source.name}:1",
                hint="split it into smaller documents",
            )

        def check(reply: memoryview) -> AdaptedFeed | InputError:
            return read_reply(reply, source.feed, source.max_items)

        def read_in_sandbox(*, fresh: bool = False) -> AdaptedFeed | InputError:
            return self.sandboxes.ask(
                pack_request(data, source),
                check,
                seconds=self._seconds,
                max_reply=max(_MAX_REPLY, _REPLY_PER_BYTE * source.limit),
                fresh=fresh,
            )

        try:
            try:
                result = read_in_sandbox()
            except SandboxError as error:
                # Retry once in a new sandbox if the cause may be unrelated to this document: the process was killed,
                # or earlier documents in the same sandbox used up its memory.
                if error.cause is not EndCause.ENDED and not (error.cause is EndCause.MEMORY and error.served):
                    raise
                result = read_in_sandbox(fresh=True)
        except SandboxError as error:
            if error.cause in (EndCause.NOT_STARTED, EndCause.CLOSED):
                message = f"no sandbox for documents is available: {error.reason}"
                raise RunnelError(message, hint="try again later") from error
            logger.warning("reading the document %s was stopped: %s", source.name, error.reason)
            raise BrokenDocumentError(
                f"reading the document was stopped: {error.reason}",
                place=f"{source.name}:1",
                hint="ask its publisher for a smaller or simpler document",
            ) from error
        if isinstance(result, InputError):
            raise result
        return result

    async def in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a function that reads a document in a thread, without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    def close(self) -> None:
        """Stop all sandboxes."""
        self.sandboxes.close()
        self._executor.shutdown(wait=False)


_pools: dict[int, DocumentPool] = {}


def document_pool() -> DocumentPool:
    """Return the pool of this process. All workspaces of a process share it; a forked process gets a new one."""
    pool = _pools.get(os.getpid())
    if pool is None:
        pool = _pools.setdefault(os.getpid(), DocumentPool())
        atexit.register(pool.close)
    return pool
