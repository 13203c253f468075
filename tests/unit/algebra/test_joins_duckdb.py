"""An independent definition of joins in SQL: members and annotations of generated feeds, by DuckDB over the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from random import Random

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from tests.unit.algebra.join_worlds import BEGINNING, World, make_world, worlds

from runnel.algebra.nodes.expressions import And, Compare, Contains, Exists, Expression, Not, Or
from runnel.algebra.nodes.gate_rules import LoggedItem
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, Union
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.distinct import Distinct
from runnel.algebra.semantics.evaluate_log import evaluate_log
from runnel.algebra.semantics.joins import Join
from runnel.algebra.values.words import words

MICROSECOND = timedelta(microseconds=1)
Found = dict[int, dict[int, dict[str, list[int]]]]
"""By feed and sequence, the annotations by name; an item without annotations is there too."""


class JoinSql:
    """One statement for a world: two tables for each node, of its members and of their annotations."""

    def __init__(self, world: World) -> None:
        self.tables: list[str] = []
        self.views: dict[int, str] = {}
        self.annotated: set[str] = set()
        for feed, node in world.written.items():
            self.views[feed] = self.add(node)
        self.asked = {feed: self.views[feed] for feed in world.written}

    def statement(self) -> str:
        """Select the members of all feeds, and the pairs of their annotations."""
        parts = []
        for feed, table in self.asked.items():
            parts.append(f"select {feed}, seq, null, null from {table}_members")
            if table in self.annotated:
                parts.append(f"select {feed}, seq, name, other from {table}_notes")
        return f"with {', '.join(self.tables)} {' union all '.join(parts)}"

    def add(self, node: Node) -> str:
        """Add the tables of a node, and return their common name."""
        match node:
            case Read(feed) if feed in self.views:
                return self.views[feed]
            case Read(feed):
                self.views[feed] = self.define(f"select seq from log where feed = {feed}")
                return self.views[feed]
            case Filter(inner, condition):
                below = self.add(inner)
                members = f"select seq from {below}_members join log i using (seq) where {condition_sql(condition)}"
                return self.define(members, self.notes(below))
            case Union(inputs):
                names = [self.add(value) for value in inputs]
                members = " union ".join(f"select seq from {name}_members" for name in names)
                return self.define(members, self.notes(*names))
            case Gated(inner, Distinct() as rule):
                below = self.add(inner)
                return self.define(
                    "select seq from "
                    "(select seq, accepted, lag(accepted) over (partition by id order by seq) as last "
                    f"from {below}_members join log using (seq)) "
                    f"where last is null or accepted - last >= {rule.window // MICROSECOND}",
                    self.notes(below),
                )
            case Gated(inner, Join() as rule, window) if window is not None:
                return self.add_join(self.add(inner), rule, self.add(window))
        raise AssertionError(f"no SQL for {node}")

    def add_join(self, below: str, rule: Join, window: str) -> str:
        """Add the tables of a join: the pairs decide who is a member, and are notes of their own."""
        is_counted = isinstance(rule.extent, int)
        length = "true" if is_counted else f"i.accepted - w.accepted < {rule.extent // MICROSECOND}"  # type: ignore[operator]
        most = f"rank <= {rule.extent}" if is_counted else "true"
        candidates = (
            "select i.seq as seq, w.seq as other, "
            "row_number() over (partition by i.seq order by w.seq desc) as rank "
            f"from {below}_members m join log i using (seq), {window}_members v join log w on v.seq = w.seq "
            f"where w.seq < i.seq and {length}"
        )
        pairs = (
            f"select i.seq as seq, '{rule.name}' as name, w.seq as other from ({candidates}) c "
            f"join log i on i.seq = c.seq join log w on w.seq = c.other "
            f"where {most} and {condition_sql(rule.condition)} "
            "qualify row_number() over (partition by i.seq, w.feed, w.id order by w.seq desc) = 1"
        )
        name = f"t{len(self.tables)}"
        self.tables.append(f"{name}_pairs as materialized ({pairs})")
        notes = [f"select seq, name, other from {name}_pairs", *self.notes(below)]
        return self.define(f"select seq from {name}_pairs", notes)

    def define(self, members: str, notes: Sequence[str] = ()) -> str:
        """Add the tables of a node. Only members have notes."""
        name = f"t{len(self.tables)}"
        self.tables.append(f"{name}_members as materialized (select distinct seq from ({members}))")
        if notes:
            united = f"select * from ({' union '.join(notes)}) semi join {name}_members using (seq)"
            self.tables.append(f"{name}_notes as materialized ({united})")
            self.annotated.add(name)
        return name

    def notes(self, *tables: str) -> list[str]:
        """Select the notes of those tables that have some."""
        return [f"select seq, name, other from {table}_notes" for table in tables if table in self.annotated]


LOG = pa.schema(
    {
        "seq": pa.int64(),
        "feed": pa.int64(),
        "id": pa.string(),
        "accepted": pa.int64(),
        "title": pa.list_(pa.list_(pa.string())),
        "price": pa.list_(pa.float64()),
        "tag": pa.list_(pa.string()),
    }
)
"""Times in microseconds, and titles as lists of words."""


def row_of(item: LoggedItem) -> dict[str, object]:
    return {
        "seq": item.sequence,
        "feed": item.feed,
        "id": item.id,
        "accepted": (item.accepted - BEGINNING) // MICROSECOND,
        "title": [words(str(title)) for title in item.attributes.get("title", ())],
        "price": list(item.attributes.get("price", ())),
        "tag": list(item.attributes.get("tag", ())),
    }


def condition_sql(condition: Expression) -> str:
    """A condition on the item `i`, and on the item `w` of its window."""
    match condition:
        case And(parts):
            return f"({' and '.join(map(condition_sql, parts))})"
        case Or(parts):
            return f"({' or '.join(map(condition_sql, parts))})"
        case Not(part):
            return f"(not {condition_sql(part)})"
        case _:
            return f"coalesce({atom_sql(condition)}, false)"


def atom_sql(atom: Expression | WindowAtom) -> str:
    match atom:
        case WindowAtom("similar", _, _, least) if least is not None:
            common, everything = "len(list_intersect(x, y))", "len(list_distinct(list_concat(x, y)))"
            return any_pair(f"len(y) > 0 and {common} * {least.denominator} >= {least.numerator} * {everything}")
        case WindowAtom("contains"):
            return any_pair(f"len(y) > 0 and contains({spaced('x')}, {spaced('y')})")
        case WindowAtom("=", attribute) if attribute.name == "tag":
            return "list_has_any(i.tag, w.tag)"
        case WindowAtom("="):
            return "list_has_any(i.price, w.price)"
        case WindowAtom("<" | "<=" as relation):
            return f"list_min(i.price) {relation} list_max(w.price)"
        case WindowAtom(">" | ">=" as relation):
            return f"list_max(i.price) {relation} list_min(w.price)"
        case Compare(_, "=", tag):
            return f"list_contains(i.tag, '{tag}')"
        case Compare(_, "<", price):
            return f"list_min(i.price) < {price}"
        case Compare(_, ">=", price):
            return f"list_max(i.price) >= {price}"
        case Contains(_, phrase):
            return f"list_bool_or(list_transform(i.title, lambda x: contains({spaced('x')}, ' {' '.join(phrase)} ')))"
        case Exists(attribute):
            return f"len(i.{attribute.name}) > 0"
    raise AssertionError(f"no SQL for {atom}")


def any_pair(test: str) -> str:
    """Whether a title x of the item and a title y of the window item pass a test."""
    return f"list_bool_or(flatten(list_transform(i.title, lambda x: list_transform(w.title, lambda y: {test}))))"


def spaced(text_words: str) -> str:
    return f"(' ' || array_to_string({text_words}, ' ') || ' ')"


def by_sql(database: duckdb.DuckDBPyConnection, world: World) -> Found:
    results: Found = {feed: {} for feed in world.written}
    database.register("log", pa.Table.from_pylist([row_of(item) for item in world.items], schema=LOG))
    rows = database.execute(JoinSql(world).statement()).fetchall()
    for feed, sequence, name, other in sorted(rows, key=lambda row: (row[3] is not None, row[3] or 0), reverse=True):
        notes = results[feed].setdefault(sequence, {})
        if name is not None:
            notes.setdefault(name, []).append(other)
    return results


def by_definition(world: World) -> Found:
    definitions = world.hidden()
    results: Found = {feed: {} for feed in world.written}
    for entry in evaluate_log(world.items, definitions, dict.fromkeys(world.written, 0)):
        for feed in entry.feeds:
            notes = results[feed].setdefault(entry.item.sequence, {})
            for gate, joined in entry.annotations.get(feed, {}).items():
                node = definitions[gate]
                assert isinstance(node, Gated)
                assert isinstance(node.rule, Join)
                notes[node.rule.name] = list(joined)
    return results


DATABASE = duckdb.connect(config={"threads": 1})
DATABASE.execute("pragma disable_optimizer")  # the plan of a statement takes longer than its few rows


@given(worlds())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_sql_finds_the_same_members_and_annotations(world: World) -> None:
    assert by_definition(world) == by_sql(DATABASE, world)


def test_the_worlds_have_annotations() -> None:
    seen: Counter[str] = Counter()
    for seed in range(200):
        notes = [
            member for members in by_definition(make_world(Random(seed))).values() for member in members.values()
        ]
        seen["annotated"] += any(notes)
        seen["several items"] += any(len(joined) > 1 for note in notes for joined in note.values())
        seen["several joins"] += any(len(note) > 1 for note in notes)
    assert min(seen["annotated"], seen["several items"], seen["several joins"]) > 20, seen
