"""What the partitions of a batch took, noted where the batch is committed."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from runnel.catalog.learned.partition_loads import PartitionLoad, note_loads
from runnel.catalog.logs.plan_versions import plan_by_version


def note_batch_loads(connection: Connection, plan: int, loads: Mapping[int, Mapping[str, int]]) -> None:
    """Add what partitions took to what is known of the partitioning that the batch was matched with."""
    row = plan_by_version(connection, plan)
    if row is None or row.partitioning is None:
        return
    numbers = (
        PartitionLoad(number, load["items"], load["matches"], load["microseconds"], load.get("loads", 0))
        for number, load in sorted(loads.items())
    )
    note_loads(connection, row.partitioning, numbers)
