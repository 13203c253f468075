"""The clause `join last … on … with $v[…]`: parsing, canonical text, binding, and refusals with span and hint."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.algebra.generated_atoms import shares

from runnel.algebra.nodes.attributes import PARTS, WHOLE, Attribute
from runnel.algebra.nodes.expressions import (
    And,
    Compare,
    Contains,
    Exists,
    Expression,
    Not,
    conjunction,
    disjunction,
    negation,
)
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union, groups_of, hide_gates, reads
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.distinct import Distinct
from runnel.algebra.semantics.joins import Join, index_of
from runnel.algebra.values.similarity import DEFAULT_LEAST
from runnel.errors import DuplicateNameError, InvalidConditionError, StatementError, UnknownNameError
from runnel.language.binding.bind_query import bind_query, find_cycle
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import (
    AllTerm,
    Condition,
    CreateFeed,
    FeedTerm,
    GroupTerm,
    JoinClause,
    Name,
    Preview,
    QueryText,
)
from runnel.model.feed import ADMIN

FEEDS = {"News": 1, "Blogs": 2, "Photos": 3, "Videos": 4, "Tweets": 5}
TITLE, LINK, PRICE = Attribute("title"), Attribute("link"), Attribute("price")
YEAR = Attribute("published", "year")
MUSE_PHOTOS = """create feed MusePhotos from (RockConcerts as $r | MuseNews) as $main
  join last 3 months on (MusicPhotos as $m | FriendsPhotos) as $photos with $main[title similar window.title]
  join last 500 items on Tweets with $r[link shares window.link and language = window.language]
  where $r[description contains 'Muse'] and $m[category = 'rock'];"""
JOIN = "join last 3 days on Photos with $n[title = window.title]"
EXAMPLE = "from News as $n join last 3 days on Photos with $n[title similar window.title]"


def create(text: str) -> CreateFeed:
    statement = parse(text)[0].statement
    assert isinstance(statement, CreateFeed)
    return statement


def bind(text: str) -> Node:
    return bind_query(create(f"create feed F {text}").query, FEEDS.get, lambda: FEEDS)


def window_atom(relation: str, attribute: Attribute = TITLE, window: Attribute = TITLE) -> Expression:
    least = DEFAULT_LEAST if relation == "similar" else None
    return WindowAtom(relation, attribute, window, least)  # type: ignore[arg-type, return-value]


def same_title(name: str, extent: timedelta | int = timedelta(days=3)) -> Join:
    return Join(extent, window_atom("="), name)


def has(attribute: str, word: str) -> Expression:
    return Contains(Attribute(attribute), (word,))


# Parsing.


def test_the_muse_photos_of_roses() -> None:
    statement = create(MUSE_PHOTOS)
    r, m, main, photos = (Name(name) for name in ("r", "m", "main", "photos"))
    shares_link = window_atom("shares", LINK, LINK)
    same_language = window_atom("=", Attribute("language"), Attribute("language"))
    assert statement.query == QueryText(
        GroupTerm((FeedTerm(Name("RockConcerts"), r), FeedTerm(Name("MuseNews"))), main),
        (
            Condition(r, has("description", "muse")),
            Condition(m, Compare(Attribute("category"), "=", "rock")),
        ),
        None,
        (
            JoinClause(
                timedelta(days=90),
                GroupTerm((FeedTerm(Name("MusicPhotos"), m), FeedTerm(Name("FriendsPhotos"))), photos),
                main,
                window_atom("similar"),
            ),
            JoinClause(500, FeedTerm(Name("Tweets")), r, And((shares_link, same_language))),
        ),
    )
    assert parse(print_statement(statement))[0].statement == statement


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("title = window.title", window_atom("=")),
        ("title != window.title", Not(window_atom("="))),
        ("title <> window.title", Not(window_atom("="))),
        ("price < window.price", window_atom("<", PRICE, PRICE)),
        ("price <= window.price", window_atom("<=", PRICE, PRICE)),
        ("price > window.price", window_atom(">", PRICE, PRICE)),
        ("price >= window.price", window_atom(">=", PRICE, PRICE)),
        ("title similar window.title", window_atom("similar")),
        ("title SIMILAR TO WINDOW.title", window_atom("similar")),
        ("title similar window.title at least 0.6", WindowAtom("similar", TITLE, TITLE, Fraction(3, 5))),
        ("title not similar to window.title", Not(window_atom("similar"))),
        ("item contains window.title", window_atom("contains", WHOLE)),
        ("title contains window.item", window_atom("contains", TITLE, WHOLE)),
        ('title contains window."item"', window_atom("contains", TITLE, Attribute("item"))),
        ("link references window.link", window_atom("references", LINK, LINK)),
        ("link extends window.link", window_atom("extends", LINK, LINK)),
        ("item shares window.item", window_atom("shares", WHOLE, WHOLE)),
        ("link not shares window.link", Not(window_atom("shares", LINK, LINK))),
        ("published.year = window.published.year", window_atom("=", YEAR, YEAR)),
        ('"window" = window."dc:title"', window_atom("=", Attribute("window"), Attribute("dc:title"))),
        (
            "title = window.title and (price < window.price or title exists)",
            conjunction(
                [window_atom("="), disjunction([window_atom("<", PRICE, PRICE), Exists(TITLE)])],
            ),
        ),
    ],
)
def test_every_relation_compares_with_the_window(condition: str, expected: Expression) -> None:
    query = create(f"create feed F from News as $n join last 10 items on Photos with $n[{condition}]").query
    assert query.joins[0].condition == expected


@pytest.mark.parametrize(
    ("window", "extent"),
    [
        ("1 second", timedelta(seconds=1)),
        ("3 months", timedelta(days=90)),
        ("366 days", timedelta(days=366)),
        ("1 items", 1),
        ("1000000 items", 1_000_000),
    ],
)
def test_windows_of_time_and_of_items(window: str, extent: timedelta | int) -> None:
    query = create(f"create feed F from News as $n join last {window} on Photos with $n[title = window.title]").query
    assert query.joins[0].extent == extent


def test_a_condition_without_an_index_is_allowed_in_a_small_window() -> None:
    query = create(
        "create feed F from News as $n join last 10000 items on Photos with $n[price < window.price]"
    ).query
    assert query.joins[0].extent == 10_000


def test_joins_stand_between_the_source_and_distinct() -> None:
    statement = create(f"create feed F from News as $n {JOIN} {JOIN} distinct by title where price = 1")
    assert len(statement.query.joins) == 2
    assert isinstance(statement.query.gate, Distinct)
    assert len(statement.query.conditions) == 1


def test_a_window_may_read_all_feeds() -> None:
    window = create(
        "create feed F from News as $n join last 3 days on all feeds tagged art as $p with $n[title = window.title]"
    ).query.joins[0]
    assert window.window == AllTerm(("art",), Name("p"))


# Canonical text.


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        (
            "create feed F from News as $n JOIN LAST 72 hours ON Photos WITH $n[title similar to window.title]",
            "create feed F from News as $n join last 3 days on Photos with $n[title similar window.title];",
        ),
        (
            "create feed F from (News as $n) join last 7 items on (Photos | Videos) as $p "
            "with $n[title similar window.title at least 0.50 and title != window.item]",
            "create feed F from (News as $n) join last 7 items on (Photos | Videos) as $p "
            "with $n[title similar window.title and not title = window.item];",
        ),
        (
            "create feed F from News as $n join last 1 day on Photos with $n[x=window.x] distinct where $n[y=1]",
            "create feed F from News as $n join last 1 day on Photos with $n[x = window.x] distinct where $n[y = 1];",
        ),
    ],
)
def test_the_canonical_form(written: str, canonical: str) -> None:
    assert print_statement(parse(written)[0].statement) == canonical
    assert print_statement(parse(canonical)[0].statement) == canonical


names = st.sampled_from(["title", "link", "dc:title", "item", "window", "join", "a'b", "from", "x_1"])
textual = (names.map(Attribute)) | st.just(WHOLE)
located = textual | st.builds(Attribute, names, st.sampled_from(PARTS))
window_atoms = st.one_of(
    st.builds(WindowAtom, st.sampled_from(["=", "<", "<=", ">", ">="]), located, located),
    st.builds(
        WindowAtom,
        st.sampled_from(["contains", "references", "extends", "shares"]),
        textual,
        textual,
    ),
    st.builds(WindowAtom, st.just("similar"), textual, textual, shares),
)
plain_atoms = (
    st.builds(Exists, located)
    | st.builds(Compare, textual, st.sampled_from(["=", "<"]), st.sampled_from([3.0, "it's", True]))
    | st.builds(Contains, textual, st.sampled_from([("rock",), ("rock", "band")]))
)


def combined(atoms: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.recursive(
        atoms,
        lambda inner: (
            st.lists(inner, min_size=2, max_size=3).map(conjunction)
            | st.lists(inner, min_size=2, max_size=3).map(disjunction)
            | inner.map(negation)
        ),
        max_leaves=5,
    )


any_condition = combined(plain_atoms | window_atoms)  # type: ignore[operator]
conditions_with_window = st.builds(
    lambda atom, others: conjunction([atom, *others]),
    window_atoms.filter(lambda atom: index_of(atom) != "none"),
    st.lists(any_condition, max_size=2),
)
variables = st.sampled_from(["n", "main", "x1"]).map(Name)
terms = st.recursive(
    st.builds(FeedTerm, st.sampled_from(["News", "a feed", "last", "items"]).map(Name), st.none() | variables)
    | st.builds(AllTerm, st.sampled_from([(), ("art",)]), st.none() | variables),
    lambda inner: st.builds(GroupTerm, st.lists(inner, min_size=1, max_size=3).map(tuple), st.none() | variables),
    max_leaves=4,
)
extents = st.integers(1, 366 * 86_400).map(lambda seconds: timedelta(seconds=seconds)) | st.integers(1, 1_000_000)
clauses = st.builds(JoinClause, extents, terms, variables, conditions_with_window)
queries = st.builds(
    QueryText,
    terms,
    st.lists(st.builds(Condition, variables, plain_atoms), max_size=2).map(tuple),
    st.none() | st.just(Distinct((TITLE,))),
    st.lists(clauses, min_size=1, max_size=3).map(tuple),
)


@given(queries)
@settings(deadline=None, max_examples=150, derandomize=True)
def test_what_is_printed_parses_to_the_same(query: QueryText) -> None:
    created = CreateFeed(Name("F"), query)
    for statement in (created, Preview(created, back=timedelta(days=1))):
        printed = print_statement(statement)
        parsed = parse(printed)[0].statement
        assert parsed == statement
        assert print_statement(parsed) == printed


# Binding.


def test_a_condition_on_a_window_variable_acts_below_the_window() -> None:
    node = bind(
        "from News as $n join last 2 items on (Photos as $p | Videos) as $all with $n[title = window.title] "
        "where $p[title contains 'rock'] and $all[title contains 'muse'] and title contains 'live'"
    )
    window = Filter(Union((Filter(Read(3), has("title", "rock")), Read(4))), has("title", "muse"))
    assert node == Gated(Filter(Read(1), has("title", "live")), same_title("all", 2), window)


def test_a_join_of_the_whole_source_stands_above_all_conditions() -> None:
    node = bind(f"from (News | Blogs) as $n {JOIN} distinct by title where $n[title contains 'a'] and price = 1")
    below = Filter(Filter(Union((Read(1), Read(2))), has("title", "a")), Compare(PRICE, "=", 1.0))
    assert node == Gated(Gated(below, same_title("join1"), Read(3)), Distinct((TITLE,)))


def test_a_join_of_a_part_concerns_that_part_alone() -> None:
    node = bind(f"from (News as $n | Blogs) as $all {JOIN} where $n[title contains 'a'] and $all[title contains 'b']")
    joined = Gated(Filter(Read(1), has("title", "a")), same_title("join1"), Read(3))
    assert node == Filter(Union((joined, Read(2))), has("title", "b"))


def test_joins_of_the_paper_are_bound_in_order() -> None:
    names_of = {"RockConcerts": 1, "MuseNews": 2, "MusicPhotos": 3, "FriendsPhotos": 4, "Tweets": 5}
    node = bind_query(create(MUSE_PHOTOS).query, names_of.get, lambda: names_of)
    assert isinstance(node, Gated)
    assert isinstance(node.rule, Join)
    assert node.rule.name == "photos"
    assert node.window == Union((Filter(Read(3), Compare(Attribute("category"), "=", "rock")), Read(4)))
    assert isinstance(node.input, Union)
    tweets, news = node.input.inputs
    assert news == Read(2)
    assert isinstance(tweets, Gated)
    assert isinstance(tweets.rule, Join)
    assert (tweets.rule.name, tweets.rule.extent, tweets.window) == ("join2", 500, Read(5))
    assert tweets.input == Filter(Read(1), has("description", "muse"))
    assert list(reads(node)) == [1, 5, 2, 3, 4]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (("Photos", "Photos"), ["join1", "join2"]),
        (("Photos as $p", "Videos"), ["p", "join2"]),
        (("(Photos as $p | Videos)", "(Videos) as $v"), ["join1", "v"]),
        (("all feeds as $every",), ["every"]),
        (("Photos as $join1", "Videos as $join3", "Tweets as $t"), ["join1", "join3", "t"]),
    ],
)
def test_annotations_are_named_by_the_whole_window_or_by_position(windows: list[str], expected: list[str]) -> None:
    joins = " ".join(f"join last 3 days on {window} with $n[title = window.title]" for window in windows)
    node = bind(f"from News as $n {joins}")
    results = []
    while isinstance(node, Gated) and isinstance(node.rule, Join):
        results.append(node.rule.name)
        node = node.input
    assert results[::-1] == expected


def test_a_window_over_all_feeds_is_a_group() -> None:
    node = bind("from News as $n join last 3 days on all feeds tagged art with $n[title = window.title]")
    assert list(groups_of(node)) == [ReadAll(ADMIN, ("art",))]


def test_a_feed_cannot_read_itself_through_a_window() -> None:
    node = bind(f"from News as $n {JOIN}")
    assert find_cycle(3, node, {}) == [3]
    assert find_cycle(9, node, {3: Read(9)}) == [3, 9]
    assert find_cycle(9, node, {}) is None
    hidden: dict[int, Node] = {}

    def hide(window: Node) -> int:
        hidden[20] = window
        return 20

    definition = hide_gates(node, hide)
    assert definition == Gated(Read(1), same_title("join1"), Read(20))
    assert find_cycle(3, definition, hidden) == [20, 3]


# Refusals.


def refusal(text: str) -> tuple[StatementError, str]:
    """The error of a query, and the characters that it marks."""
    whole = f"create feed F {text}"
    with pytest.raises(StatementError) as caught:
        bind_query(create(whole).query, FEEDS.get, lambda: FEEDS)
    span = caught.value.span
    assert span is not None
    assert span.line == 1
    return caught.value, whole[span.column - 1 : span.end_column - 1]


NO_INDEX = "without an equality, words or links to look up, each item would be compared with the whole window"
SMALLER = "add a condition such as topic = window.topic, or join last 10000 items or fewer"
OPERATORS = "the condition of a join cannot have operators or patterns"
MOVE = "move them to the where clause, which filters the items before they are joined"


@pytest.mark.parametrize(
    ("extent", "condition", "message", "hint"),
    [
        ("3 days", "price < window.price", NO_INDEX, SMALLER),
        ("10001 items", "price < window.price", NO_INDEX, SMALLER),
        ("3 days", "title != window.title", NO_INDEX, SMALLER),
        ("3 days", "not title similar window.title", NO_INDEX, SMALLER),
        ("3 days", "title = window.title or price < window.price", NO_INDEX, SMALLER),
        ("3 days", "title = window.title or title exists", NO_INDEX, SMALLER),
        ("3 days", "title = window.title and near('Bronx', ?d)", OPERATORS, MOVE),
        ("3 days", "title = window.title and ?d > 3", OPERATORS, MOVE),
        ("3 days", "title = window.title or not graph { ?x rdf:type ?y }", OPERATORS, MOVE),
        (
            "3 days",
            "title = 'rock' and price > 3",
            "the condition of a join must compare the item with items of the window",
            "compare an attribute with one of the window: with $v[title similar window.title]",
        ),
    ],
)
def test_conditions_that_a_join_cannot_decide(extent: str, condition: str, message: str, hint: str) -> None:
    error, marked = refusal(f"from News as $n join last {extent} on Photos with $n[ {condition} ]")
    assert isinstance(error, InvalidConditionError)
    assert (error.message, marked, error.hint) == (message, condition, hint)


@pytest.mark.parametrize(
    ("condition", "message", "marked", "hint"),
    [
        (
            "window.title = title",
            "expected a condition but found `window`",
            "window",
            "in the condition of a join, write window on the right side: title = window.title",
        ),
        (
            "title matches window.title",
            "expected a text in single quotes but found `window`",
            "window",
            "window can follow =, !=, <, <=, >, >=, contains, similar, references, extends and shares",
        ),
        (
            "price between window.price and 3",
            "expected a constant (a number, 'text', true, false or date '2026-11-15') but found `window`",
            "window",
            "window can follow =, !=, <, <=, >, >=, contains, similar, references, extends and shares",
        ),
        (
            "near(window.title)",
            "expected an argument (an attribute, a constant, or a variable such as ?x) or `)` but found `window`",
            "window",
            "window can follow =, !=, <, <=, >, >=, contains, similar, references, extends and shares",
        ),
        (
            "title = window",
            "expected `.` but found `]`",
            "]",
            "name an attribute of the window item: window.title",
        ),
        (
            "published.year = window.published.yaer",
            "yaer is not a part of a date",
            "yaer",
            "did you mean year?",
        ),
        (
            "published.year similar window.title",
            "published.year is a number and cannot contain text",
            "published",
            "compare it with a number: published.year = 2026",
        ),
        (
            "title contains window.published.year",
            "published.year is a number and cannot contain text",
            "published",
            "compare it with a number: published.year = 2026",
        ),
        (
            "title similar window.title at least 60",
            "similarity must be above 0 and at most 1, with at most 6 digits after the point",
            "60",
            "write 60 percent as 0.6",
        ),
        (
            "title = window.title and $n[price = 1]",
            "a condition on a variable cannot contain another one",
            "$n",
            "combine them with `and`: $a[…] and $b[…]",
        ),
    ],
)
def test_mistakes_in_the_condition(condition: str, message: str, marked: str, hint: str) -> None:
    error, characters = refusal(f"from News as $n join last 3 days on Photos with $n[{condition}]")
    assert (error.message, characters, error.hint) == (message, marked, hint)


def test_window_outside_a_join() -> None:
    for text in (
        "from News where title = window.title",
        "from News as $n where $n[title similar window.title]",
        "from News as $n join last 3 days on Photos with $n[title = window.title] where title contains window.title",
    ):
        error, marked = refusal(text)
        assert error.message == "window can only be used in the condition of a join"
        assert marked == "window"
        assert error.hint == f"write: {EXAMPLE}"


@pytest.mark.parametrize(
    ("window", "message", "marked", "hint"),
    [
        ("0 items", "a window has 1 to 1,000,000 items", "0", "write for example: join last 100 items on …"),
        (
            "1000001 items",
            "a window has 1 to 1,000,000 items",
            "1000001",
            "write for example: join last 100 items on …",
        ),
        ("0 days", "duration must be positive", "0 days", "write at least 1 second"),
        (
            "367 days",
            "a window has at most 366 days",
            "367 days",
            "join the last items instead: join last 100000 items on …",
        ),
        (
            "2 fortnights",
            "fortnights is not a unit of time",
            "fortnights",
            "use seconds, minutes, hours, days, weeks, months, years",
        ),
        (
            "3",
            "expected `items` or a unit of time such as hours but found `on`",
            "on",
            "a window has a unit: join last 3 days on …, or join last 100 items on …",
        ),
        (
            "days",
            "expected a whole number but found `days`",
            "days",
            "a window has a number: join last 3 days on …, or join last 100 items on …",
        ),
    ],
)
def test_windows_that_are_refused(window: str, message: str, marked: str, hint: str) -> None:
    error, characters = refusal(f"from News as $n join last {window} on Photos with $n[title = window.title]")
    assert (error.message, characters, error.hint) == (message, marked, hint)


@pytest.mark.parametrize(
    ("text", "message", "marked", "hint"),
    [
        (
            "from News as $n join Photos on title = title",
            "expected `last` but found `Photos`",
            "Photos",
            f"a join needs a window, by time or by number of items: {EXAMPLE}",
        ),
        (
            "from News as $n join Photos using (title)",
            "expected `last` but found `Photos`",
            "Photos",
            f"a join needs a window, by time or by number of items: {EXAMPLE}",
        ),
        (
            "from News as $n left join Photos on title = title",
            "expected `distinct`, `join`, `where`, `;` or `|` but found `left`",
            "left",
            f"there is one kind of join: {EXAMPLE}",
        ),
        (
            "from News as $n join last 3 days Photos with $n[title = window.title]",
            "expected `on` but found `Photos`",
            "Photos",
            f"is on missing before Photos? write: {EXAMPLE}",
        ),
        (
            "from News as $n join last 3 days on Photos using (title)",
            "expected `as` or `with` but found `using`",
            "using",
            f"the condition of a join follows with: {EXAMPLE}",
        ),
        (
            "from News as $n join last 3 days on Photos as $p on title = title",
            "expected `with` but found `on`",
            "on",
            f"the condition of a join follows with: {EXAMPLE}",
        ),
        (
            "from News as $n join last 3 days on Photos | Videos with $n[title = window.title]",
            "expected `as` or `with` but found `|`",
            "|",
            "several feeds of a window are written in parentheses: join last 3 days on (A | B) with …",
        ),
        (
            "from News as $n join last 3 days on Photos with title = window.title",
            "expected a variable such as $v but found `title`",
            "title",
            f"with names a variable of the from clause: {EXAMPLE}",
        ),
        (
            "from News as $n join last 3 days on Photos with $n title = window.title",
            "expected `[` but found `title`",
            "title",
            "a condition on a variable is written in brackets: $v[title contains 'rock']",
        ),
        (
            "from News as $n join last 3 days on Photos with $n[title = window.title;",
            "expected `]` but found `;`",
            ";",
            "the [ at line 1, column 65 is not closed",
        ),
        (
            f"from News as $n distinct {JOIN}",
            "expected `by`, `where`, `within` or `;` but found `join`",
            "join",
            f"write joins right after the from clause, before distinct and where: {EXAMPLE}",
        ),
        (
            f"from News as $n distinct within 3 days {JOIN}",
            "expected `where` or `;` but found `join`",
            "join",
            f"write joins right after the from clause, before distinct and where: {EXAMPLE}",
        ),
        (
            f"from News as $n where title = 'x' {JOIN}",
            "expected `and`, `or` or `;` but found `join`",
            "join",
            f"write joins right after the from clause, before distinct and where: {EXAMPLE}",
        ),
    ],
)
def test_mistakes_in_the_clause(text: str, message: str, marked: str, hint: str) -> None:
    error, characters = refusal(text)
    assert (error.message, characters, error.hint) == (message, marked, hint)


def test_a_query_has_at_most_eight_joins() -> None:
    assert len(create(f"create feed F from News as $n {' '.join([JOIN] * 8)}").query.joins) == 8
    error, marked = refusal(f"from News as $n {' '.join([JOIN] * 9)}")
    assert isinstance(error, InvalidConditionError)
    assert (error.message, marked) == ("a query has at most 8 joins", "join")
    assert error.hint == "join a view that has some of them"
    assert error.span is not None
    assert error.span.column == len(f"create feed F from News as $n {' '.join([JOIN] * 8)} ") + 1


@pytest.mark.parametrize(
    ("text", "marked", "hint"),
    [
        (f"from News {JOIN}", "$n", "define it after a feed or a group of the from clause: as $n"),
        (f"from News as $main {JOIN}", "$n", "the from clause defines $main"),
        (
            "from News as $main join last 3 days on Photos with $mian[title = window.title]",
            "$mian",
            "did you mean $main?",
        ),
        (
            "from News as $news join last 3 days on Photos as $p with $p[title = window.title]",
            "$p",
            "the from clause defines $news",
        ),
    ],
)
def test_with_names_a_variable_of_the_source(text: str, marked: str, hint: str) -> None:
    error, characters = refusal(text)
    assert isinstance(error, UnknownNameError)
    assert error.message == f"`with` must name a variable of the `from` clause, and {marked} is not one"
    assert (characters, error.hint) == (marked, hint)


def test_unknown_names() -> None:
    error, marked = refusal("from News as $n join last 3 days on Photso with $n[title = window.title]")
    assert isinstance(error, UnknownNameError)
    assert (error.message, marked, error.hint) == ("there is no feed Photso", "Photso", "did you mean Photos?")
    error, marked = refusal(f"from News as $n {JOIN} where $photos[title exists]")
    assert isinstance(error, UnknownNameError)
    assert (error.message, marked) == ("there is no variable $photos", "$photos")
    assert error.hint == "the from clause defines $n"


def test_duplicate_names() -> None:
    error, marked = refusal("from News as $n join last 3 days on Photos as $n with $n[title = window.title]")
    assert isinstance(error, DuplicateNameError)
    assert (error.message, marked, error.hint) == (
        "the variable $n is defined twice",
        "$n",
        "rename one of the two variables",
    )
    assert error.span is not None
    assert error.span.column == len("create feed F from News as $n join last 3 days on Photos as ") + 1
    first = "from News as $n join last 3 days on Photos as $join2 with $n[title = window.title] "
    error, marked = refusal(first + JOIN)
    assert isinstance(error, DuplicateNameError)
    assert (error.message, marked) == ("two joins of this query are called join2", "join")
    assert error.hint == "name the window of one of them: join last … on … as $photos"
    assert error.span is not None
    assert error.span.column == len("create feed F " + first) + 1
