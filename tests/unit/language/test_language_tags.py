"""Tags: canonical order and case, limits, and error messages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import StatementSyntaxError
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import AllTerm, CreateFeed, Name
from runnel.language.syntax.tag_names import MAX_TAG_LENGTH, MAX_TAGS, fold_tag, read_tags


def created(text: str) -> CreateFeed:
    (parsed,) = parse(text)
    assert isinstance(parsed.statement, CreateFeed)
    return parsed.statement


@pytest.mark.parametrize(
    ("written", "tags", "printed"),
    [
        ("tagged Sport", ("sport",), " tagged sport"),
        ('tagged sport, "SPORT", beta', ("beta", "sport"), " tagged beta, sport"),
        ('tagged "Rock & Pop", "from"', ("from", "rock & pop"), ' tagged "from", "rock & pop"'),
        ("tagged tagged", ("tagged",), " tagged tagged"),
        ("", (), ""),
    ],
)
def test_tags_are_parsed_and_printed(written: str, tags: tuple[str, ...], printed: str) -> None:
    statement = created(f"create or replace feed Rock {written} from Wire where title contains 'rock'")
    assert statement.tags == tags
    assert print_statement(statement) == (
        f"create or replace feed Rock{printed} from Wire where title contains 'rock';"
    )


def test_a_feed_may_be_named_tagged() -> None:
    assert created("create feed tagged tagged a from tagged").tags == ("a",)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("create feed X tagged from Y", "expected a name or a text in single quotes but found `from`", 22),
        ("create feed X tagged a b from Y", "expected", 24),
        (
            f'create feed X tagged a, "{"b" * (MAX_TAG_LENGTH + 1)}" from Y',
            "at most 64 characters, this one has 65",
            25,
        ),
        (f"create feed X tagged {', '.join(f't{n}' for n in range(MAX_TAGS + 1))} from Y", "at most 16 tags", 92),
    ],
)
def test_invalid_tags_are_rejected(text: str, message: str, column: int) -> None:
    with pytest.raises(StatementSyntaxError, match=message) as refused:
        parse(text)
    assert refused.value.span is not None
    assert refused.value.span.column == column


_words = st.text(min_size=1, max_size=20).filter(
    lambda text: "\n" not in text and text.isprintable() and text.strip()
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_words, min_size=1, max_size=MAX_TAGS))
def test_canonical_tags_are_unchanged(texts: list[str]) -> None:
    quoted = ", ".join('"' + text.replace('"', '""') + '"' for text in texts)
    statement = created(f"create feed X tagged {quoted} from Y")
    again = created(print_statement(statement))
    assert again == statement
    assert list(again.tags) == sorted(set(again.tags))
    assert read_tags([Name(tag) for tag in again.tags]) == again.tags
    assert all(fold_tag(tag) == tag for tag in again.tags)


def test_a_tag_may_be_written_as_a_text() -> None:
    (parsed,) = parse("create feed X tagged 'Sport', beta from all feeds tagged 'Two words'")
    assert isinstance(parsed.statement, CreateFeed)
    assert parsed.statement.tags == ("beta", "sport")
    assert parsed.statement.query.source == AllTerm(("two words",))
