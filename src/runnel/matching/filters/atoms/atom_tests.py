"""How an atom is tested: by a key that the item has or has not, by a range of numbers, or by the reference evaluator.

A *slot* is what an atom looks at: an attribute, a part of its moments, or their days. A *token* is a value or word
in a slot. Slots and tokens are exact, so two different values never share a key.
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
"""An attribute's name and a facet of it: empty for its values, a part, or DAY."""

Token = bytes
WORD, PREFIX = b"w", b"p"
"""How the tokens of words, and of the beginnings of words, begin."""

PATTERN_KEY = b"g"
"""How the tokens of item patterns begin."""

DAY = "day number"
PATTERN = "pattern"
"""The facet of a family that its patterns read; their keys are found by the family, not by tokens of an item."""


class TestKind(IntEnum):
    """How the truth of an atom on an item is found."""

    KEY = 0
    RANGE = 1
    PHRASE = 2
    OTHER = 3


class SlotUse(IntFlag):
    """What the plan asks of a slot, so that nothing else is computed for an item; stored in 16 bits."""

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

    `keys` are candidates: if the atom is true, the item has one of them (none: not known), or all of them
    (`together`), so that each alone is enough to find it.
    """

    kind: TestKind
    slot: Slot
    keys: tuple[tuple[Slot, Token], ...] = ()
    low: float = -math.inf
    high: float = math.inf
    together: bool = False


def word_token(word: str) -> Token:
    """The token of a word in a text."""
    return WORD + encode_text(word)


def prefix_token(prefix: str) -> Token:
    """The token of any word that begins with a prefix."""
    return PREFIX + encode_text(prefix)


def text_token(text: str) -> Token:
    """The token of a whole text value."""
    return b"t" + encode_text(text)


def number_token(number: float) -> Token:
    """The token of a number; minus zero is zero.

    >>> number_token(-0.0) == number_token(0.0)
    True
    """
    return b"n" + repr(number + 0.0).encode()


def boolean_token(value: bool) -> Token:
    """The token of a truth value."""
    return b"b1" if value else b"b0"


PRESENCE: Token = b"e"
"""The token of a slot that has any value."""

_LEADING = 2
"""Letters that a pattern must begin with to be found by them, where they do not decide it: one is in most items."""

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
    """What must be computed for a slot to find this token."""
    return _USES[token[:1]]


def test_of(atom: Atom) -> AtomTest:
    """The test of an atom.

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
            # Whoever has `least_common` of the words has one of any set that leaves fewer of them out.
            count = len(phrase) - least_common(len(phrase), least) + 1
            tokens = _rarest([word_token(word) for word in phrase], count)
            return AtomTest(TestKind.OTHER, slot, tuple((slot, token) for token in tokens))
        case Compare(attribute, "=", constant):
            key = _key(attribute, constant)
            return _other(slot) if key is None else AtomTest(TestKind.KEY, key[0], (key,))
        case In(attribute, constants):
            keys = [_key(attribute, constant) for constant in constants]
            known = tuple(key for key in keys if key is not None)
            return AtomTest(TestKind.OTHER, slot, known) if len(known) == len(keys) else _other(slot)
        case Compare(attribute, operator, constant):
            return _compared(attribute, operator, constant)
        case Between(attribute, low, high):
            return _between(attribute, low, high)
        case _:
            return _other(slot)


def word_test(slot: Slot, word: str) -> AtomTest:
    """The test of a text that contains a word."""
    return AtomTest(TestKind.KEY, slot, ((slot, word_token(word)),))


def pattern_test(family: str, text: str) -> AtomTest:
    """The test of an item pattern, which is given in its stored form: a key of its own."""
    slot = family, PATTERN
    token = PATTERN_KEY + blake2b(encode_text(text), digest_size=16).digest()
    return AtomTest(TestKind.KEY, slot, ((slot, token),))


def _other(slot: Slot) -> AtomTest:
    """The test of an atom that only the evaluator knows; where it holds, there is a value at least."""
    return AtomTest(TestKind.OTHER, slot, ((slot, PRESENCE),))


def _phrase(slot: Slot, phrase: tuple[str, ...]) -> AtomTest:
    keys = tuple((slot, word_token(word)) for word in phrase)
    return AtomTest(TestKind.PHRASE, slot, keys, together=True)


def _pattern(slot: Slot, patterns: tuple[str, ...]) -> AtomTest:
    """The test of a row of patterns; one that is a word, or the beginning of one, is known by its key alone."""
    starts = [literal_start(pattern) for pattern in patterns]
    plain = [start == pattern for start, pattern in zip(starts, patterns, strict=True)]
    match patterns:
        case (pattern,) if plain[0]:
            return word_test(slot, pattern)
        case (pattern,) if starts[0] and pattern == f"{starts[0]}*":
            return AtomTest(TestKind.KEY, slot, ((slot, prefix_token(starts[0])),))
        case (_, *_) if all(plain):
            return _phrase(slot, patterns)
    tokens = [
        word_token(start) if whole else prefix_token(start)
        for start, whole in zip(starts, plain, strict=True)
        if whole or len(start) >= _LEADING
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
    """The slot and number that a constant compares with, if it is a number or a whole day."""
    match constant:
        case bool() | str() | datetime() | Ago():
            return None
        case date():
            return ((attribute.name, DAY), float(constant.toordinal())) if attribute.part is None else None
        case _:
            # An integer that no double can hold compares exactly in the reference evaluator only.
            exact = abs(constant) <= 2**53 or isinstance(constant, float)
            return (_slot(attribute), float(constant)) if exact else None


def _compared(attribute: Attribute, operator: str, constant: Constant) -> AtomTest:
    """A comparison as a closed interval; an open end begins at the next double."""
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
