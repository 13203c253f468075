"""Texts as they are accepted: composed, without what no file can carry, and never at a quadratic price."""

from __future__ import annotations

import re
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.model.item import clean_text

BELOW, ABOVE, JOINER = "\u0316", "\u0301", "\u034f"
hostile = st.lists(st.tuples(st.sampled_from("ab é東"), st.text(st.sampled_from(BELOW + ABOVE), max_size=100)))


@given(st.text())
@settings(deadline=None, max_examples=200)
def test_ordinary_texts_are_only_composed(text: str) -> None:
    plain = text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    assert clean_text(text) == unicodedata.normalize("NFC", plain)


@given(hostile)
@settings(deadline=None, max_examples=200)
def test_runs_of_combining_marks_have_at_most_thirty(pieces: list[tuple[str, str]]) -> None:
    text = "".join(letter + marks for letter, marks in pieces)
    cleaned = clean_text(text)
    assert max(map(len, re.findall(f"[{BELOW}{ABOVE}]+", cleaned)), default=0) <= 30
    longest = max(map(len, re.findall(f"[{BELOW}{ABOVE}]+", text)), default=0)
    assert (JOINER in cleaned) == (longest > 30)
    assert unicodedata.is_normalized("NFC", cleaned)


def test_million_marks_on_one_letter_take_linear_time() -> None:
    text = "a" + ABOVE * 250_000 + BELOW * 250_000  # put in order all at once, they would take minutes
    assert len(clean_text(text)) >= len(text)
