"""The operator `lookup`: find the rows of a database table whose key columns match an item.

The keys are the inputs of a call or attributes of the item. The results are the configured columns of the matching
rows; without configured columns, the operator holds if a row matches. A batch is one SQL query with bound parameters,
or several if it has many keys. A row with null in a configured column is skipped.
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
from runnel.matching.operators.builtin.configuration import WORK_SHARE, Configuration
from runnel.matching.operators.builtin.lookup_columns import comparable, for_column, from_column
from runnel.matching.operators.builtin.lookup_database import Database, UnansweredError
from runnel.matching.operators.builtin.suggest import suggestion
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext
from runnel.model.item import Value
from runnel.model.operator import HOLDS, Parameter, Row

MAX_KEYS = 64
"""Maximum number of keys per call. A call has several keys if an attribute has several values."""

_OPTIONS = ("database", "table", "schema", "key", "columns", "attributes", "most")
_Key = tuple[Any, ...]


class _Target:
    """A table with its key and result columns, as the database describes them.

    Queries use only names that the database reported, so no name from a configuration becomes SQL text.
    """

    def __init__(self, table: Table, keys: Sequence[Column[Any]], results: Sequence[Column[Any]]) -> None:
        self.table = table
        self.keys = tuple(keys)
        self.results = tuple(results)

    def select_rows(self, keys: Sequence[_Key], max_rows: int) -> Select[Any]:
        """Return the SQL query for at most `max_rows` rows with these keys."""
        query = select(*self.keys, *self.results).limit(max_rows) if self.results else select(*self.keys).distinct()
        if len(self.keys) == 1:
            return query.where(self.keys[0].in_([value for (value,) in keys]))
        return query.where(tuple_(*self.keys).in_(keys))


class Lookup:
    """Finds rows of a table: `stockOf(symbol, ?price)`, or `known(author)` without results.

    >>> import pathlib, sqlite3, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> url = f"sqlite:///{folder.name}/stocks.sqlite"
    >>> with sqlite3.connect(f"{folder.name}/stocks.sqlite") as connection:
    ...     _ = connection.execute("create table stocks (symbol text primary key, price real)")
    ...     _ = connection.execute("insert into stocks values ('ACME', 12.5)")
    >>> connection.close()
    >>> settings = {"database": "market", "table": "stocks", "key": "symbol", "columns": "price"}
    >>> lookup = Lookup(OperatorContext(settings, databases={"market": url}))
    >>> lookup.answer([OperatorCall({}, (("ACME", "NONE"),)), OperatorCall({}, ("NONE",))])
    [((12.5,),), ()]
    >>> lookup.close(); folder.cleanup()
    """

    parameters: tuple[Parameter, ...] = ()
    cost = timedelta(microseconds=500)
    pure = False
    batch = 256

    def __init__(self, context: OperatorContext) -> None:
        self._configuration = configuration = Configuration("lookup", context, _OPTIONS)
        name = configuration.text("database", hint="use a name from the setting `operator_databases`")
        if name not in context.databases:
            hint = f"databases in the setting `operator_databases`: {', '.join(sorted(context.databases)) or 'none'}"
            raise configuration.error(f"there is no database {name[:80]!r}", key="database", hint=hint)
        self._name = name
        self._keys = configuration.names("key")
        self._columns = configuration.names("columns", "")
        self._attributes = configuration.names("attributes", "")
        if self._attributes and len(self._attributes) != len(self._keys):
            raise configuration.error(
                f"expected {len(self._keys)} attributes, one per column of `key`", key="attributes"
            )
        self._max_rows = configuration.integer("most", 100, minimum=1, maximum=10_000)
        self._time_limit = context.time_limit
        url = context.databases[name]
        try:
            self._database = Database(url, time_limit=context.time_limit, connections=context.concurrency)
        except ValueError as error:
            raise configuration.error(str(error), key="database") from error
        self._target: _Target | None = None
        self._connection_failure = ""
        try:
            self._target = self._reflect_table()
        except UnansweredError as error:
            # The database may become available later. Until then, calls fail and may be repeated.
            self._connection_failure = error.reason
        except OperatorRefusedError:
            self.close()
            raise

    def answer(self, calls: Sequence[OperatorCall]) -> Sequence[Answer]:
        """Return the rows of every call. If the database cannot be read, all calls fail and may be repeated."""
        try:
            if self._target is None:
                self._target = self._reflect_table()
            keys_of_calls = [self._keys_of(call, self._target) for call in calls]
            keys = dict.fromkeys(key for keys in keys_of_calls if not isinstance(keys, FailedCall) for key in keys)
            rows = self._query_rows(list(keys), self._target)
        except (UnansweredError, OperatorRefusedError) as error:
            reason = error.reason if isinstance(error, UnansweredError) else str(error)
            return [FailedCall(f"cannot read from the database {self._name}: {reason}")] * len(calls)
        return [keys if isinstance(keys, FailedCall) else self._answer(keys, rows) for keys in keys_of_calls]

    def check(self) -> None:
        """Raise an error if the database could not be read. A registration fails then, whereas a worker waits."""
        if self._target is None:
            raise self._configuration.error(
                f"cannot read from the database {self._name}: {self._connection_failure}",
                key="database",
                hint="check that it is running and that its URL in the setting `operator_databases` is correct",
            )

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def _reflect_table(self) -> _Target:
        name, schema = self._configuration.text("table"), self._configuration.text("schema", "") or None
        with self._database.connect() as connection:
            try:
                table = _reflect(name, schema, connection)
            except NoSuchTableError as error:
                raise self._configuration.error(f"there is no table {name[:80]!r}", key="table") from error
        keys = self._find_columns(table, "key", self._keys)
        results = self._find_columns(table, "columns", self._columns)
        if not self._database.is_postgresql:
            self._adapt_sqlite_types(keys, results)
        return _Target(table, keys, results)

    def _adapt_sqlite_types(self, keys: Sequence[Column[Any]], results: Sequence[Column[Any]]) -> None:
        """Read decimals as doubles, as SQLite stores them. Refuse times as keys, because their text form varies."""
        for column in (*keys, *results):
            if isinstance(column.type, Numeric):
                column.type = Numeric(asdecimal=False)
        for column in keys:
            if isinstance(column.type, Date | DateTime):
                raise self._configuration.error("date and time columns cannot be keys in SQLite", key="key")

    def _find_columns(self, table: Table, key: str, names: Iterable[str]) -> list[Column[Any]]:
        for name in names:
            if name not in table.columns:
                near = suggestion(name, table.columns.keys())
                raise self._configuration.error(f"the table has no column {name[:80]!r}{near}", key=key)
        return [table.columns[name] for name in names]

    def _keys_of(self, call: OperatorCall, target: _Target) -> list[_Key] | FailedCall:
        """Return the keys of a call. There are none if an attribute is missing or does not fit its column."""
        inputs = [call.attributes.get(name, ()) for name in self._attributes] if self._attributes else call.inputs
        if len(inputs) != len(target.keys):
            return FailedCall(f"a call needs {len(target.keys)} inputs, one per column of `key`", passing=False)
        values = [_column_values(given, column) for given, column in zip(inputs, target.keys, strict=True)]
        keys = list(islice(product(*values), MAX_KEYS + 1))
        if len(keys) > MAX_KEYS:
            return FailedCall(f"the item has more than {MAX_KEYS} keys", passing=False)
        return keys

    def _query_rows(self, keys: Sequence[_Key], target: _Target) -> dict[_Key, list[Any]]:
        """Return the rows of the database by their keys."""
        width = len(target.keys)
        rows_by_key: dict[_Key, list[Any]] = {}
        deadline = time.monotonic() + WORK_SHARE * self._time_limit
        for chunk in chunks(keys):
            for row in self._query_chunk(chunk, target, deadline):
                key = tuple(comparable(value) for value in row[:width])
                rows_by_key.setdefault(key, []).append(tuple(row[width:]))
        return rows_by_key

    def _query_chunk(self, keys: Sequence[_Key], target: _Target, deadline: float) -> list[Any]:
        """Query the rows of these keys. If the limit of rows is reached, query each half of the keys separately.

        Otherwise a key with many rows could displace the rows of the other keys.
        """
        limit = len(keys) * self._max_rows + 1
        rows = self._database.rows(target.select_rows(keys, limit), deadline - time.monotonic())
        if len(rows) < limit or len(keys) == 1 or not target.results:
            return rows
        half = len(keys) // 2
        return [*self._query_chunk(keys[:half], target, deadline), *self._query_chunk(keys[half:], target, deadline)]

    def _answer(self, keys: Sequence[_Key], rows_by_key: dict[_Key, list[Any]]) -> Answer:
        table_rows = [row for key in keys for row in rows_by_key.get(tuple(map(comparable, key)), ())]
        if not self._columns:
            return HOLDS if table_rows else ()
        if len(table_rows) > self._max_rows:
            return FailedCall(f"the table has more than {self._max_rows} rows for this item", passing=False)
        rows: dict[Row, None] = {}
        for table_row in table_rows:
            try:
                values = [from_column(value) for value in table_row]
            except ValueError as error:
                return FailedCall(str(error), passing=False)
            if (row := _row_without_nulls(values)) is not None:
                rows[row] = None
        return tuple(rows)


def _reflect(name: str, schema: str | None, connection: Connection) -> Table:
    with warnings.catch_warnings():
        # SQLAlchemy warns about columns whose type it does not know. Such columns may exist, but cannot be read.
        warnings.simplefilter("ignore")
        return Table(name, MetaData(), schema=schema, autoload_with=connection, resolve_fks=False)


def _column_values(given: Value | tuple[Value, ...], column: Column[Any]) -> list[Any]:
    values = given if isinstance(given, tuple) else (given,)
    return [converted for value in values if (converted := for_column(value, column)) is not None]


def _row_without_nulls(values: Sequence[Value | None]) -> Row | None:
    present = tuple(value for value in values if value is not None)
    return present if len(present) == len(values) else None
