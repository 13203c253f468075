"""The tokeniser gives exactly the words of the definition, whatever the text."""

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
    """Texts of all of Unicode, with lone surrogates, and of small alphabets in which characters meet."""
    lots = st.characters(min_codepoint=0, max_codepoint=0x10FFFF, categories=None)
    return st.one_of(st.text(lots, max_size=30), *(st.text(one, max_size=20) for one in ALPHABETS.values()))


def arrow(texts: list[str | bytes]) -> pa.Array:
    """An array of these bytes, valid or not."""
    raw = Texts.of(texts)
    buffers = [None, pa.py_buffer(raw.offsets.astype(np.int32).tobytes()), pa.py_buffer(raw.data.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(raw), buffers)


def expected(texts: list[list[str]], vocabulary: list[str]) -> list[list[int]]:
    """The numbers that the definition gives."""
    numbers = {word: number for number, word in reversed(list(enumerate(vocabulary)))}
    return [[numbers.get(word, -1) for word in one] for one in texts]


def rows(tokens: Tokens) -> list[list[int]]:
    """The words of all values."""
    return [tokens.row(value).tolist() for value in range(len(tokens))]


def assert_exact(texts: list[str], vocabulary: list[str]) -> None:
    """All texts at once are cut as the definition says."""
    spelled = [words(text) for text in texts]
    tokens = tokenize(arrow(list(texts)), np.arange(len(texts)), Vocabulary.of(vocabulary))
    assert rows(tokens) == expected(spelled, vocabulary)


@settings(deadline=None, max_examples=300)
@given(st.lists(any_text(), min_size=1, max_size=8))
@example(["e\u0301", "rock 'n' roll", "l’été", "'a' ''b'' a''b"])
@example(["don't", "DON’T", "can\u00adʼ\u200bt.", "don't've", "abcdefgn't", "abcdefgn'ts", "ŉ't", "n'ẗ", "n't\u0308"])
def test_any_text_is_cut_as_defined(texts: list[str]) -> None:
    every = sorted({word for text in texts for word in words(text)})
    assert_exact(texts, every)
    assert_exact(texts, every[::2])


def test_every_code_point_is_cut_as_defined() -> None:
    """Alone, between letters, after an apostrophe, and next to marks that compose."""
    # Han, Hangul and what is not assigned are many and alike.
    alike = ("Lo", "Cn", "Co", "Cs")
    characters = [
        chr(code)
        for code in range(0x110000)
        if code % 97 == 0 or code < 0x3000 or (code < COVERED and unicodedata.category(chr(code)) not in alike)
    ]
    for pattern in ("a{0}b", "x'{0}'x 7", "\u0915{0}\u0323\u0301{0}"):
        texts = [pattern.format(character) for character in characters]
        assert_exact(texts, sorted({word for text in texts for word in words(text)}))


@pytest.mark.parametrize("name", sorted(ALPHABETS))
def test_every_pair_of_an_alphabet_is_cut_as_defined(name: str) -> None:
    alphabet = ALPHABETS[name] + "'’\u200da"
    texts = [one + other + third for one in alphabet for other in alphabet for third in alphabet[:12]]
    assert_exact(texts, sorted({word for text in texts for word in words(text)}))


def test_every_composition_is_seen() -> None:
    """No pair that normalisation composes slips through, nor one that it reorders."""
    marks = [chr(code) for code in range(COVERED) if unicodedata.combining(chr(code))]
    pairs = [unicodedata.decomposition(chr(code)).split() for code in range(0x30000)]
    canonical = [parts for parts in pairs if len(parts) == 2 and "<" not in parts[0]]
    composing = ["".join(chr(int(part, 16)) for part in parts) for parts in canonical]
    texts = [pattern.format(one) for one in composing for pattern in ("{0}", "É{0}x", "{0}{0}")]
    texts += [first + second for first in marks[::17] for second in marks]
    texts += ["q" + first + second for first in marks for second in marks[::19]]
    assert len(texts) > 50_000
    assert_exact(texts, sorted({word for text in texts for word in words(text)}))


@settings(deadline=None, max_examples=150)
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=6), any_text())
def test_bytes_that_are_no_text_do_no_harm(raw: list[bytes], text: str) -> None:
    """They separate words; the texts beside them are cut as ever."""
    every = words(text)
    tokens = tokenize(arrow([*raw, text]), np.arange(len(raw) + 1), Vocabulary.of(every))
    assert rows(tokens)[-1] == expected([every], every)[0]
    for one, row in zip(raw, rows(tokens), strict=False):
        try:
            decoded = one.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            decoded = one.decode("utf-8", "replace")
        assert row == expected([words(decoded)], every)[0]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(any_text(), min_size=1, max_size=6),
    st.lists(st.one_of(st.sampled_from(["a", "b", "é", "ss", "漢", "ab", "が", "가"]), any_text()), max_size=8),
    st.data(),
)
def test_prefixes_are_those_of_the_words(texts: list[str], some: list[str], data: st.DataObject) -> None:
    spelled = [words(text) for text in texts]
    every = sorted({word for one in spelled for word in one})
    if every:
        some += [word[: data.draw(st.integers(1, len(word)))] for word in data.draw(st.lists(st.sampled_from(every)))]
    prefixes = [one for one in dict.fromkeys(some) if one]
    tokens = tokenize(arrow(list(texts)), np.arange(len(texts)), Vocabulary.of(every), Vocabulary.of(prefixes))
    found = list(zip(tokens.prefix_values.tolist(), tokens.prefixes.tolist(), strict=True))
    wanted = {
        (value, number)
        for value, one in enumerate(spelled)
        for number, prefix in enumerate(prefixes)
        if any(word.startswith(prefix) for word in one)
    }
    assert sorted(found) == sorted(wanted)
    assert [value for value, _ in found] == sorted(value for value, _ in found)
    assert rows(tokens) == expected(spelled, every)


