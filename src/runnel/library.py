"""Matching as a library, without a workspace and without Spark: `runnel.compile(statements).match(items)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from runnel.algebra.nodes.query import Node, Read, ReadAll, Union, expand_groups, reads, with_hidden_feeds
from runnel.errors import CyclicFeedsError, DuplicateNameError, Span, StatementError, UnknownNameError
from runnel.language.binding.bind_query import bind_query
from runnel.language.grammar.parser import parse
from runnel.language.syntax.parameters import Parameters, ParameterValue
from runnel.language.syntax.statements import CreateFeed, RegisterFeed
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.temporary_plan import TemporaryPlan
from runnel.matching.contract import Matcher
from runnel.matching.gates.ordered_matcher import OrderedMatcher
from runnel.model.annotation import JoinedItems, unite_annotations
from runnel.model.item import Item, attributes_of, moment
from runnel.model.item_batch import ItemBatch
from runnel.plan.logical_plan import PlanQuery


@dataclass(frozen=True, slots=True)
class AnnotatedMatch:
    """A query that an item matches, and the earlier items that the item joins, by the names of the query's joins."""

    query: str
    joined: Mapping[str, JoinedItems]


class CompiledPlan:
    """Queries that `runnel.compile` compiled into one plan.

    The plan consists of memory-mapped arrays in a temporary folder, which is deleted together with this object.
    """

    def __init__(self, sources: Mapping[str, int], names: Mapping[int, str], nodes: Mapping[int, Node]) -> None:
        self._sources = dict(sources)
        self._names = dict(names)
        self._compiled = TemporaryPlan(map(PlanQuery, sorted(names)), nodes)

    @property
    def folder(self) -> str:
        """The folder with the plan's arrays. Other processes on this machine can map them, too."""
        return self._compiled.folder

    def keep_until_exit(self) -> None:
        """Keep the folder until the process ends, for example for a lazy DataFrame that reads it later."""
        self._compiled.keep_until_exit()

    @property
    def sources(self) -> dict[str, int]:
        """The ids in the plan of the source feeds that the queries read, by name."""
        return dict(self._sources)

    @property
    def queries(self) -> dict[int, str]:
        """The names of the queries, by their ids in the plan."""
        return dict(self._names)

    @property
    def gates(self) -> tuple[str, ...]:
        """The clauses whose result depends on earlier items, such as `distinct`, as text."""
        rules = (gate.rule for gate in self._compiled.plan.gates.gates())
        return tuple(dict.fromkeys(rule.render() for rule in rules if not rule.stores_items))

    @cached_property
    def _matcher(self) -> Matcher:
        return build_matcher(self._compiled.plan)

    @cached_property
    def matcher(self) -> Matcher:
        """The matcher of this plan, which matches batches of items in columns (see `batch`).

        Clauses such as `distinct` remember the items of earlier batches, so sequences must ascend from batch to
        batch.
        """
        return OrderedMatcher(self._compiled.plan, self._matcher) if self.gates else self._matcher

    def match(self, items: Iterable[Mapping[str, Any]], *, accepted: datetime | None = None) -> list[list[str]]:
        """Return the names of the queries that each item matches, in the order of declaration.

        An item is a mapping of attributes. If the plan has several source feeds, the attribute `feed` must name the
        source. Relative times (`2 days ago`) count from `accepted`, by default now. Items are matched in their order,
        which matters for gates such as `distinct`. Gates start empty in each call.

        >>> import runnel
        >>> plan = runnel.compile(["create feed Rock from Wire where title contains 'rock'"])
        >>> plan.match([{"title": "Rock am Ring"}, {"title": "Jazz"}])
        [['Rock'], []]
        """
        batch = self.batch(items, accepted=accepted)
        matches = OrderedMatcher(self._compiled.plan, self._matcher).match(batch)
        return [[self._names[int(query)] for query in matches.row(row)] for row in range(len(batch))]

    def match_annotated(
        self, items: Iterable[Mapping[str, Any]], *, accepted: datetime | None = None
    ) -> list[list[AnnotatedMatch]]:
        """Return the queries that each item matches like `match`, with the earlier items that the item joins.

        >>> import runnel
        >>> plan = runnel.compile("create feed F from A as $a join last 9 items on B as $b with $a[n = window.n]")
        >>> _, [match] = plan.match_annotated([{"feed": "B", "id": "b1", "n": 7}, {"feed": "A", "n": 7}])
        >>> match.query, match.joined["b"].count, [item.id for item in match.joined["b"].items]
        ('F', 1, ['b1'])
        """
        batch = self.batch(items, accepted=accepted)
        matcher = OrderedMatcher(self._compiled.plan, self._matcher)
        matches = matcher.match(batch)
        feed_names = {number: name for name, number in self._sources.items()}
        known = {item.sequence or 0: item for item in batch.items(feed_names)}

        def annotated(query: int, sequence: int) -> AnnotatedMatch:
            joined = unite_annotations(matcher.annotations.get((query, sequence), ()), known)
            return AnnotatedMatch(self._names[query], {each.name: each for each in joined})

        sequences = batch.sequences.tolist()
        return [[annotated(query, own) for query in matches.row(row).tolist()] for row, own in enumerate(sequences)]

    def batch(self, items: Iterable[Mapping[str, Any]], *, accepted: datetime | None = None) -> ItemBatch:
        """Convert items to a batch of columns for `matcher`."""
        adapted = [self._item(number, dict(item)) for number, item in enumerate(items, 1)]
        return ItemBatch.of(adapted, self._sources, accepted=moment(accepted or datetime.now(UTC)))

    def _item(self, number: int, raw: dict[str, Any]) -> Item:
        only = next(iter(self._sources)) if len(self._sources) == 1 else None
        feed = raw.pop("feed", None) or only
        if feed not in self._sources:
            known = ", ".join(self._sources)
            raise StatementError(
                f"item {number} does not name a source feed of the plan", hint=f"set `feed` to one of: {known}"
            )
        return Item(feed, str(raw.pop("id", number)), attributes_of(raw, place=f"item {number}"))


