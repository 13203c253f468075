"""Calling operators: batches, cached answers, concurrency, failures, budgets and cache keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.matching.operators.ask.asked_plugins import declared, plugins

from runnel.matching.operators.ask.budget import (
    FIRST_PAUSE_SECONDS,
    MAX_FAILURES,
    MAX_PAUSE_SECONDS,
    Breaker,
    CallAllowance,
)
from runnel.matching.operators.ask.cache_files import write_segment
from runnel.matching.operators.ask.caller import Caller
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.matching.operators.ask.question_keys import Contents, KeyMaker
from runnel.matching.operators.plugins.contract import Answer, FailedCall, Input, Question
from runnel.model.item import Attributes, Value
from runnel.model.operator import HOLDS, Budget, OperatorDeclaration
from runnel.storage.file_storage import open_storage

__all__ = ["plugins"]

Made = Callable[..., Caller]


class Seconds:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def made(plugins: Path) -> Iterator[Made]:
    """Makes callers of some operators, and ends them."""
    callers: list[Caller] = []

    def make(
        *declarations: OperatorDeclaration, clock: Callable[[], float] = time.monotonic, **more: object
    ) -> Caller:
        known = {(declaration.name, declaration.version): declaration for declaration in declarations}
        given: dict[str, Any] = {"modules": ("city",), "processes": 2, "folder": plugins, **more}
        callers.append(Caller(OperatorEnvironment(**given), known, clock=clock))
        return callers[-1]

    yield make
    for caller in callers:
        caller.close()


def about(name: str, attributes: Attributes, *inputs: Input, version: int = 1) -> Question:
    return Question((name, version), attributes, inputs)


def titled(name: str, number: int, *inputs: Input) -> Question:
    return about(name, {"title": (f"item {number}",)}, *inputs)


def reasons(answers: list[Answer]) -> list[str]:
    return [answer.reason if isinstance(answer, FailedCall) else "" for answer in answers]


# --- batches and cached answers -------------------------------------------------------------------------


def test_answers_have_the_order_of_the_questions(made: Made) -> None:
    caller = made(declared("echo", "text", inputs=1), declared("count", "int"), declared("has_title"))
    questions = [titled("echo", 1, "a"), about("count", {}), titled("has_title", 1), titled("echo", 2, "b")]
    questions += [about("has_title", {}), titled("count", 3)]
    assert caller.ask(questions) == [
        (("a",), ("item 1",)),
        ((0.0,),),
        HOLDS,
        (("b",), ("item 2",)),
        (),
        ((1.0,),),
    ]
    assert caller.ask([]) == []


def test_batches_have_the_declared_size(made: Made) -> None:
    caller = made(declared("Batches", "int", "int", batch=7))
    answers = caller.ask([titled("Batches", number) for number in range(17)])
    assert [rows[0][0] for rows in answers if not isinstance(rows, FailedCall)] == [7.0] * 14 + [3.0] * 3


def test_a_pure_operator_is_called_once_per_content(made: Made) -> None:
    caller = made(declared("Batches", "int", "int"), declared("process", "int", pure=False))
    questions = [titled("Batches", number % 3) for number in range(12)]
    first = caller.ask(questions)
    assert {rows[0][0] for rows in first if not isinstance(rows, FailedCall)} == {3.0}
    assert caller.ask(questions) == first
    used = caller.take_learned().operators["Batches 1"]
    assert (used.calls, used.hits) == (3, 12)
    assert used.seconds > 0


def test_an_impure_operator_is_called_every_time(made: Made) -> None:
    caller = made(declared("Batches", "int", "int", pure=False))
    for _ in range(2):
        answers = caller.ask([titled("Batches", 1)] * 5)
        assert {rows[0][0] for rows in answers if not isinstance(rows, FailedCall)} == {5.0}
    used = caller.take_learned().operators["Batches 1"]
    assert (used.calls, used.hits) == (10, 0)
    assert not caller.take_unsaved()


def test_an_operator_receives_only_the_attributes_that_it_reads(made: Made) -> None:
    caller = made(declared("Batches", "int", "int", reads=("title",)), declared("echo", "text", reads=("other",)))
    value = {"title": ("a",), "body": ("x",)}
    other = {"title": ("a",), "body": ("y",)}
    answers = caller.ask([about("Batches", value), about("Batches", other)])
    assert [rows[0][0] for rows in answers if not isinstance(rows, FailedCall)] == [1.0, 1.0]
    assert caller.ask([about("echo", value)]) == [()]


def test_a_question_to_an_unregistered_operator_fails(made: Made) -> None:
    caller = made(declared("has_title"))
    good, bad = caller.ask([titled("has_title", 1), about("has_title", {}, version=2)])
    assert good == HOLDS
    assert isinstance(bad, FailedCall)
    assert "operator has_title version 2 is not registered" in bad.reason


def test_a_changed_declaration_replaces_the_process(made: Made) -> None:
    caller = made(declared("process", "int", pure=False))
    (first,) = caller.ask([titled("process", 1)])
    caller.use_declarations({("process", 1): declared("process", "int", pure=False)})
    assert caller.ask([titled("process", 1)]) == [first], "the same declaration keeps its process"
    caller.use_declarations({("process", 2): declared("process", "int", pure=False, version=2)})
    gone, fresh = caller.ask([titled("process", 1), about("process", {}, version=2)])
    assert isinstance(gone, FailedCall)
    assert fresh != first


# --- concurrency ------------------------------------------------------------------------------------------------


def test_batches_run_concurrently_up_to_the_declared_number(made: Made, plugins: Path) -> None:
    def most_at_once(**more: object) -> int:
        processes = more.pop("processes", 3)
        caller = made(
            declared("slow", "number", "number", pure=False, batch=1, inputs=1, **more),  # type: ignore[arg-type]
            processes=processes,
        )
        answers = caller.ask([titled("slow", number, str(plugins)) for number in range(4)])
        spans = [rows[0] for rows in answers if not isinstance(rows, FailedCall)]
        assert len(spans) == 4
        return max(sum(began <= moment < ended for began, ended in spans) for moment, _ in spans)  # type: ignore[operator]

    assert most_at_once(concurrency=1) == 1
    assert most_at_once(concurrency=3) in (2, 3)
    assert most_at_once(concurrency=9, processes=2) == 2


# --- failures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("raise", "moody: ValueError: a bad day"),
        ("loop", "moody: it took more than 1 seconds"),
        ("kill", "moody: its process was ended by signal 9"),
        ("exit", "moody: its process ended with code 3: gone fishing"),
        ("memory", "moody: it took more than 300 MB of memory"),
        ("text", "moody: it returned 'text' for ?r0, which is not a finite number"),
        ("object", "moody: its answer cannot be encoded as JSON: values of the type object cannot be encoded"),
        ("many", "moody: it returned more than 1,000 rows"),
        ("large", "moody: its answers exceed 67,108,864 bytes"),
    ],
)
def test_an_item_that_fails_an_operator_does_not_fail_the_others(word: str, reason: str, made: Made) -> None:
    caller = made(declared("moody", "number", limit=1.0 if word == "loop" else 20.0), megabytes=300)
    questions = [titled("moody", number) for number in range(6)]
    questions.insert(3, about("moody", {"mood": (word,)}))
    answers = caller.ask(questions)
    assert answers[:3] + answers[4:] == [((1.0,),)] * 6
    assert reasons(answers)[3].startswith(reason)
    learned = caller.take_learned().operators["moody 1"]
    assert learned.failures >= 1
    assert caller.ask(questions[:3]) == [((1.0,),)] * 3
    assert caller.take_learned().operators["moody 1"].hits == 3


def test_a_batch_that_raises_is_retried_call_by_call(made: Made) -> None:
    caller = made(declared("Broken"))
    answers = caller.ask(
        [titled("Broken", 1), about("Broken", {"poison": (True,)}), about("Broken", {"none": (True,)})]
    )
    assert answers == [HOLDS, FailedCall("Broken: RuntimeError: poisoned"), FailedCall("Broken: no model", False)]


def test_a_single_call_whose_process_was_killed_is_retried(made: Made, plugins: Path) -> None:
    caller = made(declared("once", "number", inputs=1))
    assert caller.ask([titled("once", 1, str(plugins))]) == [((1.0,),)]


def test_failures_are_not_cached(made: Made, plugins: Path) -> None:
    caller = made(declared("moody", "number"))
    question = about("moody", {"mood": ("raise",)})
    for _ in range(2):
        assert reasons(caller.ask([question])) == ["moody: ValueError: a bad day"]
    assert caller.take_learned().operators["moody 1"].calls == 2
    assert not caller.take_unsaved()


def test_repeated_timeouts_open_the_breaker(made: Made) -> None:
    clock = Seconds()
    caller = made(declared("moody", "number", limit=0.3, batch=4), clock=clock)
    loops = [about("moody", {"mood": ("sleep",), "number": (float(number),)}) for number in range(40)]
    answers = reasons(caller.ask(loops))
    assert "moody: it took more than 0.3 seconds" in answers
    assert sum("not called because it failed recently" in reason for reason in answers) >= 36
    calls = caller.take_learned().operators["moody 1"].calls
    assert calls <= 4 + 4, "the breaker opens after the first failures"
    clock.now += FIRST_PAUSE_SECONDS - 1
    assert "failed recently" in reasons(caller.ask([titled("moody", 1)]))[0]
    clock.now += 1
    assert caller.ask([titled("moody", 1)]) == [((1.0,),)], "a successful trial ends the pause"
    assert caller.ask([titled("moody", 2)]) == [((1.0,),)]


def test_a_loading_failure_opens_the_breaker_immediately(made: Made) -> None:
    clock = Seconds()
    caller = made(declared("Unmade", batch=1), clock=clock)
    answers = reasons(caller.ask([titled("Unmade", number) for number in range(5)]))
    assert "no such model" in answers[0]
    assert all("failed recently" in reason for reason in answers[1:])


def test_fast_failures_do_not_open_the_breaker(made: Made) -> None:
    caller = made(declared("moody", "number", batch=1))
    questions = [about("moody", {"mood": ("raise",), "number": (float(number),)}) for number in range(10)]
    assert set(reasons(caller.ask(questions))) == {"moody: ValueError: a bad day"}
    assert caller.ask([titled("moody", 1)]) == [((1.0,),)]


# --- budgets -----------------------------------------------------------------------------------------------------


def test_calls_beyond_the_budget_are_not_made(made: Made) -> None:
    clock = Seconds()
    caller = made(declared("count", "int", budget=Budget(calls=10), batch=4), clock=clock, share=0.5)
    answers = caller.ask([titled("count", number) for number in range(8)])
    assert answers[:5] == [((1.0,),)] * 5
    for answer in answers[5:]:
        assert answer == FailedCall("count: over its budget of 10 calls per minute", passing=True)
    assert caller.take_learned().operators["count 1"].calls == 5
    assert caller.ask([titled("count", 2)]) == [((1.0,),)], "cached answers do not count"
    clock.now += 12
    assert reasons(caller.ask([titled("count", 10), titled("count", 11)])) == ["", reasons(answers)[7]]


def test_a_budget_of_seconds_may_be_overdrawn_and_refills() -> None:
    clock = Seconds()
    allowance = CallAllowance(Budget(seconds=6.0), share=0.5, clock=clock)
    assert allowance.take(1000) == 1000
    allowance.spend(5.0)
    assert allowance.take(1) == 0, "two seconds too much"
    clock.now += 39
    assert allowance.take(1) == 0
    clock.now += 2
    assert allowance.take(1) == 1


def test_a_share_below_one_call_accumulates() -> None:
    clock = Seconds()
    allowance = CallAllowance(Budget(calls=1), share=0.25, clock=clock)
    given_calls = 0
    for _ in range(400):
        given_calls += allowance.take(1)
        clock.now += 10
    assert 15 <= given_calls <= 17, "4,000 seconds at a quarter of a call in a minute"


def test_no_budget_means_no_limit_and_zero_allows_no_call() -> None:
    assert CallAllowance(Budget()).take(10**6) == 10**6
    clock = Seconds()
    nothing = CallAllowance(Budget(calls=0), clock=clock)
    clock.now += 1e6
    assert nothing.take(1) == 0


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50)), max_size=30), st.integers(0, 60))
@settings(deadline=None, max_examples=80)
def test_a_budget_is_kept_over_a_long_time(steps: list[tuple[float, int]], calls: int) -> None:
    clock = Seconds()
    allowance = CallAllowance(Budget(calls=calls), clock=clock)
    given_calls = 0
    for wait, wanted in steps:
        clock.now += wait
        given_calls += allowance.take(wanted)
        assert given_calls <= calls * (1 + clock.now / 60) + 1e-6


def test_pauses_of_the_breaker_double_up_to_a_limit() -> None:
    clock = Seconds()
    breaker = Breaker(clock)
    for _ in range(MAX_FAILURES + 5):
        assert breaker.allows() == (breaker.pause_left == 0)
        breaker.record(failed=True)
    assert breaker.pause_left == FIRST_PAUSE_SECONDS, "failures of calls that began earlier do not extend the pause"
    pauses = []
    for _ in range(10):
        clock.now += breaker.pause_left
        assert breaker.allows()
        assert not breaker.allows(), "one trial at a time"
        breaker.record(failed=True)
        pauses.append(breaker.pause_left)
    assert pauses[:3] == [2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS, 8 * FIRST_PAUSE_SECONDS]
    assert pauses[-1] == MAX_PAUSE_SECONDS
    clock.now += MAX_PAUSE_SECONDS
    assert breaker.allows()
    breaker.record(failed=False)
    breaker.record(failed=True)
    assert breaker.allows()


# --- keys and durable answers ------------------------------------------------------------------------------------


def key_of(declaration: OperatorDeclaration, folder: Path | None = None) -> bytes:
    contents = Contents()
    _, content = contents.read({"title": ("a",)}, declaration.reads)
    return KeyMaker(declaration, folder).key(("x",), content)


def test_keys_change_only_with_source_release_parameters_configuration_and_files(tmp_path: Path) -> None:
    result = declared("echo", "text", inputs=1, configuration=(("file", "regions.json"),))
    known = key_of(result, tmp_path)
    assert key_of(declared("echo", "text", inputs=1, version=7, batch=3, configuration=result.configuration)) == known
    others = [
        declared("echo", "text", inputs=1, release="2", configuration=result.configuration),
        declared("echo", "text", inputs=1),
        declared("echo", "number", inputs=1, configuration=result.configuration),
        declared("count", "text", inputs=1, configuration=result.configuration),
    ]
    assert known not in [key_of(other, tmp_path) for other in others]
    (tmp_path / "regions.json").write_text("[]")
    edited = key_of(result, tmp_path)
    assert edited != known
    (tmp_path / "regions.json").write_text("[1]")
    assert key_of(result, tmp_path) not in (known, edited)
    outside = declared("echo", "text", inputs=1, configuration=(("file", f"../{tmp_path.name}/regions.json"),))
    assert key_of(outside, tmp_path) == key_of(outside, None), "files outside the folder are not read"


_VALUES: st.SearchStrategy[Value] = st.one_of(
    st.text(max_size=4), st.booleans(), st.floats(allow_nan=False), st.datetimes()
)
_ATTRIBUTES = st.dictionaries(st.text(min_size=1, max_size=3), st.lists(_VALUES, max_size=3).map(tuple), max_size=3)


@given(_ATTRIBUTES, _ATTRIBUTES)
@settings(deadline=None, max_examples=100)
def test_equal_digests_mean_equal_attributes(one: Attributes, two: Attributes) -> None:
    def shown(attributes: Attributes) -> str:
        return repr(sorted(attributes.items()))

    contents = Contents()
    assert (contents.read(one, ())[1] == contents.read(two, ())[1]) == (shown(one) == shown(two))


def test_another_process_reuses_written_answers(made: Made, plugins: Path) -> None:
    storage = open_storage(f"file://{plugins}/root")
    caller = made(declared("process", "int"))
    questions = [titled("process", number) for number in range(5)]
    answers = caller.ask(questions)
    segment = write_segment(storage, caller.take_unsaved())
    assert segment is not None
    assert segment.answers == 5
    assert write_segment(storage, caller.take_unsaved()) is None, "answers are returned once"
    program = f"""
import json
from tests.unit.matching.operators.ask.asked_plugins import declared
from runnel.storage.file_storage import open_storage
from runnel.matching.operators.ask.caller import Caller
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.matching.operators.plugins.contract import Question
from pathlib import Path
one = declared("process", "int", version=2)
environment = OperatorEnvironment(("city",), folder=Path({str(plugins)!r}))
caller = Caller(environment, {{("process", 2): one}})
caller.use_segments(open_storage({storage.url!r}), [{segment.path!r}, "operators/cache/missing.arrow"])
asked = [Question(("process", 2), {{"title": (f"item {{number}}",)}}) for number in range(6)]
print(json.dumps([caller.ask(asked), caller.take_learned().to_json()]))
caller.close()
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    results, learned = json.loads(done.stdout)
    assert results[:5] == [[list(row) for row in rows] for rows in answers if not isinstance(rows, FailedCall)]
    assert results[5] != results[0]
    assert learned["operators"]["process 2"][0] == 1
    assert learned["operators"]["process 2"][3] == 5
    assert "skipping a cache file of operator answers" in done.stderr
