"""Documents read in sandboxes: the results equal those of reading in this process, and errors affect one document."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runnel.errors import BrokenDocumentError, RunnelError
from runnel.sandbox.rdf_reader import RdfForm
from runnel.sources.document_child import DocumentSource, read_document
from runnel.sources.document_pool import DocumentPool, document_pool

SOURCE = DocumentSource("a.xml", "F")


def feed_of(items: int, note: str = "") -> bytes:
    entries = "".join(f"<item><guid>{number}</guid><link>/{number}</link></item>" for number in range(items))
    return f"<rss><channel><title>T{note}</title>{entries}</channel></rss>".encode()


@pytest.fixture
def pool() -> Iterator[DocumentPool]:
    with DocumentPool(workers=2) as pool:
        yield pool


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (feed_of(50, " Q&A"), SOURCE),
        (feed_of(3), DocumentSource("a.xml", "F", base="https://muse.example/")),
        (
            "<rss><channel><title>é</title></channel></rss>".encode("latin-1"),
            DocumentSource("a.xml", "F", charset="latin-1"),
        ),
        (b'{"id": 1, "n": [1, 2.5, -0.0, 1e300], "b": [true, false], "published": "0001-01-01"}\n'
         b'{"x": "\xc3\xa9"}\n7', SOURCE),
        (b'<urn:a> <urn:b> "caf\\u00e9"@FR, [] .', DocumentSource("a.ttl", "F", form=RdfForm.TURTLE)),
        (b"<rss><channel><item><title>torn <b> &lt;i>it&lt;/i></title></item>", SOURCE),
        (
            b"<rss><channel><ttl>60</ttl><skipHours><hour>3</hour></skipHours><skipDays><day>Monday</day></skipDays>"
            b"<atom:link xmlns:atom='http://www.w3.org/2005/Atom' rel='hub' href='https://hub.example/'/>"
            b"<item/><item><guid>1</guid></item><item><guid>1</guid></item></channel></rss>",
            SOURCE,
        ),
        (b'{"version": "https://jsonfeed.org/version/1.1", "feed_url": "u", "items": [{"id": "1"}, 7]}', SOURCE),
    ],
)  # fmt: skip
def test_result_equals_that_of_reading_in_this_process(
    pool: DocumentPool, data: bytes, source: DocumentSource
) -> None:
    actual, expected = pool.read(data, source), read_document(data, source)
    assert [str(problem) for problem in actual.problems] == [str(problem) for problem in expected.problems]
    assert [type(problem) for problem in actual.problems] == [type(problem) for problem in expected.problems]
    actual.problems.clear()
    expected.problems.clear()
    assert actual == expected
    assert [repr(item) for item in actual.items] == [repr(item) for item in expected.items], (
        "the types are also equal"
    )


def test_error_is_returned_with_place_and_hint(pool: DocumentPool) -> None:
    with pytest.raises(BrokenDocumentError, match="HTML page") as caught:
        pool.read(b"<html><body/></html>", SOURCE)
    assert (caught.value.place, "alternate" in (caught.value.hint or "")) == ("a.xml:1", True)
    with pytest.raises(BrokenDocumentError, match="the limit is 10"):
        pool.read(feed_of(1), DocumentSource("a.xml", "F", limit=10))
    problems = pool.read(b"<rss><channel><item/></channel></rss>", SOURCE).problems
    assert [problem.place for problem in problems] == ["a.xml:1 (entry 1)"]


def test_smallest_document_is_also_read_in_a_sandbox(pool: DocumentPool) -> None:
    pool.read(b'{"id": 1}', SOURCE)
    assert len(pool.sandboxes.pids()) == 1


def test_sandboxes_are_reused_by_many_threads(pool: DocumentPool) -> None:
    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(lambda size: len(pool.read(feed_of(size), SOURCE).items), range(1, 41)))
    assert counts == list(range(1, 41))
    assert 1 <= len(pool.sandboxes.pids()) <= 2


def _kill_busy_readers(pool: DocumentPool, times: int) -> threading.Thread:
    """Kill a sandbox as soon as it reads a document, `times` times."""

    def kill() -> None:
        killed: set[int] = set()
        while len(killed) < times:
            for reader in {process.pid for process in list(pool.sandboxes._busy)} - killed:
                os.kill(reader, signal.SIGKILL)
                killed.add(reader)
            time.sleep(0.001)

    killer = threading.Thread(target=kill)
    killer.start()
    return killer


def test_document_is_read_again_if_its_sandbox_was_killed_once(pool: DocumentPool) -> None:
    killer = _kill_busy_readers(pool, 1)
    assert len(pool.read(feed_of(60_000), DocumentSource("large.xml", "F")).items) == 60_000
    killer.join()


def test_document_is_rejected_if_its_sandbox_was_killed_twice(pool: DocumentPool) -> None:
    killer = _kill_busy_readers(pool, 2)
    with pytest.raises(BrokenDocumentError, match="its process was ended by signal 9"):
        pool.read(feed_of(60_000), DocumentSource("large.xml", "F"))
    killer.join()
    assert len(pool.read(feed_of(2), SOURCE).items) == 2


def test_nested_sandboxes_end_with_their_sandbox() -> None:
    with DocumentPool(workers=1, seconds=60) as pool:
        pool.read(b"<urn:a> <urn:b> 1 .", DocumentSource("a.ttl", "F", form=RdfForm.TURTLE))
        (reader,) = pool.sandboxes.pids()
        nested = [int(pid) for pid in Path(f"/proc/{reader}/task/{reader}/children").read_text().split()]
        assert nested
        for pid in nested:
            os.kill(pid, signal.SIGSTOP)  # a stopped process neither responds nor notices that its parent ended
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() and _state(pid) != "Z" for pid in nested):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b'{"version": "https://jsonfeed.org/version/1.1", "items": [{"id": "1", "content_html": "<p>\\ud83d</p>"},'
         b' {"id": "2"}]}', "a.json"),
        (b'{"id": 1, "content:html": "<p>cut \\ud83d</p>"}\n{"id": 2}\n', "a.jsonl"),
        (b"<rss><channel><item><guid>1</guid><description>&lt;b>" + b"&amp;" * 900_000
         + b"</description></item><item><guid>2</guid></item></channel></rss>", "a.xml"),
    ],
)  # fmt: skip
def test_strange_item_does_not_affect_other_items(pool: DocumentPool, data: bytes, name: str) -> None:
    assert "2" in [item.id for item in pool.read(data, DocumentSource(name, "F")).items]


def test_sandbox_that_died_while_idle_is_replaced(pool: DocumentPool) -> None:
    pool.read(feed_of(1), SOURCE)
    (victim,) = pool.sandboxes.pids()
    os.kill(victim, signal.SIGKILL)
    os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
    assert len(pool.read(feed_of(2), SOURCE).items) == 2
    assert victim not in pool.sandboxes.pids()


def test_document_that_takes_too_long_is_rejected() -> None:
    with DocumentPool(workers=1, seconds=0.05) as pool:
        with pytest.raises(BrokenDocumentError, match=r"it took more than 0\.05 seconds") as caught:
            pool.read(feed_of(60_000), DocumentSource("large.xml", "F"))
        assert caught.value.place == "large.xml:1"
        assert pool.sandboxes.pids() == []


def test_document_that_takes_too_much_cpu_time_is_rejected() -> None:
    with DocumentPool(workers=1, cpu_seconds=0.05) as pool:
        with pytest.raises(BrokenDocumentError, match=r"0\.05 seconds of CPU time"):
            pool.read(feed_of(60_000), DocumentSource("large.xml", "F"))
        assert len(pool.read(feed_of(1), SOURCE).items) == 1


def test_document_that_takes_too_much_memory_is_rejected() -> None:
    lists = b'{"id": 1, "x": [' + b"[]," * 1_000_000 + b"0]}"
    with DocumentPool(workers=1, megabytes=64) as pool:
        with pytest.raises(BrokenDocumentError, match="it took more than 64 MB of memory"):
            pool.read(lists, SOURCE)
        assert len(pool.read(feed_of(1), SOURCE).items) == 1


def test_event_loop_continues_while_a_document_is_read(pool: DocumentPool) -> None:
    async def both() -> tuple[int, int]:
        reading = asyncio.create_task(pool.in_thread(pool.read, feed_of(5_000), SOURCE))
        turns = 0
        while not reading.done():
            turns += 1
            await asyncio.sleep(0.001)
        return len((await reading).items), turns

    items, turns = asyncio.run(both())
    assert items == 5_000
    assert turns > 5


def test_closed_pool_reads_nothing() -> None:
    pool = DocumentPool(workers=1)
    pool.read(feed_of(1), SOURCE)
    (process,) = pool.sandboxes.pids()
    pool.close()
    with pytest.raises(RunnelError, match="closed"):
        pool.read(feed_of(1), SOURCE)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def _read_in_fork(answers: multiprocessing.Queue[tuple[int, list[int]]]) -> None:
    # The threads that read for an event loop do not survive a fork either.
    read = len(asyncio.run(document_pool().in_thread(document_pool().read, feed_of(2), SOURCE)).items)
    answers.put((read, document_pool().sandboxes.pids()))


def test_forked_process_has_its_own_sandboxes() -> None:
    asyncio.run(document_pool().in_thread(document_pool().read, feed_of(1), SOURCE))
    before = document_pool().sandboxes.pids()
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[tuple[int, list[int]]] = context.Queue()
    fork = context.Process(target=_read_in_fork, args=(answers,))
    fork.start()
    read, pids = answers.get(timeout=60)
    fork.join()
    assert read == 2
    assert not set(pids) & set(before)
    assert document_pool().sandboxes.pids() == before
    assert len(document_pool().read(feed_of(3), SOURCE).items) == 3


def test_sandboxes_import_nothing_from_the_current_folder(tmp_path: Path) -> None:
    # Files of an attacker, with the names of modules that are imported late.
    marker = tmp_path / "was-expected"
    for name in ("json", "lxml", "html", "sitecustomize", "usercustomize", "feedparser"):
        (tmp_path / f"{name}.py").write_text(f"open({str(marker)!r}, 'w').close()\nraise ImportError\n")
    program = (
        "import sys; sys.path[:] = [path for path in sys.path if path]\n"
        "from runnel.sources.document_pool import DocumentPool\n"
        "from runnel.sources.document_child import DocumentSource\n"
        "import os, sys; os.chdir(sys.argv[1]); sys.path.insert(0, ''); os.environ['PYTHONPATH'] = sys.argv[1]\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "with DocumentPool(1) as pool:\n"
        "    print(pool.read(b'{\"id\": 1}', DocumentSource('a', 'F')).items[0].id)\n"
        "    pid = pool.sandboxes.pids()[0]\n"
        "    print(open(f'/proc/{pid}/environ').read().replace(chr(0), ' '), os.readlink(f'/proc/{pid}/cwd'))\n"
    )
    environment = {"PATH": os.environ["PATH"], "AWS_SECRET_ACCESS_KEY": "hush"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, env=environment, check=True
    )
    identifier, environment_and_folder = done.stdout.split("\n")[:2]
    assert identifier == "1"
    assert environment_and_folder == "LC_ALL=C.UTF-8 XML_CATALOG_FILES=  /"
    assert not marker.exists()
