"""Generated worlds with joins: a log, and virtual feeds with windows, filters, unions, distinct feeds and views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from random import Random

from hypothesis import strategies as st

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import (
    Compare,
    Contains,
    Exists,
    Expression,
    conjunction,
    disjunction,
    negation,
)
from runnel.algebra.nodes.gate_rules import LoggedItem
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, Union, hide_gates
from runnel.algebra.nodes.window_atoms import WindowAtom, WindowRelation
from runnel.algebra.semantics.distinct import Distinct
from runnel.algebra.semantics.joins import Join
from runnel.model.item import Value

SOURCES = (1, 2)
FIRST_VIEW = 10
FIRST_HIDDEN = 100
HOUR = timedelta(hours=1)
TITLE, PRICE, TAG = Attribute("title"), Attribute("price"), Attribute("tag")
BEGINNING = datetime(2026, 11, 18, tzinfo=UTC)


@dataclass(frozen=True)
class World:
    """A log, and the definitions of virtual feeds as they are written: with gates anywhere below."""

    items: tuple[LoggedItem, ...]
    written: dict[int, Node]

    def hidden(self) -> dict[int, Node]:
        """Return the definitions as the catalog has them: windows and gates below others are feeds of their own."""
        ids: dict[Node, int] = {}
        definitions: dict[int, Node] = {}

        def hide(definition: Node) -> int:
            feed = ids.setdefault(definition, FIRST_HIDDEN + len(ids))
            definitions[feed] = definition
            return feed

        for feed, node in self.written.items():
            definitions[feed] = hide_gates(node, hide)
        return definitions


# Steps add up to exactly one or two hours often, and to a microsecond more or less.
STEPS = (timedelta(), timedelta(microseconds=1), HOUR - timedelta(microseconds=1), HOUR, HOUR / 2)
WORDS = ("Muse", "live", "Paris", "U2")
ODD_TITLES = ("?!", "MUSE, live!", "muse muse")
PLAIN: tuple[Expression, ...] = (
    Compare(TAG, "=", "rock"),
    Compare(PRICE, "<", 2.0),
    Compare(PRICE, ">=", 2.0),
    Contains(TITLE, ("muse",)),
    Contains(TITLE, ("muse", "live")),
    Exists(TITLE),
    Exists(PRICE),
)
RELATIONS: tuple[WindowRelation, ...] = ("=", "<", "<=", ">", ">=")
SHARES = (Fraction(1, 2), Fraction(1, 3), Fraction(3, 5), Fraction(1))
PAIRS: tuple[WindowAtom, ...] = (
    *(WindowAtom("similar", TITLE, TITLE, share) for share in SHARES),
    *(WindowAtom(relation, PRICE, PRICE) for relation in RELATIONS),
    *[WindowAtom("contains", TITLE, TITLE)] * 2,
    *[WindowAtom("=", TAG, TAG)] * 3,
)
KINDS = ("read", "read", "read", "join", "join", "filter", "union", "distinct")
EXTENTS: tuple[timedelta | int, ...] = (1, 2, 3, 5, HOUR, 2 * HOUR, 3 * HOUR)


def worlds() -> st.SearchStrategy[World]:
    """Worlds of up to three virtual feeds. They are drawn by a seed, because long logs drawn one by one stay dull."""
    return st.integers(0, 2**32).map(lambda seed: make_world(Random(seed)))


def make_world(chance: Random) -> World:
    """Return a world; every join has a name of its own."""
    writer = _Writer(chance)
    for feed in range(FIRST_VIEW, FIRST_VIEW + chance.randint(1, 3)):
        writer.written[feed] = writer.join(2) if feed == FIRST_VIEW else writer.node(2)
    return World(_log(chance), writer.written)


def _log(chance: Random) -> tuple[LoggedItem, ...]:
    accepted = BEGINNING
    items = []
    for number in range(1, chance.randint(8, 24)):
        accepted += chance.choice(STEPS)
        attributes: dict[str, tuple[Value, ...]] = {
            "title": tuple(_title(chance) for _ in range(chance.choice((0, 1, 1, 2)))),
            "price": tuple(chance.choice((1.0, 2.0, 3.0)) for _ in range(chance.choice((0, 1, 1, 2)))),
            "tag": tuple(chance.choice(("rock", "Rock", "pop")) for _ in range(chance.choice((0, 1, 1, 2)))),
        }
        present = {name: values for name, values in attributes.items() if values}
        items.append(LoggedItem(number, accepted, chance.choice(SOURCES), chance.choice("abcd"), present))
    return tuple(items)


def _title(chance: Random) -> str:
    if not chance.randrange(6):
        return chance.choice(ODD_TITLES)
    return " ".join(chance.choices(WORDS, k=chance.randint(0, 4)))


@dataclass
class _Writer:
    """Writes definitions that read sources and the feeds before them."""

    chance: Random
    written: dict[int, Node] = field(default_factory=dict)
    joins: int = 0

    def node(self, depth: int) -> Node:
        kind = self.chance.choice(KINDS) if depth else "read"
        match kind:
            case "filter":
                return Filter(self.node(depth - 1), self.condition(PLAIN))
            case "union":
                return Union((self.node(depth - 1), self.node(depth - 1)))
            case "join":
                return self.join(depth)
            case "distinct":
                return Gated(self.node(depth - 1), Distinct(window=self.chance.choice((HOUR, 2 * HOUR))))
            case _:
                return Read(self.chance.choice((*SOURCES, *self.written)))

    def join(self, depth: int) -> Node:
        self.joins += 1
        rule = Join(self.chance.choice(EXTENTS), self.condition(PLAIN + PAIRS * 3), f"join{self.joins}")  # type: ignore[operator]
        return Gated(self.node(depth - 1), rule, self.node(depth - 1))

    def condition(self, atoms: Sequence[Expression]) -> Expression:
        several = self.chance.choices(atoms, k=2)
        match self.chance.randrange(6):
            case 0:
                return negation(several[0])
            case 1:
                return conjunction(several)
            case 2:
                return disjunction(several)
            case _:
                return several[0]
