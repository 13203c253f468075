"""Limits on the counts in documents: small documents must not create very many objects."""

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


def read(text: str | bytes, **limits: int) -> AdaptedFeed:
    data = text.encode() if isinstance(text, str) else text
    return read_document(data, DocumentSource("a", "F", **limits))  # type: ignore[arg-type]


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
        "truncated RSS": f"<rss><channel>{''.join(f'<item><guid>{n}</guid></item>' for n in numbers)}<item>",
        "not XML": "<rss><channel><title><b></title>"
        + "".join(f"<item><guid>{n}</guid></item>" for n in numbers)
        + "</channel></rss>",
        "JSON lines": "\n".join(f'{{"id": {n}}}' for n in numbers),
        "JSON array": json.dumps([{"id": n} for n in numbers]),
        "JSON Feed": JSON_FEED % ",".join(f'{{"id": "{n}"}}' for n in numbers),
    }


@pytest.mark.parametrize("kind", documents(1))
def test_document_with_too_many_items_is_rejected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(read(documents(5)[kind], max_items=5).items) == 5

    def fail(*_: object) -> None:
        raise AssertionError("an item was read before the items were counted")

    monkeypatch.setattr(adapt, "_adapt_entry", fail)
    monkeypatch.setattr(adapt, "item_of_object", fail)
    # A truncated document is rejected with the original error, not with that of the repaired text.
    message = "not well-formed XML" if kind == "truncated RSS" else "the document has more than 5 items"
    with pytest.raises(BrokenDocumentError, match=message):
        read(documents(6)[kind], max_items=5)


@pytest.mark.parametrize("kind", documents(1))
def test_duplicates_are_counted_and_only_the_first_few_are_reported(kind: str) -> None:
    def read_duplicates(count: int) -> AdaptedFeed:
        text = documents(count)[kind]
        for number in range(1, count):
            for before, after in ((f">{number}<", ">0<"), (f"urn:{number}'", "urn:0'"), (f" {number}}}", " 0}"),
                                  (f'"{number}"', '"0"')):  # fmt: skip
                text = text.replace(before, after)
        return read(text)

    few, many = read_duplicates(6), read_duplicates(1000)
    assert len(few.items) == len(many.items) == 1
    assert len(few.problems) == 5
    used = "this last one" if kind in ("JSON lines", "JSON array") else "the first one"
    for problem in (*few.problems, *many.problems[:5]):
        assert re.fullmatch(
            rf"the id '\S+' occurs more than once in the document; only {used} is used", problem.message
        )
    assert [str(problem) for problem in many.problems[5:]] == [
        "a: further entries have an id that occurs more than once (994 more)"
    ]


def test_problems_beyond_the_limit_are_only_counted() -> None:
    problems = read(f"<rss><channel>{'<item/>' * 1000}</channel></rss>").problems
    assert len(problems) < MAX_PROBLEMS
    assert str(problems[0]) == "a:1 (entry 1): the entry is empty (add an id, a link or a title)"
    assert str(problems[-1]) == f"a: further entries have problems ({1000 - len(problems) + 1} more)"
    problems = read(JSON_FEED % ",".join(["7"] * 1000 + ['{"id": "1"}'])).problems
    assert (len(problems) < MAX_PROBLEMS, str(problems[0])) == (True, "a:1: entry 1 is not an object")
    assert "more)" in str(problems[-1])
    problems = read("{}\n" * 1000 + "7\n" * 1000).problems
    assert len(problems) <= MAX_PROBLEMS


def test_values_and_attribute_names_of_a_document_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(json.dumps({"id": number, f"a{number}": [1, 2]}) for number in range(5))
    for name, limit, noun in (
        ("MAX_DOCUMENT_VALUES", 10, "values"),
        ("MAX_ATTRIBUTES", 5, "different attribute names"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(adapt, name, limit)
            assert len(read(text).items) == 5
            patched.setattr(adapt, name, limit - 1)
            with pytest.raises(BrokenDocumentError, match=f"have more than {limit - 1} {noun}"):
                read(text)


# --- the attacks ----------------------------------------------------------------------------------------------------


def test_small_gzip_of_very_many_lines_is_rejected_with_little_memory() -> None:
    packed = gzip.compress(b'{"id":1}\n' * 1_700_000)
    assert len(packed) < 50_000
    data = gzip.decompress(packed)
    with pytest.raises(BrokenDocumentError, match="the document has more than 100000 items"):
        document_pool().read(data, DocumentSource("a", "F"))
    # Within the limit, duplicates are counted, so the reply is small for any number of them.
    feed = document_pool().read(data[: 9 * 100_000], DocumentSource("a", "F"))
    assert (len(feed.items), len(feed.problems)) == (1, 6)
    (pid, *_) = document_pool().sandboxes.pids()
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 512 << 10, peak


def test_very_many_entries_with_one_guid_take_little_cpu_time() -> None:
    def data(count: int) -> bytes:
        return b"<rss><channel>" + b"<item><guid>1</guid></item>" * count + b"</channel></rss>"

    with pytest.raises(BrokenDocumentError, match="more than 100000 items"):
        document_pool().read(data(300_000), DocumentSource("a", "F"))
    # The maximum number costs less than twice the CPU time of the same entries with different ids.
    started = time.process_time()
    assert len(read(data(100_000)).items) == 1
    repeated = time.process_time() - started
    different = b"".join(b"<item><guid>%d</guid></item>" % number for number in range(100_000))
    started = time.process_time()
    assert len(read(b"<rss><channel>" + different + b"</channel></rss>").items) == 100_000
    assert repeated < 2 * (time.process_time() - started)


def test_elements_without_values_are_limited() -> None:
    assert len(read('{"id": 1, "x": [%s1]}' % ("[]," * 65_535)).items) == 1
    (problem,) = read('{"id": 1, "x": [%s1]}' % ("[]," * 65_536)).problems
    assert problem.message == "x is a list of more than 65536 values"
