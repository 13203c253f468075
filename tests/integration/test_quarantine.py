"""Invalid input: documents, items and evaluations that fail are quarantined once, and others are not affected."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.integration.in_process import InProcess, matched_ids, read_files

import runnel
from runnel.algebra.semantics.evaluate import holds
from runnel.catalog.logs import match_segments, quarantine
from runnel.engine import Engine
from runnel.errors import BacklogError, BrokenDocumentError, InvalidItemError, NotFoundError
from runnel.matching.filters.atoms import truth
from runnel.matching.filters.index import match_slowly
from runnel.streaming.worker import plan_cache

RSS = """<rss version="2.0"><channel><title>T</title><link>http://e.example/</link><description>D</description>{}
</channel></rss>"""


def _rss(*numbers: int) -> str:
    return RSS.format(
        "".join(
            f'<item><guid isPermaLink="false">{number}</guid><title>item {number}</title></item>'
            for number in sorted(numbers, reverse=True)
        )
    )


def _quarantined(engine: Engine) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = engine.execute("show quarantine;")[0].to_json()["quarantine"]
    return rows


def _drop(engine: Engine, name: str = "drop") -> Path:
    folder = engine.workspace.folder / name
    folder.mkdir(exist_ok=True)
    return folder


def _ids(engine: Engine) -> list[str]:
    return [entry.id for batch in engine.workspace.items.read(0, 1 << 60) for entry in batch.items({})]


# --- sources -------------------------------------------------------------------------------------------------------


def test_broken_file_is_quarantined_and_read_after_its_repair(engine: Engine) -> None:
    engine.execute("register feed 'drop' as News; register feed 'other' as Other;")
    folder, other = _drop(engine), _drop(engine, "other")
    broken = "<rss version='2.0'><channel><item>"
    (folder / "a.xml").write_text(_rss(1))
    (folder / "b.xml").write_text(broken)
    (folder / "c.xml").write_text(_rss(3))
    (other / "d.jsonl").write_text('{"id": "4"}\n')
    acquired = read_files(engine)
    assert (acquired.accepted, acquired.quarantined) == (3, 1)
    assert sorted(_ids(engine)) == ["1", "3", "4"]
    (row,) = _quarantined(engine)
    assert (row["kind"], row["feed"]) == ("document", "News")
    assert "b.xml" in row["place"]
    assert engine.workspace.storage.read(row["kept"]) == broken.encode()
    (failing,) = engine.status().failing_sources
    assert failing["feed"] == "News"
    assert "b.xml" in failing["problem"]

    assert read_files(engine).quarantined == 0, "told once"
    (folder / "b.xml").write_text(_rss(2))
    assert read_files(engine).accepted == 1
    status = engine.status()
    assert (status.failing_sources, status.put_aside) == ([], 1)


def test_removed_broken_file_no_longer_fails(engine: Engine) -> None:
    engine.execute("register feed 'drop' as News;")
    folder = _drop(engine)
    (folder / "a.xml").write_text("<rss")
    read_files(engine)
    (folder / "a.xml").unlink()
    read_files(engine)
    assert engine.status().failing_sources == []


def test_missing_folder_is_reported_once(engine: Engine) -> None:
    engine.execute("register feed 'drop' as News; register feed 'other' as Other;")
    (_drop(engine, "other") / "a.jsonl").write_text('{"id": "1"}\n')
    assert read_files(engine).accepted == 1, "the other feed is read"
    read_files(engine)
    (row,) = _quarantined(engine)
    assert "cannot open the file or folder" in row["reason"]
    assert [failing_source["feed"] for failing_source in engine.status().failing_sources] == ["News"]


def test_folder_created_later_no_longer_fails(engine: Engine) -> None:
    engine.execute("register feed 'drop' as News;")
    read_files(engine)
    (_drop(engine) / "a.jsonl").write_text('{"id": "1"}\n')
    assert read_files(engine).accepted == 1
    assert engine.status().failing_sources == []


def test_valid_items_of_a_document_are_accepted_and_invalid_ones_quarantined(engine: Engine) -> None:
    engine.execute("register feed Wire;")
    document = b'{"id": "1", "title": "good"}\nnot json\n{"id": "3", "n": 1e999}\n{"id": "4"}\n'
    accepted, problems = engine.publish_document("Wire", document, name="wire.jsonl")
    assert accepted.accepted == 2
    assert len(problems) == 2
    rows = _quarantined(engine)
    assert [row["kind"] for row in rows] == ["item", "item"]
    assert {row["place"].split(":")[1] for row in rows} == {"2", "3"}
    assert engine.workspace.storage.read(rows[0]["kept"]) == document
    with pytest.raises(BrokenDocumentError, match="neither XML nor JSON"):
        engine.publish_document("Wire", b"hello")


def test_only_the_newest_items_of_a_first_document_are_accepted(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "root", first_fetch_items=3) as engine:
        engine.execute("register feed 'drop' as News; register feed 'lines' as Lines;")
        folder, lines = _drop(engine), _drop(engine, "lines")
        (folder / "a.xml").write_text(_rss(*range(1, 11)))
        (lines / "a.jsonl").write_text("".join(json.dumps({"id": f"line {n}"}) + "\n" for n in range(10)))
        read_files(engine)
        assert [value for value in _ids(engine) if "line" not in value] == ["8", "9", "10"], (
            "the newest of a feed's past"
        )
        assert sum("line" in value for value in _ids(engine)) == 10, "a document that never repeats is all news"
        (folder / "a.xml").write_text(_rss(*range(1, 16)))
        read_files(engine)
        assert _ids(engine)[-5:] == [str(number) for number in range(11, 16)], "what was old stays old"


def test_a_paused_feed_is_not_read_until_it_is_resumed(engine: Engine) -> None:
    engine.execute("register feed 'drop' as News; pause feed News;")
    (_drop(engine) / "a.jsonl").write_text('{"id": "1"}\n')
    assert read_files(engine).accepted == 0
    engine.execute("resume feed News;")
    assert read_files(engine).accepted == 1


def test_touched_files_without_changes_are_skipped(engine: Engine) -> None:
    engine.execute("register feed 'drop' as News;")
    folder = _drop(engine)
    (folder / "a.xml").write_text(_rss(1, 2))
    read_files(engine)
    (folder / "a.xml").touch()
    (folder / "copy.xml").write_text(_rss(1, 2))
    (folder / "half.xml.part").write_text(_rss(9))
    (folder / "link.xml").symlink_to(Path(__file__))
    acquired = read_files(engine)
    assert (acquired.accepted, acquired.unchanged, acquired.quarantined) == (0, 2, 1)
    assert "a symbolic link that leads out of the folder" in _quarantined(engine)[0]["reason"]


# --- publishing ----------------------------------------------------------------------------------------------------


def test_publishing_into_unsuitable_feeds_is_refused(engine: Engine) -> None:
    engine.execute("register feed Wire; create feed Rock from Wire; register feed Held; pause feed Held;")
    for name, message in (("Rock", "virtual feed"), ("Held", "paused"), ("Wrie", "there is no feed")):
        with pytest.raises(NotFoundError, match=message) as refused:
            engine.publish(name, [{"id": "1"}])
        assert refused.value.hint
        with pytest.raises(NotFoundError, match=message):
            engine.publish_document(name, b'{"id": "1"}')
    with pytest.raises(InvalidItemError, match="item 2"):
        engine.publish("Wire", [{"id": "1"}, {"id": "2", "n": float("nan")}])
    assert engine.workspace.items.last_sequence() == 0, "all or none"


def test_publishing_waits_and_is_refused_at_the_lag_limit(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "root", lag_limit=5, publish_wait_seconds=0) as engine:
        engine.execute("register feed Wire; register feed 'drop' as News;")
        (_drop(engine) / "a.jsonl").write_text('{"id": "from file"}\n')
        engine.publish("Wire", [{"id": str(number)} for number in range(5)])
        with pytest.raises(BacklogError, match="5 items wait"):
            engine.publish("Wire", [{"id": "5"}])
        with pytest.raises(BacklogError):
            engine.publish_document("Wire", b'{"id": "5"}')
        assert read_files(engine).accepted == 0, "files wait too"
        InProcess(engine).match()
        assert engine.publish("Wire", [{"id": "5"}]).accepted == 1
        assert read_files(engine).accepted == 1


# --- evaluation ----------------------------------------------------------------------------------------------------


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes conditions on `published` raise for items with the title poison."""

    def raising(atom: Any, attributes: Any, accepted: datetime | None = None) -> bool:
        if atom.attribute.name == "published" and "poison" in attributes.get("title", ()):
            raise ArithmeticError("cannot evaluate this")
        return holds(atom, attributes, accepted)

    monkeypatch.setattr(truth, "holds", raising)
    monkeypatch.setattr(match_slowly, "holds", raising)


