"""Workspaces with partitioned plans, and a comparison of their matches with the whole plan."""

from __future__ import annotations

import numpy as np
from tests.partitioned_matcher import PartitionedMatcher

from runnel.catalog.logs import plan_versions
from runnel.catalog.logs.plan_versions import PlanRow
from runnel.catalog.store import leases
from runnel.engine import Engine
from runnel.matching.compile.build_matcher import build_matcher
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.plan.store import PlanVersion, load
from runnel.scaleout.partitioning import read_assignment, read_partitioning
from runnel.scaleout.planning.partition_plan import partition_queries, publish_partitioning
from runnel.scaleout.planning.stream_knowledge import read_stream_knowledge

WORDS = ("rock", "jazz", "folk", "soul", "punk", "blues")

DECLARED = "register feed News; register feed Wire;" + "".join(
    f"create feed All{word.title()} from News where title contains '{word}';"
    f"subscribe to All{word.title()} output log;"
    + "".join(
        f"create feed {word.title()}{n} from News | Wire where title contains '{word}' and n > {n};"
        f"subscribe to {word.title()}{n} output log;"
        for n in range(4)
    )
    for word in WORDS
)


def current(engine: Engine) -> PlanRow:
    with engine.workspace.catalog.read() as connection:
        row = plan_versions.current_plan(connection)
    assert row is not None
    return row


def epoch(engine: Engine) -> int:
    """Return the epoch of the lease on a workspace, which is acquired the first time."""
    with engine.workspace.catalog.write() as connection:
        held = leases.state(connection)
        return held.epoch if held is not None else leases.acquire(connection, 600).epoch


def move_everything(engine: Engine, held: int) -> None:
    """Publish a version in which every query has moved to the next partition."""
    row = current(engine)
    old = read_partitioning(engine.workspace.storage, row.distribution or "")
    assignment = read_assignment(engine.workspace.storage, old.folder)
    with engine.workspace.catalog.read() as connection:
        known = read_stream_knowledge(engine.workspace, connection)
    moved = (assignment.partitions + 1) % len(old.partitions)
    made = partition_queries(engine.workspace, row.base, len(old.partitions), known, before=old, partitions=moved)
    assert publish_partitioning(engine.workspace, held, row, made) == row.version + 1


def news() -> ItemBatch:
    """Return items of both feeds with one word, several words and none."""
    texts = [*WORDS, *(f"{a} and {b}" for a, b in zip(WORDS, WORDS[2:], strict=False)), "quiet", " ".join(WORDS)]
    items = [
        Item(feed, f"{feed}-{index}", {"title": (text,), "n": (float(index % 6),)})
        for feed in ("News", "Wire")
        for index, text in enumerate(texts)
    ]
    return ItemBatch.of(items, {"News": 1, "Wire": 2})


def assert_divided_alike(engine: Engine, row: PlanRow) -> None:
    """Assert that the partitions match like the whole plan, and that there are matches."""
    version = PlanVersion.of(row)
    whole = build_matcher(load(engine.workspace.storage, version)).match(news())
    parts = PartitionedMatcher(engine.workspace.storage, version).match(news())
    assert np.array_equal(parts.offsets, whole.offsets)
    assert np.array_equal(parts.queries, whole.queries)
    assert whole.total > 0
