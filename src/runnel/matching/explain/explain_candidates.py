"""How the items of a window that may satisfy the condition of a join are found, and how many are expected.

In: the condition, and the stored items of windows. Out: a description of the index, and the expected number of
candidates for an item that resembles those of the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from runnel.algebra.nodes.attributes import WHOLE
from runnel.algebra.nodes.expressions import And, Expression, Or
from runnel.algebra.nodes.render import render_attribute
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.evaluate import values_of
from runnel.algebra.semantics.joins import NO_INDEX, index_of
from runnel.algebra.semantics.window_conditions import atoms_of
from runnel.matching.joins.find_pairs import MAX_CANDIDATES, JoinItems, PairFinder, has_index
from runnel.matching.joins.prepare_items import prepare_joined_items
from runnel.matching.joins.window_items import WindowItems
from runnel.model.item import Attributes, Item, Value
from runnel.model.item_batch import ItemBatch

_SAMPLES = 64
"""The number of window items from which the number of candidates is estimated."""

_INDEXES: Mapping[str, str] = {
    "values": "equal values of",
    "words": "rare words of",
    "all words": "words of",
    "phrases": "first words of",
    "links": "links in",
    "targets": "links and hosts in",
    "folders": "links below",
}


def describe_index(condition: Expression | WindowAtom) -> str | None:
    """Return which index finds the candidates of a condition, or None if every item of a window is one.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> title, band = Attribute("title"), Attribute("band")
    >>> similar, equal = WindowAtom("similar", title, title), WindowAtom("=", band, Attribute("artist"))
    >>> describe_index(And((similar, equal)))
    'rare words of window.title or equal values of window.artist, whichever are fewer'
    >>> describe_index(Or((similar, WindowAtom("<", title, title)))) is None
    True
    """
    match condition:
        case And(parts):
            found = [text for part in parts if (text := describe_index(part)) is not None]
            return f"{' or '.join(found)}, whichever are fewer" if len(found) > 1 else next(iter(found), None)
        case Or(parts):
            branches = [describe_index(part) for part in parts]
            return " and ".join(map(str, branches)) if branches and None not in branches else None
        case WindowAtom() if index_of(condition) != NO_INDEX:
            return f"{_INDEXES[index_of(condition)]} window.{render_attribute(condition.window)}"
        case _:
            return None


def expect_candidates(
    parts: Sequence[WindowItems], window: int, condition: Expression, last: int | None = None
) -> float | None:
    """Return how many items are compared with an item that resembles those of a window.

    Without an index, these are the items of the window, or only its `last` ones. Return None if the window is empty.
    """
    rows = [(part, row) for part in parts for row in part.members_of(window)[-_SAMPLES:].tolist()][-_SAMPLES:]
    if not rows:
        return None
    sampled = [
        Item("sampled", str(number), _resembling(condition, part.comparable(row)))
        for number, (part, row) in enumerate(rows)
    ]
    batch = ItemBatch.of(sampled, {"sampled": 1})
    prepared = prepare_joined_items(batch, np.arange(len(batch)), [condition])
    moments = np.zeros(len(batch), dtype=np.int64)
    finder = PairFinder(parts)
    items = JoinItems(moments + (1 << 62), moments, prepared.table, prepared.positions)
    members = None if has_index(condition) else [part.members_of(window) for part in parts]
    pairs = finder.find(condition, items, members, last)
    return float(MAX_CANDIDATES) if pairs.failed.any() else finder.checked / len(rows)


def _resembling(condition: Expression, window: Attributes) -> Attributes:
    """Return the attributes of an item that has the values of a window item where the condition compares them."""
    attributes: dict[str, tuple[Value, ...]] = {}
    for atom in atoms_of(condition):
        if isinstance(atom, WindowAtom):
            values = tuple(value for _, value in values_of(atom.window, window))
            name = atom.attribute.name if atom.attribute.name != WHOLE.name else atom.window.name
            attributes[name] = (*attributes.get(name, ()), *values)
    return attributes
