"""From what is declared to what is matched: the plan version that a transaction ends with.

A small change writes a delta beside the current base; when the delta has grown, everything becomes a new base.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import numpy as np
from sqlalchemy import Connection

from runnel.catalog import feeds, plans, statistics
from runnel.engine.activation import Activation
from runnel.engine.root import Root
from runnel.plan.arrays import Array
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
    in_base = loaded.base.logical.query_ids
    dead = {int(one) for one in loaded.delta.tombstones} if loaded.delta else set()
    added = {int(one) for one in loaded.delta.logical.query_ids} if loaded.delta else set()
    added = (added | change.compile) - removed
    dead = _among(dead | removed | change.compile, in_base)
    is_small = len(added) + len(dead) <= max(_DELTA_AT_LEAST, _DELTA_SHARE * len(in_base))
    if not is_small and len(added) > len(in_base):
        return _publish_base(root, connection)  # more is new than old: merging would save nothing
    from runnel.matching.compile import compile_delta, compile_merged

    folder = _folder()
    definitions, known = feeds.definitions(connection, added), frequencies(connection)
    compile_delta(
        root.storage, folder, _queries(connection, added), definitions, dead, current.base, frequencies=known
    )
    queries = len(in_base) - len(dead) + len(added)
    if is_small:
        return plans.publish_plan(connection, current.base, folder, queries)
    merged = _folder()
    compile_merged(root.storage, merged, load(root.storage, PlanVersion(0, current.base, folder)), frequencies=known)
    return plans.publish_plan(connection, merged, None, queries)


def _publish_base(root: Root, connection: Connection) -> int:
    from runnel.matching.compile import compile_base

    queries = _queries(connection, None)
    folder = _folder()
    definitions, known = feeds.definitions(connection), frequencies(connection)
    compile_base(root.storage, folder, queries, definitions, frequencies=known)
    return plans.publish_plan(connection, folder, None, len(queries))


def _among(wanted: set[int], ids: Array) -> set[int]:
    """Those of some ids that are among very many, which ascend."""
    few = np.array(sorted(wanted), dtype=np.int64)
    places = np.searchsorted(ids, few)
    inside = places < len(ids)
    inside[inside] = ids[places[inside]] == few[inside]
    return set(few[inside].tolist())


def frequencies(connection: Connection) -> dict[str, float]:
    """The part of all items that hold a word, as the stream has taught."""
    learned = statistics.learned(connection, [statistics.WHOLE_STREAM]).get(statistics.WHOLE_STREAM)
    return {} if learned is None else dict(learned.frequencies())


def _queries(connection: Connection, ids: set[int] | None) -> list[PlanQuery]:
    return [PlanQuery(feed, since) for feed, since in sorted(feeds.since_of(connection, ids).items())]


def _folder() -> str:
    return f"plans/{uuid.uuid4().hex}"
