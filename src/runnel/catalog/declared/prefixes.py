"""Prefixes in the catalog: abbreviations of IRIs in graph patterns.

Queries are stored with full IRIs, so they do not depend on prefixes, which may be replaced or dropped at any time.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now

_p = schema.prefixes.c


def register_prefix(connection: Connection, name: str, iri: str) -> str | None:
    """Register a prefix of IRIs. Return the IRI that it abbreviated before."""
    before = drop_prefix(connection, name)
    connection.execute(insert(schema.prefixes).values(name=name, iri=iri, created=now(connection)))
    return before


def drop_prefix(connection: Connection, name: str) -> str | None:
    """Drop a prefix. Return its IRI, or None if it was not registered."""
    before = connection.execute(select(_p.iri).where(_p.name == name)).scalar_one_or_none()
    connection.execute(delete(schema.prefixes).where(_p.name == name))
    return before


def all_prefixes(connection: Connection) -> dict[str, str]:
    """Return the IRIs of all prefixes by name, in order of names."""
    return {row.name: row.iri for row in connection.execute(select(_p.name, _p.iri).order_by(_p.name))}
