"""Prefixes in the catalog: what names stand for in graph patterns that are written from now on.

Queries are kept with all IRIs in full, so none depends on a prefix: it may be replaced or dropped at any time.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now

_p = schema.prefixes.c


def register_prefix(connection: Connection, name: str, iri: str) -> str | None:
    """Let a name stand for the beginning of IRIs; gives what it stood for until now."""
    before = drop_prefix(connection, name)
    connection.execute(insert(schema.prefixes).values(name=name, iri=iri, created=now(connection)))
    return before


def drop_prefix(connection: Connection, name: str) -> str | None:
    """Let a name stand for nothing; gives what it stood for, None where that was nothing already."""
    before = connection.execute(select(_p.iri).where(_p.name == name)).scalar_one_or_none()
    connection.execute(delete(schema.prefixes).where(_p.name == name))
    return before


def all_prefixes(connection: Connection) -> dict[str, str]:
    """What is registered, by name, in the order of names."""
    return {row.name: row.iri for row in connection.execute(select(_p.name, _p.iri).order_by(_p.name))}
