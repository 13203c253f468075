"""Databases for look-ups: a URL of the settings in, answers to read-only questions out, within a time limit.

PostgreSQL and SQLite. Whoever asks may not write: PostgreSQL is told so for the transaction, SQLite's file is opened
for reading. A question that takes too long is stopped by the database itself. No message has a password in it.
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
_STEPS = 10_000
"""Steps of SQLite's machine between two looks at the clock."""


class UnansweredError(Exception):
    """The database did not answer, or not in time; `reason` in words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Database:
    """One database, asked in transactions that only read. May be used from several threads.

    >>> Database("oracle://db.example/stocks", seconds=1.0)
    Traceback (most recent call last):
    ValueError: oracle is not a kind of database that look-ups can use
    """

    def __init__(self, url: str, *, seconds: float, connections: int = 1) -> None:
        parsed = _parsed(url)
        self._seconds = seconds
        self._password = parsed.password
        self.is_postgresql = parsed.get_backend_name() == "postgresql"
        options: dict[str, Any] = {"pool_size": connections, "max_overflow": 0, "pool_timeout": seconds}
        if self.is_postgresql:
            wait = max(1, math.ceil(1000 * (seconds + _CONNECT_SECONDS)))
            arguments = {"connect_timeout": _CONNECT_SECONDS, "tcp_user_timeout": wait}
            options |= {"connect_args": arguments, "pool_pre_ping": True, "pool_recycle": _RECYCLE_SECONDS}
        else:
            options["connect_args"] = {"timeout": seconds}
        self._engine: Engine = create_engine(parsed, **options)
        if not self.is_postgresql:
            event.listen(self._engine, "connect", _only_read)

    def rows(self, question: Select[Any], seconds: float) -> list[Row[Any]]:
        """The rows of a question, that may take some seconds."""
        with self.connected(seconds) as connection:
            return list(connection.execute(question))

    @contextmanager
    def connected(self, seconds: float | None = None) -> Iterator[Connection]:
        """A transaction that only reads, and ends after its time; Unanswered if anything goes wrong."""
        left = self._seconds if seconds is None else seconds
        if left <= 0:
            raise UnansweredError(self._too_long())
        try:
            with self._engine.connect() as connection:
                if self.is_postgresql:
                    connection = connection.execution_options(postgresql_readonly=True)
                with connection.begin():
                    self._limit(connection, left)
                    yield connection
        except (SQLAlchemyError, ValueError) as error:  # A driver cannot read every value that a table may hold.
            raise UnansweredError(self._explained(error)) from error

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    def _limit(self, connection: Connection, seconds: float) -> None:
        if self.is_postgresql:
            wait = str(max(1, math.ceil(seconds * 1000)))
            connection.execute(text("select set_config('statement_timeout', :wait, true)"), {"wait": wait})
            return
        deadline = time.monotonic() + seconds
        raw: Any = connection.connection.dbapi_connection
        raw.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)

    def _too_long(self) -> str:
        return f"it took more than {self._seconds:g} seconds"

    def _explained(self, error: Exception) -> str:
        said = str(getattr(error, "orig", None) or error).strip().split("\n")[0][:200]
        said = said.replace(self._password, "…") if self._password else said
        if "statement timeout" in said or said == "interrupted":
            return self._too_long()
        return "".join(one if one.isprintable() else " " for one in said)


def _parsed(url: str) -> URL:
    """A URL for SQLAlchemy; ValueError in words that show nothing of it."""
    try:
        parsed = make_url(url)
        kind = parsed.get_backend_name()
    except SQLAlchemyError:
        raise ValueError("its URL cannot be read") from None
    match kind:
        case "postgresql":
            return parsed.set(drivername="postgresql+psycopg")
        case "sqlite" if parsed.database and parsed.database != ":memory:":
            # As a URI, so that a file which is not there is not made, and none is written.
            return URL.create(
                "sqlite", database=f"file:{quote(parsed.database)}", query={"mode": "ro", "uri": "true"}
            )
        case "sqlite":
            raise ValueError("a file of SQLite is needed")
        case other:
            raise ValueError(f"{other[:40]} is not a kind of database that look-ups can use")


def _only_read(raw: Any, record: Any) -> None:
    raw.execute("pragma query_only = on")
