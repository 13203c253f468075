"""Generate the standing queries and subscriptions of a world's readers, as statements.

In: feeds, interests and a seed. Out: `create feed …` and `subscribe …` statements. Every query comes after the
queries that it reads, so the statements can be declared in order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from runnel.algebra.nodes.render import quote
from runnel.testing.dice import Dice
from runnel.testing.interests import NUMBER_CLAUSES, SIDE_CLAUSES, Interest, make_interests
from runnel.testing.newsroom import WorldFeed, feeds_by_topic, general_feeds
from runnel.testing.world_words import TOPICS

_SUFFIXES = ("Watch", "Alerts", "News", "Digest", "Radar", "Brief", "Updates", "Wire", "Notes", "Tracker")
_FILE_KINDS = ("rss", "atom", "json", "jsonl")
_MAX_FILES = 48
_BROAD_PREFIXES = ("(", "category", "price", "rating", "title")
_MAX_VIEW_DEPTH = 6


@dataclass(frozen=True, slots=True)
class WorldQuery:
    """A standing query: its name, its statement, its `where`, and the feeds that it reads."""

    name: str
    statement: str
    condition: str
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorldSubscription:
    """A subscription: the name of a query, the kind of output, its target, and the statement."""

    feed: str
    kind: str
    target: str | None
    statement: str


def make_queries(seed: int, feeds: tuple[WorldFeed, ...], count: int) -> tuple[WorldQuery, ...]:
    """Generate `count` queries. The first are desks: one query per topic on the union of its feeds."""
    writer = _QueryWriter(feeds)
    for topic in TOPICS[: count // 10]:
        writer.open_topic(topic.name)
    rest = count - len(writer.queries)
    interests = make_interests(seed, max(1, count // 3))
    dice = Dice(seed, "queries")
    chosen = dice.ranks(len(interests), rest, 0.75).tolist()
    shapes = dice.weighted((14, 30, 18, 17, 12, 9 if writer.shops else 0), rest).tolist()
    suffixes = dice.ranks(len(_SUFFIXES), rest, 0.6).tolist()
    starts, widths = dice.ranks(8, rest, 0.9).tolist(), (dice.ranks(5, rest, 0.5) + 2).tolist()
    extras = dice.uniforms(rest * 2).reshape(rest, 2).tolist()
    for index in range(rest):
        where = _Where(interests[chosen[index]], *extras[index])
        suffix = _SUFFIXES[suffixes[index]]
        match shapes[index]:
            case 3 if writer.queries:
                writer.read_topic(where, suffix)
            case 4 if writer.queries:
                writer.read_query(where)
            case 5:
                writer.read_shops(where, suffix)
            case shape:
                width = 1 if shape == 0 else widths[index]
                writer.read_feeds(where, suffix, starts[index], width, grouped=shape == 2)
    return tuple(writer.queries)


class _QueryWriter:
    """Writes queries that may read queries written before."""

    def __init__(self, feeds: tuple[WorldFeed, ...]) -> None:
        self.queries: list[WorldQuery] = []
        self.shops = [feed.name for feed in feeds if feed.numbered]
        self._by_topic = feeds_by_topic(feeds)
        self._topics: dict[str, str] = {}
        self._depths: list[int] = []
        self._taken = {feed.name.lower(): 1 for feed in feeds}

    def open_topic(self, topic: str) -> None:
        """Write the desk of a topic, which other queries can read."""
        feeds = [feed.name for feed in self._by_topic[topic][:12]]
        name = f"{topic.capitalize()}Desk"
        self._topics[topic] = self._create(name, " | ".join(feeds), f"category = {quote(topic)}", feeds)

    def read_feeds(self, where: _Where, suffix: str, start: int, width: int, *, grouped: bool) -> None:
        """Write a query on the union of feeds that write about the topic, with variables if `grouped`."""
        ranked = self._by_topic[where.interest.topic]
        start %= len(ranked)
        sources = [feed.name for feed in ranked[start : start + width]]
        source, condition = " | ".join(sources), where.condition()
        if grouped and len(sources) > 1:
            source, condition = _grouped(sources, where)
        self._create(where.interest.subject + suffix, source, condition, sources)

    def read_topic(self, where: _Where, suffix: str) -> None:
        """Write a query on the desk of a topic."""
        parent = self._topics.get(where.interest.topic, self.queries[0].name)
        self._create(where.interest.subject + suffix, parent, where.condition(), [parent], depth=2)

    def read_shops(self, where: _Where, suffix: str) -> None:
        """Write a query with a condition on numbers, on feeds whose items have them."""
        start = int(where.first * len(self.shops))
        sources = self.shops[start : start + 3]
        clause = NUMBER_CLAUSES[int(where.second * where.second * len(NUMBER_CLAUSES))]
        parts = (clause,) if where.second < 0.3 else (where.interest.clauses[0], clause)
        self._create(where.interest.subject + suffix, " | ".join(sources), " and ".join(parts), sources)

    def read_query(self, where: _Where) -> None:
        """Write a query that narrows one or two other queries."""
        index = min(int(len(self.queries) ** where.first), len(self.queries) - 1)
        while self._depths[index] >= _MAX_VIEW_DEPTH:
            index -= 1
        parent = self.queries[index].name
        parents = [parent]
        other = self._topics.get(where.interest.topic, parent)
        if where.second > 0.8 and other != parent:
            parents.append(other)
        adjective, clause = where.side()
        name = f"{adjective}{parent}" if len(parents) == 1 else f"{adjective}{parent}And{other}"
        self._create(name, " | ".join(parents), clause, parents, depth=self._depths[index] + 1)

    def _create(self, wanted: str, source: str, condition: str, reads: list[str], depth: int = 1) -> str:
        name = self._name(wanted)
        statement = f"create feed {name} from {source} where {condition};"
        self.queries.append(WorldQuery(name, statement, condition, tuple(reads)))
        self._depths.append(depth)
        return name

    def _name(self, wanted: str) -> str:
        """Return the name, or the name with the next number if it is in use. Case is ignored."""
        while True:
            number = self._taken.get(wanted.lower(), 0) + 1
            self._taken[wanted.lower()] = number
            if number == 1:
                return wanted
            # The numbered name may be in use as well: try again.
            wanted = f"{wanted}{number}"


@dataclass(frozen=True, slots=True)
class _Where:
    """An interest, and two random numbers from 0 to 1 for the minor choices of one query."""

    interest: Interest
    first: float
    second: float

    def side(self) -> tuple[str, str]:
        """Return an adjective, and a condition that can be combined with any topic."""
        return SIDE_CLAUSES[int(self.second * self.second * len(SIDE_CLAUSES))]

    def condition(self) -> str:
        """Return the interest's condition, so that conditions repeat, or sometimes one with another clause."""
        if self.first < 0.85:
            return self.interest.condition
        return " and ".join(dict.fromkeys((*self.interest.clauses, self.side()[1])))


