"""Publishing: accept items and documents into an actor's own source feed, and changes into an actor's own table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from runnel.catalog.access import owners
from runnel.catalog.declared import feeds
from runnel.engine.actors import Actor, check_actor, own_feed, size_of
from runnel.engine.workspace import Workspace
from runnel.errors import BacklogError, BrokenDocumentError, InputError, NotFoundError
from runnel.logs.items.item_log import Accepted
from runnel.model.feed import ADMIN, Feed, FeedKind
from runnel.model.table import RowChange, TableSchema, change_of, deletion_of
from runnel.sources.acquire import Acquirer
from runnel.sources.documents.adapt import item_of_object
from runnel.sources.tables.read_changes import decode_change


class Publisher:
    """Accepts the items that an actor publishes, within the lag limit and the actor's quota of bytes."""

    def __init__(self, workspace: Workspace, acquirer: Acquirer, actor: Actor) -> None:
        self._workspace = workspace
        self._acquirer = acquirer
        self._actor = actor

    def publish(self, feed: str, items: Iterable[Mapping[str, Any]]) -> Accepted:
        """Accept items, or changes of a table, given as mappings. If one of them is invalid, accept none."""
        target = self._own_target(feed)
        if target.kind is FeedKind.TABLE:
            changes = list(self._changes_of(target, items))
            self._wait_for_lag()
            return self._change_rows(target, changes)
        adapted = [item_of_object(item, feed, f"item {number}") for number, item in enumerate(items, 1)]
        self._wait_for_lag()
        with self._count_bytes(target, lambda: size_of(adapted)):
            return self._workspace.items.accept(target.id, adapted)

    def publish_open(self, owner: str | None, feed: str, items: Sequence[Mapping[str, Any]]) -> Accepted:
        """Accept items without a token into an open feed, as `publish` does, but without waiting at the lag limit."""
        target = find_open_feed(self._workspace, owner, feed)
        adapted = [item_of_object(item, feed, f"item {number}") for number, item in enumerate(items, 1)]
        if (lag := self._acquirer.lag()) >= self._workspace.settings.lag_limit:
            raise BacklogError(f"{lag} items wait for matching", hint="try again later")
        with self._count_bytes(target, lambda: size_of(adapted)):
            return self._workspace.items.accept(target.id, adapted)

    def publish_document(
        self, feed: str, data: bytes, name: str, *, is_whole: bool = False, force: bool = False
    ) -> tuple[Accepted, list[InputError]]:
        """Accept the valid items or changes of a document, and return the problems of the others.

        If the document `is_whole`, it has all rows of a table: the others are deleted, but more than half of the rows
        only with `force`. If it has a problem, nothing is accepted.
        """
        target = self._own_target(feed)
        name = name.encode("utf-8", "replace").decode("utf-8")  # a file name may contain any characters
        self._wait_for_lag()
        if target.kind is FeedKind.TABLE:
            return self._publish_changes(target, data, name, is_whole, force)
        if is_whole:
            raise InputError(
                f"{feed} is a feed, and only tables have rows", hint="publish without --whole or whole=True"
            )
        with self._count_bytes(target, lambda: len(data)):
            try:
                accepted, problems = self._acquirer.take_document(target, data, name)
            except BrokenDocumentError as error:
                self._acquirer.quarantine(target, [error], "document", data)
                raise
        if problems:
            self._acquirer.quarantine(target, problems, "item", data)
        return accepted, problems

    # --- tables --------------------------------------------------------------------------------------------------

    def _changes_of(self, table: Feed, values: Iterable[Mapping[str, Any]]) -> Iterator[RowChange]:
        schema = self._workspace.tables.files(table.id).table.schema
        for number, value in enumerate(values, 1):
            for attributes in decode_change(value, schema, f"item {number}"):
                yield change_of(table.name, schema, attributes, f"item {number}")

    def _publish_changes(
        self, table: Feed, data: bytes, name: str, is_whole: bool, force: bool
    ) -> tuple[Accepted, list[InputError]]:
        schema = self._workspace.tables.files(table.id).table.schema
        try:
            changes, problems = self._acquirer.read_changes(table, schema, data, name, is_whole=is_whole)
        except BrokenDocumentError as error:
            self._acquirer.quarantine(table, [error], "document", data)
            raise
        if problems:
            self._acquirer.quarantine(table, problems, "item", data)
        if is_whole:
            if problems:
                return Accepted(), problems  # a row that cannot be read must not be deleted as missing
            changes += self._deletions_of_missing(table, schema, changes, name, force)
        return self._change_rows(table, changes), problems

    def _deletions_of_missing(
        self, table: Feed, schema: TableSchema, rows: Sequence[RowChange], name: str, force: bool
    ) -> list[RowChange]:
        """Return deletions of the rows of a table that are not among all its new rows."""
        view = self._workspace.tables.view(table.id)
        present = {row.item.id for row in rows}
        missing = [row for row in view if row.id not in present]
        if 2 * len(missing) > len(view) and not force:
            raise InputError(
                f"{len(missing):,} of the {len(view):,} rows of {table.name} are missing from the document",
                place=name,
                hint="check that the document has all rows; with --force, the missing ones are deleted",
            )
        return [
            # A row that was changed since the view was read is kept.
            deletion_of(table.name, schema, [row.values[column.name] for column in schema.key], row.sequence)
            for row in missing
        ]

    def _change_rows(self, table: Feed, changes: Sequence[RowChange]) -> Accepted:
        with self._count_bytes(table, lambda: size_of([change.item for change in changes])):
            return self._workspace.items.change_rows(table.id, changes)

    # --- targets and limits --------------------------------------------------------------------------------------

    def _own_target(self, name: str) -> Feed:
        with self._workspace.catalog.read() as connection:
            check_actor(connection, self._actor)
            feed = own_feed(connection, name, self._actor)
        if feed.kind is FeedKind.VIRTUAL:
            raise NotFoundError(f"{name} is a virtual feed", hint="publish to a source feed or a table")
        if feed.origin is not None:
            raise NotFoundError(
                f"{name} is a materialized feed",
                hint="its items come from the feed to which its stylesheet is applied",
            )
        if feed.paused:
            raise NotFoundError(f"{name} is paused", hint=f"`resume feed {name}`")
        return feed

    def _wait_for_lag(self) -> None:
        settings = self._workspace.settings
        deadline = time.monotonic() + settings.publish_wait_seconds
        while (lag := self._acquirer.lag()) >= settings.lag_limit:
            if time.monotonic() >= deadline:
                raise BacklogError(f"{lag} items wait for matching", hint="start `runnel run`, or try again later")
            time.sleep(0.1)

    @contextmanager
    def _count_bytes(self, feed: Feed, size: Callable[[], int]) -> Iterator[None]:
        """Count bytes before they are accepted, so that two clients cannot exceed a quota together.

        Refused and quarantined items count too. If writing fails, the bytes are subtracted again.
        """
        settings = self._workspace.settings
        with self._workspace.catalog.read() as connection:
            has_quota = owners.has_byte_quota(connection, feed.id, settings)
        if not has_quota:
            yield  # without a quota there is nothing to count, which saves a transaction
            return
        count = size()
        with self._workspace.catalog.write() as connection:
            owners.add_bytes(connection, feed.id, count, settings)
        try:
            yield
        except InputError:
            raise
        except BaseException:
            with self._workspace.catalog.write() as connection:
                owners.add_bytes(connection, feed.id, -count)
            raise


def find_open_feed(workspace: Workspace, owner: str | None, name: str) -> Feed:
    """Return the open feed of an owner, or of the admin, by its name.

    Closed, paused and unknown feeds give the same error, so that strangers cannot find out which feeds exist.
    """
    with workspace.catalog.read() as connection:
        owner_id = ADMIN
        if owner is not None:
            names = owners.owner_names(connection)
            owner_id = next((number for number, name in names.items() if name == owner), 0)
        feed = feeds.feed_by_name(connection, name, owner_id)
    if feed is None or feed.owner != owner_id or feed.open_items is None or feed.paused:
        raise NotFoundError(
            "no open feed has this name", hint="ask the admin of this server for the name of the feed"
        )
    return feed
