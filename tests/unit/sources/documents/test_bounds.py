"""Bounds on the counts of documents: small documents do not become very many objects."""

from __future__ import annotations

import gzip
import json
import re
import time
from pathlib import Path

import pytest

from runnel.errors import BrokenDocumentError
from runnel.sources.document_child import DocumentSource, read_document
from runnel.sources.document_pool import document_pool
from runnel.sources.documents import adapt
from runnel.sources.documents.adapt import AdaptedFeed
from runnel.sources.documents.bounds import MAX_PROBLEMS

JSON_FEED = '{"version": "https://jsonfeed.org/version/1.1", "items": [%s]}'


def read(text: str | bytes, **bounds: int) -> AdaptedFeed:
    data = text.encode() if isinstance(text, str) else text
    return read_document(data, DocumentSource("a", "F", **bounds))  # type: ignore[arg-type]


def documents(count: int) -> dict[str, str]:
    numbers = range(count)
    rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    return {
        "RSS": f"<rss><channel>{''.join(f'<item><guid>{n}</guid></item>' for n in numbers)}</channel></rss>",
        "RSS 1.0": f"<r:RDF xmlns:r='{rdf}' xmlns='http://purl.org/rss/1.0/'>"
        + "".join(f"<item r:about='urn:{n}'/>" for n in numbers)
        + "</r:RDF>",
        "Atom": "<feed xmlns='http://www.w3.org/2005/Atom'>"
        + "".join(f"<entry><id>{n}</id></entry>" for n in numbers)
        + "</feed>",
        "torn RSS": f"<rss><channel>{''.join(f'<item><guid>{n}</guid></item>' for n in numbers)}<item>",
        "not XML": "<rss><channel><title><b></title>"
        + "".join(f"<item><guid>{n}</guid></item>" for n in numbers)
        + "</channel></rss>",
        "JSON lines": "\n".join(f'{{"id": {n}}}' for n in numbers),
        "JSON array": json.dumps([{"id": n} for n in numbers]),
        "JSON Feed": JSON_FEED % ",".join(f'{{"id": "{n}"}}' for n in numbers),
    }


@pytest.mark.parametrize("kind", documents(1))
def test_a_document_with_more_items_than_are_taken_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(read(documents(5)[kind], max_items=5).items) == 5

    def fail(*_: object) -> None:
        raise AssertionError("an item was read before the items were counted")

    monkeypatch.setattr(adapt, "_adapt_entry", fail)
    monkeypatch.setattr(adapt, "item_of_object", fail)
    # A torn document is refused for the fault that it was repaired for.
    message = "not well-formed XML" if kind == "torn RSS" else "the document has more than 5 items"
    with pytest.raises(BrokenDocumentError, match=message):
        read(documents(6)[kind], max_items=5)


@pytest.mark.parametrize("kind", documents(1))
def test_duplicates_are_counted_and_only_the_first_few_are_told(kind: str) -> None:
    def found(count: int) -> AdaptedFeed:
        text = documents(count)[kind]
        for number in range(1, count):
            for before, after in ((f">{number}<", ">0<"), (f"urn:{number}'", "urn:0'"), (f" {number}}}", " 0}"),
                                  (f'"{number}"', '"0"')):  # fmt: skip
                text = text.replace(before, after)
        return read(text)

    few, many = found(6), found(1000)
    assert len(few.items) == len(many.items) == 1
    assert len(few.problems) == 5
    kept = "this last one" if kind in ("JSON lines", "JSON array") else "the first one"
    for problem in (*few.problems, *many.problems[:5]):
        assert re.fullmatch(rf"the id '\S+' stands more than once in the document; {kept} was taken", problem.message)
    assert [str(problem) for problem in many.problems[5:]] == ["a: further entries have the id of another (994 more)"]


def test_problems_are_counted_beyond_the_first() -> None:
    problems = read(f"<rss><channel>{'<item/>' * 1000}</channel></rss>").problems
    assert len(problems) < MAX_PROBLEMS
    assert str(problems[0]) == "a:1 (entry 1): the entry is empty (give it an id, a link or a title)"
    assert str(problems[-1]) == f"a: further entries have problems ({1000 - len(problems) + 1} more)"
    problems = read(JSON_FEED % ",".join(["7"] * 1000 + ['{"id": "1"}'])).problems
    assert (len(problems) < MAX_PROBLEMS, str(problems[0])) == (True, "a:1: entry 1 is not an object")
    assert "more)" in str(problems[-1])
    problems = read("{}\n" * 1000 + "7\n" * 1000).problems
    assert len(problems) <= MAX_PROBLEMS


def test_the_values_and_names_of_a_document_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(json.dumps({"id": number, f"a{number}": [1, 2]}) for number in range(5))
    for name, limit, what in (("MAX_DOCUMENT_VALUES", 10, "values"), ("MAX_ATTRIBUTES", 5, "different attributes")):
        with monkeypatch.context() as patched:
            patched.setattr(adapt, name, limit)
            assert len(read(text).items) == 5
            patched.setattr(adapt, name, limit - 1)
            with pytest.raises(BrokenDocumentError, match=f"have more than {limit - 1} {what}"):
                read(text)


# --- the attacks ----------------------------------------------------------------------------------------------------


def test_a_small_gzip_of_very_many_lines_is_refused_in_little_memory() -> None:
    packed = gzip.compress(b'{"id":1}\n' * 1_700_000)
    assert len(packed) < 50_000
    data = gzip.decompress(packed)
    with pytest.raises(BrokenDocumentError, match="the document has more than 100000 items"):
        document_pool().read(data, DocumentSource("a", "F"))
    # Within the bound the duplicates are counted: the reply is small, whatever their number.
    read_there = document_pool().read(data[: 9 * 100_000], DocumentSource("a", "F"))
    assert (len(read_there.items), len(read_there.problems)) == (1, 6)
    (pid, *_) = document_pool().sandboxes.pids()
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 512 << 10, peak


def test_very_many_entries_with_one_guid_take_little_cpu_time() -> None:
    def data(count: int) -> bytes:
        return b"<rss><channel>" + b"<item><guid>1</guid></item>" * count + b"</channel></rss>"

    with pytest.raises(BrokenDocumentError, match="more than 100000 items"):
        document_pool().read(data(300_000), DocumentSource("a", "F"))
    # As many as are taken cost less than twice as much CPU time as the same entries with ids of their own.
    started = time.process_time()
    assert len(read(data(100_000)).items) == 1
    repeated = time.process_time() - started
    different = b"".join(b"<item><guid>%d</guid></item>" % number for number in range(100_000))
    started = time.process_time()
    assert len(read(b"<rss><channel>" + different + b"</channel></rss>").items) == 100_000
    assert repeated < 2 * (time.process_time() - started)


def test_elements_that_give_no_value_are_bounded() -> None:
    assert len(read('{"id": 1, "x": [%s1]}' % ("[]," * 65_535)).items) == 1
    (problem,) = read('{"id": 1, "x": [%s1]}' % ("[]," * 65_536)).problems
    assert problem.message == "x is a list of more than 65536 values"