def test_many_lengths_of_prefixes() -> None:
    """More lengths than there are bits for them."""
    word = "abcdefghij" * 30
    prefixes = [word[:size] for size in range(1, 300)]
    texts = [word, word[:150], "b" + word]
    tokens = tokenize(arrow(list(texts)), np.arange(3), Vocabulary.of([word]), Vocabulary.of(prefixes))
    found = [sum(tokens.prefix_values == value) for value in range(3)]
    assert found == [299, 150, 0]
    assert rows(tokens) == [[0], [-1], [-1]]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_only_chosen_positions_of_a_slice_are_cut(kind: pa.DataType) -> None:
    texts = pa.array(["zero", None, "one two", "É\u0301té", "", "three"], type=kind).slice(1)
    vocabulary = Vocabulary.of(["one", "two", "three", unicodedata.normalize("NFC", "é\u0301té"), "zero"])
    tokens = tokenize(texts, np.array([4, 2, 1, 3, 1]), vocabulary)
    assert rows(tokens) == [[2], [3], [0, 1], [], [0, 1]]


def test_nothing_to_cut() -> None:
    vocabulary = Vocabulary.of(["one"])
    assert len(tokenize(pa.array([], type=pa.string()), np.array([], dtype=np.int64), vocabulary)) == 0
    assert rows(tokenize(pa.array(["", None], type=pa.string()), np.array([0]), vocabulary)) == [[]]
    assert rows(tokenize(pa.array(["one two"]), np.array([0]), Vocabulary.of([]))) == [[-1, -1]]


def test_offsets_outside_the_bytes_are_refused() -> None:
    offsets = pa.py_buffer(np.array([0, 3, 900, 3], dtype=np.int32).tobytes())
    broken = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"one")])
    assert rows(tokenize(broken, np.array([0]), Vocabulary.of(["one"]))) == [[0]]
    for position in (1, 2):
        with pytest.raises(ValueError, match="do not fit"):
            tokenize(broken, np.array([position]), Vocabulary.of(["one"]))
    with pytest.raises(IndexError, match="outside"):
        tokenize(broken, np.array([3]), Vocabulary.of(["one"]))
    with pytest.raises(TypeError, match="strings"):
        tokenize(pa.array([1]), np.array([0]), Vocabulary.of(["one"]))


def test_long_words_and_long_texts() -> None:
    word = "x" * 100_000
    texts = [word, word + "y", " ".join(["ab"] * 50_000), "ŉ" * 20_000, "漢" * 20_000]
    assert_exact(texts, [word, "ab", "n", "漢"])


def test_the_end_of_the_buffer_is_respected() -> None:
    """The last text ends where the bytes do, and a text may end within a word of the next."""
    for size in range(1, 20):
        texts = ["abcdefghijklmnopqrst"[:size], "'" * size, "é" * size]
        assert_exact(texts, texts)
        assert_exact(texts[:1], texts)
