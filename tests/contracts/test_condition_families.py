"""The contract of condition families, tested with a family that `src` does not refer to.

These tests register the family of `examples/plug-in-family`. All code that matches graph patterns must also match
color patterns.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runnel_colors import COLORS
from runnel_colors.index import COLOR_INDEX, ColorMatcher
from runnel_colors.patterns import ColorPattern
from runnel_colors.syntax import parse_color
from runnel_colors.values import Color
from tests.partitioned_matcher import PartitionedMatcher

from runnel import families
from runnel.algebra.graphs.edges import Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes import encode
from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Call, Constraint, Given, Literally, Variable
from runnel.algebra.nodes.encode import decode_expression, decode_node, encode_expression, encode_node
from runnel.algebra.nodes.expressions import And, Contains, Exists, Expression, Not, Or
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.algebra.nodes.render import RESERVED, render
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.bindings import solutions
from runnel.algebra.semantics.close_conditions import close_condition
from runnel.algebra.semantics.distinct import key_of
from runnel.algebra.semantics.evaluate import accepts, holds, is_text
from runnel.algebra.semantics.node_bindings import node_solutions
from runnel.algebra.semantics.trace import trace_node
from runnel.engine import connect
from runnel.engine.ask.why import _pattern_search
from runnel.errors import CorruptDataError, InputError, InvalidConditionError, InvalidItemError, StatementSyntaxError
from runnel.families import Family, Registry, ValueKind, registry
from runnel.language.grammar.parser import current_grammar, parse
from runnel.language.syntax.reader import ConditionSyntax
from runnel.language.syntax.statements import CreateFeed
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_delta, compile_merged, compute_layout
from runnel.matching.compile.select_queries import select_queries
from runnel.matching.costs.observe_stream import Observer
from runnel.matching.explain.explain_query import explain_query
from runnel.matching.filters.atoms.atom_layout import compute_atom_layout
from runnel.matching.filters.atoms.atom_tests import SlotUse
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.matching.filters.index.index_matcher import IndexMatcher
from runnel.matching.filters.streams.stream_matcher import StreamMatcher
from runnel.matching.operators.decide.decider import Decider
from runnel.matching.operators.decide.disjuncts import OperatorDisjuncts
from runnel.matching.operators.orders.registry import find_order
from runnel.matching.operators.plugins.contract import Answer, Question
from runnel.matching.patterns.bind_variables import PatternBinder
from runnel.matching.patterns.contract import PatternKeys
from runnel.model.bindings import bounded
from runnel.model.graph import RdfGraph
from runnel.model.item import Item, attributes_of
from runnel.model.item_batch import ItemBatch
from runnel.optimizer.optimize import optimize
from runnel.optimizer.subsumption.subsumes import subsumes
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.scaleout.divide.make_partitioning import make_partitioning
from runnel.sources.documents import adapt
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-families-")
STORAGE = FileStorage(Path(_root.name).as_uri())
CASES = settings(max_examples=40, deadline=None, derandomize=True)
SOURCES = {"Paint": 1, "Light": 2}
TITLE = Attribute("title")
ROCK = Contains(TITLE, ("rock",))
RED = ColorPattern((200, 0, 0))
SHADE = ColorPattern((0, 128, 0), ("shade",))


@pytest.fixture(scope="module", autouse=True)
def colors() -> Iterator[None]:
    """The family, registered during these tests, without waiting for the disk."""
    registry().add(COLORS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield
    del registry().families[COLORS.name], registry().kinds[COLORS.kind.name]


def tint(kind: ValueKind) -> Family:
    return Family("tint", kind, pattern="x:x", index="x:x")


def compiled(definitions: Mapping[int, Node], queries: Sequence[int]) -> Plan:
    folder = f"base-{next(_folders)}"
    compile_base(STORAGE, folder, map(PlanQuery, queries), definitions)
    return load(STORAGE, PlanVersion(1, folder))


def with_delta(base: Plan, definitions: Mapping[int, Node], queries: Sequence[int], dead: Sequence[int]) -> Plan:
    folder = f"delta-{next(_folders)}"
    compile_delta(STORAGE, folder, map(PlanQuery, queries), definitions, dead, base.version.base)
    return load(STORAGE, PlanVersion(2, base.version.base, folder))


def merged(plan: Plan) -> Plan:
    folder = f"merged-{next(_folders)}"
    compile_merged(STORAGE, folder, plan)
    return load(STORAGE, PlanVersion(3, folder))


def partitioned(plan: Plan) -> PartitionedMatcher:
    made = make_partitioning(
        STORAGE,
        plan.base.logical,
        stored_atoms(plan.base),
        base=plan.version.base,
        count=2,
        most_conditions=1,
        new_folder=lambda: f"piece-{next(_folders)}",
    )
    return PartitionedMatcher(STORAGE, PlanVersion(4, plan.version.base, distribution=made.folder))


def item(number: int, feed: str = "Paint", **attributes: object) -> Item:
    return Item(feed, str(number), attributes_of(attributes), sequence=number)


def batch_of(*items: Item) -> ItemBatch:
    return ItemBatch.of(items, SOURCES)


def matched(matcher: Any, batch: ItemBatch) -> list[list[int]]:
    matches = matcher.match(batch)
    assert not matches.failures
    return [matches.row(row).tolist() for row in range(len(batch))]


_amounts = st.sampled_from((0, 128, 200))
_patterns = st.builds(
    ColorPattern,
    st.tuples(_amounts, _amounts, _amounts),
    st.sampled_from([(), ("shade",), ("one", "two"), ("_:own",)]),
)
_atoms: st.SearchStrategy[Expression] = st.one_of(
    _patterns, _patterns, st.just(ROCK), st.just(Exists(Attribute("color")))
)
_conditions = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=5,
)
_colors = st.sampled_from(["#c8c8c8", "#c80000", "#008000", "#80c880", "#000000"]).map(Color)
_items = st.builds(
    lambda feed, title, colors: Item(feed, "1", {"title": (title,), **({"color": tuple(colors)} if colors else {})}),
    st.sampled_from(sorted(SOURCES)),
    st.sampled_from(["rock", "jazz"]),
    st.lists(
        st.sampled_from(["#c8c8c8", "#c80000", "#008000", "#80c880", "#000000"]).map(Color), max_size=2, unique=True
    ),
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[int, Node], ItemBatch]:
    definitions: dict[int, Node] = {}
    for feed in range(10, 10 + draw(st.integers(1, 4))):
        read = Read(draw(st.sampled_from((1, 2, *definitions))))
        definitions[feed] = Filter(read, draw(_conditions))
    return definitions, batch_of(*draw(st.lists(_items, min_size=1, max_size=4)))


def expected(definitions: Mapping[int, Node], queries: Sequence[int], batch: ItemBatch) -> list[list[int]]:
    return [
        [query for query in queries if accepts(Read(query), feed, attributes, definitions)]
        for feed, attributes in zip(batch.feeds.tolist(), batch.attributes(), strict=True)
    ]


def bound(plan: Plan, batch: ItemBatch, definitions: Mapping[int, Node], queries: Sequence[int]) -> None:
    """Assert that the bindings of a plan equal those of the definition."""
    bindings = PatternBinder(plan).bind(batch, build_matcher(plan).match(batch))
    for row, (feed, attributes) in enumerate(zip(batch.feeds.tolist(), batch.attributes(), strict=True)):
        for query in queries:
            rows = node_solutions(definitions[query], feed, attributes, definitions)
            wanted = bounded(rows)
            messages = bindings.get(row, {}).get(query)
            assert sorted(map(repr, messages.rows if messages else [])) == sorted(map(repr, wanted.rows))


def test_a_pattern_survives_encoding_inside_conditions_and_queries() -> None:
    condition = And((ROCK, Or((RED, Not(SHADE)))))
    assert encode_expression(SHADE) == ["color", [0, 128, 0], "shade"]
    assert decode_expression(encode_expression(condition)) == condition
    assert decode_node(encode_node(Filter(Read(1), condition))) == Filter(Read(1), condition)
    term = Term((Call("near", (Given("1", "text"),), 1),), patterns=(SHADE.canonical(),))
    assert decode_expression(encode_expression(term)) == term


def test_a_pattern_is_printed_inside_conditions_with_its_own_names() -> None:
    assert render(And((ROCK, Not(SHADE)))) == "title contains 'rock' and not color { green >= 128 ?shade }"
    assert SHADE.canonical().render() == SHADE.render()


@CASES
@given(st.tuples(*[st.integers(0, 255)] * 3), st.sets(st.sampled_from(["shade", "tone"])))
def test_printed_patterns_parse_to_the_same_pattern(lows: tuple[int, int, int], shades: set[str]) -> None:
    pattern = ColorPattern(lows, tuple(sorted(shades)))
    (parsed,) = parse(f"create feed F from Paint where title contains 'rock' and not {pattern.render()};")
    assert isinstance(parsed.statement, CreateFeed)
    assert parsed.statement.query.conditions[0].expression == And((ROCK, Not(pattern)))


def test_a_mistake_in_the_syntax_of_a_family_is_located() -> None:
    with pytest.raises(StatementSyntaxError, match="expected `>=` but found `=`") as refused:
        parse("create feed F from Paint where color { red = 3 }")
    assert refused.value.span is not None
    assert refused.value.span.column == 44


def test_statements_of_a_family_are_declared_previewed_explained_and_traced(tmp_path: Path) -> None:
    with connect(tmp_path / "root") as engine:
        engine.execute(
            "register feed Paint; create feed Bright from Paint where color { green >= 128 ?shade };"
            "subscribe to Bright output log;"
        )
        engine.publish("Paint", [{"id": "a", "color": "#00ff00"}, {"id": "b", "color": "#7f0000"}])
        preview = engine.preview("Bright")
        (newest,) = preview.newest
        assert newest.id == "a"
        assert list(preview.bindings[newest.sequence or 0].rows) == [{"shade": "#00ff00"}]
        (tried,) = engine.test([{"id": "c", "color": "#00ff01"}]).items
        assert tried.queries == ("Bright",)
        (explained,) = engine.execute("explain feed Bright;")
        assert "color { green >= 128 ?shade }" in "\n".join((explained.message, *explained.lines))
        for name, verdict in (("a", True), ("b", False)):
            (why,) = engine.execute(f"why item '{name}' in Bright;")
            assert why.message == f"item {name} {'is' if verdict else 'is not'} in Bright"


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(InputError, match="the condition family 'smell' is not installed") as refused:
        decode_expression(["smell", ["title"], "x"])
    assert refused.value.hint == "install its package wherever Runnel runs"


def test_plan_of_a_missing_family_is_refused_and_not_reported_as_damaged() -> None:
    plan = compiled({10: Filter(Read(1), SHADE)}, [10])
    batch = batch_of(item(1, color="#00ff00"))
    matches = build_matcher(plan).match(batch)
    del registry().families[COLORS.name]
    try:
        with pytest.raises(InputError, match="the condition family 'color' is not installed"):
            build_matcher(plan)
        with pytest.raises(InputError, match="the condition family 'color' is not installed"):
            PatternBinder(plan).bind(batch, matches)
    finally:
        registry().families[COLORS.name] = COLORS


def test_a_family_or_a_kind_of_value_is_registered_once() -> None:
    with pytest.raises(InputError, match="family named color already exists"):
        registry().add(COLORS)
    for kind in (ValueKind("tint", 100, "tint", "x:x"), ValueKind("tint", 101, "color", "x:x")):
        with pytest.raises(InputError, match="color already uses the code 100 and the attribute color"):
            registry().add(tint(kind=kind))
    with pytest.raises(InputError, match="another kind of value is already named graph"):
        registry().add(tint(kind=ValueKind("graph", 101, "tint", "x:x")))
    assert registry().kinds["graph"].code == 4
    assert "tint" not in registry().families
    assert "tint" not in registry().kinds


@pytest.mark.parametrize(
    "name", sorted({*families.OTHER_TAGS, *RESERVED} - {family.name for family in families.BUILT_IN})
)
def test_family_cannot_be_named_like_another_condition_or_a_keyword(name: str) -> None:
    with pytest.raises(InputError, match=r"cannot name a (condition )?family|must be a word in lower case"):
        registry().add(replace(COLORS, name=name))
    assert name not in registry().families


@pytest.mark.parametrize("name", ["", "Tint", "tint!", "1tint", "not tint", "tint" * 15 + "s", "tint\n"])
def test_family_name_must_be_a_lower_case_word(name: str) -> None:
    with pytest.raises(InputError, match="must be a word in lower case"):
        registry().add(replace(COLORS, name=name))


def test_names_of_all_other_conditions_are_reserved() -> None:
    decoders = (encode.decode_expression, encode._decode_text_atom)
    parts = [part for decoder in decoders for part in ast.walk(ast.parse(inspect.getsource(decoder)))]
    cases = [part.value for part in parts if isinstance(part, ast.MatchValue)]
    assert {case.value for case in cases if isinstance(case, ast.Constant)} == families.OTHER_TAGS


@pytest.mark.parametrize("attribute", ["title", "published", "id", "", "Tint", "dc:creator", "tint.year"])
def test_kind_of_value_cannot_use_an_attribute_of_feeds(attribute: str) -> None:
    with pytest.raises(InputError, match="cannot be the attribute of a kind of value"):
        registry().add(tint(kind=ValueKind("tint", 101, attribute, "x:x")))


def test_every_attribute_of_feeds_is_standard() -> None:
    lines = (adapt.__doc__ or "").splitlines()
    first = next(number for number, line in enumerate(lines) if line.split()[:1] == ["attribute"])
    named = itertools.takewhile(str.strip, lines[first + 1 :])
    vocabulary = {name for line in named for name in re.findall(r"(?<=^    )[a-z]+\b(?!:)|(?<=, )rights", line)}
    assert {"title", "link", "image", "rights"} <= vocabulary
    assert vocabulary - {"graph", "prefix"} <= families.STANDARD_ATTRIBUTES


@pytest.mark.parametrize("code", [-1, 0, 3, 128])
def test_codes_outside_the_allowed_range_are_refused(code: int) -> None:
    with pytest.raises(InputError, match="must be 4 to 127"):
        registry().add(tint(kind=ValueKind("tint", code, "tint", "x:x")))
    assert "tint" not in registry().kinds


@pytest.mark.parametrize("code", [5, 127])
def test_codes_at_the_bounds_are_accepted(code: int) -> None:
    own = Registry.of(*families.BUILT_IN)
    own.add(tint(kind=ValueKind("tint", code, "tint", "x:x")))
    assert own.families["tint"].kind.code == code


def test_two_families_can_read_one_kind_of_value() -> None:
    own = Registry.of(*families.BUILT_IN)
    own.add(tint(kind=families.BUILT_IN[0].kind))
    assert list(own.kinds) == ["graph"]
    assert list(own.families) == ["graph", "tint"]


def test_attribute_named_like_a_family_is_quoted() -> None:
    condition = Contains(Attribute("color"), ("red",))
    assert render(condition) == "\"color\" contains 'red'"
    (parsed,) = parse(f"create feed F from Paint where {render(condition)}")
    assert isinstance(parsed.statement, CreateFeed)
    assert parsed.statement.query.conditions[0].expression == condition


def test_hints_inside_a_pattern_do_not_mention_graph_patterns() -> None:
    with pytest.raises(StatementSyntaxError, match="expected a whole number but found `}`") as refused:
        parse("create feed F from Paint where color { red >= }")
    assert refused.value.hint is None


def test_starts_of_a_syntax_must_be_a_tuple() -> None:
    with pytest.raises(ValueError, match="must be a tuple of texts, not the text 'color'"):
        current_grammar().with_conditions(ConditionSyntax("color", parse_color))


def test_values_are_read_by_their_kind_and_survive_item_files() -> None:
    element = item(1, color=["#FF8800", "#00FF00"], title="#FF8800")
    assert element.attributes["color"] == (Color("#ff8800"), Color("#00ff00"))
    (stored,) = batch_of(element).attributes()
    assert stored == element.attributes
    assert [type(value) for value in stored["color"]] == [Color, Color]
    assert repr(stored["color"][0]) == "Color('#ff8800')"
    with pytest.raises(InvalidItemError, match="#rrggbb"):
        item(1, color="orange")


def test_values_of_different_kinds_and_texts_are_distinct() -> None:
    attributes = {"title": ("#c80000",), "color": (Color("#c80000"),)}
    assert not is_text(attributes["color"][0])
    assert not holds(Contains(Attribute("color"), ("c80000",)), attributes)
    assert holds(Contains(TITLE, ("c80000",)), attributes)
    assert not holds(RED, {"color": ("#c80000",)})
    assert attributes_of({"graph": None, "note": Color("#c80000")})["note"] == ("#c80000",)
    key = key_of((Attribute("color"),), "1", attributes)
    assert key == (("color", "#c80000"),)


def test_reference_evaluator_evaluates_patterns() -> None:
    red, green = {"color": (Color("#c80000"),)}, {"color": (Color("#00ff00"),)}
    assert [holds(RED, value) for value in (red, green, {})] == [True, False, False]
    assert holds(Not(RED), {})
    both = {"color": (*red["color"], *green["color"])}
    # Each pattern may hold of another value, but patterns that share a variable are one.
    assert holds(And((RED, ColorPattern((0, 200, 0)))), both)
    tied = close_condition(And((ColorPattern((200, 0, 0), ("x",)), ColorPattern((0, 200, 0), ("x",)))))
    assert tied == ColorPattern((200, 200, 0), ("x",))
    assert not holds(tied, both)


def test_a_pattern_subsumes_itself_and_existence_of_its_attribute_follows_from_it() -> None:
    assert subsumes(RED, And((RED, ROCK)))
    assert subsumes(Exists(Attribute("color")), RED)
    assert not subsumes(RED, SHADE)


def test_comparisons_that_a_family_cannot_check_are_refused() -> None:
    with pytest.raises(InvalidConditionError, match="a color pattern cannot evaluate") as refused:
        close_condition(And((SHADE, Constraint(Variable("shade"), "=", Literally("#00ff00")))))
    assert refused.value.hint == ColorPattern.constraint_hint


def test_patterns_of_two_families_share_variables_only_through_operators() -> None:
    graph = Graph((Edge("<urn:a>", "<urn:shade>", Variable("shade")),))
    with pytest.raises(InvalidConditionError, match="bound by a color and a graph pattern"):
        close_condition(And((SHADE, graph)))
    near = Call("near", (Given("shade", "text"),), 1)
    term = close_condition(And((SHADE, graph, near)))
    assert isinstance(term, Term)
    assert [pattern.family for pattern in term.patterns] == ["color", "graph"]
    attributes = {
        "color": (Color("#00ff00"), Color("#00c800")),
        "graph": (RdfGraph.of([("<urn:a>", "<urn:shade>", '"#00c800"'), ("<urn:a>", "<urn:shade>", '"none"')]),),
    }
    asked: list[object] = []

    def answers(call: Call) -> tuple[tuple[()], ...]:
        asked.append(call.inputs)
        return ((),)

    assert solutions(And((SHADE, graph, near)), attributes, answers) == [{"shade": "#00c800"}]
    assert asked == [(Literally("#00c800"),)]


@CASES
@given(worlds(), st.data())
def test_every_matcher_matches_base_delta_and_merged_plans_as_defined(
    world: tuple[dict[int, Node], ItemBatch], data: st.DataObject
) -> None:
    definitions, batch = world
    queries = sorted(definitions)
    wanted = expected(definitions, queries, batch)
    early = data.draw(st.lists(st.sampled_from(queries), unique=True))
    base = compiled(definitions, early)
    delta = with_delta(base, definitions, [query for query in queries if query not in early], [])
    whole = merged(delta)
    for plan in (compiled(definitions, queries), delta, whole):
        for matcher in (build_matcher(plan), StreamMatcher(plan), IndexMatcher(plan)):
            assert matched(matcher, batch) == wanted
        bound(plan, batch, definitions, queries)
    removed = data.draw(st.sampled_from(queries))
    others = [query for query in queries if query != removed]
    assert matched(build_matcher(select_queries(whole, others)), batch) == expected(definitions, others, batch)
    assert matched(build_matcher(with_delta(whole, definitions, [], [removed])), batch) == expected(
        definitions, others, batch
    )


def test_a_match_has_the_bindings_of_its_pattern() -> None:
    plan = compiled({10: Filter(Read(1), SHADE)}, [10])
    batch = batch_of(item(1, color=["#00ff00", "#c80000", "#008000"]))
    bindings = PatternBinder(plan).bind(batch, build_matcher(plan).match(batch))
    assert sorted(row["shade"] for row in bindings[0][10].rows) == ["#008000", "#00ff00"]


@settings(CASES, max_examples=20)
@given(worlds())
def test_partitions_match_like_the_whole_plan(world: tuple[dict[int, Node], ItemBatch]) -> None:
    definitions, batch = world
    plan = compiled(definitions, sorted(definitions))
    assert matched(partitioned(plan), batch) == expected(definitions, sorted(definitions), batch)


def test_a_pattern_that_cannot_be_decided_is_reported_with_the_reason_of_its_family(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def doubt_first_row(matcher: ColorMatcher, columns: ItemColumns) -> PatternKeys:
        every = keys(matcher, columns)
        doubted = matcher.layout.keys
        return PatternKeys(every.rows[every.rows > 0], every.keys[every.rows > 0], np.zeros_like(doubted), doubted)

    keys = ColorMatcher.keys
    monkeypatch.setattr(ColorMatcher, "keys", doubt_first_row)
    monkeypatch.setattr(type(COLOR_INDEX), "undecided", "the color cannot be compared")
    plan = compiled({10: Filter(Read(1), RED), 11: Filter(Read(1), Or((RED, ROCK)))}, [10, 11])
    batch = batch_of(item(1, color="#c80000", title="rock"), item(2, color="#c80000"))
    for matcher in (StreamMatcher(plan), IndexMatcher(plan)):
        matches = matcher.match(batch)
        assert [matches.row(row).tolist() for row in range(2)] == [[11], [10, 11]]
        assert [(failure.row, failure.query) for failure in matches.failures] == [(0, 10)]
        assert "the color cannot be compared" in matches.failures[0].reason


def test_a_damaged_index_of_a_family_is_refused() -> None:
    logical = optimize([PlanQuery(10)], {10: Filter(Read(1), RED)})
    laid_out = compute_layout(logical)
    arrays = {**laid_out.layout.arrays, "color.keys": np.array([7_000], dtype=np.int32)}
    folder = f"base-{next(_folders)}"
    type(laid_out)(laid_out.logical, type(laid_out.layout)(arrays, laid_out.layout.seldom)).write_base(
        STORAGE, folder
    )
    with pytest.raises(CorruptDataError, match=r"color\.keys contains an id that is out of range"):
        build_matcher(load(STORAGE, PlanVersion(1, folder))).match(batch_of(item(1, color="#c80000")))


class Echo:
    """An operator that returns whether a text ends in 00, and records its calls."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        self.asked += [question.inputs for question in questions]
        return [((),) if str(question.inputs[0]).endswith("00") else () for question in questions]


