"""Comparison of RDF terms by SPARQL's rules (SPARQL 1.1, sections 17.2 to 17.4), and conversion to plain values.

In: terms in N-Triples syntax. Out: their values, and the results of comparisons: True, False, or None for an error.
Numbers are doubles and times without a zone are in UTC, as everywhere in Runnel. Literals of different known types
are unequal; this is not an error.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import lru_cache

from runnel.algebra.nodes.calls import Relation
from runnel.model.graph import unescape_text
from runnel.model.item import Value

XSD = "http://www.w3.org/2001/XMLSchema#"
INTEGER, DECIMAL, DOUBLE, BOOLEAN = f"{XSD}integer", f"{XSD}decimal", f"{XSD}double", f"{XSD}boolean"


class Sort(IntEnum):
    """The kind of value of a term. Terms are ordered only within the same sort, and only from TEXT on."""

    IRI = 0
    BLANK = 1
    TAGGED = 2
    OTHER = 3
    TEXT = 4
    NUMBER = 5
    TRUTH = 6
    MOMENT = 7
    DAY = 8


@dataclass(frozen=True, slots=True)
class KnownTerm:
    """The sort of a term, and the key for comparisons: seconds since 1970 for times and days, 0 or 1 for booleans."""

    sort: Sort
    key: str | float


_INTEGER_TEXT = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)
_DECIMAL_TEXT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\Z", re.ASCII)
_DOUBLE_TEXT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z", re.ASCII)
_DATE = r"(-?(?:[1-9][0-9]{3,8}|0[0-9]{3}))-([0-9]{2})-([0-9]{2})"
_ZONE = r"(Z|[+-](?:0[0-9]|1[0-3]):[0-5][0-9]|[+-]14:00)?"
_TIME_TEXT = re.compile(rf"{_DATE}T([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}})(?:\.([0-9]+))?{_ZONE}\Z", re.ASCII)
_DAY_TEXT = re.compile(rf"{_DATE}{_ZONE}\Z", re.ASCII)
_MIN_TIME, _TIME_END = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (1, 9999))
"""The range of times that a Runnel value can represent. Other times become texts."""
_NARROWER = ("int", "long", "short", "byte", "unsignedInt", "unsignedLong", "unsignedShort", "unsignedByte")
_SIGNED = ("nonNegativeInteger", "positiveInteger", "nonPositiveInteger", "negativeInteger")
_INTEGER_TYPES = frozenset(XSD + name for name in ("integer", *_NARROWER, *_SIGNED))


@lru_cache(maxsize=1 << 16)
def known_term(term: str) -> KnownTerm:
    """Return the sort and the comparison key of a term.

    >>> known_term('"2003"^^<http://www.w3.org/2001/XMLSchema#integer>')
    KnownTerm(sort=<Sort.NUMBER: 5>, key=2003.0)
    >>> known_term('"cold"@en').sort, known_term("<urn:x>").sort, known_term('"x"^^<urn:unknown>').sort
    (<Sort.TAGGED: 2>, <Sort.IRI: 0>, <Sort.OTHER: 3>)
    """
    if term[0] == "<":
        return KnownTerm(Sort.IRI, term)
    if term[0] == "_":
        return KnownTerm(Sort.BLANK, term)
    end = term.rindex('"')
    text, rest = unescape_text(term[1:end]), term[end + 1 :]
    if not rest:
        return KnownTerm(Sort.TEXT, text)
    if rest[0] == "@":
        return KnownTerm(Sort.TAGGED, term)
    return _read_typed(text, rest[3:-1]) or KnownTerm(Sort.OTHER, term)


def _read_typed(text: str, datatype: str) -> KnownTerm | None:
    if datatype in _INTEGER_TYPES:
        return KnownTerm(Sort.NUMBER, _read_number(text)) if _INTEGER_TEXT.match(text) else None
    if not datatype.startswith(XSD):
        return None
    match datatype.removeprefix(XSD):
        case "decimal":
            return KnownTerm(Sort.NUMBER, _read_number(text)) if _DECIMAL_TEXT.match(text) else None
        case "double" | "float" as name:
            return _read_float(text, single=name == "float")
        case "boolean":
            truths = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
            return KnownTerm(Sort.TRUTH, truths[text]) if text in truths else None
        case "dateTime" | "dateTimeStamp":
            match = _TIME_TEXT.match(text)
            return _read_time(Sort.MOMENT, match) if match else None
        case "date":
            match = _DAY_TEXT.match(text)
            return _read_time(Sort.DAY, match) if match else None
        case _:
            return None


def _read_number(text: str) -> float:
    try:
        return float(text) + 0.0
    except OverflowError:
        return math.inf


def _read_float(text: str, *, single: bool) -> KnownTerm | None:
    special = {"INF": math.inf, "+INF": math.inf, "-INF": -math.inf, "NaN": math.nan}
    if text in special:
        return KnownTerm(Sort.NUMBER, special[text])
    if not _DOUBLE_TEXT.match(text):
        return None
    number = _read_number(text)
    if single and math.isfinite(number):
        try:
            number = struct.unpack("<f", struct.pack("<f", number))[0]
        except OverflowError:
            number = math.copysign(math.inf, number)
    return KnownTerm(Sort.NUMBER, number)


def _read_time(sort: Sort, match: re.Match[str]) -> KnownTerm | None:
    """Return a time, or the midnight of a day, as seconds. They are exact to the microsecond from 1700 to 2200."""
    year, month, day, *rest = match.groups()
    hour, minute, second, part, zone = rest if sort == Sort.MOMENT else ("00", "00", "00", None, rest[0])
    midnight = hour == "24" and minute == second == "00" and not (part or "").strip("0")
    # The calendar repeats every 400 years, so every year maps to one that Python's datetime supports.
    cycles, within = divmod(int(year), 400)
    try:
        moment_within = datetime(
            2000 + within, int(month), int(day), 0 if midnight else int(hour), int(minute), int(second)
        )
    except ValueError:
        return None
    seconds = (moment_within - datetime(1970, 1, 1)).total_seconds() + 86_400.0 * (146_097 * (cycles - 5) + midnight)
    if zone and zone != "Z":
        offset = 3600 * int(zone[1:3]) + 60 * int(zone[4:6])
        seconds -= offset if zone[0] == "+" else -offset
    return KnownTerm(sort, seconds + (float(f"0.{part[:6]}") if part else 0.0))


def compare_terms(left: str, relation: Relation, right: str) -> bool | None:
    """Compare two terms. Return None for an error of SPARQL.

    >>> compare_terms('"2"^^<http://www.w3.org/2001/XMLSchema#int>', "<", '"2.5"^^<http://www.w3.org/2001/XMLSchema#double>')
    True
    >>> compare_terms("<urn:a>", "<", "<urn:b>"), compare_terms("<urn:a>", "!=", '"a"')
    (None, True)
    """
    return compare_known(known_term(left), relation, known_term(right))


def compare_known(left: KnownTerm, relation: Relation, right: KnownTerm) -> bool | None:
    """Compare the values of two terms, as `compare_terms` does."""
    match relation:
        case "=":
            return _equal(left, right)
        case "!=":
            equal = _equal(left, right)
            return None if equal is None else not equal
    if left.sort != right.sort or left.sort < Sort.TEXT:
        return None
    first, second = left.key, right.key
    match relation:
        case "<":
            return first < second  # type: ignore[operator]
        case "<=":
            return first <= second  # type: ignore[operator]
        case ">":
            return first > second  # type: ignore[operator]
        case _:
            return first >= second  # type: ignore[operator]


def _equal(left: KnownTerm, right: KnownTerm) -> bool | None:
    # A literal of an unknown type, or with an invalid text, may equal any other literal except one with a language
    # tag, which has a type of its own.
    if Sort.OTHER in (left.sort, right.sort) and min(left.sort, right.sort) > Sort.TAGGED:
        return True if left == right else None
    return left.sort == right.sort and left.key == right.key


def plain_value(term: str) -> Value:
    """Return a term as a value of a binding: a number, a boolean, a time, or a text (an IRI without its brackets).

    >>> plain_value("<urn:x>"), plain_value('"cold"@en'), plain_value('"2"^^<http://www.w3.org/2001/XMLSchema#integer>')
    ('urn:x', 'cold', 2.0)
    """
    known = known_term(term)
    match known.sort:
        case Sort.IRI:
            return term[1:-1]
        case Sort.NUMBER if isinstance(known.key, float) and math.isfinite(known.key):
            return known.key
        case Sort.TRUTH:
            return known.key == 1.0
        case Sort.MOMENT | Sort.DAY if isinstance(known.key, float) and _MIN_TIME <= known.key < _TIME_END:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=known.key)
        case Sort.BLANK:
            return term
        case _:
            return unescape_text(term[1 : term.rindex('"')]).replace("\0", "")
