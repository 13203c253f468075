"""Rules: what follows from items, what may not be loaded, and rules that would run for ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.builtin import rules as module
from runnel.matching.operators.builtin.rules import Rules
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext
from runnel.model.item import clean_text
from runnel.model.operator import HOLDS
from runnel.sandbox.rules_program import screen


def answered(program: str, *calls: OperatorCall, **settings: str) -> list[Answer]:
    rules = Rules(OperatorContext({"rules": program, **settings}))
    try:
        return list(rules.answer(calls))
    finally:
        rules.close()


def rows(program: str, attributes: Any, *inputs: Any, **settings: str) -> set[Any]:
    (answer,) = answered(program, OperatorCall(attributes, inputs), **settings)
    assert not isinstance(answer, FailedCall), answer
    return set(answer)


def test_rules_use_negation_and_comparison() -> None:
    program = 'dear(P) :- number(price, P), P > 50.  holds(P) :- dear(P), not has(category, "food").'
    calls = [
        OperatorCall({"price": (60.0,), "category": ("music",)}),
        OperatorCall({"price": (60.0,), "category": ("music", "food")}),
        OperatorCall({"price": (40.0,)}),
        OperatorCall({"price": ("60 euros",)}),
        OperatorCall({}),
    ]
    assert answered(program, *calls) == [((60.0,),), (), (), (), ()]


def test_a_goal_without_arguments_holds_or_not() -> None:
    calls = [OperatorCall({"urgent": (True,)}), OperatorCall({"urgent": (False,)}), OperatorCall({})]
    assert answered("alarm :- has(urgent, true).", *calls, goal="alarm") == [HOLDS, (), ()]


def test_recursive_rules_derive_the_transitive_closure() -> None:
    program = """
        part_of("Bronx", "New York").  part_of("New York", "USA").  part_of("Paris", "France").
        within(A, B) :- part_of(A, B).
        within(A, C) :- within(A, B), part_of(B, C).
        holds(Where) :- has(place, Place), within(Place, Where).
    """
    assert rows(program, {"place": ("Bronx",)}) == {("New York",), ("USA",)}


def test_words_days_numbers_and_inputs_are_facts() -> None:
    attributes = {
        "title": ("Muse on TOUR",),
        "published": (datetime(2026, 11, 15, 9, 30, tzinfo=UTC),),
        "geo:lat": (40.75,),
        "count": (3.0,),
    }
    assert rows('holds(W) :- word(title, W), W != "on".', attributes) == {("muse",), ("tour",)}
    assert rows("holds(D) :- day(published, D), D >= 20261101.", attributes) == {(20261115.0,)}
    assert rows('holds(L) :- number("geo:lat", L).', attributes, scale="100") == {(4075.0,)}
    assert rows('holds(L) :- number("geo:lat", L).', attributes) == {(41.0,)}
    assert rows("holds(N + M) :- number(count, N), input(1, M).", attributes, 4.0) == {(7.0,)}
    assert rows("holds(T) :- input(1, T), text(title, T).", attributes, ("Muse on TOUR", "x")) == {("Muse on TOUR",)}
    assert rows("holds(A) :- has(A, V), number(A, V).", attributes) == {("geo:lat",), ("count",)}


@pytest.mark.parametrize(
    "program",
    [
        "#const which = title. holds(T) :- has(which, T).",
        "holds(T) :- has((title; other), T).",
        "holds(T) :- has(title, T; title, T).",
        "holds(T) :- has(A, T), A = title.",
        "holds(T) :- N = #count { V : has(title, V) }, N = 1, text(title, T).",
        "holds(a) :- any. any :- not none. none :- not some. some :- has(title, T).",
    ],
)
def test_rules_receive_the_facts_of_every_form_of_use(program: str) -> None:
    assert len(rows(program, {"title": ("a",)})) == 1


def test_rules_use_aggregates_and_constants() -> None:
    program = "#const enough = 2. holds(N) :- N = #count { C : has(category, C) }, N >= enough."
    assert rows(program, {"category": ("a", "b", "c")}) == {(3.0,)}
    assert rows(program, {"category": ("a",)}) == set()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=50).map(clean_text), max_size=4))
def test_texts_of_items_are_never_parsed_as_rules(shared: Rules, texts: list[str]) -> None:
    given_texts = tuple(text for text in texts if text)
    hostile = ('"). holds("x', "\\", '"', "a\nb", "%* ", "#script(python)")
    (answer,) = shared.answer([OperatorCall({"title": given_texts + hostile})])
    assert not isinstance(answer, FailedCall)
    assert {text for (text,) in answer} == {*given_texts, *hostile}


@pytest.fixture(scope="module")
def shared() -> Iterator[Rules]:
    rules = Rules(OperatorContext({"rules": "holds(T) :- has(title, T)."}))
    yield rules
    rules.close()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("#script (python) import os #end. holds.", "#script cannot be used"),
        ("# script (lua) x #end. holds.", "#script cannot be used"),
        ("holds.\n#include <incmode>.", "#include cannot be used"),
        ('holds. #include "/etc/passwd".', "#include cannot be used"),
        ("holds. #external a.", "#external cannot be used"),
        ("holds. #program other.", "#program cannot be used"),
        ("holds. #show holds/0.", "#show cannot be used"),
        ("holds. #minimize { 1 : a }.", "#minimize cannot be used"),
        ("holds :- X = @now().", "@ cannot be used"),
        ("holds :- &sum { 1 } > 0.", "& cannot be used"),
        ("holds :- 1 < 99999999999.", "99999999999 is too large"),
        ('holds("a).', "a text has no end"),
        ("holds. %* what", "a comment has no end"),
        ("holds. a%* %* *%", "a comment has no end"),
        ("holds", "unexpected"),
        ("holds :- ,", "unexpected"),
        ("holds(X) :- has(title, T).", "unsafe"),
        ("{ holds }.", "this kind of rule cannot be used"),
        ("holds ; other.", "this kind of rule cannot be used"),
        (":- has(title, T). holds.", "this kind of rule cannot be used"),
        ("-holds.", "this kind of rule cannot be used"),
        ("not holds :- has(a, b).", "this kind of rule cannot be used"),
        ("has(a, 1). holds.", "rules cannot define has"),
        ("other.", "no rule defines holds"),
        ("holds(1). holds(1, 2).", "different number of arguments"),
        ("holds :- not other. other :- not holds.", "no unique result"),
        ("holds :- not holds.", "no unique result"),
        (f"holds. % {'x' * 300_000}", "more than 262144 bytes"),
        ("holds. \0", "NUL"),
    ],
)
def test_invalid_programs_are_refused(program: str, words: str) -> None:
    with pytest.raises(OperatorRefusedError) as caught:
        answered(program)
    assert words in caught.value.message
    assert (caught.value.place or "").startswith("rules, rules")


def test_errors_name_the_line() -> None:
    with pytest.raises(OperatorRefusedError) as caught:
        answered("holds.\n\n% a comment\nother(X) :- has(title, T).")
    assert caught.value.place == "rules, rules, line 4"


def test_directives_in_texts_and_comments_are_ignored() -> None:
    assert (
        screen('holds("#script @ & 99999999999"). % #include\n%* "#script %* @ *% 99999999999 *% holds(1).') is None
    )


@pytest.mark.parametrize(
    "program", ["n(0). n(X + 1) :- n(X). holds :- n(5).", "p(1..3000). holds :- p(X), p(Y), p(Z), X + Y = Z * 7919."]
)
def test_rules_that_run_forever_are_refused(program: str) -> None:
    with pytest.raises(OperatorRefusedError, match="the rules were stopped"):
        answered(program, seconds="0.5", megabytes="64")


def test_an_item_that_makes_rules_run_forever_fails_only_its_call() -> None:
    program = "n(X) :- number(start, X). n(X + 1) :- n(X), X > 0. holds(X) :- n(X), X <= 0."
    calls = [OperatorCall({"start": (0.0,)}), OperatorCall({"start": (1.0,)}), OperatorCall({"start": (-5.0,)})]
    before, stopped, after = answered(program, *calls, seconds="1", megabytes="64")
    assert (before, after) == (((0.0,),), ((-5.0,),))
    assert isinstance(stopped, FailedCall)
    assert not stopped.passing
    assert stopped.reason.startswith("the rules were stopped: they took more than")


def test_memory_is_limited() -> None:
    program = "p(1..X) :- number(size, X). q(A, B) :- p(A), p(B). holds :- q(1, 1)."
    small, large = answered(
        program, OperatorCall({"size": (3.0,)}), OperatorCall({"size": (9000.0,)}), seconds="30", megabytes="64"
    )
    assert small == HOLDS
    assert large == FailedCall("the rules were stopped: they took more than 64 megabytes of memory", passing=False)


def test_a_batch_stays_within_the_time_limit() -> None:
    program = "n(X) :- number(start, X). n(X + 1) :- n(X). holds :- n(-1)."
    rules = Rules(OperatorContext({"rules": program, "seconds": "0.3", "megabytes": "512"}, time_limit=0.5))
    answers = rules.answer([OperatorCall({"start": (0.0,)})] * 20)
    rules.close()
    assert all(isinstance(answer, FailedCall) for answer in answers)
    assert answers[-1] == FailedCall("previous items of the batch used up the time limit")


def test_a_number_that_is_too_large_fails_only_its_call() -> None:
    calls = [OperatorCall({"views": (3e9,)}), OperatorCall({"other": (3e9,), "views": (7.0,)})]
    large, fine = answered("holds(N) :- number(views, N).", *calls)
    assert isinstance(large, FailedCall)
    assert "the value of views is too large" in large.reason
    assert fine == ((7.0,),)


def test_an_item_with_too_many_facts_fails_only_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FACTS", 3)
    many, few = answered(
        "holds :- has(A, V).", OperatorCall({"a": ("1", "2", "3", "4")}), OperatorCall({"a": ("1",)})
    )
    assert isinstance(many, FailedCall)
    assert few == HOLDS


def test_a_call_with_too_many_rows_fails_only_itself() -> None:
    program = "p(1..X) :- number(size, X). holds(A, B) :- p(A), p(B)."
    many, few = answered(
        program, OperatorCall({"size": (400.0,)}), OperatorCall({"size": (2.0,)}), seconds="20", megabytes="1024"
    )
    assert many == FailedCall("the rules give more than 1000 rows or 4 MB", passing=False)
    assert not isinstance(few, FailedCall)
    assert len(few) == 4


def test_a_killed_process_is_replaced(shared: Rules) -> None:
    assert shared._process is not None
    os.kill(shared._process.pid, signal.SIGKILL)
    first, second = shared.answer([OperatorCall({"title": ("a",)}), OperatorCall({"title": ("b",)})])
    assert first == FailedCall("the rules were stopped: their process ended unexpectedly")
    assert second == (("b",),)


def test_a_process_is_replaced_after_a_number_of_items(monkeypatch: pytest.MonkeyPatch, shared: Rules) -> None:
    monkeypatch.setattr(module, "MAX_SERVED", 2)
    pids = set()
    for _ in range(5):
        assert shared.answer([OperatorCall({"title": ("a",)})]) == [(("a",),)]
        assert shared._process is not None
        pids.add(shared._process.pid)
    assert len(pids) >= 2


def test_rules_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "review.lp").write_text("holds(T) :- has(title, T).", "utf-8")
    rules = Rules(OperatorContext({"file": "review.lp"}, tmp_path))
    assert rules.answer([OperatorCall({"title": ("a",)})]) == [(("a",),)]
    rules.close()
    (tmp_path / "review.lp").write_text("\nholds(T", "utf-8")
    with pytest.raises(OperatorRefusedError, match="rules, file, line 2"):
        Rules(OperatorContext({"file": "review.lp"}, tmp_path))
    for settings_ in (
        {},
        {"file": "review.lp", "rules": "holds."},
        {"file": "../review.lp"},
        {"rules": "a.", "goal": "A"},
    ):
        with pytest.raises(OperatorRefusedError):
            Rules(OperatorContext(settings_, tmp_path))
