"""The catalog's history: an append-only list. The version of a catalog is how many of these it has seen.

Never edit a step that has been released; add one. `{identity}`, `{bytes}`, `{position}` (of a text in
another) and `{today}` (the day's number) differ by dialect. Times are microseconds since 1970 in UTC.
"""

from __future__ import annotations

from typing import Final

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "create table counters (name text primary key, value bigint not null)",
        "insert into counters (name, value) values ('sequence', 0), ('clock', 0)",
        """create table feeds (
            id {identity}, name text not null, kind text not null, address text, revision integer not null,
            paused integer not null, since bigint, created bigint not null, dropped bigint)""",
        "create unique index feeds_live_name on feeds (name) where dropped is null",
        """create table revisions (
            feed bigint not null, revision integer not null, statement text not null, node text,
            paused integer not null, plan bigint not null, created bigint not null,
            primary key (feed, revision))""",
        "create table reads (feed bigint not null, source bigint not null, primary key (feed, source))",
        "create index reads_source on reads (source)",
        """create table subscriptions (
            id {identity}, feed bigint not null, kind text not null, target text, period bigint, expires bigint,
            since bigint not null, due bigint, paused integer not null, created bigint not null, ended bigint)""",
        "create index subscriptions_feed on subscriptions (feed)",
        "create index subscriptions_target on subscriptions (target)",
        """create table item_segments (
            id {identity}, tier text not null, path text not null unique, first_sequence bigint not null,
            last_sequence bigint not null, bytes bigint not null, accepted bigint not null,
            last_accepted bigint not null, retired bigint)""",
        "create index item_segments_last on item_segments (last_sequence)",
        """create table seen (
            feed bigint not null, key {bytes} not null, version integer not null, fingerprint {bytes} not null,
            sequence bigint, primary key (feed, key))""",
        "create index seen_key on seen (key)",
        """create table source_files (
            feed bigint not null, path text not null, size bigint not null, modified bigint not null,
            digest text not null, problem text, checked bigint not null, primary key (feed, path))""",
        """create table plans (
            version {identity}, base text not null, delta text, queries bigint not null, sequence bigint not null,
            created bigint not null)""",
        """create table lineages (
            id {identity}, job text not null, after_sequence bigint not null, created bigint not null,
            abandoned bigint, reason text)""",
        """create table match_segments (
            lineage bigint not null, batch bigint not null, first_sequence bigint not null unique,
            last_sequence bigint not null unique, plan bigint not null, items bigint not null,
            matches bigint not null, counters text not null, epoch bigint not null, committed bigint not null,
            primary key (lineage, batch))""",
        """create table match_parts (
            path text primary key, lineage bigint not null, batch bigint not null, first_sequence bigint not null,
            last_sequence bigint not null, bytes bigint not null)""",
        "create index match_parts_batch on match_parts (lineage, batch)",
        "create index match_parts_last on match_parts (last_sequence)",
        """create table leases (
            name text primary key, holder text not null, epoch bigint not null, expires bigint not null,
            detail text not null)""",
        """create table messages (
            subscription bigint not null, number bigint not null, first_sequence bigint not null,
            last_sequence bigint not null, items bigint not null, key text not null unique, digest text not null,
            plan bigint not null, state text not null, attempts integer not null, outcome text,
            created bigint not null, finished bigint, primary key (subscription, number))""",
        "create index messages_open on messages (state) where state = 'open'",
        "create table cursors (subscription bigint primary key, sequence bigint not null)",
        """create table quarantine (
            id {identity}, kind text not null, feed bigint, query bigint, sequence bigint, place text not null,
            reason text not null, path text, created bigint not null)""",
    ),
    (
        """create table owners (
            id {identity}, name text not null unique, created bigint not null, disabled bigint,
            max_queries bigint, max_subscriptions bigint, max_bytes bigint)""",
        "insert into owners (name, created) values ('operator', 0)",
        """create table tokens (
            id {identity}, owner bigint not null, label text not null, hash text not null, created bigint not null,
            used bigint, revoked bigint)""",
        "create index tokens_owner on tokens (owner)",
        "create table secrets (name text primary key, value {bytes} not null)",
        "alter table feeds add column owner bigint not null default 1",
        "alter table feeds add column period bigint",
        "alter table feeds add column origin bigint",
        "alter table feeds add column sheet text",
        "alter table feeds add column bytes bigint not null default 0",
        "drop index feeds_live_name",
        "create unique index feeds_live_name on feeds (owner, name) where dropped is null",
        "create index feeds_owner on feeds (owner)",
        "create index feeds_origin on feeds (origin) where origin is not null",
        "alter table subscriptions add column owner bigint not null default 1",
        "alter table subscriptions add column ticket {bytes}",
        "alter table subscriptions add column sheet text",
        "alter table subscriptions add column disabled text",
        "create unique index subscriptions_ticket on subscriptions (ticket) where ticket is not null",
        "create index subscriptions_owner on subscriptions (owner)",
        "create index subscriptions_due on subscriptions (due) where ended is null and due is not null",
        """create table signing_keys (
            subscription bigint not null, value {bytes} not null, created bigint not null, expires bigint,
            primary key (subscription, created))""",
        "alter table messages add column not_before bigint not null default 0",
        "drop index messages_open",
        "create index messages_open on messages (not_before, subscription, number) where state = 'open'",
        "create index messages_waiting on messages (subscription, number) where state = 'open'",
        "create index messages_dead on messages (finished) where state = 'dead'",
        """create table attempts (
            subscription bigint not null, number bigint not null, attempt integer not null, at bigint not null,
            outcome text not null, primary key (subscription, number, attempt))""",
        """create table polls (
            feed bigint primary key, address text not null, etag text, modified text, due bigint not null,
            checked bigint, changed bigint, status integer, failures integer not null, problem text,
            stopped text, learned text, requests bigint not null, unchanged bigint not null)""",
        "create index polls_due on polls (due) where stopped is null",
        """create table hubs (
            feed bigint primary key, hub text not null, topic text not null, callback text not null unique,
            secret {bytes} not null, state text not null, requested bigint, lease_until bigint, problem text)""",
        "create index source_files_problem on source_files (feed) where problem is not null",
        "create index polls_failing on polls (feed) where failures > 0 or stopped is not null",
        "create index subscriptions_disabled on subscriptions (id) where disabled is not null and ended is null",
    ),
    (
        # A long life: files are merged by hour and day, what is old goes, and totals are counted, not summed up.
        "alter table item_segments add column level integer not null default 0",
        "update item_segments set level = 1 where tier = 'day'",
        "drop index item_segments_last",
        "create index item_segments_live on item_segments (last_sequence) where retired is null",
        "create index item_segments_small on item_segments (last_sequence) where retired is null and level < 3",
        "create index item_segments_retired on item_segments (retired) where retired is not null",
        "create index item_segments_time on item_segments (last_accepted)",
        "alter table match_parts add column level integer not null default 0",
        "alter table match_parts add column committed bigint not null default 0",
        "alter table match_parts add column retired bigint",
        "alter table match_parts add column by_query text",
        """update match_parts set committed = coalesce((select s.committed from match_segments s
            where s.lineage = match_parts.lineage and s.batch = match_parts.batch), 0)""",
        "drop index match_parts_batch",
        "drop index match_parts_last",
        "create index match_parts_live on match_parts (last_sequence) where retired is null",
        "create index match_parts_small on match_parts (last_sequence) where retired is null and level < 3",
        "create index match_parts_retired on match_parts (retired) where retired is not null",
        "alter table seen add column day bigint not null default 0",
        "update seen set day = {today}",
        "create index seen_day on seen (day)",
        "create table offers (feed bigint primary key, day bigint not null)",
        "insert into offers (feed, day) select feed, max(day) from seen group by feed",
        """create table receipts (
            subscription bigint primary key, number bigint not null, done bigint not null, dead bigint not null,
            items bigint not null, attempts bigint not null, first_created bigint not null,
            last_finished bigint not null)""",
        "create index messages_finished on messages (finished) where finished is not null",
        "alter table quarantine add column bytes bigint",
        "create index quarantine_path on quarantine (path) where path is not null",
        "create index quarantine_unmeasured on quarantine (id) where path is not null and bytes is null",
        """insert into counters (name, value) values
            ('retained', 0), ('merged', 0), ('aside_bytes', 0), ('chores', 0), ('messages_dead', 0)""",
        "insert into counters (name, value) select 'matches', coalesce(sum(matches), 0) from match_segments",
        "insert into counters (name, value) select 'aside', count(*) from quarantine",
        "insert into counters (name, value) select 'messages', count(*) from messages",
    ),
    (
        # What the stream looks like: learned by feed (0: of all), and what was observed since.
        "create table statistics (feed bigint primary key, content {bytes} not null, learned bigint not null)",
        "create table observations (id {identity}, content {bytes} not null, created bigint not null)",
    ),
    (
        # What distinct feeds have had: for every key the last item that had it, and until when that counts.
        """create table seen_keys (
            key {bytes} primary key, feed bigint not null, sequence bigint not null, accepted bigint not null,
            expires bigint not null)""",
        "create index seen_keys_feed on seen_keys (feed)",
        "create index seen_keys_expires on seen_keys (expires)",
    ),
    (
        # The tags of queries, and what the queries cost that cost most.
        "create table tags (feed bigint not null, tag text not null, primary key (feed, tag))",
        "create index tags_tag on tags (tag)",
        "create table costs (query bigint primary key, content text not null, noted bigint not null, told bigint)",
    ),
    (
        # A query that is removed writes no file: a plan version names what its folders still hold and it does not.
        "alter table plans add column removed text",
    ),
    (
        # Operators as they were registered, version by version, and the queries that use each.
        """create table operators (
            name text not null, version integer not null, content text not null, created bigint not null,
            dropped bigint, primary key (name, version))""",
        "create unique index operators_live on operators (name) where dropped is null",
        """create table uses_operators (
            feed bigint not null, operator text not null, primary key (feed, operator))""",
        "create index uses_operators_operator on uses_operators (operator)",
    ),
    (
        # Items that operators could not decide for some queries, until they are in the log once more; and, of items
        # that are in it once more, for which queries alone.
        """create table undecided (
            id {identity}, sequence bigint not null, queries text not null, reason text not null,
            attempts integer not null, not_before bigint not null, until bigint not null)""",
        "create index undecided_not_before on undecided (not_before)",
        """create table supplements (
            sequence bigint primary key, supplements bigint not null, queries text not null,
            attempts integer not null, until bigint not null)""",
        "create index supplements_of on supplements (supplements)",
    ),
    (
        # Files with answers of operators; and what was learned of operators, the first row folded, then notes.
        """create table operator_cache (
            id {identity}, path text not null, bytes bigint not null, answers bigint not null,
            created bigint not null, retired bigint)""",
        "create unique index operator_cache_path on operator_cache (path)",
        "create index operator_cache_live on operator_cache (created) where retired is null",
        "create index operator_cache_retired on operator_cache (retired) where retired is not null",
        "create table operator_learning (id {identity}, content {bytes} not null, noted bigint not null)",
    ),
    (
        # How often operators were asked, and how often that left a query undecided: counted, not summed up.
        "insert into counters (name, value) values ('operator_calls', 0), ('operator_unknown', 0)",
    ),
    (
        # What names stand for in graph patterns, for all who write them.
        "create table prefixes (name text primary key, iri text not null, created bigint not null)",
        # Items of web feeds have graphs from here on; those up to this sequence were accepted without.
        "insert into counters (name, value) select 'graphless', value from counters where name = 'sequence'",
    ),
    (
        # A plan version may be matched in partitions: which folder says how, and all folders that this names. What
        # each partition was found to cost, so that they can be balanced.
        "alter table plans add column partitioning text",
        "alter table plans add column pieces text",
        """create table partition_loads (
            partitioning text not null, partition_number integer not null, items bigint not null,
            matches bigint not null, microseconds bigint not null, loads bigint not null, noted bigint not null,
            primary key (partitioning, partition_number))""",
    ),
    (
        # The immediate subscriptions that get messages: asked for after every batch.
        """create index subscriptions_immediate on subscriptions (feed)
            where ended is null and period is null and kind <> 'log'""",
        # When a disabled subscription was resumed: what was refused before does not count against it.
        "alter table subscriptions add column resumed bigint",
    ),
    (
        # Source feeds have titles and home pages; queries may read groups of feeds (`all feeds tagged …`).
        "alter table feeds add column title text",
        "alter table feeds add column home text",
        """create table reads_groups (
            feed bigint not null references feeds (id), owner bigint not null, tags text not null,
            primary key (feed, owner, tags))""",
        "create index reads_groups_owner on reads_groups (owner)",
    ),
    (
        # Feeds into which anybody may publish, and how many items per minute.
        "alter table feeds add column open_items bigint",
    ),
    (
        # Whether a secret is sealed with the key of the workspace; those that are not are sealed on opening.
        "alter table secrets add column sealed integer not null default 0",
        "alter table signing_keys add column sealed integer not null default 0",
        "alter table hubs add column sealed integer not null default 0",
    ),
    (
        # Whether the recipients of owners' messages agreed to get them. Targets that took messages before count as
        # confirmed; all others are asked.
        """create table consents (
            id {identity}, owner bigint not null, kind text not null, target text not null, recipient text not null,
            state text not null, nonce {bytes}, requests bigint not null, day bigint not null,
            day_requests bigint not null, attempts integer not null, not_before bigint, expires bigint not null,
            changed bigint not null, outcome text)""",
        "create unique index consents_target on consents (owner, kind, target)",
        "create index consents_recipient on consents (kind, recipient)",
        "create index consents_unconfirmed on consents (id) where state <> 'confirmed'",
        "create index consents_pending on consents (not_before) where state = 'pending'",
        """insert into consents (owner, kind, target, recipient, state, requests, day, day_requests, attempts,
                not_before, expires, changed, outcome)
            select owner, kind, target,
                case when kind = 'mail' then
                    lower(replace(substr(target, 1,
                        case when {position}(target, '+') > 1 then {position}(target, '+')
                        else {position}(target, '@') end - 1), '.', '') || substr(target, {position}(target, '@')))
                else substr(target, {position}(target, '//') + 2,
                    {position}(substr(target, {position}(target, '//') + 2), '/') - 1) end,
                case when took > 0 then 'confirmed' else 'pending' end, 0, 0, 0, 0,
                case when took > 0 then null else 0 end, ({today} + 7) * 86400000000, {today} * 86400000000,
                case when took > 0 then 'it took messages before confirmation was required' end
            from (select s.owner, s.kind, s.target,
                    max(case when exists (select 1 from messages m where m.subscription = s.id and m.state = 'done')
                        or exists (select 1 from receipts r where r.subscription = s.id and r.done > 0)
                        then 1 else 0 end) as took
                from subscriptions s
                where s.owner <> 1 and s.kind in ('mail', 'webhook') and s.target is not null and s.ended is null
                group by s.owner, s.kind, s.target) as known""",
        # What waits for its recipient has a position of its own in the log.
        """insert into cursors (subscription, sequence)
            select s.id, case when shared.sequence > s.since then shared.sequence else s.since end
            from subscriptions s
            join consents c on c.owner = s.owner and c.kind = s.kind and c.target = s.target
            cross join (select coalesce(max(sequence), 0) as sequence from cursors where subscription = 0) as shared
            where s.ended is null and c.state = 'pending'
                and not exists (select 1 from cursors k where k.subscription = s.id)""",
    ),
)

DIALECTS: Final[dict[str, dict[str, str]]] = {
    "sqlite": {
        "identity": "integer primary key autoincrement",
        "bytes": "blob",
        "position": "instr",
        "today": "cast(strftime('%s', 'now') as integer) / 86400",
    },
    "postgresql": {
        "identity": "bigint generated by default as identity primary key",
        "bytes": "bytea",
        "position": "strpos",
        "today": "cast(extract(epoch from now()) as bigint) / 86400",
    },
}


def statements(step: int, dialect: str) -> list[str]:
    """The SQL of one step, for a dialect.

    >>> statements(0, "sqlite")[0]
    'create table counters (name text primary key, value bigint not null)'
    """
    return [text.format(**DIALECTS[dialect]) for text in MIGRATIONS[step]]
