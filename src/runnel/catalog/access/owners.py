"""Owners in the catalog, with their quotas and usage.

In: names and quotas. Out: owners, or QuotaExceededError. Counting and declaring happen in one transaction of the only
writer, so that two clients cannot exceed a quota together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from runnel.catalog.declared.subscriptions import disable_subscription, enable_subscription, live_subscriptions
from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.errors import InputError, NotFoundError, QuotaExceededError
from runnel.model.feed import ADMIN
from runnel.model.subscription import INTERNAL
from runnel.settings import Settings

OWNER_DISABLED = "the owner is disabled"
"""The reason for which the subscriptions of a disabled owner are disabled. Enabling the owner removes only this
reason.
"""

ADMIN_NAME = "admin"
"""The name by which the admin is shown and found. Catalogs store `operator`, by which it is found as well."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}\Z")
_o, _f, _s = schema.owners.c, schema.feeds.c, schema.subscriptions.c


@dataclass(frozen=True, slots=True)
class Quotas:
    """Maximum numbers for an owner: live feeds, live subscriptions, and published bytes. None: no limit."""

    queries: int | None = None
    subscriptions: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """A tenant of the workspace. `quotas` contains only the quotas that were set for this owner."""

    id: int
    name: str
    created: int
    disabled: bool
    quotas: Quotas


@dataclass(frozen=True, slots=True)
class OwnerUsage:
    """The usage of an owner: live feeds, live subscriptions, and bytes published so far."""

    queries: int
    subscriptions: int
    bytes: int


def add_owner(connection: Connection, name: str) -> Owner:
    """Create an owner. The name must never have been used."""
    if not _NAME.match(name):
        raise InputError(
            "an owner's name must have 1 to 64 letters, digits, _ . or -, and begin with a letter",
            place=repr(name[:80]),
        )
    if _owner_named(connection, name) is not None:
        raise InputError(f"the owner {name} already exists", hint="choose another name")
    connection.execute(insert(schema.owners).values(name=name, created=now(connection)))
    return owner_by_name(connection, name)


def owner_by_name(connection: Connection, name: str) -> Owner:
    """Return the owner with this name, even if disabled. Raise NotFoundError if there is none."""
    owner = _owner_named(connection, name)
    if owner is None:
        raise NotFoundError(f"there is no owner {name[:80]}", hint="`runnel owner list` lists all owners")
    return owner


def owner_by_id(connection: Connection, owner: int) -> Owner:
    """Return the owner of an id, even if disabled."""
    row = connection.execute(select(schema.owners).where(_o.id == owner)).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no owner {owner}")
    return _owner(row)


def all_owners(connection: Connection) -> list[Owner]:
    """Return all owners, the admin first."""
    return [_owner(row) for row in connection.execute(select(schema.owners).order_by(_o.id))]


def owner_names(connection: Connection) -> dict[int, str]:
    """Return the names of owners by id."""
    return {row.id: _shown_name(row) for row in connection.execute(select(_o.id, _o.name))}


def disable_owner(connection: Connection, owner: Owner, disabled: bool) -> None:
    """Disable or enable an owner. A disabled owner is refused, and the owner's subscriptions are not served.

    Subscriptions keep their position: items that match in the meantime are sent when the owner is enabled again.
    """
    if owner.id == ADMIN:
        raise InputError(
            "the admin cannot be disabled", hint="every user who can open the workspace's files is the admin"
        )
    moment = now(connection) if disabled else None
    connection.execute(update(schema.owners).where(_o.id == owner.id).values(disabled=moment))
    for subscription in live_subscriptions(connection, owner=owner.id):
        if disabled and subscription.disabled is None:
            disable_subscription(connection, subscription, OWNER_DISABLED)
        elif not disabled and subscription.disabled == OWNER_DISABLED:
            enable_subscription(connection, subscription.id)


def set_quotas(connection: Connection, owner: Owner, quotas: Quotas) -> None:
    """Set the quotas of an owner. None means the value of the setting, or no limit for the admin."""
    for name in ("queries", "subscriptions", "bytes"):
        value = getattr(quotas, name)
        if value is not None and not 0 <= value < 1 << 62:
            raise InputError(f"a quota must be a whole number from 0 on, not {value}", place=name)
    connection.execute(
        update(schema.owners)
        .where(_o.id == owner.id)
        .values(max_queries=quotas.queries, max_subscriptions=quotas.subscriptions, max_bytes=quotas.bytes)
    )


