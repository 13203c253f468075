"""Meaning: near phrases score above far ones, texts are embedded once, and nothing comes over the network."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.builtin.text import semantic as module
from runnel.matching.operators.builtin.text.semantic import Semantic
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext


@pytest.fixture(scope="module")
def semantic() -> Semantic:
    return Semantic(OperatorContext())


def number(answer: Answer) -> float:
    assert not isinstance(answer, FailedCall)
    ((value,),) = answer
    assert isinstance(value, float)
    return value


@pytest.mark.parametrize(
    ("phrase", "near", "far"),
    [
        ("people dancing in a city", "Hundreds dance at once in the street", "Shares fall as oil gets dearer"),
        ("stock market losses", "Shares fall as oil gets dearer", "Muse play a small hall in Paris"),
        ("rock music concert", "Muse band play guitar on stage", "Parliament passes a new tax law"),
        ("earthquake damage", "Buildings collapse after tremor", "New phone has a better camera"),
    ],
)
def test_similar_meanings_score_higher_than_different_ones(
    semantic: Semantic, phrase: str, near: str, far: str
) -> None:
    value, other, same = semantic.answer(
        [OperatorCall({"title": (text,)}, (phrase,)) for text in (near, far, phrase)]
    )
    assert -1 <= number(other) < number(value) < number(same) <= 1.0
    assert number(same) == pytest.approx(1.0, abs=1e-5)


def test_texts_are_embedded_once_for_all_phrases() -> None:
    semantic = Semantic(OperatorContext())
    titles, phrases = [f"title {n}" for n in range(20)], [f"phrase {n}" for n in range(30)]
    calls = [OperatorCall({"title": (title,)}, (phrase,)) for phrase in phrases for title in titles]
    once, twice = semantic.answer(calls), semantic.answer(calls)
    assert once == twice
    assert (semantic._items.computed, semantic._phrases.computed) == (20, 30)


@pytest.mark.parametrize("attributes", [{}, {"title": ("",)}, {"title": (7.0,)}])
def test_items_without_text_have_no_score(semantic: Semantic, attributes: dict[str, tuple[str, ...]]) -> None:
    assert semantic.answer([OperatorCall(attributes, ("a phrase",))]) == [()]


def test_unusual_texts_have_scores(semantic: Semantic) -> None:
    for text in ("東京", "🎸🎸", "\ud7ff", "x" * 5_000_000, "​", "ا" * 3000):
        (answer,) = semantic.answer([OperatorCall({"title": (text,)}, ("music",))])
        assert answer == () or -1 <= number(answer) <= 1


def test_scores_below_least_and_calls_without_a_phrase() -> None:
    strict = Semantic(OperatorContext({"least": "0.9"}))
    calls = [
        OperatorCall({"title": ("Oil",)}, ("dancing",)),
        OperatorCall({"title": ("Oil",)}, ("oil",)),
        OperatorCall({"title": ("Oil",)}),
    ]
    far, near, wrong = strict.answer(calls)
    assert far == ()
    assert number(near) > 0.9
    assert isinstance(wrong, FailedCall)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(OperatorRefusedError, match="not installed") as caught:
        Semantic(OperatorContext())
    assert "pip install 'runnel-pubsub[semantic]'" in (caught.value.hint or "")


def test_loading_the_model_uses_no_network_and_leaves_logging_unchanged() -> None:
    """In a process of its own, in which every socket is refused."""
    program = """
        import logging, sys

        def refuse(event, arguments):
            if event.startswith(("socket.", "urllib.", "http.")):
                raise SystemExit(f"the network was used: {event}")

        sys.addaudithook(refuse)
        from runnel.matching.operators.builtin.text.semantic import Semantic
        from runnel.matching.operators.plugins.contract import OperatorCall, OperatorContext

        call = OperatorCall({"title": ("Muse on tour",)}, ("a rock band travels",))
        ((score,),), = Semantic(OperatorContext()).answer([call])
        assert not logging.getLogger().handlers and "requests" not in sys.modules
        import socket
        try:
            socket.socket()
        except SystemExit as stopped:
            print(round(score, 1) > 0, stopped)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("True the network was used: socket.__new__", "")
