"""Operators in the catalog: registrations by name and version, and the queries that use them.

A registration is immutable: registering a name again adds a version, so that earlier matches can be evaluated again
with the version that they used. At most one version of a name is live.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from runnel.algebra.nodes.calls import Call
from runnel.algebra.nodes.encode import decode_node, encode_node
from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.close_conditions import leaves
from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.model.operator import OperatorDeclaration

_o, _u, _f, _r = schema.operators.c, schema.uses_operators.c, schema.feeds.c, schema.revisions.c
_KEPT_VERSIONS = 4
"""Number of recent versions of an operator that a plan may still call: an unfinished batch may need an
earlier one.
"""

_CALL = '["call",'
"""The text that an encoded node contains if it calls an operator. JSON escapes quotes inside texts."""


def register_operator(connection: Connection, declaration: OperatorDeclaration) -> OperatorDeclaration:
    """Add a live registration. Return it with its version, one more than the last version of the name."""
    last = connection.execute(select(func.max(_o.version)).where(_o.name == declaration.name)).scalar_one()
    registered = declaration.as_version((last or 0) + 1)
    drop_operator(connection, declaration.name)
    connection.execute(
        insert(schema.operators).values(
            name=registered.name,
            version=registered.version,
            content=json.dumps(registered.to_json(), ensure_ascii=False, separators=(",", ":")),
            created=now(connection),
        )
    )
    return registered


def drop_operator(connection: Connection, name: str) -> None:
    """Make all versions of a name not live. The registrations stay."""
    live = (_o.name == name) & _o.dropped.is_(None)
    connection.execute(update(schema.operators).where(live).values(dropped=now(connection)))


def operator_named(connection: Connection, name: str) -> OperatorDeclaration | None:
    """Return the live registration of a name."""
    query = select(_o.content).where(_o.name == name, _o.dropped.is_(None))
    content = connection.execute(query).scalar_one_or_none()
    return None if content is None else _declaration(content)


def live_operators(connection: Connection) -> dict[str, OperatorDeclaration]:
    """Return all live registrations by name, in order of names."""
    query = select(_o.name, _o.content).where(_o.dropped.is_(None)).order_by(_o.name)
    return {row.name: _declaration(row.content) for row in connection.execute(query)}


def operator_versions(
    connection: Connection, wanted: Collection[tuple[str, int]]
) -> dict[tuple[str, int], OperatorDeclaration]:
    """Return registrations by name and version, live or not. Unknown versions are omitted."""
    declarations: dict[tuple[str, int], OperatorDeclaration] = {}
    query = select(_o.name, _o.version, _o.content)
    for names in chunks(sorted({name for name, _ in wanted})):
        for row in connection.execute(query.where(_o.name.in_(names))):
            if (row.name, row.version) in wanted:
                declarations[row.name, row.version] = _declaration(row.content)
    return declarations


def _declaration(content: str) -> OperatorDeclaration:
    return OperatorDeclaration.from_json(json.loads(content))


# --- which queries use which operator ------------------------------------------------------------------------------


def calls_in(node: Node) -> Iterator[Call]:
    """Return the calls in a query's own conditions, including repetitions.

    >>> from runnel.algebra.nodes.expressions import Not
    >>> [call.operator for call in calls_in(Filter(Read(1), Not(Call("mobPattern"))))]
    ['mobPattern']
    """
    match node:
        case Union(inputs):
            for inner in inputs:
                yield from calls_in(inner)
        case Filter(inner, condition):
            yield from calls_in(inner)
            yield from _calls_of(condition)
        case Gated(inner, _):
            yield from calls_in(inner)
        case Read() | ReadAll():
            pass


def _calls_of(condition: Expression) -> Iterator[Call]:
    for leaf in leaves(condition):
        match leaf:
            case Call():
                yield leaf
            case Term(calls, _):
                yield from calls
            case _:
                pass


def note_uses(connection: Connection, nodes: Mapping[int, Node]) -> None:
    """Record which operators new queries use."""
    rows = [
        {"feed": feed, "operator": name}
        for feed, node in nodes.items()
        for name in sorted({call.operator for call in calls_in(node)})
    ]
    if rows:
        connection.execute(insert(schema.uses_operators), rows)


def forget_uses(connection: Connection, feeds: Iterable[int]) -> None:
    """Delete the uses of queries that were dropped or replaced."""
    for ids in chunks(sorted(feeds)):
        connection.execute(delete(schema.uses_operators).where(_u.feed.in_(ids)))


def may_call(encoded: str | None) -> bool:
    """Return whether an encoded node may call operators, without decoding it."""
    return encoded is not None and _CALL in encoded


def users_of(connection: Connection, operator: str) -> set[int]:
    """Return the live queries that directly use an operator."""
    return set(connection.execute(select(_u.feed).where(_u.operator == operator)).scalars())


def use_counts(connection: Connection, owners: Collection[int] | None = None) -> Counter[str]:
    """Count the live queries that use each operator, for these owners or for all."""
    query = select(_u.operator, func.count().label("count")).group_by(_u.operator)
    if owners is not None:
        query = query.join(schema.feeds, _f.id == _u.feed).where(_f.owner.in_(sorted(owners)))
    return Counter({row.operator: row.count for row in connection.execute(query)})


def current_nodes(connection: Connection, feeds: Iterable[int]) -> dict[int, Node]:
    """Return the current query nodes of these virtual feeds only."""
    query = select(_f.id, _r.node).join(schema.revisions, (_r.feed == _f.id) & (_r.revision == _f.revision))
    rows = (row for ids in chunks(sorted(feeds)) for row in connection.execute(query.where(_f.id.in_(ids))))
    return {row.id: decode_node(json.loads(row.node)) for row in rows if row.node is not None}


def replace_nodes(connection: Connection, nodes: Mapping[int, Node]) -> None:
    """Replace the nodes of virtual feeds as new revisions. Statements and the feeds that they read stay the same."""
    plan = connection.execute(select(func.coalesce(func.max(schema.plans.c.version), 0))).scalar_one()
    created = now(connection)
    query = (
        select(_f.id, _f.revision, _f.paused, _r.statement)
        .join(schema.revisions, (_r.feed == _f.id) & (_r.revision == _f.revision))
        .order_by(_f.id)
    )
    for ids in chunks(sorted(nodes)):
        rows = [
            {
                "feed": row.id,
                "revision": row.revision + 1,
                "statement": row.statement,
                "node": json.dumps(encode_node(nodes[row.id]), separators=(",", ":")),
                "paused": row.paused,
                "plan": plan,
                "created": created,
            }
            for row in connection.execute(query.where(_f.id.in_(ids)))
        ]
        if rows:
            connection.execute(insert(schema.revisions), rows)
            connection.execute(
                update(schema.feeds).where(_f.id == bindparam("of")).values(revision=bindparam("next")),
                [{"of": row["feed"], "next": row["revision"]} for row in rows],
            )


def callable_operators(connection: Connection, *, versions: int = _KEPT_VERSIONS) -> list[OperatorDeclaration]:
    """Return all operators that a plan in use may call: the last few registrations of every name, and the
    live one.
    """
    newest: dict[str, list[str]] = {}
    for row in connection.execute(select(_o.name, _o.content).order_by(_o.name, _o.version)):
        newest.setdefault(row.name, []).append(row.content)
    return [_declaration(content) for several in newest.values() for content in several[-versions:]]
