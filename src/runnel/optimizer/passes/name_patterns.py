"""Which patterns of a query bind its variables, and how a plan says so: three ways, the cheapest that is exact.

In: a query's node. Out: a query that asks for all of some patterns, whatever else it asks, has these with the names
of their variables. One of another shape (`or`, several ways into a union) is kept whole. Where operators take part,
the patterns become terms beside theirs, so that what both bind is told together.
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
    """Whether some pattern of a query's own conditions has variables that others may know."""
    return any(
        isinstance(leaf, ItemPattern) and bool(leaf.open_variables())
        for one in conditions_of(node)
        for leaf in leaves(one)
    )


def named_patterns(node: Node, definitions: Mapping[int, Node]) -> tuple[NamedPattern, ...] | None:
    """The patterns by which a query binds variables, or the query as a whole; None where operators take part."""
    simple = _asked_for(node)
    if simple is not None:
        return tuple(map(_stored, simple))
    below = (definitions[one] for one in views_below(node, definitions))
    if any(has_calls(close_condition(one)) for each in (node, *below) for one in conditions_of(each)):
        return None
    return (NamedPattern(json.dumps(encode_whole(node, definitions), separators=(",", ":"))),)


def _asked_for(node: Node) -> list[ItemPattern] | None:
    """The patterns that hold of every item of a query, if no others bind variables, nor operators."""
    found: list[ItemPattern] = []
    inner = node.input if isinstance(node, Gated) else node
    while isinstance(inner, Filter):
        for part in _conjuncts(close_condition(inner.condition)):
            if isinstance(part, ItemPattern):
                found += [part] if part.open_variables() else []
            elif _binds(part):
                return None
        inner = inner.input
    return None if any(_binds(close_condition(one)) for one in conditions_of(inner)) else found


def _conjuncts(closed: Expression) -> Iterator[Expression]:
    if isinstance(closed, And):
        for part in closed.parts:
            yield from _conjuncts(part)
    else:
        yield closed


def _binds(closed: Expression) -> bool:
    """Whether a closed condition binds variables that others may know: not what is under `not`."""
    match closed:
        case And(parts) | Or(parts):
            return any(map(_binds, parts))
        case ItemPattern():
            return bool(closed.open_variables())
        case _:
            return any(term.names for term in terms_of(closed))


def _stored(pattern: ItemPattern) -> NamedPattern:
    """A pattern as it is stored among the atoms; variables that nobody knows have no name."""
    one = pattern.canonical()
    text = json.dumps(encode_pattern(one), separators=(",", ":"))
    return NamedPattern(text, tuple("" if is_local(name) else name for name in one.names))


def patterns_as_terms(closed: Expression) -> Expression:
    """A closed condition whose patterns with variables are terms; those under `not` are left."""
    match closed:
        case And(parts):
            return And(tuple(map(patterns_as_terms, parts)))
        case Or(parts):
            return Or(tuple(map(patterns_as_terms, parts)))
        case ItemPattern() if closed.open_variables():
            return pattern_term(closed)
        case _:
            return closed
