"""The test of an atom: by the presence of a key, by a range of numbers, or by the reference evaluator.

A *slot* is the data that an atom reads: the values of an attribute, a part of its dates (such as the hour), or their
days. A *token* is a value or word in a slot. Slots and tokens are exact, so different values never share a key.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import date, datetime
from enum import IntEnum, IntFlag
from hashlib import blake2b

from runnel.algebra.nodes.attributes import Ago, Attribute, Constant
from runnel.algebra.nodes.expressions import Atom, Between, Compare, Contains, ContainsPattern, Exists, In, Similar
from runnel.algebra.nodes.item_patterns import ItemPattern, encode_pattern
from runnel.algebra.values.similarity import least_common
from runnel.algebra.values.word_patterns import literal_start
from runnel.arrays import encode_text
from runnel.matching.filters.atoms.key_frequency import NOTHING_KNOWN, estimate

Slot = tuple[str, str]
"""The name of an attribute and one of its facets: empty for its values, the name of a date part, or DAY."""

Token = bytes
WORD, PREFIX = b"w", b"p"
"""The first bytes of the tokens of words and of word prefixes."""

PATTERN_KEY = b"g"
"""The first byte of the tokens of item patterns."""

DAY = "day number"
PATTERN = "pattern"
"""The facet that item patterns of a family read. The family finds their keys, not the tokens of an item."""


class TestKind(IntEnum):
    """How the truth of an atom on an item is decided."""

    KEY = 0
    RANGE = 1
    PHRASE = 2
    OTHER = 3


class SlotUse(IntFlag):
    """The kinds of tokens that a plan needs of a slot. Others are not computed. Stored in 16 bits."""

    WORDS = 1
    TEXTS = 2
    NUMBERS = 4
    BOOLEANS = 8
    PRESENCE = 16
    RANGES = 32
    PREFIXES = 64
    PATTERNS = 128


@dataclass(frozen=True, slots=True)
class AtomTest:
    """The test of one atom.

    If the atom is true, the item has at least one of `keys` or, with `together`, all of them, so that each alone is
    enough to find the atom. Without keys, nothing is known about an item that satisfies the atom.
    """

    kind: TestKind
    slot: Slot
    keys: tuple[tuple[Slot, Token], ...] = ()
    low: float = -math.inf
    high: float = math.inf
    together: bool = False


def word_token(word: str) -> Token:
    """Return the token of a word in a text."""
    return WORD + encode_text(word)


def prefix_token(prefix: str) -> Token:
    """Return the token of all words that begin with a prefix."""
    return PREFIX + encode_text(prefix)


def text_token(text: str) -> Token:
    """Return the token of a whole text value."""
    return b"t" + encode_text(text)


def number_token(number: float) -> Token:
    """Return the token of a number. Minus zero has the token of zero.

    >>> number_token(-0.0) == number_token(0.0)
    True
    """
    return b"n" + repr(number + 0.0).encode()


def boolean_token(value: bool) -> Token:
    """Return the token of a Boolean value."""
    return b"b1" if value else b"b0"


PRESENCE: Token = b"e"
"""The token of a slot that has any value."""

_MIN_PREFIX = 2
"""Minimum length of a prefix that only finds a pattern. Most items have a word with any given first letter."""

_USES = {
    WORD: SlotUse.WORDS,
    PREFIX: SlotUse.PREFIXES,
    b"t": SlotUse.TEXTS,
    b"n": SlotUse.NUMBERS,
    b"b": SlotUse.BOOLEANS,
    b"e": SlotUse.PRESENCE,
    PATTERN_KEY: SlotUse.PATTERNS,
}


def use_of(token: Token) -> SlotUse:
    """Return the use of a slot that this token requires."""
    return _USES[token[:1]]


def test_of(atom: Atom) -> AtomTest:
    """Return the test of an atom.

    >>> test_of(Compare(Attribute("price"), "<", 3.0)).high < 3.0
    True
    >>> test_of(ContainsPattern(Attribute("title"), ("conc*",))).keys
    ((('title', ''), b'pconc'),)
    """
    slot = _slot(atom.attribute)
    match atom:
        case ItemPattern():
            return pattern_test(atom.family, json.dumps(encode_pattern(atom), separators=(",", ":")))
        case Contains(Attribute(_, None), (word,)):
            return word_test(slot, word)
        case Contains(Attribute(_, None), phrase) if phrase:
            return _phrase(slot, phrase)
        case Exists():
            return AtomTest(TestKind.KEY, slot, ((slot, PRESENCE),))
        case ContainsPattern(Attribute(_, None), patterns):
            return _pattern(slot, patterns)
        case Similar(Attribute(_, None), phrase, least):
            # A text that contains `least_common` of the words contains one of any `count` of them.
            count = len(phrase) - least_common(len(phrase), least) + 1
            tokens = _rarest([word_token(word) for word in phrase], count)
            return AtomTest(TestKind.OTHER, slot, tuple((slot, token) for token in tokens))
        case Compare(attribute, "=", constant):
            key = _key(attribute, constant)
            return _other(slot) if key is None else AtomTest(TestKind.KEY, key[0], (key,))
        case In(attribute, constants):
            candidates = [_key(attribute, constant) for constant in constants]
            keys = tuple(key for key in candidates if key is not None)
            return AtomTest(TestKind.OTHER, slot, keys) if len(keys) == len(candidates) else _other(slot)
        case Compare(attribute, operator, constant):
            return _comparison(attribute, operator, constant)
        case Between(attribute, low, high):
            return _between(attribute, low, high)
        case _:
            return _other(slot)


def word_test(slot: Slot, word: str) -> AtomTest:
    """Return the test for a text that contains a word."""
    return AtomTest(TestKind.KEY, slot, ((slot, word_token(word)),))


def pattern_test(family: str, text: str) -> AtomTest:
    """Return the test of an item pattern in its stored form. Each pattern has a key of its own."""
    slot = family, PATTERN
    token = PATTERN_KEY + blake2b(encode_text(text), digest_size=16).digest()
    return AtomTest(TestKind.KEY, slot, ((slot, token),))


def _other(slot: Slot) -> AtomTest:
    """Return the test of an atom that only the evaluator can decide. If it is true, the slot has a value."""
    return AtomTest(TestKind.OTHER, slot, ((slot, PRESENCE),))


def _phrase(slot: Slot, phrase: tuple[str, ...]) -> AtomTest:
    keys = tuple((slot, word_token(word)) for word in phrase)
    return AtomTest(TestKind.PHRASE, slot, keys, together=True)


def _pattern(slot: Slot, patterns: tuple[str, ...]) -> AtomTest:
    """Return the test of consecutive word patterns. The key alone decides a single word or a single prefix."""
    starts = [literal_start(pattern) for pattern in patterns]
    is_word = [start == pattern for start, pattern in zip(starts, patterns, strict=True)]
    match patterns:
        case (pattern,) if is_word[0]:
            return word_test(slot, pattern)
        case (pattern,) if starts[0] and pattern == f"{starts[0]}*":
            return AtomTest(TestKind.KEY, slot, ((slot, prefix_token(starts[0])),))
        case (_, *_) if all(is_word):
            return _phrase(slot, patterns)
    tokens = [
        word_token(start) if word else prefix_token(start)
        for start, word in zip(starts, is_word, strict=True)
        if word or len(start) >= _MIN_PREFIX
    ]
    keys = tuple((slot, token) for token in dict.fromkeys(tokens))
    return AtomTest(TestKind.OTHER, slot, keys, together=True) if keys else _other(slot)


def _rarest(tokens: list[Token], count: int) -> list[Token]:
    return sorted(tokens, key=lambda token: (estimate(token, NOTHING_KNOWN), token))[:count]


def _slot(attribute: Attribute) -> Slot:
    return attribute.name, attribute.part or ""


def _key(attribute: Attribute, constant: Constant) -> tuple[Slot, Token] | None:
    measured = _measure(attribute, constant)
    if measured is not None:
        return measured[0], number_token(measured[1])
    match constant:
        case bool() if attribute.part is None:
            return _slot(attribute), boolean_token(constant)
        case str() if attribute.part is None:
            return _slot(attribute), text_token(constant)
        case _:
            return None


def _measure(attribute: Attribute, constant: Constant) -> tuple[Slot, float] | None:
    """Return the slot and the number that a constant is compared as, or None if it is not a number or a day."""
    match constant:
        case bool() | str() | datetime() | Ago():
            return None
        case date():
            return ((attribute.name, DAY), float(constant.toordinal())) if attribute.part is None else None
        case _:
            # Only the reference evaluator compares integers exactly that a double cannot represent.
            exact = abs(constant) <= 2**53 or isinstance(constant, float)
            return (_slot(attribute), float(constant)) if exact else None


def _comparison(attribute: Attribute, operator: str, constant: Constant) -> AtomTest:
    """Return a comparison as a closed interval; an open bound becomes the next double."""
    measured = _measure(attribute, constant)
    if measured is None:
        return _other(_slot(attribute))
    slot, number = measured
    match operator:
        case "<":
            return AtomTest(TestKind.RANGE, slot, high=math.nextafter(number, -math.inf))
        case "<=":
            return AtomTest(TestKind.RANGE, slot, high=number)
        case ">":
            return AtomTest(TestKind.RANGE, slot, low=math.nextafter(number, math.inf))
        case _:
            return AtomTest(TestKind.RANGE, slot, low=number)


def _between(attribute: Attribute, low: Constant, high: Constant) -> AtomTest:
    first, last = _measure(attribute, low), _measure(attribute, high)
    if first is None or last is None or first[0] != last[0]:
        return _other(_slot(attribute))
    return AtomTest(TestKind.RANGE, first[0], low=first[1], high=last[1])