def compile(queries: str | Sequence[str], /, **parameters: ParameterValue) -> CompiledPlan:
    """Compile `create feed` statements into one plan. Feeds that no statement creates are source feeds.

    Keyword arguments are the values of parameters such as `:word`, which can replace any constant.

    >>> import runnel
    >>> plan = runnel.compile("create feed Rock from Wire where title contains :word", word="rock'n'roll")
    >>> plan.match([{"title": "Rock'n'Roll lives"}])
    [['Rock']]
    >>> texts = ["create feed Rock from A | B where title contains 'rock'", "create feed Hot from Rock where n > 3"]
    >>> plan = runnel.compile(texts)
    >>> plan.match([{"feed": "B", "title": "rock", "n": 5}])
    [['Rock', 'Hot']]
    """
    texts = [queries] if isinstance(queries, str) else list(queries)
    created: dict[str, tuple[int, CreateFeed, str]] = {}
    registered: dict[str, frozenset[str]] = {}
    values = Parameters(parameters)
    for text in texts:
        for parsed in parse(text, parameters=values):
            match parsed.statement:
                case CreateFeed(name) as statement:
                    if name.text in created:
                        raise DuplicateNameError(f"a feed {name.text} already exists", span=name.span, text=text)
                    created[name.text] = (len(created) + 1, statement, text)
                case RegisterFeed(name, tags=tags):
                    registered[name.text] = frozenset(tags)
                case _:
                    raise StatementError(
                        "`runnel.compile` accepts only `create feed` and `register feed` statements",
                        span=parsed.span,
                        text=text,
                    )
    values.refuse_unused(texts[0] if texts else "", Span(1, 1, 1))
    sources: dict[str, int] = {}

    def resolve(name: str) -> int:
        if name in created:
            return created[name][0]
        return sources.setdefault(name, len(created) + len(sources) + 1)

    nodes: dict[int, Node] = {}
    operators: list[str] = []  # names of operators that a query uses; looking one up always fails
    for number, statement, text in created.values():
        try:
            nodes[number] = bind_query(statement.query, resolve, lambda: (*created, *sources), operators.append)
        except UnknownNameError as error:
            if not operators:
                raise error.located(text) from None
            raise UnknownNameError(
                f"`runnel.compile` does not support operators such as {operators[0]}",
                span=error.span,
                text=text,
                hint="use a workspace: `runnel.connect(path)`, then register the operator and create the feed there",
            ) from None
        except StatementError as error:
            raise error.located(text) from None

    def members(group: ReadAll) -> Node:
        """Return the union of the registered and the named source feeds that have the group's tags."""
        tags_of = {resolve(name): registered.get(name, frozenset()) for name in (*registered, *sources)}
        return Union(tuple(Read(feed) for feed, tags in tags_of.items() if tags.issuperset(group.tags)))

    nodes = {number: expand_groups(node, members) for number, node in nodes.items()}
    _refuse_cycles(nodes, created)
    names = {number: name for name, (number, _, _) in created.items()}
    return CompiledPlan(sources, names, with_hidden_feeds(nodes, len(created) + len(sources) + 1))


def _refuse_cycles(nodes: Mapping[int, Node], created: Mapping[str, tuple[int, CreateFeed, str]]) -> None:
    """Raise CyclicFeedsError if a feed reads itself, by topological sorting."""
    unresolved = {number: {source for source in reads(node) if source in nodes} for number, node in nodes.items()}
    readers: dict[int, list[int]] = {}
    for number, sources in unresolved.items():
        for source in sources:
            readers.setdefault(source, []).append(number)
    ready = [number for number, sources in unresolved.items() if not sources]
    while ready:
        resolved = ready.pop()
        del unresolved[resolved]
        for reader in readers.get(resolved, ()):
            unresolved[reader].discard(resolved)
            if not unresolved[reader]:
                ready.append(reader)
    if unresolved:
        name, (_, statement, text) = next(item for item in created.items() if item[1][0] in unresolved)
        raise CyclicFeedsError(f"{name} would read itself", span=statement.name.span, text=text)
