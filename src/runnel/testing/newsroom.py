"""Generate the feeds of a world and their topics.

In: a seed and a number of feeds. Out: `WorldFeed`s in five formats, some general and some with a main topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from runnel.testing.dice import Dice, Floats
from runnel.testing.world_words import PAPER_KINDS, PAPER_PLACES, TOPICS

Format = Literal["rss", "rdf", "atom", "json", "jsonl"]
"""RSS 2.0, RSS 1.0, Atom, JSON Feed, and JSON lines."""

_FORMATS: tuple[Format, ...] = ("rss", "atom", "jsonl", "rss", "json", "rdf", "rss", "atom", "jsonl", "rss")
_GENERAL_EVERY = 3
_SHARES = (0.55, 0.2, 0.1)


@dataclass(frozen=True, slots=True)
class WorldFeed:
    """A source feed: its name in statements, title, description and format, and its topics, main ones first."""

    name: str
    title: str
    description: str
    link: str
    format: Format
    topics: tuple[str, ...]

    @property
    def numbered(self) -> bool:
        """Whether the items have a price and a rating, which is the case for feeds in JSON lines."""
        return self.format == "jsonl"


def make_feeds(seed: int, count: int) -> tuple[WorldFeed, ...]:
    """Generate the feeds of a world. Every third feed is general.

    >>> [feed.name for feed in make_feeds(7, 3)] == [feed.name for feed in make_feeds(7, 3)]
    True
    """
    dice = Dice(seed, "feeds")
    names = _names(dice, count)
    orders = [dice.shuffled(len(TOPICS)).tolist() for _ in range(count)]
    return tuple(_feed(index, name, order) for index, (name, order) in enumerate(zip(names, orders, strict=True)))


def _names(dice: Dice, count: int) -> list[str]:
    pairs = [place + kind for place in PAPER_PLACES for kind in PAPER_KINDS]
    order = [pairs[index] for index in dice.shuffled(len(pairs)).tolist()]
    return [
        order[index % len(order)] + (str(index // len(order) + 1) if index >= len(order) else "")
        for index in range(count)
    ]


def _feed(index: int, name: str, order: list[int]) -> WorldFeed:
    topics = [TOPICS[topic].name for topic in order]
    title = "".join(f" {letter}" if letter.isupper() else letter for letter in name).strip()
    if index % _GENERAL_EVERY == 0:
        about = "news of every kind, all day"
    else:
        # Assign main topics in turn, so that even a small world has a feed for most of them.
        main = TOPICS[index % len(TOPICS)].name
        topics.remove(main)
        topics.insert(0, main)
        title = f"{title}: {main.capitalize()}"
        about = f"mostly {main}, with some {topics[1]} and {topics[2]}"
    return WorldFeed(
        name,
        title,
        f"{title}: {about}.",
        f"https://{name.lower()}.example/",
        _FORMATS[index % len(_FORMATS)],
        tuple(topics),
    )


def general_feeds(feeds: tuple[WorldFeed, ...]) -> tuple[WorldFeed, ...]:
    """Return the feeds without a main topic.

    >>> [feed.name for feed in general_feeds(make_feeds(7, 4))]
    ['CastleChronicle', 'QuarryReview']
    """
    return feeds[::_GENERAL_EVERY]


def topic_shares(feeds: tuple[WorldFeed, ...]) -> Floats:
    """Return the fraction of items of each feed (row) about each topic (column)."""
    columns = {topic.name: column for column, topic in enumerate(TOPICS)}
    shares = np.full((len(feeds), len(TOPICS)), (1 - sum(_SHARES)) / len(TOPICS))
    for row, feed in enumerate(feeds):
        if row % _GENERAL_EVERY == 0:
            shares[row] = 1 / len(TOPICS)
            continue
        for share, topic in zip(_SHARES, feed.topics, strict=False):
            shares[row, columns[topic]] += share
    return shares


def feeds_by_topic(feeds: tuple[WorldFeed, ...]) -> dict[str, list[WorldFeed]]:
    """Return all feeds for each topic, those with the most items about it first."""
    shares = topic_shares(feeds)
    ranked = {}
    for column, topic in enumerate(TOPICS):
        order = np.argsort(-shares[:, column], kind="stable").tolist()
        ranked[topic.name] = [feeds[row] for row in order]
    return ranked