@pytest.mark.usefixtures("poisoned")
def test_query_that_raises_is_quarantined_and_the_batch_continues(engine: Engine) -> None:
    plan_cache.release_all_plans()
    engine.execute(
        "register feed Wire; create feed Old from Wire where published < date '2026-01-01T10:00:00Z';"
        "create feed Poison from Wire where title contains 'poison'; create feed All from Wire;"
        "create feed Mixed from Wire where title contains 'nothing' or published < date '2026-01-01T10:00:00Z';"
        "subscribe to Old output log; subscribe to Poison output log; subscribe to All output log;"
        "subscribe to Mixed output log;"
    )
    early = "2026-01-01T09:00:00Z"
    titles = ["good", "poison", "good", "poison and more"]
    engine.publish("Wire", [{"id": str(n), "title": title, "published": early} for n, title in enumerate(titles, 1)])
    runner = InProcess(engine)
    assert runner.match() == 1
    assert matched_ids(engine, "All") == ["1", "2", "3", "4"]
    assert matched_ids(engine, "Poison") == ["2", "4"]
    assert matched_ids(engine, "Old") == ["1", "3", "4"]
    assert matched_ids(engine, "Mixed") == ["1", "3", "4"]
    rows = _quarantined(engine)
    assert sorted((row["kind"], row["query"], row["place"]) for row in rows) == [
        ("evaluation", "Mixed", "item 2"),
        ("evaluation", "Old", "item 2"),
    ]
    assert {row["reason"] for row in rows} == {"ArithmeticError: cannot evaluate this"}

    # A replay of the batch commits and quarantines nothing again.
    runner.commit(runner.reader.initialOffset(), runner.offset, 0)
    assert len(_quarantined(engine)) == 2
    with engine.workspace.catalog.read() as connection:
        (segment,) = match_segments.match_segments(connection)
        assert quarantine.quarantined_count(connection) == 2
    assert segment.counters["failures"] == 2
    assert segment.matches == 4 + 2 + 3 + 3
