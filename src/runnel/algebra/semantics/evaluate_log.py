"""The reference evaluator for a whole log: the feeds of each item, including the effect of gates.

`accepts` evaluates one item alone, but a gate also depends on earlier items. This slow and short evaluator passes all
items through the gates in order; matching and commits are tested against it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from runnel.algebra.nodes.gate_rules import LoggedItem, Stop
from runnel.algebra.nodes.query import Gated, Node, Read, Union
from runnel.algebra.semantics.evaluate import accepts, views_below


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The feeds that an item is in, and the feeds whose gates stopped it."""

    item: LoggedItem
    feeds: frozenset[int]
    stopped: Mapping[int, Stop]


def evaluate_log(
    items: Iterable[LoggedItem], definitions: Mapping[int, Node], since: Mapping[int, int]
) -> Iterator[Evaluated]:
    """Evaluate virtual feeds on items in the order of their sequences.

    `since` maps each feed to evaluate to the sequence after which it starts. The gate of a feed that these feeds read
    starts at the beginning of the log.

    >>> from datetime import UTC, datetime, timedelta
    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> from runnel.algebra.semantics.distinct import Distinct
    >>> news = {2: Gated(Read(1), Distinct((Attribute("title"),), timedelta(days=2)))}
    >>> days = [LoggedItem(n, datetime(2026, 11, n, tzinfo=UTC), 1, str(n), {"title": ("Muse",)}) for n in (1, 2, 4)]
    >>> [sorted(evaluated.feeds) for evaluated in evaluate_log(days, news, {2: 0})]
    [[2], [], [2]]
    """
    views = views_below(Union(tuple(map(Read, since))), definitions)
    gated = [(view, node) for view in views if isinstance(node := definitions[view], Gated)]
    histories = {view: node.rule.history() for view, node in gated}
    for item in items:
        stopped: dict[int, Stop] = {}
        for view, node in gated:
            if item.sequence <= since.get(view, 0) or not _reaches(node.input, item, definitions, stopped):
                continue
            stop = histories[view].add(item)
            if stop is not None:
                stopped[view] = stop
        feeds = {
            feed
            for feed, start in since.items()
            if item.sequence > start and _reaches(Read(feed), item, definitions, stopped)
        }
        yield Evaluated(item, frozenset(feeds), stopped)


def _reaches(node: Node, item: LoggedItem, definitions: Mapping[int, Node], stopped: Collection[int]) -> bool:
    return accepts(node, item.feed, item.attributes, definitions, item.accepted, stopped)
