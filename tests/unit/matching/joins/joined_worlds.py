"""Small generated worlds with joins: windows, views over joined feeds, items that repeat, and batches."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import cast

from hypothesis import strategies as st
from tests.unit.matching.gates.gated_worlds import (
    DISTINCT_RULES,
    FIRST,
    PRICE,
    SOURCES,
    TITLE,
    GatedWorld,
    logged,
    nodes,
)

from runnel.algebra.nodes.attributes import WHOLE
from runnel.algebra.nodes.expressions import Compare, Expression, conjunction, disjunction, negation
from runnel.algebra.nodes.query import Gated, Node, hide_gates
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.joins import Join

_ATOMS: tuple[WindowAtom, ...] = (
    WindowAtom("similar", TITLE, TITLE, Fraction(1, 2)),
    WindowAtom("similar", WHOLE, TITLE, Fraction(1)),
    WindowAtom("=", PRICE, PRICE),
    WindowAtom("=", TITLE, WHOLE),
    WindowAtom("<", PRICE, PRICE),
    WindowAtom("contains", TITLE, TITLE),
)


@st.composite
def conditions(draw: st.DrawFn) -> Expression:
    """The condition of a join."""
    atoms: list[Expression] = list(draw(st.lists(st.sampled_from(_ATOMS), min_size=1, max_size=2)))
    if draw(st.booleans()):
        atoms.append(negation(cast(Expression, draw(st.sampled_from(_ATOMS)))))
    if draw(st.booleans()):
        atoms.append(Compare(PRICE, "<", 4.0))
    return (conjunction if draw(st.booleans()) else disjunction)(atoms)


extents = st.one_of(st.integers(1, 3), st.sampled_from((0.5, 1, 2, 5)).map(lambda days: timedelta(days=days)))


@st.composite
def joined_worlds(draw: st.DrawFn) -> GatedWorld:
    """A world with at least one joined feed. Hidden feeds have ids after those of the others."""
    written: dict[int, Node] = {}
    for feed in range(FIRST, FIRST + draw(st.integers(1, 5))):
        readable = [*SOURCES, *written]
        node = draw(nodes(readable, gated=False))
        for number in range(draw(st.integers(1 if feed == FIRST else 0, 2))):
            join = Join(draw(extents), draw(conditions()), f"join{number}")
            node = Gated(node, join, draw(nodes(readable, gated=None if draw(st.booleans()) else False)))
        if draw(st.integers(0, 3)) == 0:
            node = Gated(node, draw(DISTINCT_RULES))
        written[feed] = node
    hidden: dict[Node, int] = {}

    def hide(node: Node) -> int:
        return hidden.setdefault(node, 100 + len(hidden))

    definitions = {feed: hide_gates(node, hide) for feed, node in written.items()}
    items = draw(logged())
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(items) - 1)), max_size=4)))
    return GatedWorld(
        definitions | {feed: node for node, feed in hidden.items()},
        dict.fromkeys(written, 0),
        items,
        tuple(one for one in cuts if one < len(items)),
    )
