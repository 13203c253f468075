"""The readers of a world: their standing queries and subscriptions, as statements.

In: feeds, interests and a seed. Out: `create feed …` and `subscribe …` texts. Every query comes after the queries
that it reads, so that the statements can be declared in the order given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from runnel.algebra.nodes.render import quote
from runnel.testing.dice import Dice
from runnel.testing.interests import NUMBER_CLAUSES, SIDE_CLAUSES, Interest, make_interests
from runnel.testing.newsroom import WorldFeed, feeds_by_topic
from runnel.testing.world_words import TOPICS

_SUFFIXES = ("Watch", "Alerts", "News", "Digest", "Radar", "Brief", "Updates", "Wire", "Notes", "Tracker")
_FILE_KINDS = ("rss", "atom", "json", "jsonl")
_MOST_FILES = 48
_BROAD = ("(", "category", "price", "rating", "title")
_DEEPEST_VIEW = 6


@dataclass(frozen=True, slots=True)
class WorldQuery:
    """A standing query: its name, its statement, its `where`, and the feeds that it reads."""

    name: str
    statement: str
    condition: str
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorldSubscription:
    """Who reads what: a query's name, the kind of output and its target, and the statement."""

    feed: str
    kind: str
    target: str | None
    statement: str


def make_queries(seed: int, feeds: tuple[WorldFeed, ...], count: int) -> tuple[WorldQuery, ...]:
    """`count` queries; the first are the desks, which gather all feeds of a topic for others to read."""
    desk = _Desk(feeds)
    for topic in TOPICS[: count // 10]:
        desk.open_topic(topic.name)
    rest = count - len(desk.queries)
    interests = make_interests(seed, max(1, count // 3))
    dice = Dice(seed, "queries")
    chosen = dice.ranks(len(interests), rest, 0.75).tolist()
    shapes = dice.weighted((14, 30, 18, 17, 12, 9 if desk.shops else 0), rest).tolist()
    suffixes = dice.ranks(len(_SUFFIXES), rest, 0.6).tolist()
    starts, widths = dice.ranks(8, rest, 0.9).tolist(), (dice.ranks(5, rest, 0.5) + 2).tolist()
    extras = dice.uniforms(rest * 2).reshape(rest, 2).tolist()
    for index in range(rest):
        where = _Where(interests[chosen[index]], *extras[index])
        suffix = _SUFFIXES[suffixes[index]]
        match shapes[index]:
            case 3 if desk.queries:
                desk.read_topic(where, suffix)
            case 4 if desk.queries:
                desk.read_query(where)
            case 5:
                desk.read_shops(where, suffix)
            case shape:
                width = 1 if shape == 0 else widths[index]
                desk.read_feeds(where, suffix, starts[index], width, grouped=shape == 2)
    return tuple(desk.queries)


class _Desk:
    """Writes queries one after the other, and knows what has been written."""

    def __init__(self, feeds: tuple[WorldFeed, ...]) -> None:
        self.queries: list[WorldQuery] = []
        self.shops = [feed.name for feed in feeds if feed.numbered]
        self._by_topic = feeds_by_topic(feeds)
        self._topics: dict[str, str] = {}
        self._depths: list[int] = []
        self._taken = {feed.name.lower(): 1 for feed in feeds}

    def open_topic(self, topic: str) -> None:
        """All feeds of a topic, for others to read."""
        feeds = [feed.name for feed in self._by_topic[topic][:12]]
        name = f"{topic.capitalize()}Desk"
        self._topics[topic] = self._create(name, " | ".join(feeds), f"category = {quote(topic)}", feeds)

    def read_feeds(self, where: _Where, suffix: str, start: int, width: int, *, grouped: bool) -> None:
        """A union of feeds that write about the topic, with or without variables."""
        ranked = self._by_topic[where.interest.topic]
        start %= len(ranked)
        sources = [feed.name for feed in ranked[start : start + width]]
        source, condition = " | ".join(sources), where.condition()
        if grouped and len(sources) > 1:
            source, condition = _grouped(sources, where)
        self._create(where.interest.subject + suffix, source, condition, sources)

    def read_topic(self, where: _Where, suffix: str) -> None:
        """A query on a topic's desk."""
        parent = self._topics.get(where.interest.topic, self.queries[0].name)
        self._create(where.interest.subject + suffix, parent, where.condition(), [parent], depth=2)

    def read_shops(self, where: _Where, suffix: str) -> None:
        """Conditions on numbers, on the feeds that have them."""
        start = int(where.first * len(self.shops))
        sources = self.shops[start : start + 3]
        clause = NUMBER_CLAUSES[int(where.second * where.second * len(NUMBER_CLAUSES))]
        parts = (clause,) if where.second < 0.3 else (where.interest.clauses[0], clause)
        self._create(where.interest.subject + suffix, " | ".join(sources), " and ".join(parts), sources)

    def read_query(self, where: _Where) -> None:
        """A view on another query, or on two: what they find, narrowed."""
        index = min(int(len(self.queries) ** where.first), len(self.queries) - 1)
        while self._depths[index] >= _DEEPEST_VIEW:
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
        """The name, or with the next number if it is taken; case does not tell names apart."""
        while True:
            number = self._taken.get(wanted.lower(), 0) + 1
            self._taken[wanted.lower()] = number
            if number == 1:
                return wanted
            # The numbered name may be somebody's plain name: ask again.
            wanted = f"{wanted}{number}"


@dataclass(frozen=True, slots=True)
class _Where:
    """An interest, and two numbers from 0 to 1 for the small choices of one query."""

    interest: Interest
    first: float
    second: float

    def side(self) -> tuple[str, str]:
        """A condition that goes with any topic, and its adjective."""
        return SIDE_CLAUSES[int(self.second * self.second * len(SIDE_CLAUSES))]

    def condition(self) -> str:
        """Mostly the interest as it is, so that conditions repeat; sometimes with one clause more."""
        if self.first < 0.85:
            return self.interest.condition
        return " and ".join(dict.fromkeys((*self.interest.clauses, self.side()[1])))


def _grouped(sources: list[str], where: _Where) -> tuple[str, str]:
    """A group with variables: one feed has a condition of its own, the group has the interest (RoSeS §3.1)."""
    *others, last = sources
    _, side = where.side()
    if where.first < 0.3 and len(others) > 1:
        first, *rest = where.interest.clauses
        inner = f"({' | '.join(others[1:])} | {last} as $one) as $inner"
        outer = f" and $all[{' and '.join(rest)}]" if rest else ""
        return f"({others[0]} | {inner}) as $all", f"$one[{side}] and $inner[{first}]{outer}"
    return f"({' | '.join(others)} | {last} as $one) as $all", f"$one[{side}] and $all[{where.interest.condition}]"


def make_subscriptions(seed: int, queries: tuple[WorldQuery, ...]) -> tuple[WorldSubscription, ...]:
    """One subscription for nearly every query: most read the match log, some tens write files.

    A query without one lives through the views that read it, or is not compiled at all.
    """
    dice = Dice(seed, "subscriptions")
    count = len(queries)
    files = _file_kinds(queries)
    asleep = dice.chances(0.04, count).tolist()
    lasting = dice.chances(0.2, count).tolist()
    found = []
    for index, query in enumerate(queries):
        if index in files:
            kind = files[index]
            target = f"{_kebab(query.name)}.{kind}"
            limit = " for 30 days" if lasting[index] else ""
            statement = f"subscribe to {query.name} output {kind} {quote(target)}{limit};"
            found.append(WorldSubscription(query.name, kind, target, statement))
        elif not asleep[index]:
            found.append(WorldSubscription(query.name, "log", None, f"subscribe to {query.name} output log;"))
    return tuple(found)


def _file_kinds(queries: tuple[WorldQuery, ...]) -> dict[int, str]:
    """Which queries go to a file of which kind: the desks, and others that ask for little and so find much."""
    simple = [
        index
        for index, query in enumerate(queries)
        if " and " not in query.condition and query.condition.startswith(_BROAD)
    ]
    most = min(_MOST_FILES, (len(queries) + 9) // 10, len(simple))
    early = simple[: most // 2]
    later = simple[most // 2 :]
    step = max(1, len(later) // max(1, most - len(early)))
    chosen = early + later[::step][: most - len(early)]
    return {index: _FILE_KINDS[place % len(_FILE_KINDS)] for place, index in enumerate(chosen)}


def _kebab(name: str) -> str:
    """A file's name from a query's.

    >>> _kebab("CitySports2")
    'city-sports2'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
