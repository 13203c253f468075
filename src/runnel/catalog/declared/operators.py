"""Operators in the catalog: registrations by name and version, and which queries use which operator.

A registration is never changed: registering a name again adds a version, and what was matched with an older one can
be evaluated again as it was. A name has at most one version that is live.
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
_IN_USE = 4
"""Plans are compiled anew when an operator is registered again; an unfinished batch may still need an earlier one."""

_CALL = '["call",'
"""What the text of an encoded node holds where an operator is asked; quotes inside texts are escaped in JSON."""


def register_operator(connection: Connection, declaration: OperatorDeclaration) -> OperatorDeclaration:
    """Add a registration, live from now on; gives it with its version, one more than the last of the name."""
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
    """No version of a name is live any more; its registrations stay."""
    live = (_o.name == name) & _o.dropped.is_(None)
    connection.execute(update(schema.operators).where(live).values(dropped=now(connection)))


def operator_named(connection: Connection, name: str) -> OperatorDeclaration | None:
    """The live registration of a name."""
    query = select(_o.content).where(_o.name == name, _o.dropped.is_(None))
    found = connection.execute(query).scalar_one_or_none()
    return None if found is None else _declaration(found)


def live_operators(connection: Connection) -> dict[str, OperatorDeclaration]:
    """All live registrations by name, in the order of names."""
    query = select(_o.name, _o.content).where(_o.dropped.is_(None)).order_by(_o.name)
    return {row.name: _declaration(row.content) for row in connection.execute(query)}


def operator_versions(
    connection: Connection, wanted: Collection[tuple[str, int]]
) -> dict[tuple[str, int], OperatorDeclaration]:
    """Registrations by name and version, live or not; those that never were are left out."""
    found: dict[tuple[str, int], OperatorDeclaration] = {}
    query = select(_o.name, _o.version, _o.content)
    for names in chunks(sorted({name for name, _ in wanted})):
        for row in connection.execute(query.where(_o.name.in_(names))):
            if (row.name, row.version) in wanted:
                found[row.name, row.version] = _declaration(row.content)
    return found


def _declaration(content: str) -> OperatorDeclaration:
    return OperatorDeclaration.from_json(json.loads(content))


# --- which queries use which operator ------------------------------------------------------------------------------


def calls_in(node: Node) -> Iterator[Call]:
    """The calls of a query's own conditions, repeated where they are repeated.

    >>> from runnel.algebra.nodes.expressions import Not
    >>> [call.operator for call in calls_in(Filter(Read(1), Not(Call("mobPattern"))))]
    ['mobPattern']
    """
    match node:
        case Union(inputs):
            for one in inputs:
                yield from calls_in(one)
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
    """Note which operators new queries use."""
    rows = [
        {"feed": feed, "operator": name}
        for feed, node in nodes.items()
        for name in sorted({call.operator for call in calls_in(node)})
    ]
    if rows:
        connection.execute(insert(schema.uses_operators), rows)


def forget_uses(connection: Connection, feeds: Iterable[int]) -> None:
    """Queries that are dropped or replaced use nothing any more."""
    for ids in chunks(sorted(feeds)):
        connection.execute(delete(schema.uses_operators).where(_u.feed.in_(ids)))


def may_call(encoded: str | None) -> bool:
    """Whether a node, as the catalog keeps it, may ask operators: faster than to look into it."""
    return encoded is not None and _CALL in encoded


def users_of(connection: Connection, operator: str) -> set[int]:
    """The live queries that use an operator themselves."""
    return set(connection.execute(select(_u.feed).where(_u.operator == operator)).scalars())


def use_counts(connection: Connection, owners: Collection[int] | None = None) -> Counter[str]:
    """How many live queries use each operator; of some owners, or of all."""
    query = select(_u.operator, func.count().label("count")).group_by(_u.operator)
    if owners is not None:
        query = query.join(schema.feeds, _f.id == _u.feed).where(_f.owner.in_(sorted(owners)))
    return Counter({row.operator: row.count for row in connection.execute(query)})


def current_nodes(connection: Connection, feeds: Iterable[int]) -> dict[int, Node]:
    """The query nodes of some virtual feeds as they are now, and of no others."""
    query = select(_f.id, _r.node).join(schema.revisions, (_r.feed == _f.id) & (_r.revision == _f.revision))
    rows = (row for ids in chunks(sorted(feeds)) for row in connection.execute(query.where(_f.id.in_(ids))))
    return {row.id: decode_node(json.loads(row.node)) for row in rows if row.node is not None}


def replace_nodes(connection: Connection, nodes: Mapping[int, Node]) -> None:
    """Give virtual feeds other nodes for the same statements, which read the same feeds: a new revision of each."""
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


def callable_operators(connection: Connection, *, versions: int = _IN_USE) -> list[OperatorDeclaration]:
    """All operators that a plan in use may call: of every name the last few registrations, with the live one."""
    newest: dict[str, list[str]] = {}
    for row in connection.execute(select(_o.name, _o.content).order_by(_o.name, _o.version)):
        newest.setdefault(row.name, []).append(row.content)
    return [_declaration(content) for several in newest.values() for content in several[-versions:]]
