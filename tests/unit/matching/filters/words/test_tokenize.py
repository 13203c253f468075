"""The tokenizer returns exactly the words of the reference function `words` for any text."""

from __future__ import annotations

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runnel.algebra.values.words import words
from runnel.arrays import Texts
from runnel.matching.filters.words.code_points import COVERED
from runnel.matching.filters.words.tokenize import Tokens, tokenize
from runnel.matching.filters.words.vocabulary import Vocabulary

ALPHABETS = {
    "ascii": "aAzZ09_' -.,;\n\t'!",
    "composing": "eEaoAwW\u0301\u0300\u0308\u0323\u0327\u0345\u0338\u0344=<é\u1e9b\u0307",
    "hangul": "\u1100\u1112\u1161\u1175\u11a8\u11c2\uac00\uac01\ud7a3 가각a'",
    "folds": "ßẞŉﬃﬀſİıIiΐΰǰẖᾲᾼῼὒﬆ֊ևaqs '",
    "greek": "ΣσςΑάΆ\u0301\u0345ᾳᾼ '",
    "turkish": "İıIi\u0307ğĞşŞ' ",
    "apostrophes": "a'’é\u00ad\u200b'’ 漢ʼ＇",
    "contractions": "nNtT'’ʼ＇`´\u2018\u00ad\u200b\u0301\u0308 ts漢éŉ",
    "invisible": "ab\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e'’ \u0301é\ufe0f",
    "unspaced": "漢字かがカｶﾞｱー々〇\u3099\uf900\uf906a1'豈\U00020000\U0002f800",
    "emoji": "👍🏽👨\u200d👩\u200d👧🇫🇷☃\ufe0fa \u20e3#1",
    "connectors": "_‿⁀︳﹍＿a1٠Ⅷ²½ªº '",
    "indic": "\u0928\u093c\u0921\u095c\u094d\u0915\u09c7\u09be\u09d7\u0bc6\u0bbe\u0b92\u0bd7\u0dd9\u0dca\u0ddc '",
    "semitic": "\u05d0\u05b8\u05bc\u05c1\ufb2a\u0627\u0653\u0654\u064b\u0651\u0670\u06c1a ",
    "tai": "\u0e01\u0e39\u0e48\u0e33\u0e4d\u0e81\u0eb9\u0ec8\u1780\u17d2\u1025\u102e\u1000\u103a a",
    "high": "\U0001d15e\U0001d400\U00011099\U000110ba\U0001109a\U000e0100\U000f0000\U0010ffff\U0001b000a",
}


def any_text() -> st.SearchStrategy[str]:
    """Generate texts of all Unicode characters, with lone surrogates, and of small alphabets that interact."""
    characters = st.characters(min_codepoint=0, max_codepoint=0x10FFFF, categories=None)
    alphabets = (st.text(alphabet, max_size=20) for alphabet in ALPHABETS.values())
    return st.one_of(st.text(characters, max_size=30), *alphabets)


