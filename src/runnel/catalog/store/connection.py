"""Open a catalog: connections, transactions, migrations, and translated database errors.

SQLite serves one machine. PostgreSQL serves many, also with one writer at a time, under an advisory lock. Passwords
never leave this module in a message: errors and `shown` contain the address without it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from runnel.catalog.store import migrations
from runnel.catalog.store.db_errors import READ_ONLY_HINT, translate_db_error
from runnel.errors import (
    CatalogUnavailableError,
    NewerWorkspaceError,
    ReadOnlyError,
    WorkspaceError,
    install_hint,
)
from runnel.private_files import open_private
from runnel.workspace_key import WorkspaceKey

_BUSY_SECONDS = 60.0
_STATEMENT_SECONDS = 300.0
_IDLE_SECONDS = 900.0  # a declarer may compile a plan of very many queries while it holds the lock
_CONNECT_SECONDS = 10
_POOL_SIZE, _POOL_EXTRA = 4, 12
_POOL_RECYCLE_SECONDS = 1800
_WRITER_LOCK = 0x52554E4E
_DECLARER_LOCK = 0x52554E4F
_POLL_SECONDS = 0.01
_CHUNK = 500
_SQLITE = "sqlite"
_T = TypeVar("_T")

Clock = Callable[[], float]
"""Seconds since 1970, in UTC."""
ReadKey = Callable[[], WorkspaceKey]
"""Reads the key of the workspace when it is needed."""


class Catalog:
    """One catalog. `write()` opens a transaction that excludes other writers, `read()` a consistent view.

    `url` may contain a password and serves to open the same catalog again; `shown` is for messages. Without `key`,
    everything except the secrets of the catalog can be used.
    """

    def __init__(self, url: str, *, max_bytes: int = 0, clock: Clock = time.time, key: ReadKey | None = None) -> None:
        parsed = _parsed(url)
        self.url = parsed.render_as_string(hide_password=False)
        self.shown = without_password(parsed.set(query={}).render_as_string(hide_password=False))
        self.is_read_only = _is_read_only(parsed)
        self._engine = _open(parsed, max_bytes, self.is_read_only).execution_options(
            runnel_clock=clock, runnel_key=key
        )
        self._turn = threading.Lock()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a write transaction. It is committed at the end, or rolled back if an exception is raised.

        After a CatalogUnavailableError at the end, it is unknown whether the transaction was committed. The caller
        must check before trying again.
        """
        self._refuse_read_only()
        with self._translated(), self._engine.connect() as connection:
            connection = connection.execution_options(runnel_write=True)
            with connection.begin():
                yield connection

    @contextmanager
    def trial(self) -> Iterator[Connection]:
        """Open a transaction like `write`, and roll it back at the end, to find out the effect of a change."""
        self._refuse_read_only()
        with self._translated(), self._engine.connect() as connection:
            connection = connection.execution_options(runnel_write=True)
            transaction = connection.begin()
            try:
                yield connection
            finally:
                transaction.rollback()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a read-only transaction."""
        with self._translated(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def declaring(self) -> Iterator[None]:
        """Hold the lock of declarers: one declarer at a time has it, and other writers do not need it.

        The lock is released when the process that holds it ends. Raise CatalogUnavailableError if others hold it for
        too long.
        """
        self._refuse_read_only()
        if self._engine.dialect.name != _SQLITE:
            # Only one declarer per process waits in the server: each waiting declarer uses a connection, and the
            # declarer that holds the lock needs another one.
            with _holding(self._turn), self.read() as connection:
                connection.exec_driver_sql(
                    f"select pg_advisory_xact_lock({_DECLARER_LOCK}, hashtext(coalesce(current_schema(), '')))"
                )
                yield
        elif self._engine.url.database in (None, "", ":memory:"):
            yield
        else:
            with _locked_file(f"{self._engine.url.database}.declaring"):
                yield

    def migrate(self) -> int:
        """Upgrade the catalog to the version of this program, one transaction per step. Return the version."""
        history = migrations.HISTORY
        while (version := self.version()) < history.version:
            with self.write() as connection:
                if migrations.read_version(connection)[0] != version:
                    continue  # another process has already upgraded it
                if version == 0:
                    migrations.create_tables(connection, history)
                else:
                    migrations.upgrade_tables(connection, version, history)
        return version

    def version(self) -> int:
        """Return the version of the catalog, or 0 if it has no tables.

        Raise WorkspaceError if this program can neither use nor upgrade it.
        """
        with self.read() as connection:
            version, fingerprint = migrations.read_version(connection)
        history = migrations.HISTORY
        if version > history.version:
            raise NewerWorkspaceError(
                f"the catalog has version {version}, and this Runnel supports versions up to {history.version}",
                hint="use the Runnel that wrote it, or a newer one",
            )
        if version and fingerprint != history.fingerprint_of(version):
            raise WorkspaceError(
                f"the catalog {self.shown} was created by a development version of Runnel and cannot be upgraded",
                hint="use the version that created it, or create a new workspace and declare the feeds there again",
            )
        return version

    def _refuse_read_only(self) -> None:
        if self.is_read_only:
            raise ReadOnlyError(f"{self.shown} cannot be written by this user", hint=READ_ONLY_HINT)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except PoolTimeout as error:
            raise CatalogUnavailableError(
                "the catalog is busy", hint="too many concurrent operations; try again"
            ) from error
        except DBAPIError as error:
            translated = translate_db_error(error, self.shown)
            if translated is None:
                raise
            raise translated from error


@contextmanager
def _holding(lock: threading.Lock) -> Iterator[None]:
    if not lock.acquire(timeout=_BUSY_SECONDS):
        raise _declaring_timeout()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _locked_file(path: str) -> Iterator[None]:
    """Hold the lock of a file, which is created if it does not exist."""
    deadline = time.monotonic() + _BUSY_SECONDS
    with _opened_for_lock(path) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _declaring_timeout() from None
                time.sleep(_POLL_SECONDS)
        yield


def _opened_for_lock(path: str) -> IO[bytes]:
    """Open a file to lock. It may belong to another user, such as root, and be read-only."""
    file = Path(path)
    try:
        return open(file, "ab", opener=open_private)
    except PermissionError:
        if file.exists():
            return file.open("rb")
        raise


def _declaring_timeout() -> CatalogUnavailableError:
    return CatalogUnavailableError(
        "timed out while another process or thread was declaring feeds or subscriptions",
        hint="nothing was changed; try again",
    )


def now(connection: Connection) -> int:
    """Return the catalog's clock in microseconds since 1970, UTC, the format of all times in the catalog."""
    clock: Clock = connection.get_execution_options()["runnel_clock"]
    return int(clock() * 1e6)


