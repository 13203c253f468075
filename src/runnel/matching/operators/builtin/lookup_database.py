"""Read-only access to the databases of look-ups, with a time limit. Supports PostgreSQL and SQLite.

PostgreSQL transactions are declared read-only, and SQLite files are opened for reading. The database itself stops a
query that takes too long. Messages never contain a password.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, Row, Select, create_engine, event, make_url, text
from sqlalchemy.exc import SQLAlchemyError

_CONNECT_SECONDS = 5
_RECYCLE_SECONDS = 900
_STEPS_PER_CHECK = 10_000
"""Instructions of SQLite's virtual machine between two checks of the time limit."""


class UnansweredError(Exception):
    """A database cannot be connected to, or a query failed or took too long; `reason` is for messages."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Database:
    """A database that is queried in read-only transactions. Thread-safe.

    >>> Database("oracle://db.example/stocks", time_limit=1.0)
    Traceback (most recent call last):
    ValueError: look-ups support PostgreSQL and SQLite, not oracle
    """

    def __init__(self, url: str, *, time_limit: float, connections: int = 1) -> None:
        parsed = _parse_url(url)
        self._time_limit = time_limit
        self._password = parsed.password
        self.is_postgresql = parsed.get_backend_name() == "postgresql"
        options: dict[str, Any] = {"pool_size": connections, "max_overflow": 0, "pool_timeout": time_limit}
        if self.is_postgresql:
            timeout_ms = max(1, math.ceil(1000 * (time_limit + _CONNECT_SECONDS)))
            arguments = {"connect_timeout": _CONNECT_SECONDS, "tcp_user_timeout": timeout_ms}
            options |= {"connect_args": arguments, "pool_pre_ping": True, "pool_recycle": _RECYCLE_SECONDS}
        else:
            options["connect_args"] = {"timeout": time_limit}
        self._engine: Engine = create_engine(parsed, **options)
        if not self.is_postgresql:
            event.listen(self._engine, "connect", _set_query_only)

    def rows(self, query: Select[Any], seconds: float) -> list[Row[Any]]:
        """Return the rows of a query, which may take at most `seconds`."""
        with self.connect(seconds) as connection:
            return list(connection.execute(query))

    @contextmanager
    def connect(self, seconds: float | None = None) -> Iterator[Connection]:
        """Open a read-only transaction of at most `seconds`. Raise UnansweredError if anything goes wrong."""
        remaining = self._time_limit if seconds is None else seconds
        if remaining <= 0:
            raise UnansweredError(self._timeout_reason())
        try:
            with self._engine.connect() as connection:
                if self.is_postgresql:
                    connection = connection.execution_options(postgresql_readonly=True)
                with connection.begin():
                    self._set_time_limit(connection, remaining)
                    yield connection
        except (SQLAlchemyError, ValueError) as error:  # a driver raises ValueError for values that it cannot convert
            raise UnansweredError(self._reason(error)) from error

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _set_time_limit(self, connection: Connection, seconds: float) -> None:
        if self.is_postgresql:
            timeout_ms = str(max(1, math.ceil(seconds * 1000)))
            connection.execute(
                text("select set_config('statement_timeout', :timeout_ms, true)"), {"timeout_ms": timeout_ms}
            )
            return
        deadline = time.monotonic() + seconds
        sqlite_connection: Any = connection.connection.dbapi_connection
        sqlite_connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_PER_CHECK)

    def _timeout_reason(self) -> str:
        return f"it took more than {self._time_limit:g} seconds"

    def _reason(self, error: Exception) -> str:
        """Return the first line of a driver's error, without the password."""
        reason = str(getattr(error, "orig", None) or error).strip().split("\n")[0][:200]
        reason = reason.replace(self._password, "…") if self._password else reason
        if "statement timeout" in reason or reason == "interrupted":
            return self._timeout_reason()
        return "".join(character if character.isprintable() else " " for character in reason)


def _parse_url(url: str) -> URL:
    """Parse a URL for SQLAlchemy. Raise ValueError with a message that does not contain the URL."""
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except SQLAlchemyError:
        raise ValueError("its URL in the setting `operator_databases` is invalid") from None
    match backend:
        case "postgresql":
            return parsed.set(drivername="postgresql+psycopg")
        case "sqlite" if parsed.database and parsed.database != ":memory:":
            # Open the file in the mode `ro`, which requires a URI: it is never written, and never created.
            return URL.create(
                "sqlite", database=f"file:{quote(parsed.database)}", query={"mode": "ro", "uri": "true"}
            )
        case "sqlite":
            raise ValueError("look-ups require an SQLite file, not a database in memory")
        case _:
            raise ValueError(f"look-ups support PostgreSQL and SQLite, not {backend[:40]}")


def _set_query_only(connection: Any, record: Any) -> None:
    connection.execute("pragma query_only = on")
