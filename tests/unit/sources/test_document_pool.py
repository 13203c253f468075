"""Documents read in processes: the same answers, and a process that dies takes one document with it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from runnel.errors import BrokenDocumentError
from runnel.sources.document_pool import DocumentPool
from runnel.sources.documents.adapt import adapt
from runnel.sources.documents.decode import decode


def feed_of(items: int, note: str = "") -> bytes:
    entries = "".join(f"<item><guid>{number}</guid><link>/{number}</link></item>" for number in range(items))
    return f"<rss><channel><title>T{note}</title>{entries}</channel></rss>".encode()


@pytest.fixture
def pool() -> Iterator[DocumentPool]:
    with DocumentPool(workers=2, inline_bytes=0) as made:
        yield made


def processes(pool: DocumentPool) -> list[int]:
    return [reader._process.pid for reader in pool._idle.queue if reader is not None]


def test_the_answer_is_that_of_reading_here(pool: DocumentPool) -> None:
    data = feed_of(50, " Q&A")
    assert pool.decode_and_adapt(data, "a.xml", "F") == adapt(decode(data, "a.xml"), "F")
    based = pool.decode_and_adapt(data, "a.xml", "F", base="https://muse.example/")
    assert based.items[0].first("link") == "https://muse.example/49"
    latin = pool.decode_and_adapt("<rss><channel><title>é</title></channel></rss>".encode("latin-1"), "a", "F",
                                  charset="latin-1")  # fmt: skip
    assert (latin.title, latin.note) == ("é", None)


def test_a_refusal_comes_back_whole(pool: DocumentPool) -> None:
    with pytest.raises(BrokenDocumentError, match="HTML page") as caught:
        pool.decode_and_adapt(b"<html><body/></html>", "a.xml", "F")
    assert (caught.value.place, "alternate" in (caught.value.hint or "")) == ("a.xml:1", True)
    with pytest.raises(BrokenDocumentError, match="more than the 10"):
        pool.decode_and_adapt(feed_of(1), "a.xml", "F", limit=10)
    problems = pool.decode_and_adapt(b"<rss><channel><item/></channel></rss>", "a.xml", "F").problems
    assert [problem.place for problem in problems] == ["a.xml:1 (entry 1)"]


def test_small_documents_need_no_process() -> None:
    with DocumentPool(workers=2) as pool:
        assert len(pool.decode_and_adapt(feed_of(3), "a.xml", "F").items) == 3
        assert processes(pool) == []


def test_processes_are_used_again_by_many_threads(pool: DocumentPool) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(
            threads.map(lambda size: len(pool.decode_and_adapt(feed_of(size), "a", "F").items), range(1, 41))
        )
    assert found == list(range(1, 41))
    assert 1 <= len(processes(pool)) <= 2


def test_a_process_that_is_killed_over_a_document_takes_only_that_one(pool: DocumentPool) -> None:
    pool.decode_and_adapt(feed_of(1), "a.xml", "F")
    (victim,) = processes(pool)
    stop = threading.Event()

    def kill_when_busy() -> None:
        while not stop.is_set():
            if victim not in processes(pool):
                time.sleep(0.05)
                os.kill(victim, signal.SIGKILL)
                return
            time.sleep(0.001)

    killer = threading.Thread(target=kill_when_busy)
    killer.start()
    with pytest.raises(BrokenDocumentError, match="ended with code -9"):
        pool.decode_and_adapt(feed_of(60_000), "large.xml", "F")
    stop.set()
    killer.join()
    assert len(pool.decode_and_adapt(feed_of(2), "b.xml", "F").items) == 2


def test_a_process_that_died_while_idle_is_replaced_without_loss(pool: DocumentPool) -> None:
    pool.decode_and_adapt(feed_of(1), "a.xml", "F")
    (victim,) = processes(pool)
    os.kill(victim, signal.SIGKILL)
    os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
    assert len(pool.decode_and_adapt(feed_of(2), "b.xml", "F").items) == 2
    assert victim not in processes(pool)


def test_a_document_without_end_is_given_up() -> None:
    with DocumentPool(workers=1, inline_bytes=0, seconds=0.05) as pool:
        with pytest.raises(BrokenDocumentError, match=r"no end to it in 0\.05 seconds") as caught:
            pool.decode_and_adapt(feed_of(60_000), "large.xml", "F")
        assert caught.value.place == "large.xml:1"
        assert processes(pool) == []


def test_a_loop_goes_on_while_a_document_is_read(pool: DocumentPool) -> None:
    async def both() -> tuple[int, int]:
        reading = asyncio.create_task(pool.read(feed_of(5_000), "a.xml", "F"))
        turns = 0
        while not reading.done():
            turns += 1
            await asyncio.sleep(0.001)
        return len((await reading).items), turns

    items, turns = asyncio.run(both())
    assert items == 5_000
    assert turns > 5


def test_nothing_is_read_after_the_end() -> None:
    pool = DocumentPool(workers=1, inline_bytes=0)
    pool.decode_and_adapt(feed_of(1), "a.xml", "F")
    (process,) = processes(pool)
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.decode_and_adapt(feed_of(1), "a.xml", "F")
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
