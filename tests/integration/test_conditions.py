"""Every kind of condition in a workspace: declared, matched, stored, matched again and explained."""

from __future__ import annotations

import json
from datetime import timedelta

from tests.integration.in_process import InProcess, matched_ids

from runnel.engine import Engine
from runnel.testing import FakeClock

EVERY_KIND = {
    "Patterned": "title contains pattern 'conc*'",
    "Stemmed": "title contains 'concert' stemmed in english",
    "Alike": "title similar to 'rock concerts tonight' at least 0.6",
    "Matching": "title matches '(?i)^ROCK'",
    "Inside": "client in network ('10.0.0.0/8')",
    "Referring": "item references 'muse.example'",
    "Below": "item extends 'https://muse.example/tour'",
    "Sharing": "item shares 'https://muse.example/tour/1'",
    "Anywhere": "item contains all ('rock', 'concerts')",
    "Fresh": "published within last 2 days",
}
ITEM = {
    "id": "1",
    "title": "Rock concerts",
    "client": "10.0.0.1",
    "content": "see <a href='https://muse.example/tour/1'>here</a>",
}


def test_every_kind_of_condition_is_declared_matched_and_explained(engine: Engine, clock: FakeClock) -> None:
    engine.execute("register feed Wire;")
    for name, condition in EVERY_KIND.items():
        engine.execute(f"create feed {name} from Wire where {condition}; subscribe to {name} output log;")
        assert engine.execute(f"explain feed {name};")[0].lines
    published = clock.now - timedelta(days=1)
    engine.publish(
        "Wire", [{**ITEM, "published": published}, {"id": "2", "title": "Jazz", "published": "2001-01-01"}]
    )
    InProcess(engine).match()
    for name in EVERY_KIND:
        assert matched_ids(engine, name) == ["1"], name
        document = engine.why("1", name).to_json()
        assert (document["holds"], document["recorded"]) == (True, True)
        for mark in document["highlights"]:
            assert mark["text"] in ITEM.values()
            assert all(mark["text"][start:end] for start, end in mark["places"])
        assert engine.why("2", name).to_json()["highlights"] == []
    json.dumps([engine.why("1", name).to_json()["highlights"] for name in EVERY_KIND])


def test_relative_times_count_from_acceptance_not_from_the_clock(engine: Engine, clock: FakeClock) -> None:
    engine.execute(
        "register feed Wire; create feed Fresh from Wire where published within last 2 days;"
        "create feed Old from Wire where published < 2 days ago;"
        "subscribe to Fresh output log; subscribe to Old output log;"
    )
    engine.publish("Wire", [{"id": "1", "published": clock.now - timedelta(days=1)}])
    runner = InProcess(engine)
    clock.advance(timedelta(days=3))
    # Matched days after its acceptance, the item is as fresh as it was then.
    runner.match()
    engine.publish("Wire", [{"id": "2", "published": clock.now - timedelta(days=3)}])
    runner.match()
    clock.advance(timedelta(days=30))
    assert matched_ids(engine, "Fresh") == ["1"]
    assert matched_ids(engine, "Old") == ["2"]
    assert engine.why("1", "Fresh").to_json()["holds"]
    assert not engine.why("2", "Fresh").to_json()["holds"]
    (preview,) = engine.execute("preview feed Fresh over last 60 days;")
    assert [row["id"] for row in preview.to_json()["newest"]] == ["1"]


def test_why_marks_words_in_their_context(engine: Engine) -> None:
    engine.execute("register feed Wire; create feed Street from Wire where title contains 'strasse';")
    engine.publish("Wire", [{"id": "1", "title": "In der Straße"}])
    (answer,) = engine.execute("why item '1' in Street;")
    assert any("[In der »Straße«]" in line for line in answer.lines)
    assert answer.to_json()["highlights"] == [
        {"condition": "title contains 'strasse'", "attribute": "title", "text": "In der Straße", "places": [(7, 13)]}
    ]
