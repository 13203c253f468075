"""The feeds of a world, and what each of them is about.

In: a seed and a number of feeds. Out: `WorldFeed`s, general papers and papers of one topic, in five formats.
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
    """A source feed: its name in statements, what it says of itself, its format, its topics (main ones first)."""

    name: str
    title: str
    description: str
    link: str
    format: Format
    topics: tuple[str, ...]

    @property
    def numbered(self) -> bool:
        """Whether its items carry a price and a rating: those of JSON lines do."""
        return self.format == "jsonl"


def make_feeds(seed: int, count: int) -> tuple[WorldFeed, ...]:
    """The feeds of a world; every third one is a general paper.

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
    topics = [TOPICS[one].name for one in order]
    title = "".join(f" {letter}" if letter.isupper() else letter for letter in name).strip()
    if index % _GENERAL_EVERY == 0:
        about = "news of every kind, all day"
    else:
        # Topics take turns, so that even a small world has a paper for most of them.
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


def topic_shares(feeds: tuple[WorldFeed, ...]) -> Floats:
    """How often each feed (row) writes about each topic (column)."""
    places = {topic.name: column for column, topic in enumerate(TOPICS)}
    shares = np.full((len(feeds), len(TOPICS)), (1 - sum(_SHARES)) / len(TOPICS))
    for row, feed in enumerate(feeds):
        if row % _GENERAL_EVERY == 0:
            shares[row] = 1 / len(TOPICS)
            continue
        for share, topic in zip(_SHARES, feed.topics, strict=False):
            shares[row, places[topic]] += share
    return shares


def feeds_by_topic(feeds: tuple[WorldFeed, ...]) -> dict[str, list[WorldFeed]]:
    """For each topic all feeds, those that write most about it first."""
    shares = topic_shares(feeds)
    found = {}
    for column, topic in enumerate(TOPICS):
        order = np.argsort(-shares[:, column], kind="stable").tolist()
        found[topic.name] = [feeds[row] for row in order]
    return found
