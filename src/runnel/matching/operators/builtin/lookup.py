"""Look-ups: rows of a database's table that belong to an item.

In: a table of a database that the settings name, then asks with keys: the inputs of a call, or the item's attributes.
Out: the chosen columns of the table's rows with such keys; without columns, whether there is one. All asks of a batch
are one question with bound parameters. A row that lacks a chosen column is no row.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import islice, product
from typing import Any

from sqlalchemy import Column, Connection, Date, DateTime, MetaData, Numeric, Select, Table, select, tuple_
from sqlalchemy.exc import NoSuchTableError

from runnel.catalog.store.connection import chunks
from runnel.errors import OperatorRefusedError
from runnel.matching.operators.builtin.configuration import IN_TIME, Configuration
from runnel.matching.operators.builtin.lookup_columns import comparable, for_column, from_column
from runnel.matching.operators.builtin.lookup_database import Database, UnansweredError
from runnel.matching.operators.builtin.suggest import suggestion
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, OperatorContext
from runnel.model.item import Value
from runnel.model.operator import HOLDS, Parameter, Row

MAX_KEYS = 64
"""Keys of one ask: an attribute may have several values."""

_SETTINGS = ("database", "table", "schema", "key", "columns", "attributes", "most")
_Key = tuple[Any, ...]


class _Target:
    """A table as the database describes it: names are those it knows, so none is put into a question as text."""

    def __init__(self, table: Table, keys: Sequence[Column[Any]], results: Sequence[Column[Any]]) -> None:
        self.table = table
        self.keys = tuple(keys)
        self.results = tuple(results)

    def question(self, wanted: Sequence[_Key], most: int) -> Select[Any]:
        """One question for the rows of some keys."""
        chosen = select(*self.keys, *self.results).limit(most) if self.results else select(*self.keys).distinct()
        if len(self.keys) == 1:
            return chosen.where(self.keys[0].in_([one for (one,) in wanted]))
        return chosen.where(tuple_(*self.keys).in_(wanted))


class Lookup:
    """Rows of a table: `stockOf(symbol, ?price)`, or `known(author)` without results.

    >>> import pathlib, sqlite3, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> url = f"sqlite:///{folder.name}/stocks.sqlite"
    >>> with sqlite3.connect(f"{folder.name}/stocks.sqlite") as connection:
    ...     _ = connection.execute("create table stocks (symbol text primary key, price real)")
    ...     _ = connection.execute("insert into stocks values ('ACME', 12.5)")
    >>> connection.close()
    >>> settings = {"database": "market", "table": "stocks", "key": "symbol", "columns": "price"}
    >>> lookup = Lookup(OperatorContext(settings, databases={"market": url}))
    >>> lookup.answer([Ask({}, (("ACME", "NONE"),)), Ask({}, ("NONE",))])
    [((12.5,),), ()]
    >>> lookup.close(); folder.cleanup()
    """

    parameters: tuple[Parameter, ...] = ()
    cost = timedelta(microseconds=500)
    pure = False
    batch = 256

    def __init__(self, place: OperatorContext) -> None:
        self._configuration = configuration = Configuration("lookup", place, _SETTINGS)
        name = configuration.text("database", hint="one of the setting `operator_databases`")
        if name not in place.databases:
            hint = f"the setting `operator_databases` has: {', '.join(sorted(place.databases)) or 'none'}"
            raise configuration.refused(f"there is no database {name[:80]!r}", key="database", hint=hint)
        self._name = name
        self._keys = configuration.names("key")
        self._columns = configuration.names("columns", "")
        self._attributes = configuration.names("attributes", "")
        if self._attributes and len(self._attributes) != len(self._keys):
            raise configuration.refused("there must be as many as in `key`", key="attributes")
        self._most = configuration.whole("most", 100, least=1, most=10_000)
        self._seconds = place.time_limit
        try:
            self._database = Database(place.databases[name], seconds=place.time_limit, connections=place.concurrency)
        except ValueError as error:
            raise configuration.refused(str(error), key="database") from error
        self._target: _Target | None = None
        self._missed = ""
        try:
            self._target = self._reflected()
        except UnansweredError as error:
            self._missed = error.reason  # It may be there later; until then asks fail, in a way that passes.
        except OperatorRefusedError:
            self.close()
            raise

    def answer(self, asks: Sequence[Ask]) -> Sequence[Answer]:
        """The rows of every ask; where the database does not answer, all fail for now."""
        try:
            if self._target is None:
                self._target = self._reflected()
            wanted = [self._wanted(ask, self._target) for ask in asks]
            keys = dict.fromkeys(key for one in wanted if not isinstance(one, Failed) for key in one)
            found = self._found(list(keys), self._target)
        except (UnansweredError, OperatorRefusedError) as error:
            reason = error.reason if isinstance(error, UnansweredError) else str(error)
            return [Failed(f"the database {self._name} did not answer: {reason}")] * len(asks)
        return [one if isinstance(one, Failed) else self._rows(one, found) for one in wanted]

    def check(self) -> None:
        """Refuse where the database did not answer: whoever registers a look-up can see to it; a worker waits."""
        if self._target is None:
            raise self._configuration.refused(
                f"the database {self._name} did not answer: {self._missed}",
                key="database",
                hint="is it running, and is its URL in the setting `operator_databases` right?",
            )

    def close(self) -> None:
        """Let go of all connections."""
        self._database.close()

    def _reflected(self) -> _Target:
        name, schema = self._configuration.text("table"), self._configuration.text("schema", "") or None
        with self._database.connected() as connection:
            try:
                table = _described(name, schema, connection)
            except NoSuchTableError as error:
                raise self._configuration.refused(f"there is no table {name[:80]!r}", key="table") from error
        keys, results = self._named(table, "key", self._keys), self._named(table, "columns", self._columns)
        if not self._database.is_postgresql:
            self._fit_sqlite(keys, results)
        return _Target(table, keys, results)

    def _fit_sqlite(self, keys: Sequence[Column[Any]], results: Sequence[Column[Any]]) -> None:
        """SQLite keeps decimals as doubles, and so they are compared; moments as texts of whoever wrote them."""
        for column in (*keys, *results):
            if isinstance(column.type, Numeric):
                column.type = Numeric(asdecimal=False)
        for column in keys:
            if isinstance(column.type, Date | DateTime):
                raise self._configuration.refused("a moment cannot be a key in SQLite", key="key")

    def _named(self, table: Table, key: str, names: Iterable[str]) -> list[Column[Any]]:
        for name in names:
            if name not in table.columns:
                near = suggestion(name, table.columns.keys())
                raise self._configuration.refused(f"the table has no column {name[:80]!r}{near}", key=key)
        return [table.columns[name] for name in names]

    def _wanted(self, ask: Ask, target: _Target) -> list[_Key] | Failed:
        """The keys of an ask; none where the item lacks an attribute, or a column cannot hold a value."""
        given = [ask.attributes.get(name, ()) for name in self._attributes] if self._attributes else ask.inputs
        if len(given) != len(target.keys):
            return Failed(f"a call needs as many inputs as `key` has columns: {len(target.keys)}", passing=False)
        parts = [_held(one, column) for one, column in zip(given, target.keys, strict=True)]
        keys = list(islice(product(*parts), MAX_KEYS + 1))
        if len(keys) > MAX_KEYS:
            return Failed(f"the item has more than {MAX_KEYS} keys", passing=False)
        return keys

    def _found(self, keys: Sequence[_Key], target: _Target) -> dict[_Key, list[Any]]:
        places = len(target.keys)
        found: dict[_Key, list[Any]] = {}
        deadline = time.monotonic() + IN_TIME * self._seconds
        for run in chunks(keys):
            for row in self._asked(run, target, deadline):
                key = tuple(comparable(value) for value in row[:places])
                found.setdefault(key, []).append(tuple(row[places:]))
        return found

    def _asked(self, run: Sequence[_Key], target: _Target, deadline: float) -> list[Any]:
        """The rows of some keys; where one key may have taken the room of others, each half is asked by itself."""
        most = len(run) * self._most + 1
        rows = self._database.rows(target.question(run, most), deadline - time.monotonic())
        if len(rows) < most or len(run) == 1 or not target.results:
            return rows
        half = len(run) // 2
        return [*self._asked(run[:half], target, deadline), *self._asked(run[half:], target, deadline)]

    def _rows(self, keys: Sequence[_Key], found: dict[_Key, list[Any]]) -> Answer:
        several = [row for key in keys for row in found.get(tuple(map(comparable, key)), ())]
        if not self._columns:
            return HOLDS if several else ()
        if len(several) > self._most:
            return Failed(f"more than {self._most} rows were found", passing=False)
        rows: dict[Row, None] = {}
        for row in several:
            try:
                values = [from_column(value) for value in row]
            except ValueError as error:
                return Failed(str(error), passing=False)
            if (whole := _whole(values)) is not None:
                rows[whole] = None
        return tuple(rows)


def _described(name: str, schema: str | None, connection: Connection) -> Table:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # Of columns with kinds that SQLAlchemy does not know; nobody may ask for them.
        return Table(name, MetaData(), schema=schema, autoload_with=connection, resolve_fks=False)


def _held(given: Value | tuple[Value, ...], column: Column[Any]) -> list[Any]:
    values = given if isinstance(given, tuple) else (given,)
    return [held for value in values if (held := for_column(value, column)) is not None]


def _whole(values: Sequence[Value | None]) -> Row | None:
    kept = tuple(value for value in values if value is not None)
    return kept if len(kept) == len(values) else None
