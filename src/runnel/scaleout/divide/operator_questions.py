"""The operator calls that queries share, and their cost per item of the stream.

In: the operator table of a logical plan, and how often its disjuncts are evaluated. Out: pairs of a query and a
question. A *question* is a call without the comparisons of its results. Queries in the same partition with the same
question share the answer.
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

DEFAULT_MILLISECONDS = 1.0
"""The assumed time of a call if the cost of its operator is unknown."""


@dataclass(frozen=True)
class OperatorQuestions:
    """Pairs of a query (`owners`, by position) and a question (`numbers`), and the cost per item of each question."""

    owners: Array
    numbers: Array
    microseconds: Array


def find_questions(
    logical: LogicalPlan, owner_of: Array, rates: Array, operator_milliseconds: Mapping[str, float]
) -> OperatorQuestions:
    """Find the questions of a plan. `owner_of` and `rates` are by position in `logical.query_ids`.

    A question is assumed to be evaluated for every item for which one of its disjuncts passes the filters. That an
    answer of another operator may make it unnecessary is not taken into account.
    """
    table = logical.operators
    if not len(table):
        empty = np.empty(0, dtype=np.int64)
        return OperatorQuestions(empty, empty, np.empty(0))
    numbers: dict[str, int] = {}
    costs: list[float] = []
    of_terms = [_number_questions(text, numbers, costs, operator_milliseconds) for text in table.terms.texts()]
    positions = np.searchsorted(logical.query_ids, table.disjunct_ids)
    pair_set: dict[tuple[int, int], None] = {}
    unasked = np.ones(len(costs))
    for disjunct, literals in enumerate(table.literals.lists()):
        position = int(positions[disjunct])
        if position >= len(owner_of) or logical.query_ids[position] != table.disjunct_ids[disjunct]:
            raise CorruptDataError(
                f"the disjunct {table.disjunct_ids[disjunct]} of a plan belongs to none of its queries"
            )
        questions = {question for literal in literals for question in of_terms[literal >> 1]}
        for question in sorted(questions):
            pair_set[int(owner_of[position]), question] = None
            unasked[question] *= 1.0 - min(1.0, float(rates[position]))
    pairs = np.array(list(pair_set), dtype=np.int64).reshape(-1, 2)
    return OperatorQuestions(pairs[:, 0], pairs[:, 1], 1000.0 * np.array(costs) * (1.0 - unasked))


def _number_questions(
    text: str, numbers: dict[str, int], costs: list[float], operator_milliseconds: Mapping[str, float]
) -> list[int]:
    """Return the numbers of the questions of a term. Add new questions to `numbers` and `costs`."""
    questions = []
    for call, key in _parse_questions(text):
        if key not in numbers:
            numbers[key] = len(numbers)
            costs.append(operator_milliseconds.get(call.operator, DEFAULT_MILLISECONDS))
        questions.append(numbers[key])
    return questions


def _parse_questions(text: str) -> list[tuple[Call, str]]:
    try:
        tag, *rest = json.loads(text)
        term = decode_operators(tag, rest)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise CorruptDataError(f"not a term of a plan: {text[:200]}") from error
    if not isinstance(term, Term):
        raise CorruptDataError(f"not a term of a plan: {text[:200]}")
    return [(call, json.dumps(encode_operators(call.question))) for call in term.calls]
