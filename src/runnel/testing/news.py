"""Generate the items of a world: sentences from a small grammar, stories that many feeds report, and later edits.

In: feeds and a seed. Out: `WorldItem`s in order of appearance, each with the edition in which it is published. Random
numbers are drawn as arrays. Only the sentences are assembled one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from runnel.model.item import Item, Value
from runnel.testing.dice import Booleans, Dice, Integers
from runnel.testing.newsroom import WorldFeed, topic_shares
from runnel.testing.world_words import HEADLINES, SENTENCES, TOPICS, Topic, companies, people, places, rarities

START = datetime(2026, 11, 2, tzinfo=UTC)
"""The first day, a Monday."""

DAYS = 7
_HOURLY = (1, 1, 1, 1, 2, 5, 9, 12, 14, 13, 11, 10, 11, 10, 9, 9, 10, 12, 13, 11, 8, 6, 4, 2)
_DAILY = (10, 11, 10, 11, 10, 6, 5)
_BREAKING = 0.2
_EDITED = 0.03


@dataclass(frozen=True, slots=True)
class WorldItem:
    """An item version. `markup` is the description in HTML, or None if the document contains plain text."""

    feed: str
    id: str
    version: int
    edition: int
    title: str
    description: str
    markup: str | None
    link: str
    author: str
    categories: tuple[str, ...]
    published: datetime
    updated: datetime | None = None
    numbers: tuple[tuple[str, float], ...] = ()

    def as_item(self) -> Item:
        """Return the item as a model item, without attributes that only documents produce, such as HTML."""
        attributes: dict[str, tuple[Value, ...]] = {
            "title": (self.title,),
            "description": (self.description,),
            "link": (self.link,),
            "author": (self.author,),
            "category": self.categories,
            "published": (self.published,),
        }
        if self.updated is not None:
            attributes["updated"] = (self.updated,)
        attributes.update((name, (number,)) for name, number in self.numbers)
        return Item(self.feed, self.id, attributes, self.version)


@dataclass(frozen=True, slots=True)
class _Draws:
    """The random choices for the original items: one array element, or one row, per item."""

    feed: Integers
    topic: Integers
    seconds: Integers
    breaking: Booleans
    words: dict[str, Integers]


def make_items(seed: int, feeds: tuple[WorldFeed, ...], count: int, editions: int) -> tuple[WorldItem, ...]:
    """Generate `count` item versions, some of them edits of earlier items, in order of edition and time."""
    edits = int(count * _EDITED) if editions > 1 else 0
    originals = count - edits
    dice = Dice(seed, "items")
    draws = _draw(dice, feeds, originals)
    order = np.argsort(draws.seconds, kind="stable")
    edition = np.empty(originals, dtype=np.int64)
    edition[order] = np.arange(originals) * editions // max(originals, 1) + 1
    items = _make_originals(dice, feeds, draws, edition)
    early = np.flatnonzero(edition < editions)
    chosen = early[dice.shuffled(len(early))[:edits]].tolist()
    versions = items + [_edited(items[index]) for index in chosen]
    versions.sort(key=lambda item: (item.edition, item.updated or item.published, item.id))
    return tuple(versions)


def _draw(dice: Dice, feeds: tuple[WorldFeed, ...], count: int) -> _Draws:
    feed = dice.ranks(len(feeds), count, 0.6)
    steps = np.cumsum(topic_shares(feeds), axis=1)
    topic = (dice.uniforms(count)[:, None] >= steps[feed][:, :-1]).sum(axis=1)
    seconds = _moments(dice, count)
    words = {name: _slots(dice, name, count) for name in _SIZES}
    # Breaking news: all items about a story share its topic, time, person, place and subject, but differ in wording.
    breaking = dice.chances(_BREAKING, count)
    stories = max(3, count // 60)
    story = dice.ranks(stories, count, 0.8)
    delay = (-np.log1p(-dice.uniforms(count)) * 5400).astype(np.int64)
    story_topic, story_time = dice.below(len(TOPICS), stories), _moments(dice, stories)
    topic = np.where(breaking, story_topic[story], topic)
    seconds = np.where(breaking, np.minimum(story_time[story] + delay, DAYS * 86400 - 1), seconds)
    for name in ("person", "place", "company", "noun", "adjective", "rare"):
        own = _slots(dice, name, stories)
        words[name][breaking, 0] = own[story[breaking], 0]
    return _Draws(feed, topic, seconds, breaking, words)


_SENTENCES_EACH = 4
_SIZES = {
    "person": len(people()),
    "place": len(places()),
    "company": len(companies()),
    "rare": len(rarities()),
    "noun": min(len(topic.nouns) for topic in TOPICS),
    "adjective": min(len(topic.adjectives) for topic in TOPICS),
    "verb": min(len(topic.verbs) for topic in TOPICS),
}


def _slots(dice: Dice, name: str, count: int) -> Integers:
    """Draw a rank for each sentence of each item, and one more per item for patterns with two names of a kind."""
    width = _SENTENCES_EACH + 1
    return dice.ranks(_SIZES[name], count * width, 0.9).reshape(count, width)


def _moments(dice: Dice, count: int) -> Integers:
    """Draw seconds since the start, with fewer items at night and on weekends."""
    day, hour = dice.weighted(_DAILY, count), dice.weighted(_HOURLY, count)
    return day * 86400 + hour * 3600 + dice.below(3600, count)


def _make_originals(dice: Dice, feeds: tuple[WorldFeed, ...], draws: _Draws, edition: Integers) -> list[WorldItem]:
    count = len(edition)
    author = dice.ranks(len(people()), count, 0.4).tolist()
    section = dice.ranks(5, count, 0.7).tolist()
    price = (dice.ranks(400, count, 0.5) * 0.25 + 2).tolist()
    rating = (dice.weighted((1, 2, 4, 7, 10, 12, 10, 6, 4), count) / 2 + 1).tolist()
    seconds, breaking, editions = draws.seconds.tolist(), draws.breaking.tolist(), edition.tolist()
    feed_of, topic_of = draws.feed.tolist(), draws.topic.tolist()
    items = []
    for index, (title, description, markup) in enumerate(_texts(dice, draws)):
        feed, topic = feeds[feed_of[index]], TOPICS[topic_of[index]]
        categories = (topic.name, topic.sections[section[index]])
        site = feed.link
        items.append(
            WorldItem(
                feed.name,
                f"{site}#{index + 1}",
                1,
                editions[index],
                title,
                description,
                markup,
                f"{site}{topic.name}/{index + 1}",
                people()[author[index]],
                (*categories, "breaking") if breaking[index] else categories,
                START + timedelta(seconds=seconds[index]),
                None,
                (("price", price[index]), ("rating", rating[index])) if feed.numbered else (),
            )
        )
    return items


def _texts(dice: Dice, draws: _Draws) -> Iterator[tuple[str, str, str | None]]:
    """Yield the title, the description, and the description as HTML or None, of every item."""
    count = len(draws.topic)
    headline = dice.below(len(HEADLINES) + 2, count).tolist()
    sentences = dice.below(len(SENTENCES), count * 3).reshape(count, 3).tolist()
    length = dice.weighted((2, 5, 4), count).tolist()
    variant = dice.uniforms(count).tolist()
    number = (dice.ranks(90, count * _SENTENCES_EACH, 0.8) + 2).reshape(count, _SENTENCES_EACH).tolist()
    words = {name: ranks.tolist() for name, ranks in draws.words.items()}
    for index, topic_index in enumerate(draws.topic.tolist()):
        topic = TOPICS[topic_index]
        row = {name: ranks[index] for name, ranks in words.items()}
        patterns = HEADLINES + topic.headlines
        title = _sentence(patterns[headline[index]], topic, row, 0, number[index][0])
        parts = [
            _sentence(SENTENCES[pattern], topic, row, position + 1 if position else 0, number[index][position + 1])
            for position, pattern in enumerate(sentences[index][: length[index] + 1])
        ]
        yield _decorate(topic, title, parts, variant[index], index)


def _sentence(pattern: str, topic: Topic, row: dict[str, list[int]], slot: int, number: int) -> str:
    nouns = topic.nouns
    text = pattern.format(
        person=people()[row["person"][slot]],
        place=places()[row["place"][slot]],
        place2=places()[row["place"][slot + 1]],
        company=companies()[row["company"][slot]],
        company2=companies()[row["company"][slot + 1]],
        rare=rarities()[row["rare"][slot]],
        noun=nouns[row["noun"][slot]],
        noun2=nouns[row["noun"][slot + 1]],
        adjective=topic.adjectives[row["adjective"][slot]],
        verb=topic.verbs[row["verb"][slot]],
        number=number,
    )
    return text[0].upper() + text[1:]


def _decorate(topic: Topic, title: str, parts: list[str], variant: float, index: int) -> tuple[str, str, str | None]:
    """Add an emoji, a phrase without spaces between words, or HTML to some texts."""
    if variant < 0.03:
        title = f"{title} {topic.emoji}"
    elif variant < 0.06:
        parts = [*parts, f"{topic.unspaced[index % len(topic.unspaced)]}。"]
    elif variant < 0.26:
        first, *others = parts
        marked = "".join(f"<p>{part}</p>" for part in others)
        picture = f'<img src="https://pictures.example/{index + 1}.jpg" alt="">'
        return title, " ".join(parts), f"<p><b>{first}</b></p>{marked}{picture}"
    return title, " ".join(parts), None


def _edited(item: WorldItem) -> WorldItem:
    """Return the next version, with a changed title and one more sentence, in the edition after the original's."""
    more = f"This report about {item.categories[0]} was corrected and extended."
    return replace(
        item,
        version=2,
        edition=item.edition + 1,
        title=f"Update: {item.title}",
        description=f"{item.description} {more}",
        markup=None if item.markup is None else f"{item.markup}<p><i>{more}</i></p>",
        updated=item.published + timedelta(hours=5, minutes=len(item.title)),
    )
