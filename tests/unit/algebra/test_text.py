"""Words of texts and their spans, in different scripts."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.algebra.values.words import wild_words, word_spans, words

AWKWARD = (
    "aAßŉǰİıΣςéﬃᾳ'’nNtTʼ -_1東かก가"
    + "\u0301\u0307\u0345\u0f73\u0f71\u1100\u1161\u11a8\u00ad\u200b\ufe0f\u3099\u0e31\u0344\u212b"
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),  # a final sigma is a sigma
        ("STRASSE", "straße"),
        ("ﬁnale", "FINALE"),
        ("Å", "\u212b"),
        ("e\u0301", "É"),
        ("각", "\u1100\u1161\u11a8"),  # Hangul, composed and not
        ("soft\u00adhyphen", "softhyphen"),
        ("葛\U000e0100飾", "葛飾"),  # a selector of a glyph is not a letter
        ("a\u200fb", "ab"),
        ("don’t", "don't"),
        ("donʼt", "DON'T"),
        ("об’єкт", "обʼєкт"),  # Ukrainian is typed with either
        ("rock'n'roll", "rock 'n' roll"),
    ],
)
def test_different_spellings_of_a_word_are_equal(one: str, other: str) -> None:
    assert words(one) == words(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("İstanbul", "istanbul"),  # folding knows no language: the dot of a Turkish capital stays
        ("ırmak", "irmak"),
        ("resume", "résumé"),  # marks matter
        ("Straße", "strase"),
        ("won't", "won t"),
    ],
)
def test_different_words_are_not_equal(one: str, other: str) -> None:
    assert words(one) != words(other)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("İstanbul", ["i\u0307stanbul"]),
        ("한국어 단어", ["한국어", "단어"]),  # Hangul is written with spaces
        ("สวัสดี", ["ส", "ว", "ั", "ส", "ด", "ี"]),
        ("พ.ศ. ๒๕๖๙", ["พ", "ศ", "๒๕๖๙"]),  # digits make one word in any script
        ("ຂອບໃຈ", ["ຂ", "ອ", "ບ", "ໃ", "ຈ"]),
        ("អរគុណ។", ["អ", "រ", "គ", "ុ", "ណ"]),
        ("မင်္ဂလာ", ["မ", "င", "်", "္", "ဂ", "လ", "ာ"]),
        ("བོད་ཡིག", ["བོད", "ཡིག"]),  # Tibetan separates syllables by a mark
        ("❤️ 100%", ["100"]),
        ("שלום עולם", ["שלום", "עולם"]),
    ],
)
def test_words_of_different_scripts(text: str, cut: list[str]) -> None:
    assert words(text) == cut


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("OpenAI's model", ["openai", "s", "model"]),
        ("OPENAI’S", ["openai", "s"]),
        ("James' book", ["james", "book"]),
        ("L'avion, d’accord, qu'il", ["l", "avion", "d", "accord", "qu", "il"]),
        ("dell'arte", ["dell", "arte"]),
        ("O'Reilly", ["o", "reilly"]),
        ("don't can’t WON'T ain'T", ["don't", "can't", "won't", "ain't"]),
        ("don't've", ["don't", "ve"]),
        ("in 't veld, n'toko, it't", ["in", "t", "veld", "n", "toko", "it", "t"]),
        ("n'ẗ n't\u0325", ["n", "ẗ", "n", "t\u0325"]),
    ],
)
def test_an_apostrophe_separates_words_except_in_a_negation(text: str, cut: list[str]) -> None:
    assert words(text) == cut
    assert [word_span.word for word_span in word_spans(text)] == cut


def test_a_phrase_finds_thai_anywhere_in_a_text() -> None:
    text, phrase = words("ไปกรุงเทพมหานคร"), words("กรุงเทพ")
    assert any(text[start : start + len(phrase)] == phrase for start in range(len(text)))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.text(st.sampled_from(AWKWARD), max_size=12) | st.text(max_size=12))
def test_word_spans_contain_the_words(text: str) -> None:
    results = word_spans(text)
    assert [result.word for result in results] == words(text)
    assert all(0 <= result.start < result.end <= len(text) for result in results)
    assert [result.start for result in results] == sorted(result.start for result in results)
    for result in results:
        # A span never begins or ends within a character that was composed of several.
        assert (
            result.word in "".join(words(text[result.start : result.end]))
            or len(words(text[result.start : result.end])) > 1
        )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=20))
def test_splitting_words_again_does_not_change_them(text: str) -> None:
    for word in words(text):
        assert words(word) == [word]
        assert unicodedata.is_normalized("NFC", word)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Die Straße.", ["Die", "Straße"]),
        ("cafe\u0301 noir", ["cafe\u0301", "noir"]),
        ("soft\u00adhyphen!", ["soft\u00adhyphen"]),
        ("İstanbul’da", ["İstanbul", "da"]),
        ("WON’T won't", ["WON’T", "won't"]),
        ("\u1100\u1161\u11a8\u1100\u1161 x", ["\u1100\u1161\u11a8\u1100\u1161", "x"]),
        ("ﬃ東京", ["ﬃ", "東", "京"]),
        ("\u00ada\u00ad", ["a"]),
    ],
)
def test_word_spans_refer_to_the_original_text(text: str, shown: list[str]) -> None:
    assert [text[word_span.start : word_span.end] for word_span in word_spans(text)] == shown


def test_wildcards_are_letters_only_in_patterns() -> None:
    assert words("conc* h?ll") == ["conc", "h", "ll"]
    assert wild_words("CONC* h?ll *") == ["conc*", "h?ll", "*"]
    assert wild_words("OpenAI's* don't* *n't") == ["openai", "s*", "don't*", "*n't"]
    with pytest.raises(ValueError, match=r"東\*"):
        wild_words("東*")