def quotas_of(owner: Owner, settings: Settings) -> Quotas:
    """Return the effective quotas of an owner. The admin has none unless they were set."""
    own = owner.quotas
    if owner.id == ADMIN:
        return own
    return Quotas(
        settings.owner_queries if own.queries is None else own.queries,
        settings.owner_subscriptions if own.subscriptions is None else own.subscriptions,
        settings.owner_bytes if own.bytes is None else own.bytes,
    )


def usage_of(connection: Connection, owner: int) -> OwnerUsage:
    """Return the current usage of an owner. Bytes of dropped feeds still count."""
    queries = select(func.count()).where(_f.owner == owner, _f.dropped.is_(None))
    subscriptions = select(func.count()).where(_s.owner == owner, _s.ended.is_(None), _s.kind != INTERNAL)
    size = select(func.coalesce(func.sum(_f.bytes), 0)).where(_f.owner == owner)
    counts = [int(connection.execute(query).scalar_one()) for query in (queries, subscriptions, size)]
    return OwnerUsage(*counts)


class QuotaAllowance:
    """The remaining quota of an owner in an open transaction, counted once and then updated by the caller."""

    def __init__(self, connection: Connection, owner: int, settings: Settings) -> None:
        self._connection = connection
        self._owner = owner
        self._settings = settings
        self._known: dict[str, tuple[int, int | None]] | None = None

    def take(self, what: str) -> None:
        """Count one more of `queries` or `subscriptions`. Raise QuotaExceededError if that exceeds the quota."""
        have, quota = self._counts()[what]
        if quota is not None and have >= quota:
            noun = "feeds" if what == "queries" else what
            raise QuotaExceededError(
                f"the quota of {quota:,} {noun} is used up",
                hint=f"drop {noun} that you no longer need, or ask the admin to raise the quota",
            )
        self._counts()[what] = (have + 1, quota)

    def give_back(self, what: str) -> None:
        """Count one less, because a feed was dropped or a subscription ended."""
        if self._known is not None:
            have, quota = self._known[what]
            self._known[what] = (have - 1, quota)

    def _counts(self) -> dict[str, tuple[int, int | None]]:
        if self._known is None:
            quotas = quotas_of(owner_by_id(self._connection, self._owner), self._settings)
            unlimited = quotas.queries is None and quotas.subscriptions is None
            usage = OwnerUsage(0, 0, 0) if unlimited else usage_of(self._connection, self._owner)
            self._known = {
                "queries": (usage.queries, quotas.queries),
                "subscriptions": (usage.subscriptions, quotas.subscriptions),
            }
        return self._known


def add_bytes(connection: Connection, feed: int, count: int, settings: Settings | None = None) -> None:
    """Count bytes that were published or polled into a feed. A negative count reverts an earlier one.

    If `settings` are given and the feed's owner would exceed the quota, raise QuotaExceededError and count nothing.
    """
    if settings is not None and count > 0:
        _refuse_bytes(connection, feed, count, settings)
    connection.execute(update(schema.feeds).where(_f.id == feed).values(bytes=_f.bytes + count))


def _refuse_bytes(connection: Connection, feed: int, count: int, settings: Settings) -> None:
    owner = int(connection.execute(select(_f.owner).where(_f.id == feed)).scalar_one())
    most = quotas_of(owner_by_id(connection, owner), settings).bytes
    if most is None:
        return
    have = int(connection.execute(select(func.sum(_f.bytes)).where(_f.owner == owner)).scalar_one() or 0)
    if have + count > most:
        raise QuotaExceededError(
            f"publishing {count:,} bytes would exceed the quota: {have:,} of {most:,} bytes are used up",
            hint="ask the admin to raise the quota",
        )


def has_byte_quota(connection: Connection, feed: int, settings: Settings) -> bool:
    """Return whether the bytes of a feed's owner are limited."""
    owner = int(connection.execute(select(_f.owner).where(_f.id == feed)).scalar_one())
    return quotas_of(owner_by_id(connection, owner), settings).bytes is not None


def _owner_named(connection: Connection, name: str) -> Owner | None:
    row = connection.execute(select(schema.owners).where(_o.name == name)).one_or_none()
    if row is None and name == ADMIN_NAME:
        return owner_by_id(connection, ADMIN)
    return None if row is None else _owner(row)


def _shown_name(row: Any) -> str:
    return ADMIN_NAME if row.id == ADMIN else str(row.name)


def _owner(row: Any) -> Owner:
    quotas = Quotas(row.max_queries, row.max_subscriptions, row.max_bytes)
    return Owner(row.id, _shown_name(row), row.created, row.disabled is not None, quotas)
