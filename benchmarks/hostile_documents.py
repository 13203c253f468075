"""Hostile documents, measured: the memory and CPU time that they take. A JSON line for every document.

    python benchmarks/hostile_documents.py [--seed 7] [--only NAME]

Each document is read as a document of a web feed is, by a process of its own. `runner` is that process, `readers` are
the sandboxes that it starts: the peak of their resident memory (of the largest one), and their CPU time together.
Each takes some 30 MB before it reads anything. The runner's CPU time includes that of watching the others. For Linux.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from runnel.errors import InputError
from runnel.sandbox.rdf_reader import RdfForm
from runnel.sources.document_child import DocumentSource
from runnel.sources.document_pool import DocumentPool

_SAMPLE_SECONDS = 0.005
_LARGE = 14 << 20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", choices=DOCUMENTS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.only, options.seed)))
        return
    for name in [options.only] if options.only else DOCUMENTS:
        command = [sys.executable, __file__, "--here", "--only", name, "--seed", str(options.seed)]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip(), flush=True)


def measure(name: str, seed: int) -> dict[str, object]:
    """Read a document, in this process's sandboxes."""
    make, form = DOCUMENTS[name]
    data = make(random.Random(seed))
    packed = len(gzip.compress(data, 6))
    before = peak_megabytes("self")
    pool = DocumentPool(1)
    with _Watch() as readers:
        started, cpu = time.perf_counter(), time.process_time()
        try:
            read = pool.read(data, DocumentSource("hostile", "F", form=form))
            outcome = f"{len(read.items)} items, {len(read.problems)} problems"
        except InputError as refusal:
            outcome = refusal.message[:100]
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    pool.close()
    children = getrusage(RUSAGE_CHILDREN)
    return {
        "benchmark": "hostile_documents",
        "document": name,
        "bytes": len(data),
        "gzip_bytes": packed,
        "outcome": outcome,
        "runner_peak_mb": peak_megabytes("self"),
        "runner_before_mb": before,
        "runner_cpu_seconds": round(cpu, 2),
        "readers_peak_mb": readers.peak,
        "readers_cpu_seconds": round(children.ru_utime + children.ru_stime, 2),
        "seconds": round(seconds, 2),
    }


def peak_megabytes(process: str) -> int:
    """The peak of a process's resident memory."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM")), 0)


class _Watch:
    """Samples the descendants of this process for the largest peak of memory."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            waiting = ["self"]
            while waiting:
                for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
                    try:
                        results = task.read_text().split()
                    except OSError:
                        continue
                    waiting.extend(results)
                    self.peak = max(self.peak, *map(peak_megabytes, results), 0)


# --- the documents --------------------------------------------------------------------------------------------------


def _rss(inner: str) -> bytes:
    return f"<rss><channel><title>t</title>{inner}</channel></rss>".encode()


def _lines_with_one_id(_: random.Random) -> bytes:
    return b'{"id":1}\n' * 1_700_000


def _items_with_one_guid(_: random.Random) -> bytes:
    return _rss("<item><guid>1</guid></item>" * 300_000)


def _billion_laughs(_: random.Random) -> bytes:
    entities = "".join(f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 10))
    return f"<!DOCTYPE rss [<!ENTITY l0 'lol'>{entities}]><rss>&l9;</rss>".encode()


def _quadratic_blowup(_: random.Random) -> bytes:
    return f"<!DOCTYPE rss [<!ENTITY a '{'a' * 100_000}'>]><rss>{'&a;' * 100_000}</rss>".encode()


def _deep_elements(_: random.Random) -> bytes:
    return b"<rss>" + b"<a>" * (_LARGE // 3)


def _empty_elements(_: random.Random) -> bytes:
    return b"<rss>" + b"<a/>" * (_LARGE // 4) + b"</rss>"


def _huge_attribute(_: random.Random) -> bytes:
    return f"<rss a='{'x' * _LARGE}'/>".encode()


def _million_attributes(_: random.Random) -> bytes:
    attributes = " ".join(f"a{n}=''" for n in range(1_000_000))
    return f"<rss {attributes}/>".encode()


def _million_names(random: random.Random) -> bytes:
    return "\n".join(
        json.dumps({f"{random.randrange(1 << 40):x}": 1 for _ in range(20)}) for _ in range(40_000)
    ).encode()


def _empty_lists(_: random.Random) -> bytes:
    return b'{"id": 1, "x": [' + b"[]," * (_LARGE // 3) + b"0]}"


def _huge_number(_: random.Random) -> bytes:
    return b'{"id": 1, "x": ' + b"9" * _LARGE + b"}"


def _huge_string(_: random.Random) -> bytes:
    return b'{"id": 1, "x": "' + b"\\u00e9" * (_LARGE // 6) + b'"}'


def _deep_html(_: random.Random) -> bytes:
    content = "&lt;div&gt;" * 90_000
    return _rss("".join(f"<item><guid>{n}</guid><description>{content}</description></item>" for n in range(13)))


def _torn_feed(_: random.Random) -> bytes:
    words = ",".join(map(str, range(200_000)))
    start = "<rss xmlns:itunes='http://www.itunes.com/dtds/podcast-1.0.dtd'><channel><item><title>a</b></title>"
    return f"{start}<itunes:keywords>{words}</itunes:keywords></item></channel></rss>".encode()


def _nested_triples(_: random.Random) -> bytes:
    return b"<urn:a> <urn:b> " + 300_000 * b"<<( <urn:a> <urn:b> " + b"1" + 300_000 * b" )>>" + b" ."


def _json_ld_contexts(_: random.Random) -> bytes:
    terms = ",".join(f'"t{n}":{{"@id":"urn:t{n}","@context":{{"u{n}":"urn:u{n}"}}}}' for n in range(100_000))
    return f'{{"@context":{{{terms}}},{",".join(f"{chr(34)}t{n}{chr(34)}:{{}}" for n in range(100_000))}}}'.encode()


DOCUMENTS: dict[str, tuple[Callable[[random.Random], bytes], RdfForm | None]] = {
    "1.7 million lines with one id": (_lines_with_one_id, None),
    "300,000 RSS items with one guid": (_items_with_one_guid, None),
    "billion laughs": (_billion_laughs, None),
    "quadratic blowup": (_quadratic_blowup, None),
    "4.9 million nested elements": (_deep_elements, None),
    "3.7 million empty elements": (_empty_elements, None),
    "attribute of 14 MB": (_huge_attribute, None),
    "1 million XML attributes": (_million_attributes, None),
    "800,000 attribute names": (_million_names, None),
    "4.9 million empty lists in JSON": (_empty_lists, None),
    "number of 14 million digits": (_huge_number, None),
    "JSON string of 14 MB in escapes": (_huge_string, None),
    "HTML nested 90,000 deep, 13 times": (_deep_html, None),
    "torn feed with 200,000 keywords": (_torn_feed, None),
    "300,000 nested RDF triples": (_nested_triples, RdfForm.TURTLE),
    "100,000 JSON-LD contexts": (_json_ld_contexts, RdfForm.JSON_LD),
}


if __name__ == "__main__":
    main()