def test_operators_receive_variables_of_a_pattern_and_bindings_are_joined() -> None:
    condition = And((SHADE, Call("near", (Given("shade", "text"),), 1)))
    plan = compiled({10: Filter(Read(1), condition)}, [10])
    disjuncts = OperatorDisjuncts.of(plan.operators)
    problem = disjuncts.problem(lambda digest: 0.5, lambda operator: 1.0)
    order, echo = find_order("adaptive")(problem), Echo()
    batch = batch_of(
        item(1, color=["#00ff00", "#00ff01", "#00c800"]), item(2, color="#00ff01"), item(3, color="#c80000")
    )
    decisions = Decider(disjuncts, problem, lambda *_: order, echo).decide(batch, build_matcher(plan).match(batch))
    assert [decisions.matches.row(row).tolist() for row in range(3)] == [[10], [], []]
    assert sorted(row["shade"] for row in decisions.bindings[0][10]) == ["#00c800", "#00ff00"]
    assert sorted(map(str, echo.asked)) == ["('#00c800',)", "('#00ff00',)", "('#00ff01',)", "('#00ff01',)"]


def test_why_shows_the_parts_of_a_pattern_and_what_satisfies_them() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), And((ROCK, ColorPattern((200, 128, 0), ("shade",)))))}
    value = item(1, title="rock", color=["#c80000", "#ff8800"])
    search = _pattern_search(value, definitions)
    assert search is not None
    lines = trace_node(Read(10), 1, value.attributes, definitions, {1: "Paint", 10: "Warm"}, search=search).lines()
    assert [line.strip() for line in lines][-3:] == [
        "✓ color { red >= 200 green >= 128 ?shade }",
        "✓ red >= 200  [#ff8800]",
        "✓ green >= 128  [#ff8800]",
    ]
    other = item(2, title="rock", color="#c80000")
    lines = trace_node(Read(10), 1, other.attributes, definitions, {1: "Paint", 10: "Warm"}).lines()
    assert [line.strip() for line in lines][-2:] == ["✓ red >= 200", "✗ green >= 128"]
    without = item(3, title="rock")
    assert _pattern_search(without, definitions) is None
    lines = trace_node(Read(10), 1, without.attributes, definitions, {1: "Paint", 10: "Warm"}).lines()
    assert lines[-1].strip() == "✗ the item has the attribute color"


