"""Pass: push every filter through unions to the sources (RoSeS §4.3: selection distributes over union).

A node becomes a set of (formula, sources) pairs. A source that reaches a query by several paths gets the
disjunction of their formulas: any accepting path suffices. Sources with the same formula stay together, so that a
filter over a union of a thousand feeds is one pair.
"""

from __future__ import annotations

from dataclasses import replace

from runnel.optimizer.draft import Branch, Draft, FlatFilter, FlatRead, FlatUnion
from runnel.optimizer.formulas import ALWAYS, NEVER, Formulas
from runnel.optimizer.optimizer_settings import OptimizerSettings

Spread = tuple[tuple[int, tuple[int, ...]], ...]
"""Formulas and the ascending source feeds that they hold for; no source is there twice."""


def push_filters(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Give every query its branches: one formula for every source feed that can reach it."""
    roots = draft.roots or ()
    spreads: dict[int, Spread] = {}
    for number in draft.nodes.reachable(roots):
        match draft.nodes.nodes[number]:
            case FlatRead(source):
                spreads[number] = ((ALWAYS, (source,)),)
            case FlatFilter(inner, formula):
                spreads[number] = _filtered(spreads[inner], formula, draft.formulas)
            case FlatUnion(inputs):
                spreads[number] = _united([spreads[one] for one in inputs], draft.formulas)
    branches = [
        Branch(position, formula, sources)
        for position, root in enumerate(roots)
        for formula, sources in spreads[root]
    ]
    return replace(draft, branches=tuple(branches))


def _filtered(spread: Spread, condition: int, formulas: Formulas) -> Spread:
    by_source: dict[int, int] = {}
    for formula, sources in spread:
        combined = formulas.conjunction([formula, condition])
        by_source.update(dict.fromkeys(sources, combined))
    return _grouped(by_source)


def _united(spreads: list[Spread], formulas: Formulas) -> Spread:
    ways: dict[int, set[int]] = {}
    for spread in spreads:
        for formula, sources in spread:
            for source in sources:
                ways.setdefault(source, set()).add(formula)
    combined: dict[tuple[int, ...], int] = {}
    by_source: dict[int, int] = {}
    for source, found in ways.items():
        key = tuple(sorted(found))
        if key not in combined:
            combined[key] = formulas.disjunction(key)
        by_source[source] = combined[key]
    return _grouped(by_source)


def _grouped(by_source: dict[int, int]) -> Spread:
    groups: dict[int, list[int]] = {}
    for source, formula in sorted(by_source.items()):
        if formula != NEVER:
            groups.setdefault(formula, []).append(source)
    return tuple((formula, tuple(sources)) for formula, sources in groups.items())
