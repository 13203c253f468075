"""Delete the rows of tables with `keep` that were not changed for that long.

In: the tables. Out: deletions in the item log, so that every replay of the log agrees. A row that is changed in the
meantime stays.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from runnel.catalog.declared import tables
from runnel.catalog.declared.feeds import feed_by_id
from runnel.catalog.declared.tables import Table
from runnel.catalog.store.connection import now
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError, NotFoundError
from runnel.model.table import deletion_of

logger = logging.getLogger("runnel")

_ROWS = 5_000


def expire_rows(workspace: Workspace) -> int:
    """Delete the rows that are too old, and return their number."""
    with workspace.catalog.read() as connection:
        expiring = [table for table in tables.all_tables(connection) if table.schema.keep is not None]
        current = datetime.fromtimestamp(now(connection) / 1e6, UTC)
        feeds = {table.feed: feed_by_id(connection, table.feed) for table in expiring}
    return sum(
        _expire(workspace, table, feed.name, current)
        for table in expiring
        if (feed := feeds[table.feed]) is not None and not feed.paused
    )


def _expire(workspace: Workspace, table: Table, name: str, current: datetime) -> int:
    if table.schema.keep is None:
        return 0
    try:
        old = workspace.tables.changed_before(table.feed, current - table.schema.keep)
    except NotFoundError:
        return 0  # it was dropped
    except CorruptDataError as error:
        logger.error("the old rows of the table %s cannot be deleted: %s", name, error)
        return 0
    deleted = 0
    for rows in () if old is None else old.parts(_ROWS):
        deletions = [
            deletion_of(name, table.schema, [row.values[column.name] for column in table.schema.key], row.sequence)
            for row in rows
        ]
        deleted += workspace.items.change_rows(table.feed, deletions).accepted
    return deleted
