"""Pass: replace every view by its definition, so that queries read only source feeds (RoSeS §4.3, normalization).

A gated feed is replaced as well, but the queries that read it depend on its gate. Such a query gets one disjunct per
gate, for the items whose last gate this is, in addition to the items that pass no gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from runnel.algebra.nodes.encode import encode_node
from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union, reads, unexpanded
from runnel.algebra.semantics.close_conditions import close_condition, terms_of
from runnel.errors import CyclicFeedsError, RunnelError
from runnel.optimizer.draft import Draft, FlatFilter, FlatNodes, FlatRead, FlatUnion
from runnel.optimizer.formulas import Formulas
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.optimizer.passes.name_patterns import binds_by_patterns, named_patterns, patterns_as_terms
from runnel.plan.gates import NO_GATE, Gate, GateTable, digest, disjunct_id, gate_history
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.pattern_bindings import NamedPattern

Flow = int | dict[int, int]
"""The output of a node: the number of a flat node or, by the last gate of the items (or NO_GATE), several."""


def flatten_views(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Give every query a node over source feeds. A view is flattened once, however many queries read it."""
    flattener = _Flattener(draft.definitions, draft.formulas, draft.nodes)
    flows = [flattener.feed(query.id) for query in draft.queries]
    query_ids = {query.id for query in draft.queries}
    bound = {feed: patterns for feed, patterns in flattener.bound.items() if feed in query_ids}
    draft = replace(draft, names=flattener.names, bound=bound)
    if all(isinstance(flow, int) for flow in flows):
        return replace(draft, roots=tuple(flow for flow in flows if isinstance(flow, int)))
    return _add_disjuncts(draft, flattener, flows)


def _add_disjuncts(draft: Draft, flattener: _Flattener, flows: list[Flow]) -> Draft:
    """Add a query for every disjunct, and the gates of all gated feeds that are read."""
    empty_node = draft.nodes.number(FlatUnion(()))
    since = {query.id: query.since for query in draft.queries}
    roots: list[int] = []
    disjuncts: dict[int, tuple[int, int, int]] = {}
    for query, flow in zip(draft.queries, flows, strict=True):
        if isinstance(flow, int):
            roots.append(flow)
            continue
        is_gate = query.id in flattener.inputs
        roots.append(empty_node if is_gate else flow.get(NO_GATE, empty_node))
        if not is_gate:
            disjuncts |= _number_disjuncts(
                query.id, {gate: node for gate, node in flow.items() if gate != NO_GATE}, query.since
            )
    for feed, flow in flattener.inputs.items():
        # Matching reports all items that reach a gate. The commit decides later which of them pass.
        disjuncts |= _number_disjuncts(feed, {NO_GATE: flow} if isinstance(flow, int) else flow, 0)
    added = sorted((disjunct, node, start) for disjunct, (_, node, start) in disjuncts.items())
    fingerprints: dict[int, bytes] = {}
    gates = [_build_gate(feed, draft.definitions, since, fingerprints) for feed in flattener.inputs]
    return replace(
        draft,
        queries=(*draft.queries, *(PlanQuery(disjunct, start) for disjunct, _, start in added)),
        roots=(*roots, *(node for _, node, _ in added)),
        gates=GateTable.of({disjunct: gate for disjunct, (gate, _, _) in disjuncts.items()}, gates),
    )


def _number_disjuncts(query: int, flow: Mapping[int, int], since: int) -> dict[int, tuple[int, int, int]]:
    """Return the disjuncts of a query by ID: the gate, the flat node, and the sequence after which it starts."""
    return {disjunct_id(query, number): (gate, flow[gate], since) for number, gate in enumerate(sorted(flow))}


def _build_gate(
    feed: int, definitions: Mapping[int, Node], since: Mapping[int, int], fingerprints: dict[int, bytes]
) -> Gate:
    """Return the gate of a gated feed. `fingerprints` caches the fingerprints of views."""
    node = definitions[feed]
    if not isinstance(node, Gated):
        raise RunnelError(f"feed {feed} has no gate")
    waiting = [feed]
    while waiting:
        view = waiting[-1]
        below = [read for read in reads(definitions[view]) if read in definitions]
        missing = [read for read in below if read not in fingerprints]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        # The fingerprint of a group of feeds ignores its members, so the gate keeps its history when they change.
        definition = [] if view < 0 else encode_node(definitions[view])
        fingerprints[view] = digest([view, definition, [fingerprints[each].hex() for each in below]])
    start = since.get(feed, 0)
    history = gate_history(node.rule, start, fingerprints[feed])
    window = node.window.feed if isinstance(node.window, Read) else None
    return Gate(feed, node.rule, start, history, shown=feed in since, definition=fingerprints[feed], window=window)


