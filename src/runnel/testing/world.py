"""Generate a world of news from a seed: feeds, items in editions, standing queries and subscriptions.

In: a seed and sizes. Out: a `World`, its script of declarations, and its documents in a folder. `make demo`, tests
and benchmarks use such worlds. The same seed and sizes give the same bytes on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runnel.algebra.nodes.render import quote
from runnel.model.item import Item
from runnel.testing.editions import EXTENSIONS, render_document
from runnel.testing.news import WorldItem, make_items
from runnel.testing.newsroom import WorldFeed, make_feeds
from runnel.testing.readers import WorldQuery, WorldSubscription, make_queries, make_subscriptions

EDITIONS = 6
SCRIPT_NAME = "world.runnel"


@dataclass(frozen=True, slots=True)
class World:
    """Generated feeds, items, queries and subscriptions. `items` are item versions in order of edition and time."""

    seed: int
    editions: int
    feeds: tuple[WorldFeed, ...]
    items: tuple[WorldItem, ...]
    queries: tuple[WorldQuery, ...]
    subscriptions: tuple[WorldSubscription, ...]

    @classmethod
    def generate(
        cls, seed: int = 7, feeds: int = 40, items: int = 4000, queries: int = 3000, editions: int = EDITIONS
    ) -> World:
        """Generate the world of a seed. Sizes are exact. About one item in thirty is a later version of another.

        >>> world = World.generate(feeds=4, items=100, queries=50)
        >>> len(world.feeds), len(world.items), len(world.queries)
        (4, 100, 50)
        """
        if seed < 0 or feeds < 1 or items < 0 or queries < 0 or editions < 1:
            raise ValueError("a world needs at least one feed and one edition, and no number may be negative")
        world_feeds = make_feeds(seed, feeds)
        world_queries = make_queries(seed, world_feeds, queries)
        return cls(
            seed,
            editions,
            world_feeds,
            make_items(seed, world_feeds, items, editions),
            world_queries,
            make_subscriptions(seed, world_queries),
        )

    def script(self) -> str:
        """Return all declarations: feeds, queries and subscriptions. Each feed is a drop folder of the workspace.

        >>> print(World.generate(feeds=1, items=1, queries=0).script().splitlines()[1])
        register feed 'feeds/CastleChronicle' as CastleChronicle;
        """
        lines = [f"-- A world of news (seed {self.seed}, feeds: {len(self.feeds)}, queries: {len(self.queries)})"]
        lines += [f"register feed {quote(f'feeds/{feed.name}')} as {feed.name};" for feed in self.feeds]
        lines += [query.statement for query in self.queries]
        lines += [subscription.statement for subscription in self.subscriptions]
        return "\n".join(lines) + "\n"

    def edition(self, number: int) -> dict[str, list[WorldItem]]:
        """Return the items of an edition (from 1) by feed, oldest first. Feeds without items are left out."""
        items: dict[str, list[WorldItem]] = {}
        for item in self.items:
            if item.edition == number:
                items.setdefault(item.feed, []).append(item)
        return items

    def model_items(self) -> Iterator[Item]:
        """Return all items as model items, without rendering documents, for tests and benchmarks of matching."""
        return (item.as_item() for item in self.items)

    def write(self, folder: Path) -> list[Path]:
        """Write the script and all editions: `edition-1/feeds/<Name>/edition-1.rss` and so on.

        Copying an edition's folder into a workspace publishes that edition.
        """
        folder.mkdir(parents=True, exist_ok=True)
        written = [_write(folder / SCRIPT_NAME, self.script())]
        for number in range(1, self.editions + 1):
            written += self.write_edition(number, folder / f"edition-{number}")
        return written

    def write_edition(self, number: int, folder: Path) -> list[Path]:
        """Write one edition's documents into the drop folders `feeds/<Name>/` of a folder, such as a workspace."""
        written = []
        news = self.edition(number)
        for feed in self.feeds:
            if feed.name in news:
                drop = folder / "feeds" / feed.name
                drop.mkdir(parents=True, exist_ok=True)
                path = drop / f"edition-{number}.{EXTENSIONS[feed.format]}"
                written.append(_write(path, render_document(feed, news[feed.name])))
        return written


def _write(path: Path, text: str) -> Path:
    # A runner may be reading the drop folder, so the document appears atomically, by a rename.
    partial = path.with_name(path.name + ".part")
    partial.write_text(text, encoding="utf-8", newline="\n")
    return partial.replace(path)
