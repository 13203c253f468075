"""The questions that queries ask of operators, and what they cost for an item of the stream.

In: the operator table of a logical plan, and how often its ways come to be decided. Out: who asks what. A question is
a call without what its results are compared with: all who ask it in one place share the answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runnel.algebra.nodes.calls import Call
from runnel.algebra.nodes.encode import decode_operators, encode_operators
from runnel.algebra.nodes.terms import Term
from runnel.arrays import Array
from runnel.errors import CorruptDataError
from runnel.plan.logical_plan import LogicalPlan

MILLISECONDS = 1.0
"""What a call takes where nothing is known of its operator."""


@dataclass(frozen=True)
class OperatorQuestions:
    """Pairs of an owner (by position) and the number of a question, and by question what it costs for an item."""

    owners: Array
    numbers: Array
    microseconds: Array


def find_questions(
    logical: LogicalPlan, owner_of: Array, rates: Array, operator_milliseconds: Mapping[str, float]
) -> OperatorQuestions:
    """The questions of a plan; `owner_of` and `rates` are by position in `logical.query_ids`.

    A question is taken to be asked of every item that one of its ways comes to: what is answered by another operator
    before is not known here.
    """
    table = logical.operators
    if not len(table):
        empty = np.empty(0, dtype=np.int64)
        return OperatorQuestions(empty, empty, np.empty(0))
    numbers: dict[str, int] = {}
    prices: list[float] = []
    of_terms = [_numbered(text, numbers, prices, operator_milliseconds) for text in table.terms.texts()]
    positions = np.searchsorted(logical.query_ids, table.disjunct_ids)
    found: dict[tuple[int, int], None] = {}
    missed = np.ones(len(prices))
    for way, literals in enumerate(table.literals.lists()):
        position = int(positions[way])
        if position >= len(owner_of) or logical.query_ids[position] != table.disjunct_ids[way]:
            raise CorruptDataError(f"the way {table.disjunct_ids[way]} of a plan is none of its queries'")
        asked = {question for literal in literals for question in of_terms[literal >> 1]}
        for question in sorted(asked):
            found[int(owner_of[position]), question] = None
            missed[question] *= 1.0 - min(1.0, float(rates[position]))
    pairs = np.array(list(found), dtype=np.int64).reshape(-1, 2)
    return OperatorQuestions(pairs[:, 0], pairs[:, 1], 1000.0 * np.array(prices) * (1.0 - missed))


def _numbered(
    text: str, numbers: dict[str, int], prices: list[float], operator_milliseconds: Mapping[str, float]
) -> list[int]:
    """The questions of a term by number; new ones are numbered and priced."""
    found = []
    for call, key in _questions(text):
        if key not in numbers:
            numbers[key] = len(numbers)
            prices.append(operator_milliseconds.get(call.operator, MILLISECONDS))
        found.append(numbers[key])
    return found


def _questions(text: str) -> list[tuple[Call, str]]:
    try:
        tag, *rest = json.loads(text)
        term = decode_operators(tag, rest)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise CorruptDataError(f"this is not a term of a plan: {text[:200]}") from error
    if not isinstance(term, Term):
        raise CorruptDataError(f"this is not a term of a plan: {text[:200]}")
    return [(call, json.dumps(encode_operators(call.question))) for call in term.calls]
