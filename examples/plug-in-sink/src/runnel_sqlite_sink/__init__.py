"""`output sqlite 'news.db'`: every delivered item is a row of the table `items` in an SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from runnel.errors import DeliveryError
from runnel.sinks.contract import Delivery, LocalSink
from runnel.sinks.files.targets import check_target, open_target

_TABLE = """create table if not exists items (
    feed text, id text, version integer, title text, message text, primary key (feed, id, version))"""


class SqliteSink(LocalSink):
    """Databases below the workspace's `out` folder."""

    kind = "sqlite"

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """The path of the database; nothing outside `out` and the allowed folders can be written."""
        return check_target(target, folder / "out", allowed)

    def deliver(self, delivery: Delivery) -> str:
        """Insert the items. Those that are there already stay as they are, so a repeated message changes nothing."""
        rows = [
            (each.item.feed, each.item.id, each.item.version, str(each.item.first("title") or ""), delivery.key)
            for each in delivery.items
        ]
        # Locks the folder against other writers.
        with open_target(delivery.subscription.target, delivery.out, delivery.allowed) as file:
            try:
                with closing(sqlite3.connect(file.path)) as database, database:
                    database.execute(_TABLE)
                    added = database.executemany("insert or ignore into items values (?, ?, ?, ?, ?)", rows).rowcount
            except sqlite3.Error as error:
                raise DeliveryError(f"the database cannot be written: {error}") from error
        return f"{added} rows added to {file.path.name}"
