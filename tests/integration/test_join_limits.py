"""Items with too many candidates are quarantined for the joins that would have to compare them all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.in_process import InProcess, matched_ids
from tests.integration.test_joins_of_workspaces import texts
from typer.testing import CliRunner

import runnel
from runnel.cli.main import app
from runnel.engine import Engine

SAME = "create feed {} from News as $n join last {} on {} as $p with $n[{} = window.{}]{};"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr("runnel.matching.joins.find_pairs.MAX_CANDIDATES", 20)
    with runnel.connect(tmp_path / "workspace") as opened:
        opened.execute("register feed News; register feed Photos; register feed Drawings;")
        yield opened


def quarantined(engine: Engine) -> list[tuple[str | None, str]]:
    return sorted((each.query, each.place) for each in engine.quarantine())


def test_item_is_quarantined_for_the_queries_with_too_many_candidates(engine: Engine) -> None:
    engine.execute(SAME.format("Shown", "3 days", "Photos", "title", "title", ""))
    engine.execute(SAME.format("Priced", "3 days", "Photos", "price", "price", ""))
    engine.execute("create feed Plain from News; create feed Above from Shown;")
    engine.execute("".join(f"subscribe to {feed} output log;" for feed in ("Shown", "Priced", "Plain", "Above")))
    photos = [{"id": f"p{number}", "title": "same", "price": number} for number in range(21)]
    engine.publish("Photos", [*photos, {"id": "other", "title": "other", "price": 50}])
    run = InProcess(engine)
    run.match()
    engine.publish(
        "News",
        [
            {"id": "n1", "title": "same", "price": 3},
            {"id": "n2", "title": "other", "price": 100},
            {"id": "n3", "title": "none", "price": 50},
        ],
    )
    start = run.offset
    run.match()
    run.commit(start, run.offset, run.batches - 1)  # a replay quarantines nothing again
    run.close()
    assert matched_ids(engine, "Plain") == ["n1", "n2", "n3"]
    assert matched_ids(engine, "Priced") == ["n1", "n3"]
    assert matched_ids(engine, "Shown") == matched_ids(engine, "Above") == ["n2"]
    assert quarantined(engine) == [("Shown", "item 23")]
    [entry] = engine.quarantine()
    assert entry.kind == "evaluation"
    assert "candidates for this item" in entry.reason
    listed = CliRunner().invoke(app, ["show", "quarantine", "--json", "--workspace", str(engine.workspace.folder)])
    assert listed.exit_code == 0
    assert [row["query"] for row in json.loads(listed.stdout)["quarantine"]] == ["Shown"]


def test_item_is_quarantined_for_the_feeds_that_read_a_hidden_join(engine: Engine) -> None:
    """Of two joins of a query, the first is a hidden feed, and so is the join of a part."""
    engine.execute(
        SAME.format(
            "Both", "3 days", "Photos", "title", "title", " join last 3 days on Drawings with $n[id = window.id]"
        )
    )
    engine.execute(
        "create feed Part from (News as $n | Drawings) join last 3 days on Photos with $n[title = window.title];"
    )
    engine.execute("subscribe to Both output log; subscribe to Part output log;")
    engine.publish("Photos", [{"id": f"p{number}", "title": "same"} for number in range(21)])
    engine.publish("Drawings", texts("n1", "n2"))
    engine.publish("News", [{"id": "n1", "title": "same"}, {"id": "n2", "title": "none"}])
    run = InProcess(engine)
    run.match()
    run.close()
    assert matched_ids(engine, "Both") == []
    assert matched_ids(engine, "Part") == ["n1", "n2"], "the drawings pass without a join"
    assert quarantined(engine) == [("Both", "item 24"), ("Part", "item 24")]
