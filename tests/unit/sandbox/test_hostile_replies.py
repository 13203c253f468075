"""Replies of compromised sandboxes are rejected unless they have the expected form."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.sandbox import rules_process, stylesheet_process
from runnel.sandbox.process import BadReplyError, EndCause, SandboxError
from runnel.sandbox.rules_child import MAX_ROWS
from runnel.sandbox.rules_child import ReplyKind as RulesReply
from runnel.sandbox.stylesheet_child import REPLY
from runnel.sandbox.stylesheet_child import ReplyKind as StylesheetReply

REPLY_ERRORS = (ValueError, LookupError, OverflowError, RecursionError)
"""Exceptions that count as a bad reply. BadReplyError is a ValueError."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def rules_reply(kind: int, value: Any) -> memoryview:
    return memoryview(bytes([kind]) + json.dumps(value).encode())


@given(
    st.binary(max_size=50)
    | st.builds(lambda kind, value: bytes(rules_reply(kind, value)), st.sampled_from(RulesReply), JSON)
)
def test_replies_for_rules_have_the_expected_form_or_are_rejected(reply: bytes) -> None:
    try:
        kind, value = rules_process._read_reply(memoryview(reply))
    except REPLY_ERRORS:
        return
    match kind:
        case RulesReply.ROWS:
            assert all(type(cell) in (int, str, bool) for row in value for _, cell in row)
        case RulesReply.READY:
            assert int(value["places"]) == value["places"]
            assert all(
                names is None or all(isinstance(name, str) for name in names) for names in value["needs"].values()
            )
        case _:
            problem = rules_process._problem(value)
            assert len(problem.message) <= 400


@pytest.mark.parametrize(
    "rows",
    [
        [[["number", "1"]]],
        [[["number", 1.5]]],
        [[["number", True]]],
        [[["truth", 1]]],
        [[["code", "x"]]],
        [[["number", 1, 2]]],
        [["number", 1]],
        [None],
        {"rows": []},
        [[]] * (MAX_ROWS + 1),
    ],
)
def test_rows_of_another_form_are_rejected(rows: Any) -> None:
    with pytest.raises(BadReplyError):
        rules_process._read_reply(rules_reply(RulesReply.ROWS, rows))


def test_maximum_number_of_rows_is_accepted() -> None:
    assert len(rules_process._read_reply(rules_reply(RulesReply.ROWS, [[]] * MAX_ROWS))[1]) == MAX_ROWS


@given(st.binary(max_size=50))
def test_replies_for_stylesheets_have_a_known_kind_or_are_rejected(reply: bytes) -> None:
    try:
        outcome = stylesheet_process._read_reply(memoryview(reply))
    except REPLY_ERRORS:
        return
    assert outcome.kind in StylesheetReply
    assert outcome.data == reply[REPLY.size :]


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (EndCause.MEMORY, "they took more than 64 megabytes of memory"),
        (EndCause.CRASHED, "the solver crashed, possibly because it needs more than 64 megabytes of memory"),
        (EndCause.CPU_TIME, "they took more than 3 seconds of CPU time"),
    ],
)
def test_stopped_rules_are_reported_with_the_cause(
    monkeypatch: pytest.MonkeyPatch, cause: EndCause, reason: str
) -> None:
    def stop(*_arguments: object, **_limits: object) -> None:
        raise SandboxError("ended", cause, 0)

    monkeypatch.setattr(rules_process, "SandboxProcess", lambda program: SimpleNamespace(ask=stop))
    with pytest.raises(rules_process.RulesProcessError) as caught:
        rules_process.RulesProcess("holds.", "holds", rules_process.RulesLimits(3, 64))
    assert (caught.value.reason, caught.value.passing) == (reason, False)
