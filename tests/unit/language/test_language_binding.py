"""Binding of queries: names, conditions on variables, and cycles of feeds."""

from __future__ import annotations

import time

import pytest

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Contains, Expression
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.errors import DuplicateNameError, Span, UnknownNameError
from runnel.language.binding.bind_query import bind_query, find_cycle
from runnel.language.grammar.parser import parse
from runnel.language.nearest import nearest
from runnel.language.syntax.statements import AllTerm, CreateFeed, FeedTerm, GroupTerm, Name, each_term

FEEDS = {"A": 1, "B": 2, "C": 3, "News": 4}


def bind(text: str) -> Node:
    statement = parse(f"create feed F {text}")[0].statement
    assert isinstance(statement, CreateFeed)
    return bind_query(statement.query, FEEDS.get, lambda: FEEDS)


def test_each_term_yields_groups_before_their_members() -> None:
    a, b, c = (FeedTerm(Name(name)) for name in "ABC")
    inner = GroupTerm((b, AllTerm()))
    whole = GroupTerm((a, inner, c))
    assert list(each_term(whole)) == [whole, a, inner, b, AllTerm(), c]
    assert list(each_term(a)) == [a]


def has(word: str) -> Expression:
    return Contains(Attribute("t"), (word,))


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("from A", Read(1)),
        ("from (A)", Read(1)),
        ("from ((A as $a)) as $b", Read(1)),
        ("from A | B", Union((Read(1), Read(2)))),
        ("from A | A", Union((Read(1), Read(1)))),
        ("from A | (B | C)", Union((Read(1), Union((Read(2), Read(3)))))),
        ("from A where t contains 'x'", Filter(Read(1), has("x"))),
        ("from A as $a | B where $a[t contains 'x']", Union((Filter(Read(1), has("x")), Read(2)))),
        ("from (A | B) as $r where $r[t contains 'x']", Filter(Union((Read(1), Read(2))), has("x"))),
        (
            "from A as $a where $a[t contains 'x'] and $a[t contains 'y']",
            Filter(Read(1), And((has("x"), has("y")))),
        ),
        (
            "from (A as $a) as $g where t contains 'z' and $g[t contains 'y'] and $a[t contains 'x']",
            Filter(Filter(Filter(Read(1), has("x")), has("y")), has("z")),
        ),
    ],
)
def test_bind_query(text: str, node: Node) -> None:
    assert bind(text) == node


def test_example_query_of_the_roses_paper() -> None:
    # RoSeS §3.1 and its algebra in §3.2.
    node = bind("from (A | B as $ca | C) as $r where $ca[t contains 'rock'] and $r[t contains 'concert']")
    assert node == Filter(Union((Read(1), Filter(Read(2), has("rock")), Read(3))), has("concert"))


def test_unknown_feed_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="there is no feed Nwes") as caught:
        bind("from A |\n Nwes")
    assert caught.value.hint == "did you mean News?"
    assert caught.value.span == Span(2, 2, 6)


def test_unknown_feed_without_a_similar_name() -> None:
    with pytest.raises(UnknownNameError) as caught:
        bind("from Zzzzzzz")
    assert "show feeds" in (caught.value.hint or "")


def test_names_are_listed_only_after_an_error() -> None:
    statement = parse("create feed F from A")[0].statement
    assert isinstance(statement, CreateFeed)

    def names() -> list[str]:
        raise AssertionError("a catalog's names are many")

    assert bind_query(statement.query, FEEDS.get, names) == Read(1)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("from A as $main where $mian[x = 1]", "did you mean $main?"),
        ("from A as $a where $zzz[x = 1]", "the from clause defines $a"),
        ("from A where $v[x = 1]", "define it after a feed or a group of the from clause: as $v"),
    ],
)
def test_unknown_variable_is_rejected(text: str, hint: str) -> None:
    with pytest.raises(UnknownNameError, match="there is no variable") as caught:
        bind(text)
    assert caught.value.hint == hint
    assert caught.value.span is not None
    assert caught.value.span.column == len("create feed F ") + text.index("where $") + len("where ") + 1


@pytest.mark.parametrize("text", ["from A as $a | B as $a", "from (A as $a | B) as $a", "from ((A as $a)) as $a"])
def test_variable_that_is_defined_twice_is_rejected(text: str) -> None:
    with pytest.raises(DuplicateNameError, match=r"\$a is defined twice") as caught:
        bind(text)
    assert caught.value.span is not None
    assert caught.value.span.column == len("create feed F ") + text.rindex("$a") + 1


@pytest.mark.parametrize(
    ("node", "path"),
    [
        (Read(1), [1]),
        (Read(2), None),
        (Read(4), [4, 3, 1]),
        (Union((Read(2), Filter(Read(3), has("x")))), [3, 1]),
        (Read(9), None),
    ],
)
def test_find_cycle(node: Node, path: list[int] | None) -> None:
    assert find_cycle(1, node, {3: Union((Read(2), Read(1))), 4: Read(3), 9: Read(9)}) == path


def test_find_cycle_is_linear_and_does_not_recurse() -> None:
    count = 50_000
    # Every feed reads the two before it: there are exponentially many paths, and a chain longer than Python's stack.
    definitions: dict[int, Node] = {i: Union((Read(i - 1), Read(i - 2))) for i in range(2, count)}
    started = time.process_time()
    path = find_cycle(0, Read(count - 1), definitions)
    assert path is not None
    assert (path[0], path[-1], len(path)) == (count - 1, 0, count // 2 + 1)
    assert find_cycle(count, Read(count - 1), definitions) is None
    assert time.process_time() - started < 10


def test_nearest_takes_limited_time_for_a_million_names() -> None:
    started = time.process_time()
    assert nearest("x" * 100, ["x" * 99]) is None
    nearest("Feed123x", (f"Feed{i}" for i in range(300_000)))
    assert time.process_time() - started < 5
