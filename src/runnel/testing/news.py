"""The items of a world: sentences from a small grammar, stories that many feeds report, and later edits.

In: feeds and a seed. Out: `WorldItem`s in order of appearance, each with the edition in which it is published. All
draws are made at once as arrays; only the sentences are put together one by one.
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
    """One version of one item. `markup` is the description in HTML, where the feed sends HTML."""

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
        """The same as an item of the model: what its document says, without the forms that only documents have."""
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
    """What was drawn for every original item: one array element, or row, per item."""

    feed: Integers
    topic: Integers
    seconds: Integers
    breaking: Booleans
    words: dict[str, Integers]


def make_items(seed: int, feeds: tuple[WorldFeed, ...], count: int, editions: int) -> tuple[WorldItem, ...]:
    """`count` item versions, some of them edits of earlier ones, in order of edition and time."""
    edits = int(count * _EDITED) if editions > 1 else 0
    originals = count - edits
    dice = Dice(seed, "items")
    draws = _draw(dice, feeds, originals)
    order = np.argsort(draws.seconds, kind="stable")
    edition = np.empty(originals, dtype=np.int64)
    edition[order] = np.arange(originals) * editions // max(originals, 1) + 1
    found = _originals(dice, feeds, draws, edition)
    early = np.flatnonzero(edition < editions)
    chosen = early[dice.shuffled(len(early))[:edits]].tolist()
    everything = found + [_edited(found[index]) for index in chosen]
    everything.sort(key=lambda item: (item.edition, item.updated or item.published, item.id))
    return tuple(everything)


def _draw(dice: Dice, feeds: tuple[WorldFeed, ...], count: int) -> _Draws:
    feed = dice.ranks(len(feeds), count, 0.6)
    steps = np.cumsum(topic_shares(feeds), axis=1)
    topic = (dice.uniforms(count)[:, None] >= steps[feed][:, :-1]).sum(axis=1)
    seconds = _moments(dice, count)
    words = {name: _slots(dice, name, count) for name in _SIZES}
    # Breaking stories: a story fixes topic, time and who, where and what; the feeds differ in words.
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
    """A rank of popularity for each sentence of each item; one more, for patterns that name two."""
    width = _SENTENCES_EACH + 1
    return dice.ranks(_SIZES[name], count * width, 0.9).reshape(count, width)


def _moments(dice: Dice, count: int) -> Integers:
    """Seconds since the start, with quiet nights and weekends."""
    day, hour = dice.weighted(_DAILY, count), dice.weighted(_HOURLY, count)
    return day * 86400 + hour * 3600 + dice.below(3600, count)


def _originals(dice: Dice, feeds: tuple[WorldFeed, ...], draws: _Draws, edition: Integers) -> list[WorldItem]:
    count = len(edition)
    author = dice.ranks(len(people()), count, 0.4).tolist()
    section = dice.ranks(5, count, 0.7).tolist()
    price = (dice.ranks(400, count, 0.5) * 0.25 + 2).tolist()
    rating = (dice.weighted((1, 2, 4, 7, 10, 12, 10, 6, 4), count) / 2 + 1).tolist()
    seconds, breaking, edits = draws.seconds.tolist(), draws.breaking.tolist(), edition.tolist()
    feed_of, topic_of = draws.feed.tolist(), draws.topic.tolist()
    found = []
    for index, (title, description, markup) in enumerate(_texts(dice, draws)):
        feed, topic = feeds[feed_of[index]], TOPICS[topic_of[index]]
        categories = (topic.name, topic.sections[section[index]])
        site = feed.link
        found.append(
            WorldItem(
                feed.name,
                f"{site}#{index + 1}",
                1,
                edits[index],
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
    return found


def _texts(dice: Dice, draws: _Draws) -> Iterator[tuple[str, str, str | None]]:
    """Title, description, and the description's HTML where it has some, of every item."""
    count = len(draws.topic)
    headline = dice.below(len(HEADLINES) + 2, count).tolist()
    sentences = dice.below(len(SENTENCES), count * 3).reshape(count, 3).tolist()
    length = dice.weighted((2, 5, 4), count).tolist()
    flavour = dice.uniforms(count).tolist()
    number = (dice.ranks(90, count * _SENTENCES_EACH, 0.8) + 2).reshape(count, _SENTENCES_EACH).tolist()
    words = {name: ranks.tolist() for name, ranks in draws.words.items()}
    for index, topic_index in enumerate(draws.topic.tolist()):
        topic = TOPICS[topic_index]
        row = {name: ranks[index] for name, ranks in words.items()}
        patterns = HEADLINES + topic.headlines
        title = _sentence(patterns[headline[index]], topic, row, 0, number[index][0])
        parts = [
            _sentence(SENTENCES[pattern], topic, row, place + 1 if place else 0, number[index][place + 1])
            for place, pattern in enumerate(sentences[index][: length[index] + 1])
        ]
        yield _decorated(topic, title, parts, flavour[index], index)


def _sentence(pattern: str, topic: Topic, row: dict[str, list[int]], place: int, number: int) -> str:
    nouns = topic.nouns
    text = pattern.format(
        person=people()[row["person"][place]],
        place=places()[row["place"][place]],
        place2=places()[row["place"][place + 1]],
        company=companies()[row["company"][place]],
        company2=companies()[row["company"][place + 1]],
        rare=rarities()[row["rare"][place]],
        noun=nouns[row["noun"][place]],
        noun2=nouns[row["noun"][place + 1]],
        adjective=topic.adjectives[row["adjective"][place]],
        verb=topic.verbs[row["verb"][place]],
        number=number,
    )
    return text[0].upper() + text[1:]


def _decorated(topic: Topic, title: str, parts: list[str], flavour: float, index: int) -> tuple[str, str, str | None]:
    """Some texts get an emoji, a phrase without spaces between words, or HTML."""
    if flavour < 0.03:
        title = f"{title} {topic.emoji}"
    elif flavour < 0.06:
        parts = [*parts, f"{topic.unspaced[index % len(topic.unspaced)]}。"]
    elif flavour < 0.26:
        first, *others = parts
        marked = "".join(f"<p>{part}</p>" for part in others)
        picture = f'<img src="https://pictures.example/{index + 1}.jpg" alt="">'
        return title, " ".join(parts), f"<p><b>{first}</b></p>{marked}{picture}"
    return title, " ".join(parts), None


def _edited(item: WorldItem) -> WorldItem:
    """The next version: a changed title, one more sentence, in the edition after the original's."""
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