def test_explain_shows_patterns_and_compiling_counts_them() -> None:
    plan = compiled({10: Filter(Read(1), And((ROCK, Not(SHADE))))}, [10])
    lines = "\n".join(explain_query(10, plan, {1: "Paint", 10: "Warm"}).lines())
    assert "not color { green >= 128" in lines
    layout = next(cost for cost in compute_layout(plan.base.logical).logical.costs if cost.step == "layout")
    assert layout.counters["color patterns"] == 1


def test_statistics_of_a_family_are_observed() -> None:
    plan = compiled({10: Filter(Read(1), RED)}, [10])
    observed = Observer.of(plan.base).observe(batch_of(item(1, color="#c80000", title="rock")))
    assert observed[1].words == {"rock": 1, " #c80000": 1}


def test_slot_uses_have_room_for_more_kinds_of_keys() -> None:
    atoms = compute_atom_layout(optimize([PlanQuery(10)], {10: Filter(Read(1), And((ROCK, RED)))}))
    assert atoms.slot_uses.dtype == np.uint16
    assert max(SlotUse) < 1 << 15
    assert atoms.families() == ["color"]
    assert len(atoms.atoms_of("color")) == 1
    assert not len(atoms.atoms_of("graph"))


def test_plans_without_patterns_have_no_arrays_of_families() -> None:
    laid_out = compute_layout(optimize([PlanQuery(10)], {10: Filter(Read(1), ROCK)}))
    assert not [name for name in laid_out.layout.every() if name.startswith(("color", "graph"))]