def workspace_key(connection: Connection) -> WorkspaceKey:
    """Return the key of the workspace to which the catalog belongs."""
    read: ReadKey | None = connection.get_execution_options()["runnel_key"]
    if read is None:
        raise RuntimeError("the catalog was opened without the key of its workspace")
    return read()


def chunks(ids: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Split a sequence into chunks that fit into one statement, because databases limit the number of parameters.

    >>> [len(run) for run in chunks(range(1200))]
    [500, 500, 200]
    """
    return (ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK))


def is_shared(url: str) -> bool:
    """Return whether several machines can use the catalog of a URL.

    >>> is_shared("sqlite:////var/lib/runnel/catalog.sqlite"), is_shared("postgresql://db.example/runnel")
    (False, True)
    """
    return _parsed(url).get_backend_name() != _SQLITE


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite catalog, or None for other databases.

    >>> sqlite_file("sqlite:////var/lib/runnel/catalog.sqlite"), sqlite_file("postgresql://db.example/runnel")
    (PosixPath('/var/lib/runnel/catalog.sqlite'), None)
    """
    parsed = _parsed(url)
    is_file = parsed.get_backend_name() == _SQLITE and parsed.database not in (None, "", ":memory:")
    return Path(str(parsed.database)) if is_file else None


def without_password(url: str) -> str:
    """Return a catalog's URL without its password, which must then come from elsewhere.

    >>> without_password("postgresql://runnel:secret@db.example/runnel")
    'postgresql://runnel@db.example/runnel'
    """
    parsed = _parsed(url)
    plain = parsed._replace(drivername=parsed.get_backend_name(), password=None).difference_update_query(["password"])
    return plain.render_as_string(hide_password=False)


def _parsed(url: str) -> URL:
    """Parse a URL. An invalid URL is not quoted in the error, because it may contain a password."""
    hint = (
        "sqlite:///path or postgresql://user:password@host/database; in a password write @ as %40, : as %3A, / as %2F"
    )
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise WorkspaceError("the catalog's URL is not valid", hint=hint) from None
    if "@" in (parsed.host or ""):
        raise WorkspaceError("the catalog's URL must contain at most one @", hint=hint)
    match parsed.get_backend_name():
        case "sqlite":
            return parsed
        case "postgresql" | "postgres":
            return parsed.set(drivername="postgresql+psycopg")
    raise WorkspaceError(f"{parsed.get_backend_name()} is not supported for catalogs", hint=hint)


def _open(url: URL, max_bytes: int, read_only: bool) -> Engine:
    if url.get_backend_name() != _SQLITE:
        return _open_postgresql(url)
    return _open_sqlite(url, max_bytes, read_only)


def _is_read_only(url: URL) -> bool:
    """Return whether a catalog is an existing file that this process cannot write, or in a read-only folder."""
    file = sqlite_file(url.render_as_string(hide_password=False))
    if file is None or not file.exists():
        return False
    effective = os.access in os.supports_effective_ids
    return not all(os.access(path, os.W_OK, effective_ids=effective) for path in (file, file.parent))


def _connect_read_only(file: Path) -> Callable[[], sqlite3.Connection]:
    """Return a function that connects to a catalog that cannot be written.

    While another process uses the catalog, SQLite follows that process's log. Otherwise the file is complete and is
    opened as immutable, because SQLite would create files next to it.
    """

    def connect() -> sqlite3.Connection:
        log, index = (file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm"))
        is_whole = not log.exists() or log.stat().st_size == 0
        if not is_whole and not index.exists():
            raise ReadOnlyError(
                f"{file} was not closed properly and must be opened first by a user who may write it",
                hint=READ_ONLY_HINT,
            )
        mode = "immutable=1" if is_whole else "mode=ro"
        return sqlite3.connect(f"{file.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY_SECONDS)

    return connect


def _open_postgresql(url: URL) -> Engine:
    given = {
        "connect_timeout": _CONNECT_SECONDS,
        "application_name": "runnel",
        # Detect a server that disappeared silently within about half a minute.
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }
    try:
        engine = create_engine(
            url,
            poolclass=QueuePool,
            pool_size=_POOL_SIZE,
            max_overflow=_POOL_EXTRA,
            pool_timeout=_BUSY_SECONDS,
            pool_recycle=_POOL_RECYCLE_SECONDS,
            pool_pre_ping=True,  # replace a dead connection of the pool before a transaction begins
            hide_parameters=True,
            connect_args={name: value for name, value in given.items() if name not in url.query},
        )
    except ModuleNotFoundError as error:
        raise WorkspaceError(
            f"{error.name} is not installed",
            hint=f"install the driver for PostgreSQL: `{install_hint('postgresql')}`",
        ) from error
    event.listen(engine, "connect", _configure_postgresql)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # One writer at a time, as in SQLite. Each statement sees the commits of earlier writers.
        # Workspaces that share a database, each in its own schema, do not wait for each other.
        if connection.get_execution_options().get("runnel_write"):
            connection.exec_driver_sql(
                f"select pg_advisory_xact_lock({_WRITER_LOCK}, hashtext(coalesce(current_schema(), '')))"
            )
        else:
            connection.exec_driver_sql("set transaction isolation level repeatable read read only")

    return engine


def _configure_postgresql(connection: Any, record: Any) -> None:
    """Configure a session, overriding the settings of the server and the role."""
    from psycopg.types.string import StrDumperUnknown

    class WithoutNul(StrDumperUnknown):
        """Replaces NUL by U+FFFD, because texts in PostgreSQL cannot contain NUL but untrusted input can."""

        def dump(self, text: str) -> Any:
            return super().dump(text.replace("\x00", "\ufffd"))

    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise WorkspaceError(
            "the encoding of the catalog's database must be UTF-8",
            hint="create it with UTF8: `create database runnel encoding 'UTF8' template template0`",
        )
    connection.adapters.register_dumper(str, WithoutNul)
    limits = {
        "lock_timeout": _BUSY_SECONDS,
        "statement_timeout": _STATEMENT_SECONDS + _BUSY_SECONDS,
        # A writer that hangs, or whose machine has failed, must not block all others forever.
        "idle_in_transaction_session_timeout": _IDLE_SECONDS,
    }
    wanted = {name: f"{int(seconds * 1000)}ms" for name, seconds in limits.items()}
    wanted |= {"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
    wanted["default_transaction_isolation"] = "read committed"
    with connection.cursor() as cursor:
        set_all = ", ".join("set_config(%s, %s, false)" for _ in wanted)
        cursor.execute(f"select {set_all}", [part for pair in wanted.items() for part in pair])
        # An accepted item survives a power cut.
        cursor.execute(
            "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"
        )
    connection.commit()


def _open_sqlite(url: URL, max_bytes: int, read_only: bool) -> Engine:
    # Keep connections open: closing the last one would checkpoint and delete the log each time.
    arguments: dict[str, Any] = {"connect_args": {"timeout": _BUSY_SECONDS}}
    if read_only:
        arguments = {"creator": _connect_read_only(Path(str(url.database)))}
    engine = create_engine(url, poolclass=QueuePool, max_overflow=_POOL_EXTRA, hide_parameters=True, **arguments)
    file = sqlite_file(url.render_as_string(hide_password=False))

    @event.listens_for(engine, "do_connect")
    def make_private(dialect: Any, record: Any, arguments: Any, options: Any) -> None:
        """Create a private file, because SQLite would make it readable by all. Its log gets the same mode."""
        if file is not None and not file.exists():
            with suppress(OSError):  # SQLite reports why it cannot be created
                os.close(open_private(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL))

    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # `begin` below starts transactions explicitly
        if read_only:
            return
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
