"""`from all feeds [tagged …]` includes feeds that are registered or tagged later, and excludes dropped feeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.services import PostgreSQL, postgresql

import runnel
from runnel.catalog.logs import plan_versions
from runnel.engine import Engine
from runnel.engine.declare import commit_change
from runnel.engine.planning import plan_change
from runnel.errors import StatementError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.plan.store import PlanVersion, load

__all__ = ["postgresql"]


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    server: PostgreSQL | None = request.getfixturevalue("postgresql") if request.param == "postgresql" else None
    with runnel.connect(tmp_path / "root", catalog="" if server is None else server.schema()) as opened:
        yield opened


def matched(engine: Engine) -> dict[str, set[str]]:
    """Return the ids of the items that each feed matches with the current plan."""
    with engine.workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    names = {row["id"]: row["name"] for row in engine.show("feeds").to_json()["feeds"]}
    assert current is not None
    matcher = build_matcher(load(engine.workspace.storage, PlanVersion.of(current)))
    results: dict[str, set[str]] = {}
    for batch in engine.workspace.items.read(0, engine.workspace.items.last_sequence()):
        matches = matcher.match(batch)
        for row, item in enumerate(batch.items({})):
            for query in matches.row(row).tolist():
                results.setdefault(names.get(query, str(query)), set()).add(item.id)
    return results


def test_feed_registered_later_is_included(engine: Engine) -> None:
    engine.execute(
        "register feed A tagged news; register feed B;"
        "create feed Rock from all feeds where title contains 'rock'; subscribe to Rock output log;"
        "create feed News from all feeds tagged news; subscribe to News output log;"
        "create feed View from Rock where n > 1; subscribe to View output log;"
    )
    rock = {"title": "rock", "n": 2}
    engine.publish("A", [{"id": "a", **rock}])
    engine.publish("B", [{"id": "b", **rock}])
    assert matched(engine) == {"Rock": {"a", "b"}, "View": {"a", "b"}, "News": {"a"}}
    engine.execute("register feed C title 'The C' tagged 'News', loud;")
    engine.publish("C", [{"id": "c", **rock}])
    assert matched(engine) == {"Rock": {"a", "b", "c"}, "View": {"a", "b", "c"}, "News": {"a", "c"}}
    engine.execute("tag feed B as news; untag feed A;")
    assert matched(engine)["News"] == {"b", "c"}
    engine.execute("drop feed C;")
    assert matched(engine) == {"Rock": {"a", "b"}, "View": {"a", "b"}, "News": {"b"}}


def test_query_reads_feeds_registered_in_the_same_script(engine: Engine) -> None:
    engine.execute(
        "register feed A; create feed Q from all feeds where n = 1; subscribe to Q output log; register feed B;"
    )
    engine.execute("create or replace feed Q from all feeds where n = 2; register feed C; drop feed A;")
    for name in ("B", "C"):
        engine.publish(name, [{"id": name, "n": 2}])
    assert matched(engine) == {"Q": {"B", "C"}}
    engine.execute("create or replace feed Q from B where n = 2;")
    engine.execute("register feed D;")
    assert matched(engine) == {"Q": {"B"}}, "it does not read all feeds any more"


def test_owners_read_their_own_feeds_and_those_of_the_admin(engine: Engine) -> None:
    engine.execute("register feed Public;")
    engine.owners.add("ann")
    engine.owners.add("bob")
    ann, bob = engine.acting_as("ann"), engine.acting_as("bob")
    ann.execute("register feed OfAnn; create feed Q from all feeds; subscribe to Q output log;")
    bob.execute("register feed OfBob;")
    engine.execute("create feed P from all feeds; subscribe to P output log; register feed Later;")
    for actor, feed in ((engine, "Public"), (ann, "OfAnn"), (bob, "OfBob"), (engine, "Later")):
        actor.publish(feed, [{"id": feed}])
    results = {name.partition(" ")[0]: ids for name, ids in matched(engine).items()}
    assert results == {"Q": {"Public", "OfAnn", "Later"}, "P": {"Public", "Later"}}


def test_new_feed_recompiles_only_the_queries_that_read_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.execute(
        "register feed A tagged news; create feed Rock from all feeds where title contains 'rock';"
        "subscribe to Rock output log; create feed Tagged from all feeds tagged news where n = 1;"
        "subscribe to Tagged output log;"
        + "".join(f"create feed Q{n} from A where n = {n}; subscribe to Q{n} output log;" for n in range(30))
    )
    compiled: list[int] = []
    real = plan_change.compile_plan

    def compile_plan(root: Any, change: plan_change.PlanChange) -> Any:
        compiled.append(len(change.queries))
        return real(root, change)

    monkeypatch.setattr(commit_change, "compile_plan", compile_plan)
    engine.execute("register feed B;")
    engine.execute("register feed C tagged news;")
    engine.execute("register feed D tagged other; register feed E;")
    assert compiled == [1, 2, 2], "the delta has what changed since the base, and nothing else"


def test_statements_keep_titles_and_tags(engine: Engine) -> None:
    engine.execute(
        "register feed 'https://a.example/x' as A title 'It''s A' home 'https://a.example/' tagged b, 'C d';"
    )
    engine.execute("create feed Q from all feeds tagged 'c D' as $v where $v[n = 1];")
    shown = {row["name"]: row for row in engine.show("feeds").to_json()["feeds"]}
    assert (shown["A"]["title"], shown["A"]["home"], shown["A"]["tags"]) == (
        "It's A",
        "https://a.example/",
        ["b", "c d"],
    )
    assert shown["Q"]["statement"] == 'create feed Q from all feeds tagged "c d" as $v where $v[n = 1];'
    engine.execute("tag feed A as x;")
    shown = {row["name"]: row for row in engine.show("feeds").to_json()["feeds"]}
    assert shown["A"]["statement"] == (
        "register feed 'https://a.example/x' as A title 'It''s A' home 'https://a.example/' tagged x;"
    )
    with pytest.raises(StatementError, match="Q is not a registered feed"):
        engine.execute("tag feed Q as x;")


def test_why_and_explain_name_the_feeds_that_were_read(engine: Engine) -> None:
    engine.execute(
        "register feed A; create feed Q from all feeds where n = 1; subscribe to Q output log; register feed B;"
    )
    engine.publish("B", [{"id": "x", "n": 1}])
    assert engine.why("x", "Q").to_json()["holds"]
    assert engine.execute("preview create feed P from all feeds over last 1 day")[0].to_json()["matched"] == 1
    assert any("on A, B:" in line for line in engine.explain("Q").lines)
    assert engine.execute("show feed Q")[0].to_json()["reads"] == ["A", "B"]
    engine.execute("drop feed B;")
    assert not engine.why("x", "Q").to_json()["holds"]
    assert any("on A:" in line for line in engine.explain("Q").lines)


def test_compile_expands_all_feeds_to_the_named_feeds() -> None:
    plan = runnel.compile("register feed A; register feed B tagged t; create feed Q from all feeds tagged t;")
    assert plan.match([{"feed": "A"}, {"feed": "B"}]) == [[], ["Q"]]
