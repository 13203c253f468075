"""Selection of how a plan stores the patterns that bind the variables of a query.

In: the node of a query. Out: one of three forms. If all binding patterns are conjuncts of the query, the plan stores
these patterns with the names of their variables. For other queries without operators, for example with `or`, it
stores the whole query. If the query has operators, the patterns become terms like operator calls, so that a match
reports the bindings of both together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from runnel.algebra.nodes.expressions import And, Expression, Or
from runnel.algebra.nodes.item_patterns import ItemPattern, encode_pattern, is_local
from runnel.algebra.nodes.query import Filter, Gated, Node, conditions_of
from runnel.algebra.semantics.close_conditions import close_condition, has_calls, leaves, pattern_term, terms_of
from runnel.algebra.semantics.evaluate import views_below
from runnel.algebra.semantics.node_bindings import encode_whole
from runnel.plan.pattern_bindings import NamedPattern


def binds_by_patterns(node: Node) -> bool:
    """Return whether a pattern in a query's own conditions has variables other than local ones."""
    return any(
        isinstance(leaf, ItemPattern) and bool(leaf.open_variables())
        for condition in conditions_of(node)
        for leaf in leaves(condition)
    )


def named_patterns(node: Node, definitions: Mapping[int, Node]) -> tuple[NamedPattern, ...] | None:
    """Return the patterns by which a query binds variables, or the whole query, or None if it has operators."""
    required = _required_patterns(node)
    if required is not None:
        return tuple(map(_name_pattern, required))
    nodes = (node, *(definitions[view] for view in views_below(node, definitions)))
    if any(has_calls(close_condition(condition)) for each in nodes for condition in conditions_of(each)):
        return None
    return (NamedPattern(json.dumps(encode_whole(node, definitions), separators=(",", ":"))),)


def _required_patterns(node: Node) -> list[ItemPattern] | None:
    """Return the patterns that every match satisfies, or None if operators or other patterns bind variables, too."""
    patterns: list[ItemPattern] = []
    inner = node.input if isinstance(node, Gated) else node
    while isinstance(inner, Filter):
        for part in _conjuncts(close_condition(inner.condition)):
            if isinstance(part, ItemPattern):
                patterns += [part] if part.open_variables() else []
            elif _binds(part):
                return None
        inner = inner.input
    binds_below = any(_binds(close_condition(condition)) for condition in conditions_of(inner))
    return None if binds_below else patterns


def _conjuncts(closed: Expression) -> Iterator[Expression]:
    if isinstance(closed, And):
        for part in closed.parts:
            yield from _conjuncts(part)
    else:
        yield closed


def _binds(closed: Expression) -> bool:
    """Return whether a closed condition binds variables. Those under `not` are local."""
    match closed:
        case And(parts) | Or(parts):
            return any(map(_binds, parts))
        case ItemPattern():
            return bool(closed.open_variables())
        case _:
            return any(term.names for term in terms_of(closed))


def _name_pattern(pattern: ItemPattern) -> NamedPattern:
    """Return the stored form of a pattern with the names of its variables. Local variables have an empty name."""
    canonical = pattern.canonical()
    text = json.dumps(encode_pattern(canonical), separators=(",", ":"))
    return NamedPattern(text, tuple("" if is_local(name) else name for name in canonical.names))


def patterns_as_terms(closed: Expression) -> Expression:
    """Replace the patterns with variables in a closed condition by terms, except under `not`."""
    match closed:
        case And(parts):
            return And(tuple(map(patterns_as_terms, parts)))
        case Or(parts):
            return Or(tuple(map(patterns_as_terms, parts)))
        case ItemPattern() if closed.open_variables():
            return pattern_term(closed)
        case _:
            return closed
