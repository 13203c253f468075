"""From what is declared to what is matched: the plan version that a transaction ends with.

A small change writes a delta beside the current base; when the delta has grown, everything becomes a new base.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from sqlalchemy import Connection

from runnel.catalog import feeds, plans
from runnel.engine.activation import Activation
from runnel.engine.root import Root
from runnel.matching.compile import compile_base, compile_delta, compile_merged
from runnel.plan.logical import PlanQuery
from runnel.plan.store import PlanVersion, load

_DELTA_AT_LEAST = 500
_DELTA_SHARE = 0.1


def publish_change(root: Root, connection: Connection, change: Activation, dropped: Iterable[int]) -> int | None:
    """Compile a change and make it the current plan; gives the version, or None where nothing changed."""
    removed = {*change.remove, *dropped}
    current = plans.current_plan(connection)
    if not change.compile and (not removed or current is None):
        return None
    if current is None:
        return _publish_base(root, connection)
    loaded = load(root.storage, PlanVersion(current.version, current.base, current.delta))
    in_base = {int(one) for one in loaded.base.logical.query_ids}
    dead = {int(one) for one in loaded.delta.tombstones} if loaded.delta else set()
    added = {int(one) for one in loaded.delta.logical.query_ids} if loaded.delta else set()
    added = (added | change.compile) - removed
    dead = (dead | removed | change.compile) & in_base
    is_small = len(added) + len(dead) <= max(_DELTA_AT_LEAST, _DELTA_SHARE * len(in_base))
    if not is_small and len(added) > len(in_base):
        return _publish_base(root, connection)  # more is new than old: merging would save nothing
    folder = _folder()
    definitions = feeds.definitions(connection, added)
    compile_delta(root.storage, folder, _queries(connection, added), definitions, dead, current.base)
    queries = len(in_base - dead) + len(added)
    if is_small:
        return plans.publish_plan(connection, current.base, folder, queries)
    merged = _folder()
    compile_merged(root.storage, merged, load(root.storage, PlanVersion(0, current.base, folder)))
    return plans.publish_plan(connection, merged, None, queries)


def _publish_base(root: Root, connection: Connection) -> int:
    queries = _queries(connection, None)
    folder = _folder()
    compile_base(root.storage, folder, queries, feeds.definitions(connection))
    return plans.publish_plan(connection, folder, None, len(queries))


def _queries(connection: Connection, ids: set[int] | None) -> list[PlanQuery]:
    return [PlanQuery(feed, since) for feed, since in sorted(feeds.since_of(connection, ids).items())]


def _folder() -> str:
    return f"plans/{uuid.uuid4().hex}"
