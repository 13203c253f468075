"""The API of `runnel.connect(…)`: parameters, typed answers, and scripts with questions in them."""

from __future__ import annotations

import pytest

from runnel.engine import Engine
from runnel.errors import Span, StatementError

WIRE = "register feed Wire;"


# --- parameters --------------------------------------------------------------------------------------------------


def test_a_parameter_is_a_constant_of_the_declared_query(engine: Engine) -> None:
    word = "it's; drop feed Wire cascade; --"
    engine.execute(f"{WIRE} create feed Rock from Wire where title = :word;", word=word)
    statement = engine.execute("show feed Rock")[0].data["statement"]
    assert statement == "create feed Rock from Wire where title = 'it''s; drop feed Wire cascade; --';"
    assert engine.test([{"title": word}, {"title": "it's"}]).counts == (("Rock", 1),)


def test_an_unused_parameter_is_refused_before_anything_is_declared(engine: Engine) -> None:
    with pytest.raises(StatementError, match="has no parameter :wrod") as caught:
        engine.execute(f"-- feeds\n{WIRE} create feed Rock from Wire where title = :word;", word="a", wrod="b")
    assert caught.value.span == Span(2, 1, 9)
    assert caught.value.hint == "did you mean word?"
    assert engine.show("feeds").data["feeds"] == []


def test_an_unknown_parameter_is_refused_where_it_stands(engine: Engine) -> None:
    with pytest.raises(StatementError, match="no value was passed for the parameter :word") as caught:
        engine.execute(f"{WIRE}\ncreate feed Rock from Wire where title = :word;")
    assert caught.value.span == Span(2, 42, 47)
    assert engine.show("feeds").data["feeds"] == []


def test_a_parameter_named_like_an_argument_of_execute_is_no_special_case(engine: Engine) -> None:
    answers = engine.execute("register feed Wire; create feed Rock from Wire where title = :text;", text="rock")
    assert [answer.message for answer in answers] == ["registered feed Wire", "created feed Rock"]


def test_phrases_of_parameters_get_their_notes(engine: Engine) -> None:
    engine.execute(WIRE)
    (answer,) = engine.execute("create feed Code from Wire where title contains :word", word="c++")
    assert answer.lines[0].startswith("note: contains 'c++' finds the word c")
