"""Opening a catalog: connections, transactions and migrations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import QueuePool

from runnel.catalog.migrations import MIGRATIONS, statements
from runnel.errors import CorruptData, NewerRoot, RootError, StorageFull

_BUSY_SECONDS = 60
_WRITER_LOCK = 0x52554E4E
_CHUNK = 500
_T = TypeVar("_T")

Clock = Callable[[], float]
"""Seconds since 1970, in UTC."""


class Catalog:
    """One catalog. `write()` gives a transaction that excludes other writers, `read()` a consistent view."""

    def __init__(self, url: str, *, max_bytes: int = 0, clock: Clock = time.time) -> None:
        self.url = url
        self._engine = _open(url, max_bytes).execution_options(runnel_clock=clock)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write: committed at the end, rolled back if anything is raised."""
        with _translated(), self._engine.connect() as connection:
            connection = connection.execution_options(runnel_write=True)
            with connection.begin():
                yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with _translated(), self._engine.connect() as connection, connection.begin():
            yield connection

    def migrate(self) -> int:
        """Bring the catalog to this version of Runnel; gives the version. Each step is one transaction."""
        version = self.version()
        if version > len(MIGRATIONS):
            raise NewerRoot(
                f"the catalog has version {version}, this Runnel knows {len(MIGRATIONS)}",
                hint="use the Runnel that wrote it, or a newer one",
            )
        while version < len(MIGRATIONS):
            with self.write() as connection:
                _ensure_version_table(connection)
                version = _version(connection)
                if version < len(MIGRATIONS):
                    for statement in statements(version, self._engine.dialect.name):
                        connection.execute(text(statement))
                    version += 1
                    connection.execute(text("update catalog_version set version = :v"), {"v": version})
        return version

    def version(self) -> int:
        """How many migrations this catalog has seen."""
        with self.read() as connection:
            known = self._engine.dialect.has_table(connection, "catalog_version")
            return _version(connection) if known else 0

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()


def now(connection: Connection) -> int:
    """Microseconds since 1970, in UTC, by the catalog's clock: how the catalog writes times."""
    clock: Clock = connection.get_execution_options()["runnel_clock"]
    return int(clock() * 1e6)


def chunks(ids: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Runs of a sequence that fit into one statement: databases bound the number of its parameters.

    >>> [len(run) for run in chunks(range(1200))]
    [500, 500, 200]
    """
    return (ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK))


def _ensure_version_table(connection: Connection) -> None:
    connection.execute(text("create table if not exists catalog_version (version integer not null)"))
    if connection.execute(text("select count(*) from catalog_version")).scalar_one() == 0:
        connection.execute(text("insert into catalog_version (version) values (0)"))


def _version(connection: Connection) -> int:
    return int(connection.execute(text("select version from catalog_version")).scalar_one())


def _open(url: str, max_bytes: int) -> Engine:
    dialect = make_url(url).get_backend_name()
    if dialect == "sqlite":
        return _open_sqlite(url, max_bytes)
    if dialect == "postgresql":
        return _open_postgresql(url)
    raise RootError(f"{dialect} cannot hold a catalog", hint="sqlite:///path or postgresql://…")


def _open_postgresql(url: str) -> Engine:
    try:
        engine = create_engine(url, poolclass=QueuePool, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise RootError(f"{error.name} is not installed", hint="install a PostgreSQL driver, e.g. psycopg") from error

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # One writer at a time, as in SQLite. Each statement then sees what the writer before committed.
        if connection.get_execution_options().get("runnel_write"):
            connection.exec_driver_sql(f"select pg_advisory_xact_lock({_WRITER_LOCK})")
        else:
            connection.exec_driver_sql("set transaction isolation level repeatable read read only")

    return engine


def _open_sqlite(url: str, max_bytes: int) -> Engine:
    # Connections are kept: closing the last one would write the log back and remove it, at every turn.
    engine = create_engine(url, poolclass=QueuePool, connect_args={"timeout": _BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions begin where `begin` below says so
        cursor = connection.cursor()
        cursor.execute("pragma journal_mode = wal")
        cursor.execute("pragma synchronous = full")  # an accepted item survives a power cut
        cursor.execute("pragma foreign_keys = on")
        if max_bytes:
            page = cursor.execute("pragma page_size").fetchone()[0]
            cursor.execute(f"pragma max_page_count = {max(1, max_bytes // page)}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("runnel_write")
        connection.exec_driver_sql("begin immediate" if writes else "begin")

    return engine


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        reason = str(error.orig).lower()
        if "disk is full" in reason or "no space left" in reason or "disk i/o error" in reason:
            raise StorageFull(
                "no room left for the catalog", hint="free some space; work goes on by itself"
            ) from error
        if "locked" in reason or "busy" in reason:
            raise RootError("the catalog is busy", hint="another transaction takes long; try again") from error
        raise
    except DatabaseError as error:
        reason = str(error.orig).lower()
        if "not a database" in reason or "malformed" in reason:
            raise CorruptData(f"the catalog cannot be read: {error.orig}", hint="restore it from a backup") from error
        raise
