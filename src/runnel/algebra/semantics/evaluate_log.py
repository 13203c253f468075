"""The reference evaluator for a whole log: the feeds of each item, including the effect of gates, and annotations.

`accepts` evaluates one item alone, but a gate also depends on earlier items. This slow and short evaluator passes all
items through the gates in order; matching and commits are tested against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from runnel.algebra.nodes.gate_rules import LoggedItem, Stop
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, Union
from runnel.algebra.semantics.evaluate import accepts, views_below

Annotations = Mapping[int, tuple[int, ...]]
"""By the feed of a gate, the sequences of the items with which it annotates an item, the newest first."""


@dataclass(frozen=True, slots=True)
class EvaluatedItem:
    """The feeds that an item is in, the feeds whose gates stopped it, and its annotations in each feed."""

    item: LoggedItem
    feeds: frozenset[int]
    stopped: Mapping[int, Stop]
    annotations: Mapping[int, Annotations] = field(default_factory=dict)


def evaluate_log(
    items: Iterable[LoggedItem], definitions: Mapping[int, Node], since: Mapping[int, int]
) -> Iterator[EvaluatedItem]:
    """Evaluate virtual feeds on items in the order of their sequences.

    `since` maps each feed to evaluate to the sequence after which it starts. The gate of a feed that these feeds read
    starts at the beginning of the log. So do windows and joins, because a window reaches back before the feeds that
    read it.

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
    windows: dict[Node, list[LoggedItem]] = {node.window: [] for _, node in gated if node.window is not None}
    for item in items:
        evaluation = _ItemEvaluation(item, definitions)
        for view, node in gated:
            is_started = item.sequence > since.get(view, 0) or node.window is not None
            if is_started and evaluation.reaches(node.input):
                answer = histories[view].add(item, windows[node.window] if node.window is not None else ())
                if isinstance(answer, Stop):
                    evaluation.stopped[view] = answer
                elif answer.annotation:
                    evaluation.joined[view] = answer.annotation
        for window, earlier in windows.items():
            if evaluation.reaches(window):
                earlier.append(item)
        feeds = [feed for feed, start in since.items() if item.sequence > start and evaluation.reaches(Read(feed))]
        annotated = evaluation.annotate(views)
        annotations = {feed: annotated[feed] for feed in feeds if annotated.get(feed)}
        yield EvaluatedItem(item, frozenset(feeds), evaluation.stopped, annotations)


@dataclass(frozen=True, slots=True)
class _ItemEvaluation:
    """One item: the gates that stopped it so far, and the annotations that gates gave it."""

    item: LoggedItem
    definitions: Mapping[int, Node]
    stopped: dict[int, Stop] = field(default_factory=dict)
    joined: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def reaches(self, node: Node) -> bool:
        """Return whether the item is in the output of a node, as far as its gates were evaluated."""
        item = self.item
        return accepts(node, item.feed, item.attributes, self.definitions, item.accepted, self.stopped)

    def annotate(self, views: Iterable[int]) -> dict[int, Annotations]:
        """Return the annotations of the item in each view that it reaches. Each view comes after those it reads."""
        known: dict[int, Annotations] = {}
        for view in views:
            own = {view: self.joined[view]} if view in self.joined else {}
            known[view] = {**own, **self._annotations(self.definitions[view], known)}
        return known

    def _annotations(self, node: Node, known: Mapping[int, Annotations]) -> Annotations:
        """Return the annotations of the item in the output of a node that it reaches, given those of the views."""
        match node:
            case Union(inputs):
                annotated = ((branch, self._annotations(branch, known)) for branch in inputs)
                return {
                    gate: joined
                    for branch, annotations in annotated
                    if annotations and self.reaches(branch)
                    for gate, joined in annotations.items()
                }
            case Filter(inner, _) | Gated(inner, _):
                return self._annotations(inner, known)
            case Read(feed):
                return known.get(feed, {})
            case _:
                return {}