def _grouped(sources: list[str], where: _Where) -> tuple[str, str]:
    """Return a group with variables: the interest applies to all feeds, a side condition to one (RoSeS §3.1)."""
    *others, last = sources
    _, side = where.side()
    if where.first < 0.3 and len(others) > 1:
        first, *rest = where.interest.clauses
        inner = f"({' | '.join(others[1:])} | {last} as $one) as $inner"
        outer = f" and $all[{' and '.join(rest)}]" if rest else ""
        return f"({others[0]} | {inner}) as $all", f"$one[{side}] and $inner[{first}]{outer}"
    return f"({' | '.join(others)} | {last} as $one) as $all", f"$one[{side}] and $all[{where.interest.condition}]"


def make_subscriptions(seed: int, queries: tuple[WorldQuery, ...]) -> tuple[WorldSubscription, ...]:
    """Generate a subscription for nearly every query. Most only record matches, some tens write files.

    A query without a subscription is matched only if other queries with subscriptions read it.
    """
    dice = Dice(seed, "subscriptions")
    count = len(queries)
    files = _file_kinds(queries)
    is_unsubscribed = dice.chances(0.04, count).tolist()
    is_limited = dice.chances(0.2, count).tolist()
    subscriptions = []
    for index, query in enumerate(queries):
        if index in files:
            kind = files[index]
            target = f"{_kebab(query.name)}.{kind}"
            limit = " for 30 days" if is_limited[index] else ""
            statement = f"subscribe to {query.name} output {kind} {quote(target)}{limit};"
            subscriptions.append(WorldSubscription(query.name, kind, target, statement))
        elif not is_unsubscribed[index]:
            statement = f"subscribe to {query.name} output log;"
            subscriptions.append(WorldSubscription(query.name, "log", None, statement))
    return tuple(subscriptions)


RELATED_NEWS = "RelatedNews"
"""The name of the feed that `related_news` declares."""


def related_news(feeds: tuple[WorldFeed, ...]) -> str:
    """Return statements for a feed with a join: news of general feeds, annotated with similar news of all feeds.

    >>> from runnel.testing.newsroom import make_feeds
    >>> related_news(make_feeds(7, 2)).splitlines()[1]
    '  join last 3 days on (CastleChronicle | GardenHerald) as $related'
    """
    general = [feed.name for feed in general_feeds(feeds)]
    return (
        f"create feed {RELATED_NEWS} from ({' | '.join(general)}) as $story\n"
        f"  join last 3 days on ({' | '.join(feed.name for feed in feeds)}) as $related\n"
        "    with $story[title similar window.title at least 0.6];\n"
        f"subscribe to {RELATED_NEWS} output rss 'related-news.xml';\n"
    )


def _file_kinds(queries: tuple[WorldQuery, ...]) -> dict[int, str]:
    """Choose the queries that write files, and the kind of each file: desks and other broad queries."""
    simple = [
        index
        for index, query in enumerate(queries)
        if " and " not in query.condition and query.condition.startswith(_BROAD_PREFIXES)
    ]
    count = min(_MAX_FILES, (len(queries) + 9) // 10, len(simple))
    early = simple[: count // 2]
    later = simple[count // 2 :]
    step = max(1, len(later) // max(1, count - len(early)))
    chosen = early + later[::step][: count - len(early)]
    return {query: _FILE_KINDS[position % len(_FILE_KINDS)] for position, query in enumerate(chosen)}


def _kebab(name: str) -> str:
    """Convert the name of a query to a file name.

    >>> _kebab("CitySports2")
    'city-sports2'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