def arrow(texts: list[str | bytes]) -> pa.Array:
    """Build an Arrow array of these bytes, which need not be valid UTF-8."""
    raw = Texts.of(texts)
    buffers = [None, pa.py_buffer(raw.offsets.astype(np.int32).tobytes()), pa.py_buffer(raw.data.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(raw), buffers)


def expected(texts: list[list[str]], vocabulary: list[str]) -> list[list[int]]:
    """Return the expected numbers of the words of texts."""
    numbers = {word: number for number, word in reversed(list(enumerate(vocabulary)))}
    return [[numbers.get(word, -1) for word in text] for text in texts]


def rows(tokens: Tokens) -> list[list[int]]:
    """Return the words of all values."""
    return [tokens.row(value).tolist() for value in range(len(tokens))]


def assert_exact(texts: list[str], vocabulary: list[str]) -> None:
    """Assert that the texts, tokenized together, have the words of the reference function."""
    text_words = [words(text) for text in texts]
    tokens = tokenize(arrow(list(texts)), np.arange(len(texts)), Vocabulary.of(vocabulary))
    assert rows(tokens) == expected(text_words, vocabulary)


@settings(deadline=None, max_examples=300)
@given(st.lists(any_text(), min_size=1, max_size=8))
@example(["e\u0301", "rock 'n' roll", "l’été", "'a' ''b'' a''b"])
@example(["don't", "DON’T", "can\u00adʼ\u200bt.", "don't've", "abcdefgn't", "abcdefgn'ts", "ŉ't", "n'ẗ", "n't\u0308"])
def test_any_text_has_the_words_of_the_reference(texts: list[str]) -> None:
    vocabulary = sorted({word for text in texts for word in words(text)})
    assert_exact(texts, vocabulary)
    assert_exact(texts, vocabulary[::2])


def test_texts_with_every_code_point_have_the_words_of_the_reference() -> None:
    """Between letters, next to apostrophes, and next to marks that compose."""
    # The many code points of these categories (such as Han, Hangul and unassigned ones) behave alike.
    sampled_categories = ("Lo", "Cn", "Co", "Cs")
    characters = [
        chr(code)
        for code in range(0x110000)
        if code % 97 == 0
        or code < 0x3000
        or (code < COVERED and unicodedata.category(chr(code)) not in sampled_categories)
    ]
    for pattern in ("a{0}b", "x'{0}'x 7", "\u0915{0}\u0323\u0301{0}"):
        texts = [pattern.format(character) for character in characters]
        assert_exact(texts, sorted({word for text in texts for word in words(text)}))


@pytest.mark.parametrize("name", sorted(ALPHABETS))
def test_all_short_texts_of_an_alphabet_have_the_words_of_the_reference(name: str) -> None:
    alphabet = ALPHABETS[name] + "'’\u200da"
    texts = [first + second + third for first in alphabet for second in alphabet for third in alphabet[:12]]
    assert_exact(texts, sorted({word for text in texts for word in words(text)}))


def test_composed_and_reordered_marks_are_recognized() -> None:
    """The table must recognize every pair that normalization composes or reorders."""
    marks = [chr(code) for code in range(COVERED) if unicodedata.combining(chr(code))]
    pairs = [unicodedata.decomposition(chr(code)).split() for code in range(0x30000)]
    canonical = [parts for parts in pairs if len(parts) == 2 and "<" not in parts[0]]
    composing = ["".join(chr(int(part, 16)) for part in parts) for parts in canonical]
    texts = [pattern.format(pair) for pair in composing for pattern in ("{0}", "É{0}x", "{0}{0}")]
    texts += [first + second for first in marks[::17] for second in marks]
    texts += ["q" + first + second for first in marks for second in marks[::19]]
    assert len(texts) > 50_000
    assert_exact(texts, sorted({word for text in texts for word in words(text)}))


@settings(deadline=None, max_examples=150)
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=6), any_text())
def test_invalid_bytes_do_not_affect_other_texts(raw: list[bytes], text: str) -> None:
    """Invalid bytes separate words."""
    vocabulary = words(text)
    tokens = tokenize(arrow([*raw, text]), np.arange(len(raw) + 1), Vocabulary.of(vocabulary))
    assert rows(tokens)[-1] == expected([vocabulary], vocabulary)[0]
    for data, row in zip(raw, rows(tokens), strict=False):
        try:
            decoded = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            decoded = data.decode("utf-8", "replace")
        assert row == expected([words(decoded)], vocabulary)[0]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(any_text(), min_size=1, max_size=6),
    st.lists(st.one_of(st.sampled_from(["a", "b", "é", "ss", "漢", "ab", "が", "가"]), any_text()), max_size=8),
    st.data(),
)
def test_found_prefixes_are_exactly_those_of_the_words(
    texts: list[str], candidates: list[str], data: st.DataObject
) -> None:
    text_words = [words(text) for text in texts]
    vocabulary = sorted({word for one_text in text_words for word in one_text})
    if vocabulary:
        shortened = data.draw(st.lists(st.sampled_from(vocabulary)))
        candidates += [word[: data.draw(st.integers(1, len(word)))] for word in shortened]
    prefixes = [prefix for prefix in dict.fromkeys(candidates) if prefix]
    tokens = tokenize(arrow(list(texts)), np.arange(len(texts)), Vocabulary.of(vocabulary), Vocabulary.of(prefixes))
    pairs = list(zip(tokens.prefix_values.tolist(), tokens.prefixes.tolist(), strict=True))
    expected_pairs = {
        (value, number)
        for value, one_text in enumerate(text_words)
        for number, prefix in enumerate(prefixes)
        if any(word.startswith(prefix) for word in one_text)
    }
    assert sorted(pairs) == sorted(expected_pairs)
    assert [value for value, _ in pairs] == sorted(value for value, _ in pairs)
    assert rows(tokens) == expected(text_words, vocabulary)