class _Flattener:
    """Flattens feeds. It uses explicit stacks instead of recursion, because chains of views can be long."""

    def __init__(self, definitions: Mapping[int, Node], formulas: Formulas, nodes: FlatNodes) -> None:
        self._definitions = definitions
        self._formulas = formulas
        self._nodes = nodes
        self._done: dict[int, Flow] = {}
        self._open: set[int] = set()
        self.inputs: dict[int, Flow] = {}
        """The inputs of the gates, by gated feed."""
        self.names: dict[int, dict[int, tuple[str, ...]]] = {}
        """The original names of variables by feed and term, for the terms in a feed's own conditions."""
        self.bound: dict[int, tuple[NamedPattern, ...]] = {}
        """The patterns by which a feed's own conditions bind variables without operators, by feed."""
        self._pattern_term_feeds: set[int] = set()

    def feed(self, feed: int) -> Flow:
        """Return the output of a feed."""
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
                raise CyclicFeedsError(
                    f"feed {current} reads itself", hint="remove the cycle from the definitions of its views"
                )
            else:
                self._open.add(current)
                stack.extend(missing)
        return self._done[feed]

    def _missing(self, feed: int) -> list[int]:
        missing: dict[int, None] = {}
        stack = [self._definitions[feed]] if feed in self._definitions else []
        while stack:
            match stack.pop():
                case Read(read):
                    if read not in self._done:
                        missing[read] = None
                case ReadAll() as group:
                    raise unexpanded(group)
                case Union(inputs):
                    stack.extend(inputs)
                case Filter(inner, _):
                    stack.append(inner)
                case Gated() as gated:
                    stack.extend(gated.inputs)
        return list(missing)

    def _flatten(self, feed: int) -> Flow:
        if feed not in self._definitions:
            return self._nodes.number(FlatRead(feed))
        node = self._definitions[feed]
        if binds_by_patterns(node):
            patterns = named_patterns(node, self._definitions)
            if patterns is None:
                self._pattern_term_feeds.add(feed)
            else:
                self.bound[feed] = patterns
        if not isinstance(node, Gated):
            return self._flatten_node(node, feed)
        flow = self.inputs[feed] = self._flatten_node(node.input, feed)
        # After this gate, it does not matter which earlier gates an item passed.
        return {feed: flow if isinstance(flow, int) else self._union(list(flow.values()))}

    def _flatten_node(self, whole: Node, feed: int) -> Flow:
        results: list[Flow] = []
        stack: list[tuple[Node, bool]] = [(whole, False)]
        while stack:
            node, ready = stack.pop()
            match node:
                case Read(read):
                    results.append(self._done[read])
                case Union(inputs) if not ready:
                    stack.append((node, True))
                    stack.extend((each, False) for each in reversed(inputs))
                case Union(inputs):
                    first = len(results) - len(inputs)
                    merged = self._unite(results[first:])
                    del results[first:]
                    results.append(merged)
                case Filter(inner, _) if not ready:
                    stack.extend([(node, True), (inner, False)])
                case Filter(_, condition):
                    results.append(self._filter(results.pop(), self._condition_formula(condition, feed)))
                case ReadAll():
                    raise unexpanded(node)
                case Gated():
                    raise RunnelError("only the outermost node of a query can be a gate")
        return results[0]

    def _condition_formula(self, condition: Expression, feed: int) -> int:
        """Return the formula of a condition in a feed's own definition."""
        closed = close_condition(condition)
        if feed in self._pattern_term_feeds:
            closed = patterns_as_terms(closed)
        if closed is not condition:
            names = self.names.setdefault(feed, {})
            for term in terms_of(closed):
                if term.names:
                    names[self._formulas.term(term, feed)] = term.names
        return self._formulas.expression(closed, feed)

    def _filter(self, flow: Flow, formula: int) -> Flow:
        if isinstance(flow, int):
            return self._nodes.number(FlatFilter(flow, formula))
        return {gate: self._nodes.number(FlatFilter(node, formula)) for gate, node in flow.items()}

    def _unite(self, flows: list[Flow]) -> Flow:
        plain = [flow for flow in flows if isinstance(flow, int)]
        if len(plain) == len(flows):
            return self._union(plain)
        by_gate: dict[int, list[int]] = {NO_GATE: plain} if plain else {}
        for flow in flows:
            for gate, node in flow.items() if isinstance(flow, dict) else ():
                by_gate.setdefault(gate, []).append(node)
        return {gate: self._union(nodes) for gate, nodes in by_gate.items()}

    def _union(self, inputs: list[int]) -> int:
        unique = tuple(dict.fromkeys(inputs))
        return unique[0] if len(unique) == 1 else self._nodes.number(FlatUnion(unique))
