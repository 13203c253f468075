"""Look-ups: the same on SQLite and on PostgreSQL, with bound parameters, read-only, and within the time limit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, text
from tests.services import PostgreSQL, postgresql

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.builtin.lookup import Lookup
from runnel.matching.operators.builtin.lookup_database import Database, UnansweredError
from runnel.matching.operators.plugins.contract import FailedCall, OperatorCall, OperatorContext
from runnel.model.item import Value
from runnel.model.operator import HOLDS

__all__ = ["postgresql"]

TABLES = (
    """create table stocks (
        symbol varchar(20), year integer, price numeric(10, 2), weight double precision, listed boolean,
        since timestamp, "odd name" varchar(40), primary key (symbol, year))""",
    "insert into stocks values ('ACME', 2025, 12.50, 0.25, true, '2026-01-02 03:04:05', 'a')",
    "insert into stocks values ('ACME', 2026, 13.75, null, false, '2026-01-02 03:04:05', 'b')",
    "insert into stocks values ('MUSE', 2026, 99.00, 1.5, true, null, 'c')",
    "create table tags (symbol varchar(20), tag varchar(20))",
    "insert into tags values ('ACME', 'tools'), ('ACME', 'tools'), ('ACME', 'birds'), ('MUSE', 'music')",
    "create table many (symbol varchar(20), number integer)",
    "create view slow as select symbol, {slow} as price from stocks",
)
SLOW = {
    "sqlite": "(with recursive n(x) as (select 1 union all select x + 1 from n) select count(*) from n)",
    "postgresql": "pg_sleep(20)::text",
}


@dataclass(frozen=True)
class Server:
    """A database with the tables, and a way to run statements in it as its owner."""

    kind: str
    url: str
    execute: Callable[[str], None]

    def lookup(self, **settings: str) -> Lookup:
        made = {"database": "market", **settings}
        return Lookup(OperatorContext(made, databases={"market": self.url}, time_limit=2.0))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Server:
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("lookup") / "a market?.sqlite"
        made = Server("sqlite", f"sqlite:///{str(path).replace('?', '%3F')}", _on_sqlite(path))
    else:
        service: PostgreSQL = request.getfixturevalue("postgresql")
        url = service.database()
        made = Server("postgresql", url, _on_postgresql(url))
    for statement in TABLES:
        made.execute(statement.format(slow=SLOW[made.kind]))
    return made


def _on_sqlite(path: Path) -> Callable[[str], None]:
    def execute(statement: str) -> None:
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(statement)
        connection.close()

    return execute


def _on_postgresql(url: str) -> Callable[[str], None]:
    def execute(statement: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())

    return execute


@pytest.fixture
def opened() -> Iterator[Callable[[Lookup], Lookup]]:
    made: list[Lookup] = []

    def keep(lookup: Lookup) -> Lookup:
        made.append(lookup)
        return lookup

    yield keep
    for lookup in made:
        lookup.close()


Keep = Callable[[Lookup], Lookup]


def test_rows_with_a_single_key_column_are_found(server: Server, opened: Keep) -> None:
    lookup = opened(server.lookup(table="tags", key="symbol", columns="tag"))
    answers = lookup.answer(
        [
            OperatorCall({}, ("ACME",)),
            OperatorCall({}, ("NONE",)),
            OperatorCall({}, (("MUSE", "ACME"),)),
            OperatorCall({}, ((),)),
        ]
    )
    assert [sorted(answer) if not isinstance(answer, FailedCall) else answer for answer in answers] == [
        [("birds",), ("tools",)],
        [],
        [("birds",), ("music",), ("tools",)],
        [],
    ]


def test_rows_with_two_key_columns_and_attributes_are_found(server: Server, opened: Keep) -> None:
    lookup = opened(server.lookup(table="stocks", key="symbol, year", columns="price,listed", attributes="ticker, y"))
    calls = [
        OperatorCall({"ticker": ("ACME",), "y": (2025.0,)}),
        OperatorCall({"ticker": ("ACME", "MUSE"), "y": (2026.0, 2026.5)}),
        OperatorCall({"ticker": ("ACME",)}),
        OperatorCall({"ticker": (7.0,), "y": ("2026",)}),
    ]
    answers = lookup.answer(calls)
    assert answers[0] == ((12.5, True),)
    assert not isinstance(answers[1], FailedCall)
    assert set(answers[1]) == {(13.75, False), (99.0, True)}
    assert answers[2:] == [(), ()]


def test_without_columns_the_operator_holds_if_a_row_exists(server: Server, opened: Keep) -> None:
    lookup = opened(server.lookup(table="tags", key="symbol"))
    assert lookup.answer(
        [OperatorCall({}, ("ACME",)), OperatorCall({}, ("NONE",)), OperatorCall({}, (("NONE", "MUSE"),))]
    ) == [HOLDS, (), HOLDS]


def test_values_have_types_and_rows_with_null_are_skipped(server: Server, opened: Keep) -> None:
    lookup = opened(server.lookup(table="stocks", key="year", columns="symbol,weight"))
    assert lookup.answer([OperatorCall({}, (2026.0,)), OperatorCall({}, (2025.0,))]) == [
        (("MUSE", 1.5),),
        (("ACME", 0.25),),
    ]
    dated = opened(server.lookup(table="stocks", key="price", columns="since,odd name"))
    since = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert dated.answer([OperatorCall({}, (12.5,)), OperatorCall({}, (99.0,)), OperatorCall({}, (12.51,))]) == [
        ((since, "a"),),
        (),
        (),
    ]


def test_times_are_keys_in_postgresql_only(server: Server, opened: Keep) -> None:
    if server.kind == "sqlite":
        with pytest.raises(OperatorRefusedError, match="date and time columns cannot be keys in SQLite"):
            server.lookup(table="stocks", key="since", columns="year")
        return
    since = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    by_date = opened(server.lookup(table="stocks", key="since", columns="year"))
    (rows,) = by_date.answer([OperatorCall({}, (since,))])
    assert not isinstance(rows, FailedCall)
    assert set(rows) == {(2025.0,), (2026.0,)}


@pytest.mark.parametrize(
    "value", ["'; drop table stocks; --", "ACME' or '1'='1", "%", "\\", '"', "ACME\0", True, 3.0, datetime.now(UTC)]
)
def test_values_never_become_part_of_the_sql_text(server: Server, opened: Keep, value: Value) -> None:
    lookup = opened(server.lookup(table="stocks", key="symbol", columns="year"))
    answers = lookup.answer([OperatorCall({}, (value,)), OperatorCall({}, ("MUSE",))])
    assert answers[1] == ((2026.0,),)
    assert answers[0] == (((2025.0,), (2026.0,)) if value == "ACME\0" else ())


def test_a_batch_is_one_sql_query(server: Server, opened: Keep) -> None:
    lookup = opened(server.lookup(table="tags", key="symbol", columns="tag"))
    asked: list[str] = []
    event.listen(lookup._database._engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
    lookup.answer([OperatorCall({}, (f"S{number % 50}",)) for number in range(200)])
    assert len([statement for statement in asked if "tags" in statement]) == 1


def test_a_key_with_too_many_rows_fails_only_its_call(server: Server, opened: Keep) -> None:
    server.execute("delete from many")
    values = ", ".join(f"('BIG', {number})" for number in range(400))
    server.execute(f"insert into many values {values}")
    server.execute("insert into many values " + ", ".join(f"('S{number}', {number})" for number in range(40)))
    lookup = opened(server.lookup(table="many", key="symbol", columns="number", most="5"))
    calls = [OperatorCall({}, ("BIG",)), *(OperatorCall({}, (f"S{number}",)) for number in range(40))]
    answers = lookup.answer(calls)
    assert answers[0] == FailedCall("the table has more than 5 rows for this item", passing=False)
    assert answers[1:] == [((float(number),),) for number in range(40)]


def test_a_slow_query_is_stopped(server: Server, opened: Keep) -> None:
    lookup = opened(
        Lookup(
            OperatorContext(
                {"database": "market", "table": "slow", "key": "symbol", "columns": "price"},
                databases={"market": server.url},
                time_limit=0.3,
            )
        )
    )
    answers = lookup.answer([OperatorCall({}, ("ACME",)), OperatorCall({}, ("MUSE",))])
    assert answers == [FailedCall("cannot read from the database market: it took more than 0.3 seconds")] * 2
    quick = opened(server.lookup(table="tags", key="symbol"))
    assert quick.answer([OperatorCall({}, ("ACME",))]) == [HOLDS]


def test_transactions_are_read_only(server: Server) -> None:
    database = Database(server.url, time_limit=2.0)
    with pytest.raises(UnansweredError, match=r"read-?only"), database.connect() as connection:
        connection.execute(text("insert into tags values ('x', 'y')"))
    database.close()


def test_a_call_with_a_wrong_number_of_keys_fails_only_itself(server: Server, opened: Keep) -> None:
    lookup = opened(server.lookup(table="tags", key="symbol"))
    many = tuple(f"S{number}" for number in range(65))
    none, other, large, fine = lookup.answer(
        [OperatorCall({}), OperatorCall({}, ("a", "b")), OperatorCall({}, (many,)), OperatorCall({}, ("ACME",))]
    )
    assert isinstance(none, FailedCall)
    assert isinstance(other, FailedCall)
    assert large == FailedCall("the item has more than 64 keys", passing=False)
    assert fine == HOLDS


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"table": "nothing", "key": "a"}, "there is no table 'nothing'"),
        ({"table": "stocks; drop table tags", "key": "a"}, "there is no table"),
        ({"table": "stocks", "key": "symbl"}, "no column 'symbl'; did you mean symbol?"),
        ({"table": "stocks", "key": "symbol", "columns": 'price"; drop table tags; --'}, "no column"),
        ({"table": "stocks", "key": "symbol", "columns": "*"}, "no column"),
        ({"table": "stocks"}, "is required"),
        ({"table": "stocks", "key": "symbol", "attributes": "a, b"}, "expected 1 attributes"),
        ({"table": "stocks", "key": "symbol", "most": "0"}, "expected a number from 1 to 10000"),
    ],
)
def test_invalid_options_are_refused(server: Server, settings: dict[str, str], words: str) -> None:
    with pytest.raises(OperatorRefusedError) as caught:
        server.lookup(**settings)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("databases", "words"),
    [
        ({}, "there is no database 'market'"),
        ({"market": "mysql://a:b@db.example/x"}, "look-ups support PostgreSQL and SQLite, not mysql"),
        ({"market": "sqlite://"}, "look-ups require an SQLite file"),
        ({"market": "::p@ssword::"}, "is invalid"),
    ],
)
def test_unknown_and_unsupported_databases_are_refused(databases: dict[str, str], words: str) -> None:
    with pytest.raises(OperatorRefusedError) as caught:
        Lookup(OperatorContext({"database": "market", "table": "a", "key": "b"}, databases=databases))
    assert words in caught.value.message
    assert "p@ssword" not in str(caught.value)


def test_a_database_that_becomes_available_later_is_used(tmp_path: Path, opened: Keep) -> None:
    settings = {"database": "market", "table": "tags", "key": "symbol"}
    path = tmp_path / "later.sqlite"
    lookup = opened(Lookup(OperatorContext(settings, databases={"market": f"sqlite:///{path}"}, time_limit=1.0)))
    (before,) = lookup.answer([OperatorCall({}, ("ACME",))])
    assert isinstance(before, FailedCall)
    assert before.passing
    assert not path.exists()
    _on_sqlite(path)("create table tags (symbol text)")
    _on_sqlite(path)("insert into tags values ('ACME')")
    assert lookup.answer([OperatorCall({}, ("ACME",))]) == [HOLDS]


def test_messages_do_not_contain_the_password(opened: Keep) -> None:
    url = "postgresql://runnel:s3cret@127.0.0.1:9/market"
    settings = {"database": "market", "table": "tags", "key": "symbol"}
    lookup = opened(Lookup(OperatorContext(settings, databases={"market": url}, time_limit=1.0)))
    (answer,) = lookup.answer([OperatorCall({}, ("ACME",))])
    assert isinstance(answer, FailedCall)
    assert answer.passing
    assert "s3cret" not in answer.reason
    assert "127.0.0.1" in answer.reason
    with pytest.raises(OperatorRefusedError, match="cannot read from the database") as refused:
        lookup.check()
    assert "s3cret" not in str(refused.value)
    assert "operator_databases" in (refused.value.hint or "")


def test_keys_are_compared_exactly_despite_collations_of_the_database(
    server: Server, tmp_path: Path, opened: Keep
) -> None:
    if server.kind == "sqlite":
        path = tmp_path / "folded.sqlite"
        execute, url = _on_sqlite(path), f"sqlite:///{path}"
        execute("create table folded (symbol text collate nocase, price real)")
        stored = "Acme"
    else:
        execute, url = server.execute, server.url
        execute("create table folded (symbol char(8), price double precision)")
        stored = "Acme    "
    execute("insert into folded values ('Acme', 12.5)")
    settings = {"database": "market", "table": "folded", "key": "symbol"}
    for more, results in (({}, HOLDS), ({"columns": "price"}, ((12.5,),))):
        lookup = opened(Lookup(OperatorContext({**settings, **more}, databases={"market": url})))
        lookup.check()
        assert lookup.answer(
            [OperatorCall({}, ("ACME",)), OperatorCall({}, (stored,)), OperatorCall({}, ("Acme  ",))]
        ) == [(), results, ()]


def test_values_of_unsupported_types_fail_only_their_call(tmp_path: Path, opened: Keep) -> None:
    path = tmp_path / "kinds.sqlite"
    execute = _on_sqlite(path)
    execute("create table kinds (symbol text, data)")
    execute("insert into kinds values ('blob', x'00ff'), ('text', 'a'), ('number', 7), ('infinite', 9e999)")
    settings = {"database": "market", "table": "kinds", "key": "symbol", "columns": "data"}
    lookup = opened(Lookup(OperatorContext(settings, databases={"market": f"sqlite:///{path}"})))
    names: list[Any] = ["blob", "text", "number", "infinite"]
    blob, plain, whole, infinite = lookup.answer([OperatorCall({}, (name,)) for name in names])
    assert isinstance(blob, FailedCall)
    assert (plain, whole) == ((("a",),), ((7.0,),))
    assert isinstance(infinite, FailedCall)
