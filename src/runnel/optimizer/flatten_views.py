"""Pass.

Replace every view by its definition, so that queries read source feeds only (RoSeS §4.3, normalisation).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from runnel.algebra.query import Filter, Node, Read, Union
from runnel.errors import CyclicFeeds
from runnel.optimizer.draft import Draft, FlatFilter, FlatNodes, FlatRead, FlatUnion
from runnel.optimizer.formulas import Formulas
from runnel.optimizer.settings import OptimizerSettings


def flatten_views(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Give every query a node over source feeds. A view is flattened once, however many queries read it."""
    flattener = _Flattener(draft.definitions, draft.formulas, draft.nodes)
    return replace(draft, roots=tuple(flattener.feed(query.id) for query in draft.queries))


class _Flattener:
    """Flattens with explicit stacks: chains of a thousand views and diamonds of views are ordinary."""

    def __init__(self, definitions: Mapping[int, Node], formulas: Formulas, nodes: FlatNodes) -> None:
        self._definitions = definitions
        self._formulas = formulas
        self._nodes = nodes
        self._done: dict[int, int] = {}
        self._open: set[int] = set()

    def feed(self, feed: int) -> int:
        """The flat node of a feed."""
        stack = [feed]
        while stack:
            current = stack[-1]
            if current in self._done:
                self._open.discard(current)
                stack.pop()
                continue
            missing = self._missing(current)
            if not missing:
                self._done[current] = self._flatten(current)
            elif current in self._open:
                raise CyclicFeeds(f"feed {current} reads itself", hint="a view cannot depend on itself")
            else:
                self._open.add(current)
                stack.extend(missing)
        return self._done[feed]

    def _missing(self, feed: int) -> list[int]:
        found: dict[int, None] = {}
        stack = [self._definitions[feed]] if feed in self._definitions else []
        while stack:
            match stack.pop():
                case Read(read):
                    if read not in self._done:
                        found[read] = None
                case Union(inputs):
                    stack.extend(inputs)
                case Filter(inner, _):
                    stack.append(inner)
        return list(found)

    def _flatten(self, feed: int) -> int:
        if feed not in self._definitions:
            return self._nodes.number(FlatRead(feed))
        results: list[int] = []
        stack: list[tuple[Node, bool]] = [(self._definitions[feed], False)]
        while stack:
            node, ready = stack.pop()
            match node:
                case Read(read):
                    results.append(self._done[read])
                case Union(inputs) if not ready:
                    stack.append((node, True))
                    stack.extend((one, False) for one in reversed(inputs))
                case Union(inputs):
                    first = len(results) - len(inputs)
                    merged = self._union(results[first:])
                    del results[first:]
                    results.append(merged)
                case Filter(inner, _) if not ready:
                    stack.extend([(node, True), (inner, False)])
                case Filter(_, condition):
                    formula = self._formulas.expression(condition)
                    results.append(self._nodes.number(FlatFilter(results.pop(), formula)))
        return results[0]

    def _union(self, inputs: list[int]) -> int:
        distinct = tuple(dict.fromkeys(inputs))
        return distinct[0] if len(distinct) == 1 else self._nodes.number(FlatUnion(distinct))
