"""The catalog's tables, as SQLAlchemy sees them after all migrations; a test compares them with the database."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()


def _table(name: str, /, **columns: type[BigInteger] | type[Integer] | type[LargeBinary] | type[Text]) -> Table:
    return Table(name, metadata, *(Column(column, kind) for column, kind in columns.items()))


_I, _S, _T, _B = BigInteger, Integer, Text, LargeBinary

counters = _table("counters", name=_T, value=_I)
feeds = _table(
    "feeds",
    id=_I,
    name=_T,
    kind=_T,
    address=_T,
    revision=_S,
    paused=_S,
    since=_I,
    created=_I,
    dropped=_I,
    owner=_I,
    period=_I,
    origin=_I,
    sheet=_T,
    bytes=_I,
    title=_T,
    home=_T,
    open_items=_I,
)
revisions = _table("revisions", feed=_I, revision=_S, statement=_T, node=_T, paused=_S, plan=_I, created=_I)
reads = _table("reads", feed=_I, source=_I)
subscriptions = _table(
    "subscriptions",
    id=_I,
    feed=_I,
    kind=_T,
    target=_T,
    period=_I,
    expires=_I,
    since=_I,
    due=_I,
    paused=_S,
    created=_I,
    ended=_I,
    owner=_I,
    ticket=_B,
    sheet=_T,
    disabled=_T,
    resumed=_I,
)
item_segments = _table(
    "item_segments",
    id=_I,
    tier=_T,
    path=_T,
    first_sequence=_I,
    last_sequence=_I,
    bytes=_I,
    accepted=_I,
    last_accepted=_I,
    retired=_I,
    level=_S,
)
seen = _table("seen", feed=_I, key=_B, version=_S, fingerprint=_B, sequence=_I, day=_I)
offers = _table("offers", feed=_I, day=_I)
source_files = _table("source_files", feed=_I, path=_T, size=_I, modified=_I, digest=_T, problem=_T, checked=_I)
plans = _table(
    "plans",
    version=_I,
    base=_T,
    delta=_T,
    queries=_I,
    sequence=_I,
    created=_I,
    removed=_T,
    partitioning=_T,
    pieces=_T,
)
partition_loads = _table(
    "partition_loads",
    partitioning=_T,
    partition_number=_I,
    items=_I,
    matches=_I,
    microseconds=_I,
    loads=_I,
    noted=_I,
)
lineages = _table("lineages", id=_I, job=_T, after_sequence=_I, created=_I, abandoned=_I, reason=_T)
match_segments = _table(
    "match_segments",
    lineage=_I,
    batch=_I,
    first_sequence=_I,
    last_sequence=_I,
    plan=_I,
    items=_I,
    matches=_I,
    counters=_T,
    epoch=_I,
    committed=_I,
)
match_parts = _table(
    "match_parts",
    path=_T,
    lineage=_I,
    batch=_I,
    first_sequence=_I,
    last_sequence=_I,
    bytes=_I,
    level=_S,
    committed=_I,
    retired=_I,
    by_query=_T,
)
undecided = _table("undecided", id=_I, sequence=_I, queries=_T, reason=_T, attempts=_S, not_before=_I, until=_I)
supplements = _table("supplements", sequence=_I, supplements=_I, queries=_T, attempts=_S, until=_I)
leases = _table("leases", name=_T, holder=_T, epoch=_I, expires=_I, detail=_T)
messages = _table(
    "messages",
    subscription=_I,
    number=_I,
    first_sequence=_I,
    last_sequence=_I,
    items=_I,
    key=_T,
    digest=_T,
    plan=_I,
    state=_T,
    attempts=_S,
    outcome=_T,
    created=_I,
    finished=_I,
    not_before=_I,
)
attempts = _table("attempts", subscription=_I, number=_I, attempt=_S, at=_I, outcome=_T)
receipts = _table(
    "receipts",
    subscription=_I,
    number=_I,
    done=_I,
    dead=_I,
    items=_I,
    attempts=_I,
    first_created=_I,
    last_finished=_I,
)
cursors = _table("cursors", subscription=_I, sequence=_I)
quarantine = _table(
    "quarantine",
    id=_I,
    kind=_T,
    feed=_I,
    query=_I,
    sequence=_I,
    place=_T,
    reason=_T,
    path=_T,
    created=_I,
    bytes=_I,
)
owners = _table("owners", id=_I, name=_T, created=_I, disabled=_I, max_queries=_I, max_subscriptions=_I, max_bytes=_I)
tokens = _table("tokens", id=_I, owner=_I, label=_T, hash=_T, created=_I, used=_I, revoked=_I)
secrets = _table("secrets", name=_T, value=_B, sealed=_S)
consents = _table(
    "consents",
    id=_I,
    owner=_I,
    kind=_T,
    target=_T,
    recipient=_T,
    state=_T,
    nonce=_B,
    requests=_I,
    day=_I,
    day_requests=_I,
    attempts=_S,
    not_before=_I,
    expires=_I,
    changed=_I,
    outcome=_T,
)
signing_keys = _table("signing_keys", subscription=_I, value=_B, created=_I, expires=_I, sealed=_S)
polls = _table(
    "polls",
    feed=_I,
    address=_T,
    etag=_T,
    modified=_T,
    due=_I,
    checked=_I,
    changed=_I,
    status=_S,
    failures=_S,
    problem=_T,
    stopped=_T,
    learned=_T,
    requests=_I,
    unchanged=_I,
)
hubs = _table(
    "hubs",
    feed=_I,
    hub=_T,
    topic=_T,
    callback=_T,
    secret=_B,
    state=_T,
    requested=_I,
    lease_until=_I,
    problem=_T,
    sealed=_S,
)
statistics = _table("statistics", feed=_I, content=_B, learned=_I)
observations = _table("observations", id=_I, content=_B, created=_I)
seen_keys = _table("seen_keys", key=_B, feed=_I, sequence=_I, accepted=_I, expires=_I)
tags = _table("tags", feed=_I, tag=_T)
reads_groups = _table("reads_groups", feed=_I, owner=_I, tags=_T)
costs = _table("costs", query=_I, content=_T, noted=_I, told=_I)
operators = _table("operators", name=_T, version=_S, content=_T, created=_I, dropped=_I)
uses_operators = _table("uses_operators", feed=_I, operator=_T)
prefixes = _table("prefixes", name=_T, iri=_T, created=_I)
operator_cache = _table("operator_cache", id=_I, path=_T, bytes=_I, answers=_I, created=_I, retired=_I)
operator_learning = _table("operator_learning", id=_I, content=_B, noted=_I)
