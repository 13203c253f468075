"""Pass: push every filter through unions to the sources (RoSeS §4.3: selection distributes over union).

A node becomes a set of (formula, sources) pairs. If a query reads a source by several paths, the source gets the
disjunction of their formulas. Sources with the same formula stay together, so that a filter on a union of a thousand
feeds is one pair.
"""

from __future__ import annotations

from dataclasses import replace

from runnel.optimizer.draft import Branch, Draft, FlatFilter, FlatRead, FlatUnion
from runnel.optimizer.formulas import ALWAYS, NEVER, Formulas
from runnel.optimizer.optimizer_settings import OptimizerSettings

Spread = tuple[tuple[int, tuple[int, ...]], ...]
"""Pairs of a formula and the sorted source feeds to which it applies. Each source occurs once."""


def push_filters(draft: Draft, settings: OptimizerSettings) -> Draft:
    """Compute the branches of every query: one formula for each source feed that it reads."""
    roots = draft.roots or ()
    spreads: dict[int, Spread] = {}
    for number in draft.nodes.reachable(roots):
        match draft.nodes.nodes[number]:
            case FlatRead(source):
                spreads[number] = ((ALWAYS, (source,)),)
            case FlatFilter(inner, formula):
                spreads[number] = _filter_spread(spreads[inner], formula, draft.formulas)
            case FlatUnion(inputs):
                spreads[number] = _unite_spreads([spreads[each] for each in inputs], draft.formulas)
    branches = [
        Branch(position, formula, sources)
        for position, root in enumerate(roots)
        for formula, sources in spreads[root]
    ]
    return replace(draft, branches=tuple(branches))


def _filter_spread(spread: Spread, condition: int, formulas: Formulas) -> Spread:
    by_source: dict[int, int] = {}
    for formula, sources in spread:
        combined = formulas.conjunction([formula, condition])
        by_source.update(dict.fromkeys(sources, combined))
    return _group_sources(by_source)


def _unite_spreads(spreads: list[Spread], formulas: Formulas) -> Spread:
    formulas_by_source: dict[int, set[int]] = {}
    for spread in spreads:
        for formula, sources in spread:
            for source in sources:
                formulas_by_source.setdefault(source, set()).add(formula)
    combined: dict[tuple[int, ...], int] = {}
    by_source: dict[int, int] = {}
    for source, alternatives in formulas_by_source.items():
        key = tuple(sorted(alternatives))
        if key not in combined:
            combined[key] = formulas.disjunction(key)
        by_source[source] = combined[key]
    return _group_sources(by_source)


def _group_sources(by_source: dict[int, int]) -> Spread:
    groups: dict[int, list[int]] = {}
    for source, formula in sorted(by_source.items()):
        if formula != NEVER:
            groups.setdefault(formula, []).append(source)
    return tuple((formula, tuple(sources)) for formula, sources in groups.items())
