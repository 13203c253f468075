"""Pass.

Replace every view by its definition, so that queries read source feeds only (RoSeS §4.3, normalisation). A gated
feed is replaced too, but its readers depend on its gate: a query gets a disjunct for every gate that is the nearest
below it, in addition to what reaches it through no gate.
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
"""What flows out of a node: the number of a flat node, or of one for every gate that must be passed (or NO_GATE)."""


def flatten_views(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Give every query a node over source feeds. A view is flattened once, however many queries read it."""
    flattener = _Flattener(draft.definitions, draft.formulas, draft.nodes)
    flows = [flattener.feed(query.id) for query in draft.queries]
    wanted = {query.id for query in draft.queries}
    bound = {feed: graphs for feed, graphs in flattener.bound.items() if feed in wanted}
    draft = replace(draft, names=flattener.names, bound=bound)
    if all(isinstance(flow, int) for flow in flows):
        return replace(draft, roots=tuple(flow for flow in flows if isinstance(flow, int)))
    return _with_disjuncts(draft, flattener, flows)


def _with_disjuncts(draft: Draft, flattener: _Flattener, flows: list[Flow]) -> Draft:
    """The draft with a query for every disjunct, and the gates of all gated feeds that are read."""
    nothing = draft.nodes.number(FlatUnion(()))
    since = {query.id: query.since for query in draft.queries}
    roots: list[int] = []
    disjuncts: dict[int, tuple[int, int, int]] = {}
    for query, flow in zip(draft.queries, flows, strict=True):
        if isinstance(flow, int):
            roots.append(flow)
            continue
        is_gate = query.id in flattener.inputs
        roots.append(nothing if is_gate else flow.get(NO_GATE, nothing))
        if not is_gate:
            disjuncts |= _disjuncts(
                query.id, {gate: node for gate, node in flow.items() if gate != NO_GATE}, query.since
            )
    for feed, flow in flattener.inputs.items():
        # All that reaches a gate is matched. Which items count there is decided behind the matcher.
        disjuncts |= _disjuncts(feed, {NO_GATE: flow} if isinstance(flow, int) else flow, 0)
    added = sorted((disjunct, node, start) for disjunct, (_, node, start) in disjuncts.items())
    prints: dict[int, bytes] = {}
    gates = [_gate(feed, draft.definitions, since, prints) for feed in flattener.inputs]
    return replace(
        draft,
        queries=(*draft.queries, *(PlanQuery(disjunct, start) for disjunct, _, start in added)),
        roots=(*roots, *(node for _, node, _ in added)),
        gates=GateTable.of({disjunct: gate for disjunct, (gate, _, _) in disjuncts.items()}, gates),
    )


def _disjuncts(query: int, flow: Mapping[int, int], since: int) -> dict[int, tuple[int, int, int]]:
    """The disjuncts of a query by id: the gate, the flat node, and the sequence after which it starts."""
    return {disjunct_id(query, number): (gate, flow[gate], since) for number, gate in enumerate(sorted(flow))}


def _gate(feed: int, definitions: Mapping[int, Node], since: Mapping[int, int], prints: dict[int, bytes]) -> Gate:
    """The gate of a gated feed; `prints` are the fingerprints of views that are known already."""
    node = definitions[feed]
    if not isinstance(node, Gated):
        raise RunnelError(f"feed {feed} has no gate")
    waiting = [feed]
    while waiting:
        view = waiting[-1]
        below = [one for one in reads(definitions[view]) if one in definitions]
        missing = [one for one in below if one not in prints]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        # A group of feeds is the same group with one more member, so the gate keeps its history.
        definition = [] if view < 0 else encode_node(definitions[view])
        prints[view] = digest([view, definition, [prints[one].hex() for one in below]])
    start = since.get(feed, 0)
    history = gate_history(start, prints[feed])
    window = node.window.feed if isinstance(node.window, Read) else None
    return Gate(feed, node.rule, start, history, shown=feed in since, definition=prints[feed], window=window)


class _Flattener:
    """Flattens with explicit stacks: chains of a thousand views and diamonds of views are ordinary."""

    def __init__(self, definitions: Mapping[int, Node], formulas: Formulas, nodes: FlatNodes) -> None:
        self._definitions = definitions
        self._formulas = formulas
        self._nodes = nodes
        self._done: dict[int, Flow] = {}
        self._open: set[int] = set()
        self.inputs: dict[int, Flow] = {}
        """What reaches the gates of the gated feeds that were read."""
        self.names: dict[int, dict[int, tuple[str, ...]]] = {}
        """For every feed what the variables of the terms in its own conditions are called."""
        self.bound: dict[int, tuple[NamedPattern, ...]] = {}
        """For every feed the patterns by which its own conditions bind variables, without operators."""
        self._by_terms: set[int] = set()

    def feed(self, feed: int) -> Flow:
        """What flows out of a feed."""
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
                raise CyclicFeedsError(f"feed {current} reads itself", hint="a view cannot depend on itself")
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
                case ReadAll() as group:
                    raise unexpanded(group)
                case Union(inputs):
                    stack.extend(inputs)
                case Filter(inner, _):
                    stack.append(inner)
                case Gated() as gated:
                    stack.extend(gated.inputs)
        return list(found)

    def _flatten(self, feed: int) -> Flow:
        if feed not in self._definitions:
            return self._nodes.number(FlatRead(feed))
        node = self._definitions[feed]
        if binds_by_patterns(node):
            found = named_patterns(node, self._definitions)
            if found is None:
                self._by_terms.add(feed)
            else:
                self.bound[feed] = found
        if not isinstance(node, Gated):
            return self._flatten_node(node, feed)
        flow = self.inputs[feed] = self._flatten_node(node.input, feed)
        # Behind the gate it does not matter by which disjuncts an item reached it.
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
                    stack.extend((one, False) for one in reversed(inputs))
                case Union(inputs):
                    first = len(results) - len(inputs)
                    merged = self._united(results[first:])
                    del results[first:]
                    results.append(merged)
                case Filter(inner, _) if not ready:
                    stack.extend([(node, True), (inner, False)])
                case Filter(_, condition):
                    results.append(self._filtered(results.pop(), self._condition(condition, feed)))
                case ReadAll():
                    raise unexpanded(node)
                case Gated():
                    raise RunnelError("only the outermost node of a query can be a gate")
        return results[0]

    def _condition(self, condition: Expression, feed: int) -> int:
        """The formula of a condition in a feed's own definition."""
        closed = close_condition(condition)
        if feed in self._by_terms:
            closed = patterns_as_terms(closed)
        if closed is not condition:
            names = self.names.setdefault(feed, {})
            for term in terms_of(closed):
                if term.names:
                    names[self._formulas.term(term, feed)] = term.names
        return self._formulas.expression(closed, feed)

    def _filtered(self, flow: Flow, formula: int) -> Flow:
        if isinstance(flow, int):
            return self._nodes.number(FlatFilter(flow, formula))
        return {gate: self._nodes.number(FlatFilter(node, formula)) for gate, node in flow.items()}

    def _united(self, flows: list[Flow]) -> Flow:
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