def test_prefixes_of_many_different_lengths_are_found() -> None:
    """There are more lengths than bits in the mask of lengths."""
    word = "abcdefghij" * 30
    prefixes = [word[:size] for size in range(1, 300)]
    texts = [word, word[:150], "b" + word]
    tokens = tokenize(arrow(list(texts)), np.arange(3), Vocabulary.of([word]), Vocabulary.of(prefixes))
    counts = [sum(tokens.prefix_values == value) for value in range(3)]
    assert counts == [299, 150, 0]
    assert rows(tokens) == [[0], [-1], [-1]]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_only_selected_positions_of_a_slice_are_tokenized(kind: pa.DataType) -> None:
    texts = pa.array(["zero", None, "one two", "É\u0301té", "", "three"], type=kind).slice(1)
    vocabulary = Vocabulary.of(["one", "two", "three", unicodedata.normalize("NFC", "é\u0301té"), "zero"])
    tokens = tokenize(texts, np.array([4, 2, 1, 3, 1]), vocabulary)
    assert rows(tokens) == [[2], [3], [0, 1], [], [0, 1]]


def test_empty_inputs_have_no_words() -> None:
    vocabulary = Vocabulary.of(["one"])
    assert len(tokenize(pa.array([], type=pa.string()), np.array([], dtype=np.int64), vocabulary)) == 0
    assert rows(tokenize(pa.array(["", None], type=pa.string()), np.array([0]), vocabulary)) == [[]]
    assert rows(tokenize(pa.array(["one two"]), np.array([0]), Vocabulary.of([]))) == [[-1, -1]]


def test_invalid_offsets_positions_and_types_are_rejected() -> None:
    offsets = pa.py_buffer(np.array([0, 3, 900, 3], dtype=np.int32).tobytes())
    broken = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"one")])
    assert rows(tokenize(broken, np.array([0]), Vocabulary.of(["one"]))) == [[0]]
    for position in (1, 2):
        with pytest.raises(ValueError, match="do not fit"):
            tokenize(broken, np.array([position]), Vocabulary.of(["one"]))
    with pytest.raises(IndexError, match="positions must be from 0 to 2"):
        tokenize(broken, np.array([3]), Vocabulary.of(["one"]))
    with pytest.raises(TypeError, match="strings"):
        tokenize(pa.array([1]), np.array([0]), Vocabulary.of(["one"]))


def test_long_words_and_long_texts_have_the_words_of_the_reference() -> None:
    word = "x" * 100_000
    texts = [word, word + "y", " ".join(["ab"] * 50_000), "ŉ" * 20_000, "漢" * 20_000]
    assert_exact(texts, [word, "ab", "n", "漢"])


def test_tokenizer_does_not_read_past_the_end_of_a_text() -> None:
    """The last text ends at the end of the buffer, and other texts continue directly with the next one."""
    for size in range(1, 20):
        texts = ["abcdefghijklmnopqrst"[:size], "'" * size, "é" * size]
        assert_exact(texts, texts)
        assert_exact(texts[:1], texts)
