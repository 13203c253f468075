"""OPML: import lists of web feeds as source feeds, and export them."""

from __future__ import annotations

from runnel.catalog.declared import feeds, tags
from runnel.engine.answers import ImportedFeeds
from runnel.engine.engine import Engine
from runnel.errors import InputError
from runnel.language.printing import print_script
from runnel.language.syntax.statements import Name, RegisterFeed
from runnel.language.syntax.tag_names import MAX_TAG_LENGTH, MAX_TAGS, fold_tag
from runnel.model.feed import Feed
from runnel.net.http_client import check_url
from runnel.sources.feed_address import is_web
from runnel.sources.opml import OpmlFeed, feed_names, read_opml, write_opml


def import_feeds(engine: Engine, data: bytes) -> ImportedFeeds:
    """Register the web feeds of a list in one transaction. Addresses that are already registered are skipped."""
    listed = read_opml(data)
    known = {feed.address for feed in _web_feeds(engine)}
    skipped = sum(feed.address in known for feed in listed.feeds)
    fresh, problems = _usable(engine, [feed for feed in listed.feeds if feed.address not in known])
    names = feed_names(fresh, _names_in_use(engine))
    statements = [
        RegisterFeed(Name(name), feed.address, title=feed.title, home=feed.home or None, tags=tags_of_folders(feed))
        for name, feed in zip(names, fresh, strict=True)
    ]
    engine.execute(print_script(statements))
    problems = [str(problem) for problem in listed.problems] + problems
    return ImportedFeeds(names, skipped, problems, list(listed.repairs))


def tags_of_folders(feed: OpmlFeed) -> tuple[str, ...]:
    """Return the folders and categories of a feed as tags.

    >>> tags_of_folders(OpmlFeed("Muse", "https://muse.example/rss", ("Music", "Rock"), categories=("/Music/Live",)))
    ('live', 'music', 'rock')
    """
    words = (*feed.folders, *(part for category in feed.categories for part in category.split("/")))
    tags = {fold_tag(word)[:MAX_TAG_LENGTH].strip() for word in words}
    return tuple(sorted(tag for tag in tags if tag)[:MAX_TAGS])


def _usable(engine: Engine, listed: list[OpmlFeed]) -> tuple[list[OpmlFeed], list[str]]:
    """Return the feeds with allowed addresses, and the problems of the others, which would fail the transaction."""
    usable: list[OpmlFeed] = []
    problems: list[str] = []
    for feed in listed:
        try:
            check_url(feed.address, engine.workspace.settings.allowed_addresses)
            usable.append(feed)
        except InputError as error:
            problems.append(str(error))
    return usable, problems


def export_feeds(engine: Engine) -> bytes:
    """Export the actor's own web feeds as OPML: a folder for the first tag of each, and all tags as categories.

    Tags do not keep the order of the folders from which they came, so only one folder can be exported.
    """
    web_feeds = _web_feeds(engine)
    with engine.workspace.catalog.read() as connection:
        tagged = tags.tags_of(connection, [feed.id for feed in web_feeds])
    listed = [
        OpmlFeed(
            feed.title or feed.name,
            feed.address or "",
            tagged.get(feed.id, ())[:1],
            feed.home or "",
            tagged.get(feed.id, ()),
        )
        for feed in web_feeds
    ]
    return write_opml(sorted(listed, key=lambda feed: feed.folders))


def _web_feeds(engine: Engine) -> list[Feed]:
    with engine.workspace.catalog.read() as connection:
        live = feeds.live_feeds(connection, engine.actor.owner)
    own = [feed for feed in live if feed.owner == engine.actor.owner]
    return [feed for feed in own if feed.address is not None and is_web(feed.address)]


def _names_in_use(engine: Engine) -> list[str]:
    with engine.workspace.catalog.read() as connection:
        return feeds.live_names(connection, engine.actor.owner)
