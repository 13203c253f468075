"""Tables through the engine and the commands: declarations, published changes, rows, expiry and upkeep."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.log_upkeep import collect_garbage
from typer.testing import CliRunner

import runnel
from runnel.catalog.delivery import ledger
from runnel.catalog.logs import item_segments, match_segments, table_files
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases
from runnel.cli.doctor import examine
from runnel.cli.main import app
from runnel.engine import Engine
from runnel.engine.upkeep.contain_damage import Containment, contain_damage
from runnel.engine.upkeep.expire_rows import expire_rows
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.errors import (
    BrokenDocumentError,
    CorruptDataError,
    DuplicateNameError,
    InputError,
    InvalidItemError,
    NotFoundError,
    StatementError,
)
from runnel.testing import FakeClock

STOCKS = "register table Stocks (symbol text key, per number, note text)"


@pytest.fixture
def stocks(engine: Engine) -> Engine:
    engine.execute(STOCKS)
    return engine


def values(engine: Engine, table: str = "Stocks", **options: Any) -> list[dict[str, Any]]:
    return [row.values for row in engine.rows(table, **options)]


def publish(
    engine: Engine, text: str, table: str = "Stocks", name: str = "a.jsonl", **options: Any
) -> tuple[int, ...]:
    """Publish a document; gives the numbers of accepted, unchanged, late and refused changes."""
    accepted, problems = engine.publish_document(table, text.encode(), name=name, **options)
    return accepted.accepted, accepted.unchanged, accepted.late, len(problems)


def refusal(engine: Engine, script: str) -> StatementError:
    with pytest.raises(StatementError) as caught:
        engine.execute(script)
    return caught.value


# --- declarations --------------------------------------------------------------------------------------------------


def test_tables_are_registered_listed_and_dropped(stocks: Engine) -> None:
    stocks.publish("Stocks", [{"symbol": "GOOG", "per": 51.7}, {"symbol": "YHOO"}])
    (row,) = stocks.tables()
    assert (row.name, row.rows, row.changes, row.statement) == ("Stocks", 2, 2, f"{STOCKS};")
    (answer,) = stocks.execute("show tables")
    assert str(answer) == f"1 tables\n  {STOCKS};  -- 2 rows"
    assert stocks.feed("Stocks").state == "table"
    (answer,) = stocks.execute("drop table Stocks")
    assert str(answer) == "dropped table Stocks"
    assert not stocks.tables()
    assert not stocks.feeds()
    with pytest.raises(NotFoundError):
        stocks.rows("Stocks")
    stocks.execute("register table Stocks (id number key)")
    assert values(stocks) == [], "a new table has no rows of a dropped one"


def test_a_table_can_be_registered_and_dropped_within_one_script(engine: Engine) -> None:
    answers = engine.execute(f"{STOCKS}; register feed News; drop table Stocks; register table T (a text key);")
    assert [str(answer) for answer in answers] == [
        "registered table Stocks",
        "registered feed News",
        "dropped table Stocks",
        "registered table T",
    ]
    assert [feed.kind for feed in engine.feeds()] == ["source", "table"]


def test_registering_again_adds_columns_and_replaces_options(stocks: Engine) -> None:
    stocks.publish("Stocks", [{"symbol": "GOOG", "per": 1}])
    text = "register table Stocks (symbol text key, per number, note text, at date) keep 3 days"
    (answer,) = stocks.execute(text)
    assert str(answer) == "added column at to table Stocks"
    stocks.publish("Stocks", [{"symbol": "YHOO", "at": "2026-11-15"}])
    assert values(stocks) == [
        {"symbol": "GOOG", "per": 1.0},
        {"symbol": "YHOO", "at": datetime(2026, 11, 15, tzinfo=UTC)},
    ]
    assert stocks.tables()[0].statement == f"{text};"
    assert str(stocks.execute(text)[0]) == "updated table Stocks"


@pytest.mark.parametrize(
    ("columns", "message", "marked"),
    [
        ("symbol text key, per number", "the column note cannot be removed", "Stocks"),
        ("symbol text key, per text, note text", "per has the type number, which cannot be changed", "per"),
        ("symbol text key, per number, note text, x text key", "x cannot be part of the key", "x"),
        ("symbol text, per number key, note text", "symbol is part of the key", "symbol"),
        ("symbol text key, per number, note text) ordered by (per", None, "("),
    ],
)
def test_columns_cannot_be_removed_or_changed(stocks: Engine, columns: str, message: str | None, marked: str) -> None:
    text = f"register table Stocks ({columns})"
    error = refusal(stocks, text)
    assert message is None or message in error.message
    assert error.span is not None
    assert text[error.span.column - 1 :].startswith(marked)
    assert stocks.tables()[0].statement == f"{STOCKS};"


def test_the_order_of_changes_and_of_the_key_cannot_be_changed(engine: Engine) -> None:
    engine.execute("register table T (a text key, b text key, at date, n number) ordered by at")
    error = refusal(engine, "register table T (a text key, b text key, at date, n number) ordered by n")
    assert "was registered with `ordered by at`" in error.message
    error = refusal(engine, "register table T (b text key, a text key, at date, n number) ordered by at")
    assert "the order of the key columns" in error.message


@pytest.mark.parametrize(
    ("statement", "message", "marked"),
    [
        ("create feed X from Stocks", "feeds over tables are not built yet", "Stocks"),
        ("create feed X from (News | Stocks as $s) where $s[per > 1]", "feeds over tables", "Stocks"),
        ("preview create feed X from Stocks", "feeds over tables", "Stocks"),
        ("create feed X from News as $n join last 3 days on Stocks with $n[a = window.a]", "feeds over", "Stocks"),
        ("subscribe to Stocks output log", "feeds over tables", "Stocks"),
        ("register feed Stocks apply 'a.xsl' as X", "feeds over tables", "Stocks"),
        ("drop feed Stocks", "Stocks is a table", "Stocks"),
        ("pause feed Stocks", "Stocks is a table", "Stocks"),
        ("tag feed Stocks as x", "Stocks is a table", "Stocks"),
        ("drop table News", "News is a feed, not a table", "News"),
        ("show rows News", "News is a feed, not a table", None),
        ("show rows Stocks where pe > 1", "Stocks has no column pe", "pe"),
        ("preview feed Stocks", "Stocks", None),
        ("explain feed Stocks", "Stocks is a table", None),
        ("why item 'GOOG' in Stocks", "Stocks is a table", None),
    ],
)  # fmt: skip
def test_statements_for_feeds_are_refused_for_tables(
    stocks: Engine, statement: str, message: str, marked: str | None
) -> None:
    stocks.execute("register feed News")
    (stocks.workspace.folder / "sheets").mkdir(exist_ok=True)
    (stocks.workspace.folder / "sheets" / "a.xsl").write_text(
        '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"/>'
    )
    error = refusal(stocks, statement)
    assert message in error.message
    assert error.hint
    assert error.span is not None
    assert marked is None or statement[error.span.column - 1 :].startswith(marked)


def test_names_of_tables_and_feeds_are_unique_together(stocks: Engine) -> None:
    with pytest.raises(DuplicateNameError, match="a table Stocks already exists"):
        stocks.execute("register feed Stocks")
    with pytest.raises(DuplicateNameError, match="a table Stocks already exists"):
        stocks.execute("create or replace feed Stocks from Stocks")
    stocks.execute("register feed News")
    with pytest.raises(DuplicateNameError, match="a feed News already exists"):
        stocks.execute("register table News (a text key)")


def test_all_feeds_do_not_include_tables(stocks: Engine) -> None:
    stocks.execute("register feed News; create feed X from all feeds; subscribe to X output log;")
    stocks.publish("Stocks", [{"symbol": "GOOG"}])
    assert stocks.feed("X").reads == ("News",) or "Stocks" not in stocks.feed("X").reads


def test_owners_have_tables_of_their_own_and_read_those_of_the_admin(engine: Engine) -> None:
    engine.execute(STOCKS)
    engine.publish("Stocks", [{"symbol": "GOOG", "per": 1}])
    engine.owners.add("ann")
    ann = engine.acting_as("ann")
    assert [row.values for row in ann.rows("Stocks")] == [{"symbol": "GOOG", "per": 1.0}]
    with pytest.raises(runnel.errors.NotAllowedError):
        ann.publish("Stocks", [{"symbol": "YHOO"}])
    ann.execute("register table Mine (a text key)")
    ann.publish("Mine", [{"a": "x"}])
    bob = engine.acting_as(str(engine.owners.add("bob").owner))
    with pytest.raises(NotFoundError):
        bob.rows("Mine")
    assert [row.name for row in bob.tables()] == ["Stocks"]


# --- changes -------------------------------------------------------------------------------------------------------


def test_only_problems_are_quarantined_with_their_position(stocks: Engine) -> None:
    lines = [
        {"symbol": "GOOG", "per": 51.7, "unknown": 5},
        {"symbol": "BAD", "per": "much"},
        {"per": 3},
        {"symbol": 5},
        {"symbol": "LIST", "per": [1, 2]},
        {"symbol": "FLAG", "per": True},
        {"symbol": "YHOO", "per": "51.2", "note": ""},
        {"symbol": "", "per": 1},
        {"symbol": "GOOG", "per": 52},
        {"symbol": "x" * 5000},
    ]
    text = "\n".join(map(json.dumps, lines)) + '\n{"symbol": "NAN", "per": NaN}\n{"symbol": "INF", "per": 1e999}\n'
    text += '{"symbol": "TWICE", "symbol": "TWICE"}\nno json\n{"symbol": "GONE", "row:deleted": true}\n'
    assert publish(stocks, text) == (3, 1, 0, 11)
    assert values(stocks) == [{"symbol": "GOOG", "per": 52.0}, {"symbol": "YHOO", "per": 51.2}]
    reasons = {entry.place: entry.reason for entry in stocks.quarantine()}
    assert reasons["a.jsonl:2"].startswith("per is not a number: 'much'")
    assert reasons["a.jsonl:3"].startswith("the key column symbol is missing")
    assert reasons["a.jsonl:4"].startswith("symbol is not a text: 5")
    assert reasons["a.jsonl:5"].startswith("per has several values")
    assert reasons["a.jsonl:6"].startswith("per is not a number: True")
    assert reasons["a.jsonl:8"].startswith("the key column symbol is missing")
    assert reasons["a.jsonl:10"].startswith("the key is longer than")
    assert reasons["a.jsonl:11"].startswith("per is not a number: nan")
    assert reasons["a.jsonl:12"].startswith("per is not a number: inf")
    assert "occurs twice" in reasons["a.jsonl:13"]
    assert reasons["a.jsonl:14"].startswith("not JSON")
    assert publish(stocks, text)[0] == 2, "GOOG has two changes, the other rows are unchanged"


def test_python_api_accepts_all_changes_or_none(stocks: Engine) -> None:
    with pytest.raises(InvalidItemError, match="item 2: per is not a number"):
        stocks.publish("Stocks", [{"symbol": "GOOG"}, {"symbol": "YHOO", "per": float("inf")}])
    assert values(stocks) == []
    accepted = stocks.publish(
        "Stocks", [{"symbol": "GOOG"}, {"symbol": "YHOO"}, {"symbol": "GOOG", "row:deleted": True}]
    )
    assert (accepted.accepted, accepted.unchanged) == (3, 0)
    assert values(stocks) == [{"symbol": "YHOO"}]


def test_values_have_the_types_of_their_columns(engine: Engine) -> None:
    engine.execute("register table T (d date key, b boolean key, n number key, t text)")
    engine.publish(
        "T",
        [
            {"d": "2026-11-15T09:30:00+01:00", "b": "TRUE", "n": "-0", "t": "cafe\u0301"},
            {"d": datetime(2026, 11, 15, tzinfo=UTC), "b": False, "n": 2**60, "t": None},
        ],
    )
    rows = list(engine.rows("T"))
    assert [row.id for row in rows] == [
        '["2026-11-15T00:00:00Z",false,1.152921504606847e+18]',
        '["2026-11-15T08:30:00Z",true,0]',
    ]
    assert rows[1].values == {"d": datetime(2026, 11, 15, 8, 30, tzinfo=UTC), "b": True, "n": 0.0, "t": "café"}
    for bad in ({"d": 5}, {"d": "soon"}, {"b": 1}, {"b": "yes"}, {"n": "1_000"}, {"n": "٣"}, {"n": ""}):
        with pytest.raises(InvalidItemError):
            engine.publish("T", [{"d": "2026-01-01", "b": True, "n": 1, **bad}])


def test_names_of_csv_columns_can_be_quoted(stocks: Engine) -> None:
    assert publish(stocks, '"symbol";"per"\n"IBM";"3"\n', name="c.csv") == (1, 0, 0, 0)
    assert publish(stocks, '"symbol"\t"per"\n"ORCL"\t"4"\n', name="d.csv") == (1, 0, 0, 0)
    with pytest.raises(BrokenDocumentError, match="not CSV"):
        publish(stocks, '"symbol\n', name="e.csv")
    assert values(stocks) == [{"symbol": "IBM", "per": 3.0}, {"symbol": "ORCL", "per": 4.0}]


def test_csv_is_read_by_its_first_line(stocks: Engine) -> None:
    text = 'note,symbol,per\r\n"a, ""b""\r\nc",GOOG,51.7\r\n,YHOO,\r\n\r\nx,SHORT\r\n,BAD,x\r\n'
    assert publish(stocks, text, name="a.csv") == (2, 0, 0, 2)
    assert values(stocks) == [{"symbol": "GOOG", "per": 51.7, "note": 'a, "b"\r\nc'}, {"symbol": "YHOO"}]
    assert {entry.place for entry in stocks.quarantine()} == {"a.csv:6", "a.csv:7"}
    assert publish(stocks, "\ufeffsymbol;per\nGOOG;51.7\n", name="b.csv") == (1, 0, 0, 0)
    assert publish(stocks, "symbol\trow:deleted\nGOOG\ttrue\nYHOO\t\n") == (1, 1, 0, 0)
    assert values(stocks) == [{"symbol": "YHOO"}]
    with pytest.raises(BrokenDocumentError, match="with the key columns in its first line"):
        publish(stocks, "per,note\n1,x\n")
    with pytest.raises(BrokenDocumentError, match="occurs twice"):
        publish(stocks, "symbol,symbol\n1,x\n")
    assert publish(stocks, "") == (0, 0, 0, 0)


ENVELOPES = [
    {"op": "r", "before": None, "after": {"id": "1", "n": 1, "at": 20000}},
    {"payload": {"op": "c", "before": None, "after": {"id": "2", "n": 2}}},
    {"op": "u", "before": {"id": "1", "n": 1}, "after": {"id": "1", "n": 5}},
    {"op": "u", "before": {"id": "2", "n": 2}, "after": {"id": "3", "n": 2}},
    {"op": "d", "before": {"id": "1", "n": 5}, "after": None},
    {"payload": None},
    None,
    {"op": "d", "before": None, "after": None},
    {"op": "t", "before": None, "after": None},
    {"id": "4", "n": 4},
]


def test_envelopes_of_debezium_are_changes(engine: Engine) -> None:
    engine.execute("register table T (id text key, n number) as debezium")
    text = "\n".join(map(json.dumps, ENVELOPES))
    assert publish(engine, text, "T") == (6, 0, 0, 3)
    assert values(engine, "T") == [{"id": "3", "n": 2.0}]
    reasons = {entry.place: entry.reason for entry in engine.quarantine()}
    assert reasons["a.jsonl:8"].startswith("the operation d has no before")
    assert reasons["a.jsonl:9"].startswith("the operation 't' is not supported")
    assert "register it `as rows`" in reasons["a.jsonl:10"]
    engine.publish("T", [{"op": "c", "after": {"id": "9", "n": 9}}])
    assert len(values(engine, "T")) == 2


@pytest.mark.parametrize(
    ("kind", "count", "expected"),
    [
        ("io.debezium.time.Date", 20_000, datetime(2024, 10, 4, tzinfo=UTC)),
        ("io.debezium.time.Timestamp", 1_728_000_000_000, datetime(2024, 10, 4, tzinfo=UTC)),
        ("io.debezium.time.MicroTimestamp", 1_728_000_000_000_001, datetime(2024, 10, 4, 0, 0, 0, 1, UTC)),
        ("io.debezium.time.NanoTimestamp", 1_728_000_000_000_001_000, datetime(2024, 10, 4, 0, 0, 0, 1, UTC)),
        ("io.debezium.time.ZonedTimestamp", "2024-10-04T02:00:00+02:00", datetime(2024, 10, 4, tzinfo=UTC)),
    ],
)
def test_dates_of_debezium_are_read_with_the_schema(
    engine: Engine, kind: str, count: Any, expected: datetime
) -> None:
    engine.execute("register table T (id text key, at date) as debezium")
    fields = [{"field": "id", "type": "string"}, {"field": "at", "type": "int64", "name": kind}]
    schema = {"fields": [{"field": "after", "fields": fields}]}
    row = {"id": "1", "at": count}
    engine.publish("T", [{"schema": schema, "payload": {"op": "c", "after": row}}])
    assert values(engine, "T") == [{"id": "1", "at": expected}]


def test_a_whole_document_deletes_missing_rows(stocks: Engine) -> None:
    stocks.publish("Stocks", [{"symbol": name, "per": 1} for name in "abcd"])
    document = "".join(json.dumps({"symbol": name, "per": 1}) + "\n" for name in "ab")
    assert publish(stocks, document, whole=True) == (2, 2, 0, 0)
    assert [row["symbol"] for row in values(stocks)] == ["a", "b"]
    with pytest.raises(InputError, match="2 of the 2 rows of Stocks are missing") as caught:
        publish(stocks, '{"symbol": "new"}', whole=True)
    assert "--force" in (caught.value.hint or "")
    assert publish(stocks, "", whole=True, force=True) == (2, 0, 0, 0)
    assert values(stocks) == []


def test_a_whole_document_keeps_rows_that_change_meanwhile(stocks: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(stocks, '{"symbol": "a"}\n{"symbol": "b"}\n{"symbol": "c"}\n{"symbol": "d"}')
    tables = stocks.workspace.tables
    read_view = tables.view

    def view_before_a_change(*arguments: Any) -> Any:
        view = read_view(*arguments)
        monkeypatch.undo()
        publish(stocks, '{"symbol": "c", "per": 60}')
        return view

    monkeypatch.setattr(tables, "view", view_before_a_change)
    publish(stocks, '{"symbol": "a"}\n{"symbol": "b"}', whole=True)
    assert sorted(row["symbol"] for row in values(stocks)) == ["a", "b", "c"]


def test_a_whole_document_with_a_problem_changes_nothing(stocks: Engine) -> None:
    stocks.publish("Stocks", [{"symbol": "a", "per": 1}, {"symbol": "b"}])
    for bad in (
        '{"symbol": "a", "per": "x"}',
        '{"symbol": "b"}\n{"symbol": "b"}',
        '{"symbol": "b", "row:deleted": true}',
    ):
        assert publish(stocks, f'{{"symbol": "c"}}\n{bad}\n', whole=True)[:3] == (0, 0, 0)
    assert [row["symbol"] for row in values(stocks)] == ["a", "b"]
    stocks.execute("register feed News")
    with pytest.raises(InputError, match="only tables have rows"):
        publish(stocks, '{"id": "1"}', "News", whole=True)


# --- rows ----------------------------------------------------------------------------------------------------------


def test_rows_can_be_filtered_and_read_as_of_a_sequence(stocks: Engine) -> None:
    stocks.publish("Stocks", [{"symbol": "GOOG", "per": 50}, {"symbol": "YHOO", "per": 70, "note": "Delisted soon"}])
    stocks.publish("Stocks", [{"symbol": "GOOG", "per": 80}])
    assert [row["per"] for row in values(stocks, where="per > 60")] == [80.0, 70.0]
    assert [row["symbol"] for row in values(stocks, where="not note contains 'delisted'")] == ["GOOG"]
    assert [row["symbol"] for row in values(stocks, where="item contains 'soon'")] == ["YHOO"]
    assert [row["per"] for row in values(stocks, at=2)] == [50.0, 70.0]
    assert values(stocks, at=0) == []
    with pytest.raises(StatementError):
        stocks.rows("Stocks", where="per > 1; drop table Stocks")
    (answer,) = stocks.execute("show rows Stocks where per > 75")
    assert str(answer) == "Stocks: 1 row\n  symbol  per  note\n  GOOG    80   -"
    assert answer.to_json()["rows"] == [{"symbol": "GOOG", "per": 80.0}]


def test_many_rows_are_counted_and_the_first_ones_shown(stocks: Engine) -> None:
    stocks.publish("Stocks", [{"symbol": f"{number:04}"} for number in range(1_200)])
    (answer,) = stocks.execute("show rows Stocks")
    assert answer.message == "Stocks: 1,200 rows, the first 1,000 are shown"
    assert answer.to_json()["total"] == 1_200
    assert answer.to_json()["rows"][-1] == {"symbol": "0999"}


def test_commands_publish_and_show_rows(tmp_path: Path) -> None:
    folder = tmp_path / "news"
    run = CliRunner().invoke

    def call(*arguments: str, code: int = 0, text: str | None = None) -> str:
        result = run(app, [*arguments, "--workspace", str(folder)], input=text)
        assert result.exit_code == code, result.output
        return result.output

    assert run(app, ["init", str(folder)]).exit_code == 0
    call("exec", STOCKS)
    assert "2 accepted, 0 unchanged, 0 refused" in call(
        "publish", "Stocks", "-", text='{"symbol": "GOOG", "per": 50}\n{"symbol": "YHOO", "per": 70}\n'
    )
    assert "0 accepted, 1 unchanged, 0 refused" in call("publish", "Stocks", "-", text="symbol,per\nGOOG,50\n")
    assert call("show", "rows", "Stocks", "--where", "per > 60").split()[-3:] == ["YHOO", "70", "-"]
    assert json.loads(call("show", "rows", "Stocks", "--json"))["total"] == 2
    assert "2 rows" in call("show", "tables")
    assert "register table" in call("show", "feeds")
    assert "only `rows` needs" in call("show", "feeds", "Stocks", code=3)
    assert "missing from the document" in call("publish", "Stocks", "-", "--whole", code=3, text='{"symbol": "x"}')
    assert "3 accepted" in call("publish", "Stocks", "-", "--whole", "--force", text='{"symbol": "x"}')
    status = json.loads(call("status", "--json"))
    assert (status["tables"], status["rows"]) == (1, 1)


# --- upkeep --------------------------------------------------------------------------------------------------------


def test_rows_that_were_not_changed_for_long_are_deleted(engine: Engine, clock: FakeClock) -> None:
    engine.execute("register table T (a text key, n number) keep 2 days")
    engine.publish("T", [{"a": "x"}, {"a": "y"}])
    clock.advance(timedelta(days=1))
    engine.publish("T", [{"a": "y", "n": 1}])
    assert expire_rows(engine.workspace) == 0
    clock.advance(timedelta(days=1, seconds=1))
    assert expire_rows(engine.workspace) == 1
    assert expire_rows(engine.workspace) == 0
    assert values(engine, "T") == [{"a": "y", "n": 1.0}]
    (last,) = [item for batch in engine.workspace.items.read(3, 4) for item in batch.items({})]
    assert (last.id, last.version, dict(last.attributes)) == ("x", 2, {"a": ("x",), "row:deleted": (True,)})


def match_all(engine: Engine) -> int:
    """Pretend that all items are matched and delivered; gives the epoch of a runner."""
    with engine.workspace.catalog.write() as connection:
        lease = leases.acquire(connection, 60)
        first, last = match_segments.matched_upto(connection) + 1, engine.workspace.items.last_sequence()
        if last >= first:
            segment = MatchSegment(1, first, first, last, 1, last - first + 1, 0)
            match_segments.commit_segment(connection, segment, [], epoch=lease.epoch)
        ledger.set_cursor(connection, 0, last)
        leases.release(connection, lease)
    return lease.epoch


def test_maintenance_rewrites_tables_and_keeps_the_items_that_they_need(tmp_path: Path, clock: FakeClock) -> None:
    with runnel.connect(tmp_path / "root", clock=clock, table_tail_rows=2, keep_items_days=10) as engine:
        engine.execute(STOCKS)
        engine.publish("Stocks", [{"symbol": "a", "per": 1}, {"symbol": "b", "per": 1}])
        epoch = match_all(engine)
        run_maintenance(engine.workspace, epoch, chores=True)
        assert files_of(engine) == []
        engine.publish("Stocks", [{"symbol": "a", "per": 2}])
        run_maintenance(engine.workspace, match_all(engine), chores=False)
        assert [(file.kind, file.rows) for file in files_of(engine)] == [("base", 2), ("history", 1)]
        assert values(engine, at=2) == [{"symbol": "a", "per": 1.0}, {"symbol": "b", "per": 1.0}]
        engine.publish("Stocks", [{"symbol": "b", "row:deleted": True}])
        match_all(engine)
        clock.advance(timedelta(days=11))
        engine.publish("Stocks", [{"symbol": "c"}])
        run_maintenance(engine.workspace, match_all(engine), chores=True, at_least=1)
        with engine.workspace.catalog.read() as connection:
            retained = item_segments.retained_upto(connection)
        assert retained == 4, "the base was rewritten, so that the older items could be deleted"
        assert values(engine) == [{"symbol": "a", "per": 2.0}, {"symbol": "c"}]
        assert values(engine, at=4) == [{"symbol": "a", "per": 2.0}]
        with pytest.raises(NotFoundError, match="as of sequence 2 are not kept"):
            values(engine, at=2)


def files_of(engine: Engine) -> list[table_files.TableFile]:
    with engine.workspace.catalog.read() as connection:
        return table_files.live_files(connection)


@pytest.fixture
def rewritten(tmp_path: Path, clock: FakeClock) -> Callable[[], Engine]:
    """Return a function that opens a workspace with a base and a history."""

    def open_engine() -> Engine:
        engine = runnel.connect(tmp_path / "root", clock=clock, table_tail_rows=1, orphan_seconds=0.0)
        engine.execute(STOCKS)
        engine.publish("Stocks", [{"symbol": "a", "per": 1}, {"symbol": "b"}])
        run_maintenance(engine.workspace, match_all(engine), chores=False)
        engine.publish("Stocks", [{"symbol": "a", "per": 2}, {"symbol": "c"}])
        run_maintenance(engine.workspace, match_all(engine), chores=False)
        return engine

    return open_engine


@pytest.mark.parametrize("kind", ["base", "history"])
def test_damaged_files_of_tables_are_found_and_contained(rewritten: Callable[[], Engine], kind: str) -> None:
    with rewritten() as engine:
        workspace = engine.workspace
        before = values(engine)
        (file,) = [file for file in files_of(engine) if file.kind == kind and file.to_sequence == 4]
        local = workspace.storage.local(file.path)
        local.write_bytes(b"x" * local.stat().st_size)
        finding = next(finding for finding in examine(workspace.folder, deep=True) if finding.check == "files")
        assert not finding.is_well
        assert file.path in finding.detail
        assert contain_damage(workspace, match_all(engine), file.path) is Containment.FILE
        assert file not in files_of(engine)
        assert values(engine) == before
        if kind == "history":
            assert [entry.kept for entry in engine.quarantine()] == [file.path]
            with pytest.raises(NotFoundError):
                values(engine, at=2)
        else:
            assert values(engine, at=2) == [{"symbol": "a", "per": 1.0}, {"symbol": "b"}]
        finding = next(finding for finding in examine(workspace.folder, deep=True) if finding.check == "files")
        assert finding.is_well, finding.detail


def test_a_lost_base_is_reported_until_a_backup_is_restored(rewritten: Callable[[], Engine]) -> None:
    with rewritten() as engine:
        workspace = engine.workspace
        collect_garbage(workspace.catalog, workspace.storage, older_than=0)
        with workspace.catalog.write() as connection:
            item_segments.retain_items(connection, 1 << 62, 4)
        (file,) = [file for file in files_of(engine) if file.kind == "base"]
        workspace.storage.delete(file.path)
        assert contain_damage(workspace, match_all(engine), file.path) is None
        with pytest.raises(CorruptDataError, match="is damaged"):
            values(engine)


def test_rows_of_other_tables_expire_next_to_a_lost_base(
    rewritten: Callable[[], Engine], clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with rewritten() as engine:
        engine.execute(f"{STOCKS} keep 2 days; register table Other (a text key) keep 2 days;")
        engine.publish("Other", [{"a": "x"}])
        (file,) = [file for file in files_of(engine) if file.kind == "base" and file.to_sequence == 4]
        engine.workspace.storage.delete(file.path)
        clock.advance(timedelta(days=3))
        assert expire_rows(engine.workspace) == 1
        assert values(engine, "Other") == []
    assert "the old rows of the table Stocks cannot be deleted" in caplog.text


def test_backups_contain_the_files_of_tables(rewritten: Callable[[], Engine], tmp_path: Path) -> None:
    run = CliRunner().invoke
    with rewritten() as engine:
        engine.publish("Stocks", [{"symbol": "d"}])
        before = values(engine), values(engine, at=2)
        folder = engine.workspace.folder
    result = run(app, ["backup", str(tmp_path / "copy"), "--workspace", str(folder)])
    assert result.exit_code == 0, result.output
    result = run(app, ["restore", str(tmp_path / "copy"), str(tmp_path / "again")])
    assert result.exit_code == 0, result.output
    with runnel.connect(tmp_path / "again") as restored:
        assert (values(restored), values(restored, at=2)) == before
        assert restored.publish("Stocks", [{"symbol": "d"}]).unchanged == 1
