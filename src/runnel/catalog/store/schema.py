"""The tables of the catalog, for queries and for creating a new catalog (see `migrations`).

Times are microseconds since 1970 in UTC. Ids are never reused.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

metadata = MetaData()

_Type = type[BigInteger] | type[Integer] | type[LargeBinary] | type[Text]


def _table(name: str, *parts: Column[Any] | Index | PrimaryKeyConstraint) -> Table:
    return Table(name, metadata, *parts, sqlite_autoincrement=any(_is_identity(part) for part in parts))


def _is_identity(part: object) -> bool:
    return isinstance(part, Column) and part.identity is not None


def _identity(name: str = "id") -> Column[Any]:
    """Return an id column assigned by the database. SQLite requires the type INTEGER for it."""
    return Column(name, BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True)


def _key(name: str, kind: _Type) -> Column[Any]:
    """Return a primary key of one column whose values the program assigns."""
    return Column(name, kind, primary_key=True, autoincrement=False)


def _required(name: str, kind: _Type, *more: Any, default: int | None = None, unique: bool = False) -> Column[Any]:
    server_default = None if default is None else text(str(default))
    return Column(name, kind, *more, nullable=False, server_default=server_default, unique=unique or None)


def _optional(name: str, kind: _Type) -> Column[Any]:
    return Column(name, kind)


def _index(name: str, *columns: str, where: str | None = None, unique: bool = False) -> Index:
    condition = None if where is None else text(where)
    return Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


counters = _table("counters", _key("name", Text), _required("value", BigInteger))
feeds = _table(
    "feeds",
    _identity(),
    _required("name", Text),
    _required("kind", Text),
    _optional("address", Text),
    _required("revision", Integer),
    _required("paused", Integer),
    _optional("since", BigInteger),
    _required("created", BigInteger),
    _optional("dropped", BigInteger),
    _required("owner", BigInteger, default=1),
    _optional("period", BigInteger),
    _optional("origin", BigInteger),
    _optional("sheet", Text),
    _required("bytes", BigInteger, default=0),
    _optional("title", Text),
    _optional("home", Text),
    _optional("open_items", BigInteger),
    _index("feeds_live_name", "owner", "name", where="dropped is null", unique=True),
    _index("feeds_owner", "owner"),
    _index("feeds_origin", "origin", where="origin is not null"),
)
revisions = _table(
    "revisions",
    _required("feed", BigInteger),
    _required("revision", Integer),
    _required("statement", Text),
    _optional("node", Text),
    _required("paused", Integer),
    _required("plan", BigInteger),
    _required("created", BigInteger),
    PrimaryKeyConstraint("feed", "revision"),
)
reads = _table(
    "reads",
    _required("feed", BigInteger),
    _required("source", BigInteger),
    PrimaryKeyConstraint("feed", "source"),
    _index("reads_source", "source"),
)
reads_groups = _table(
    "reads_groups",
    _required("feed", BigInteger, ForeignKey("feeds.id")),
    _required("owner", BigInteger),
    _required("tags", Text),
    PrimaryKeyConstraint("feed", "owner", "tags"),
    _index("reads_groups_owner", "owner"),
)
tags = _table(
    "tags",
    _required("feed", BigInteger),
    _required("tag", Text),
    PrimaryKeyConstraint("feed", "tag"),
    _index("tags_tag", "tag"),
)
prefixes = _table("prefixes", _key("name", Text), _required("iri", Text), _required("created", BigInteger))
operators = _table(
    "operators",
    _required("name", Text),
    _required("version", Integer),
    _required("content", Text),
    _required("created", BigInteger),
    _optional("dropped", BigInteger),
    PrimaryKeyConstraint("name", "version"),
    _index("operators_live", "name", where="dropped is null", unique=True),
)
uses_operators = _table(
    "uses_operators",
    _required("feed", BigInteger),
    _required("operator", Text),
    PrimaryKeyConstraint("feed", "operator"),
    _index("uses_operators_operator", "operator"),
)
subscriptions = _table(
    "subscriptions",
    _identity(),
    _required("feed", BigInteger),
    _required("kind", Text),
    _optional("target", Text),
    _optional("period", BigInteger),
    _optional("expires", BigInteger),
    _required("since", BigInteger),
    _optional("due", BigInteger),
    _required("paused", Integer),
    _required("created", BigInteger),
    _optional("ended", BigInteger),
    _required("owner", BigInteger, default=1),
    _optional("ticket", LargeBinary),
    _optional("sheet", Text),
    _optional("disabled", Text),
    _optional("resumed", BigInteger),
    _index("subscriptions_feed", "feed"),
    _index("subscriptions_target", "target"),
    _index("subscriptions_ticket", "ticket", where="ticket is not null", unique=True),
    _index("subscriptions_owner", "owner"),
    _index("subscriptions_due", "due", where="ended is null and due is not null"),
    _index("subscriptions_disabled", "id", where="disabled is not null and ended is null"),
    # Immediate subscriptions with messages, which are read after every batch.
    _index("subscriptions_immediate", "feed", where="ended is null and period is null and kind <> 'log'"),
)

item_segments = _table(
    "item_segments",
    _identity(),
    _required("tier", Text),
    _required("path", Text, unique=True),
    _required("first_sequence", BigInteger),
    _required("last_sequence", BigInteger),
    _required("bytes", BigInteger),
    _required("accepted", BigInteger),
    _required("last_accepted", BigInteger),
    _optional("retired", BigInteger),
    _required("level", Integer, default=0),
    _index("item_segments_live", "last_sequence", where="retired is null"),
    _index("item_segments_small", "last_sequence", where="retired is null and level < 3"),
    _index("item_segments_retired", "retired", where="retired is not null"),
    _index("item_segments_time", "last_accepted"),
)
seen = _table(
    "seen",
    _required("feed", BigInteger),
    _required("key", LargeBinary),
    _required("version", Integer),
    _required("fingerprint", LargeBinary),
    _optional("sequence", BigInteger),
    _required("day", BigInteger, default=0),
    _optional("position", LargeBinary),
    PrimaryKeyConstraint("feed", "key"),
    _index("seen_key", "key"),
    _index("seen_day", "day"),
)
# Tables: their schema, the sequences of their registration and of their last change, and counts of live rows, of all
# changes, of those after the newest base, and of skipped late changes.
tables = _table(
    "tables",
    _key("feed", BigInteger),
    _required("content", Text),
    _required("since", BigInteger),
    _required("last_change", BigInteger),
    _required("rows", BigInteger, default=0),
    _required("changes", BigInteger, default=0),
    _required("tail", BigInteger, default=0),
    _required("late", BigInteger, default=0),
)
# Bases have all rows of a table at `to_sequence`; histories have the rows that ended after `from_sequence` and up to
# `to_sequence`.
table_files = _table(
    "table_files",
    _key("path", Text),
    _required("feed", BigInteger),
    _required("kind", Text),
    _required("from_sequence", BigInteger),
    _required("to_sequence", BigInteger),
    _required("rows", BigInteger),
    _required("bytes", BigInteger),
    _optional("retired", BigInteger),
    _index("table_files_live", "feed", "to_sequence", where="retired is null"),
    _index("table_files_retired", "retired", where="retired is not null"),
)
offers = _table("offers", _key("feed", BigInteger), _required("day", BigInteger))
# What gates remember, and until when it affects later items.
gate_states = _table(
    "gate_states",
    _key("key", LargeBinary),
    _required("feed", BigInteger),
    _required("value", LargeBinary),
    _required("expires", BigInteger),
    _index("gate_states_feed", "feed"),
    _index("gate_states_expires", "expires"),
)
# The windows of joins whose earlier items are in files, as far back as joins need them.
windows = _table(
    "windows",
    _key("feed", BigInteger),
    _required("key", BigInteger),
    _required("history", LargeBinary),
    _required("since", BigInteger),
    _required("microseconds", BigInteger),
    _required("items", BigInteger),
)
window_segments = _table(
    "window_segments",
    _key("path", Text),
    _required("first_sequence", BigInteger),
    _required("last_sequence", BigInteger),
    _required("last_accepted", BigInteger),
    _required("items", BigInteger),
    _required("bytes", BigInteger),
    _required("level", Integer),
    _optional("retired", BigInteger),
    _index("window_segments_live", "last_sequence", where="retired is null"),
    _index("window_segments_retired", "retired", where="retired is not null"),
)
join_work = _table(
    "join_work",
    _key("feed", BigInteger),
    _required("history", LargeBinary),
    _required("began", BigInteger),
    _required("items", BigInteger),
    _required("passed", BigInteger),
    _required("candidates", BigInteger),
    _required("joined", BigInteger),
    _required("nanoseconds", BigInteger),
)
source_files = _table(
    "source_files",
    _required("feed", BigInteger),
    _required("path", Text),
    _required("size", BigInteger),
    _required("modified", BigInteger),
    _required("digest", Text),
    _optional("problem", Text),
    _required("checked", BigInteger),
    PrimaryKeyConstraint("feed", "path"),
    _index("source_files_problem", "feed", where="problem is not null"),
)
# `removed` are queries in the folders of a version that are not part of it; `pieces` are the folders that its
# distribution names.
plans = _table(
    "plans",
    _identity("version"),
    _required("base", Text),
    _optional("delta", Text),
    _required("queries", BigInteger),
    _required("sequence", BigInteger),
    _required("created", BigInteger),
    _optional("removed", Text),
    _optional("distribution", Text),
    _optional("pieces", Text),
)
distribution_work = _table(
    "distribution_work",
    _required("distribution", Text),
    _required("part", Integer),
    _required("items", BigInteger),
    _required("matches", BigInteger),
    _required("microseconds", BigInteger),
    _required("loads", BigInteger),
    _required("noted", BigInteger),
    PrimaryKeyConstraint("distribution", "part"),
)
lineages = _table(
    "lineages",
    _identity(),
    _required("job", Text),
    _required("after_sequence", BigInteger),
    _required("created", BigInteger),
    _optional("abandoned", BigInteger),
    _optional("reason", Text),
)
match_segments = _table(
    "match_segments",
    _required("lineage", BigInteger),
    _required("batch", BigInteger),
    _required("first_sequence", BigInteger, unique=True),
    _required("last_sequence", BigInteger, unique=True),
    _required("plan", BigInteger),
    _required("items", BigInteger),
    _required("matches", BigInteger),
    _required("counters", Text),
    _required("epoch", BigInteger),
    _required("committed", BigInteger),
    PrimaryKeyConstraint("lineage", "batch"),
)
match_parts = _table(
    "match_parts",
    _key("path", Text),
    _required("lineage", BigInteger),
    _required("batch", BigInteger),
    _required("first_sequence", BigInteger),
    _required("last_sequence", BigInteger),
    _required("bytes", BigInteger),
    _required("level", Integer, default=0),
    _required("committed", BigInteger, default=0),
    _optional("retired", BigInteger),
    _optional("by_query", Text),
    _index("match_parts_live", "last_sequence", where="retired is null"),
    _index("match_parts_small", "last_sequence", where="retired is null and level < 3"),
    _index("match_parts_retired", "retired", where="retired is not null"),
)
# Items that are undecided for certain queries because operators failed, until they are logged again.
undecided = _table(
    "undecided",
    _identity(),
    _required("sequence", BigInteger),
    _required("queries", Text),
    _required("reason", Text),
    _required("attempts", Integer),
    _required("not_before", BigInteger),
    _required("until", BigInteger),
    _index("undecided_not_before", "not_before"),
)
# Items that were logged again, and the only queries with which they are matched.
supplements = _table(
    "supplements",
    _key("sequence", BigInteger),
    _required("supplements", BigInteger),
    _required("queries", Text),
    _required("attempts", Integer),
    _required("until", BigInteger),
    _index("supplements_of", "supplements"),
)
quarantine = _table(
    "quarantine",
    _identity(),
    _required("kind", Text),
    _optional("feed", BigInteger),
    _optional("query", BigInteger),
    _optional("sequence", BigInteger),
    _required("place", Text),
    _required("reason", Text),
    _optional("path", Text),
    _required("created", BigInteger),
    _optional("bytes", BigInteger),
    _index("quarantine_path", "path", where="path is not null"),
    _index("quarantine_unmeasured", "id", where="path is not null and bytes is null"),
)
leases = _table(
    "leases",
    _key("name", Text),
    _required("holder", Text),
    _required("epoch", BigInteger),
    _required("expires", BigInteger),
    _required("detail", Text),
)

messages = _table(
    "messages",
    _required("subscription", BigInteger),
    _required("number", BigInteger),
    _required("first_sequence", BigInteger),
    _required("last_sequence", BigInteger),
    _required("items", BigInteger),
    _required("key", Text, unique=True),
    _required("digest", Text),
    _required("plan", BigInteger),
    _required("state", Text),
    _required("attempts", Integer),
    _optional("outcome", Text),
    _required("created", BigInteger),
    _optional("finished", BigInteger),
    _required("not_before", BigInteger, default=0),
    PrimaryKeyConstraint("subscription", "number"),
    _index("messages_open", "not_before", "subscription", "number", where="state = 'open'"),
    _index("messages_waiting", "subscription", "number", where="state = 'open'"),
    _index("messages_dead", "finished", where="state = 'dead'"),
    _index("messages_finished", "finished", where="finished is not null"),
)
attempts = _table(
    "attempts",
    _required("subscription", BigInteger),
    _required("number", BigInteger),
    _required("attempt", Integer),
    _required("at", BigInteger),
    _required("outcome", Text),
    PrimaryKeyConstraint("subscription", "number", "attempt"),
)
receipts = _table(
    "receipts",
    _key("subscription", BigInteger),
    _required("number", BigInteger),
    _required("done", BigInteger),
    _required("dead", BigInteger),
    _required("items", BigInteger),
    _required("attempts", BigInteger),
    _required("first_created", BigInteger),
    _required("last_finished", BigInteger),
)
cursors = _table("cursors", _key("subscription", BigInteger), _required("sequence", BigInteger))

owners = _table(
    "owners",
    _identity(),
    _required("name", Text, unique=True),
    _required("created", BigInteger),
    _optional("disabled", BigInteger),
    _optional("max_queries", BigInteger),
    _optional("max_subscriptions", BigInteger),
    _optional("max_bytes", BigInteger),
)
tokens = _table(
    "tokens",
    _identity(),
    _required("owner", BigInteger),
    _required("label", Text),
    _required("hash", Text),
    _required("created", BigInteger),
    _optional("used", BigInteger),
    _optional("revoked", BigInteger),
    _index("tokens_owner", "owner"),
)
# Whether the recipients of owners' messages have agreed to receive them.
consents = _table(
    "consents",
    _identity(),
    _required("owner", BigInteger),
    _required("kind", Text),
    _required("target", Text),
    _required("recipient", Text),
    _required("state", Text),
    _optional("nonce", LargeBinary),
    _required("requests", BigInteger),
    _required("day", BigInteger),
    _required("day_requests", BigInteger),
    _required("attempts", Integer),
    _optional("not_before", BigInteger),
    _required("expires", BigInteger),
    _required("changed", BigInteger),
    _optional("outcome", Text),
    _index("consents_target", "owner", "kind", "target", unique=True),
    _index("consents_recipient", "kind", "recipient"),
    _index("consents_unconfirmed", "id", where="state <> 'confirmed'"),
    _index("consents_pending", "not_before", where="state = 'pending'"),
)
# The secrets of these three tables are encrypted with the key of the workspace.
secrets = _table("secrets", _key("name", Text), _required("value", LargeBinary))
signing_keys = _table(
    "signing_keys",
    _required("subscription", BigInteger),
    _required("value", LargeBinary),
    _required("created", BigInteger),
    _optional("expires", BigInteger),
    PrimaryKeyConstraint("subscription", "created"),
)
hubs = _table(
    "hubs",
    _key("feed", BigInteger),
    _required("hub", Text),
    _required("topic", Text),
    _required("callback", Text, unique=True),
    _required("secret", LargeBinary),
    _required("state", Text),
    _optional("requested", BigInteger),
    _optional("lease_until", BigInteger),
    _optional("problem", Text),
)
polls = _table(
    "polls",
    _key("feed", BigInteger),
    _required("address", Text),
    _optional("etag", Text),
    _optional("modified", Text),
    _required("due", BigInteger),
    _optional("checked", BigInteger),
    _optional("changed", BigInteger),
    _optional("status", Integer),
    _required("failures", Integer),
    _optional("problem", Text),
    _optional("stopped", Text),
    _optional("learned", Text),
    _required("requests", BigInteger),
    _required("unchanged", BigInteger),
    _index("polls_due", "due", where="stopped is null"),
    _index("polls_failing", "feed", where="failures > 0 or stopped is not null"),
)

# Statistics by feed (0: the whole stream), and observations that are not merged yet.
statistics = _table(
    "statistics", _key("feed", BigInteger), _required("content", LargeBinary), _required("learned", BigInteger)
)
observations = _table(
    "observations", _identity(), _required("content", LargeBinary), _required("created", BigInteger)
)
costs = _table(
    "costs",
    _key("query", BigInteger),
    _required("content", Text),
    _required("noted", BigInteger),
    _optional("told", BigInteger),
)
operator_cache = _table(
    "operator_cache",
    _identity(),
    _required("path", Text),
    _required("bytes", BigInteger),
    _required("answers", BigInteger),
    _required("created", BigInteger),
    _optional("retired", BigInteger),
    _index("operator_cache_path", "path", unique=True),
    _index("operator_cache_live", "created", where="retired is null"),
    _index("operator_cache_retired", "retired", where="retired is not null"),
)
# Statistics of operators: the first row is merged, the others wait to be merged.
operator_learning = _table(
    "operator_learning", _identity(), _required("content", LargeBinary), _required("noted", BigInteger)
)
