"""How far back distinct feeds look: where in the log one must begin to tell what is a duplicate.

In: the definitions of feeds, and an item. Out: a place before it; and, for `why`, the earlier items it repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa

from runnel.algebra.nodes.query import Distinct, Node
from runnel.catalog.declared import feeds
from runnel.catalog.logs import item_segments
from runnel.engine.actors import Actor, matched_since
from runnel.engine.trial.trial_matcher import open_matcher
from runnel.engine.workspace import Workspace
from runnel.model.item import Item
from runnel.plan.logical_plan import PlanQuery

MOST_ITEMS = 100_000
"""How many items before one are looked at to tell which of them it repeats."""


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The distinct feeds in which an item is a duplicate, each with the last item before it that has the same key.

    None stands for an item of a feed that the asker may not read. Not `whole`: only the last MOST_ITEMS before it
    were looked at.
    """

    earlier: Mapping[int, Item | None]
    whole: bool = True


def gates_in(definitions: Mapping[int, Node]) -> dict[int, Distinct]:
    """The distinct feeds among some."""
    return {feed: node for feed, node in definitions.items() if isinstance(node, Distinct)}


def first_sequence_needed(root: Workspace, definitions: Mapping[int, Node], sequence: int) -> int:
    """The last sequence that has no say in what is a duplicate from this one on.

    One distinct feed may read another, so their windows add up. What is not kept any more has no say either.
    """
    window = sum((node.window for node in gates_in(definitions).values()), timedelta())
    accepted = next(
        int(batch.records.column("accepted").cast(pa.int64())[0].as_py()) for batch in root.items.get([sequence])
    )
    start = root.items.sequence_before(accepted - window // timedelta(microseconds=1))
    with root.catalog.read() as connection:
        return min(sequence - 1, max(start, item_segments.retained_upto(connection)))


def find_duplicates(
    root: Workspace,
    feed: int,
    definitions: Mapping[int, Node],
    sequence: int,
    names: dict[int, str],
    actor: Actor,
) -> Duplicates:
    """In which of the distinct feeds that a feed reads (or is) an item is a duplicate, and of what.

    A feed that is matched only for others has the history that it would have if nobody subscribed to it.
    """
    gates = gates_in(definitions)
    if not gates:
        return Duplicates({})
    start = first_sequence_needed(root, definitions, sequence)
    begin = max(start, sequence - MOST_ITEMS)
    with root.catalog.read() as connection:
        known_to_actor = matched_since(connection, actor, {feed, *gates})
        since = feeds.since_of(connection, known_to_actor)
    queries = [PlanQuery(one, since.get(one, 0)) for one in sorted({feed, *gates})]
    with open_matcher(root, queries, definitions) as matcher:
        for batch in root.items.read(begin, sequence):
            matcher.match(batch)
    found = {gate: earlier for (gate, at), earlier in matcher.stopped.items() if at == sequence}
    wanted = np.unique(np.array(list(found.values()), dtype=np.int64)).tolist()
    known = set(names.values())
    shown = {
        item.sequence: item for batch in root.items.get(wanted) for item in batch.items(names) if item.feed in known
    }
    return Duplicates({gate: shown.get(earlier) for gate, earlier in found.items()}, begin == start)
