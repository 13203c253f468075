"""What operators are asked about the items of a batch, and what they said.

In: calls of a plan, as orders name them. Out: rows, or why there are none. Most calls are one question about an item;
one that is given variables of item patterns is a question for every value that these have on the item, each asked
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Argument, Call, Given, Literally, Variable
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.semantics.bindings import MOST_INPUTS, Answers, grounded, pattern_rows
from runnel.errors import RunnelError
from runnel.matching.operators.plugins.contract import Answer, Asker, Failed, Input, Question
from runnel.matching.patterns.item_search import FamilySearch
from runnel.model.item import Attributes
from runnel.model.operator import Rows

TOO_MANY_SOLUTIONS = "a pattern has too many solutions to ask about"
TOO_MANY_INPUTS = f"a pattern gives it more than {MOST_INPUTS} different values for one item"


@dataclass(frozen=True, slots=True)
class Answered:
    """What was said to a call about an item. With a failure and `partly`, some of the questions were answered."""

    rows: Rows = ()
    failure: Failed | None = None
    partly: bool = False


class Questions:
    """The questions about the items of one batch. Items and calls are numbers; `numbers` are those of plain calls."""

    def __init__(
        self,
        calls: Sequence[Call],
        patterns: Sequence[tuple[ItemPattern, ...]],
        asker: Asker,
        attributes: Sequence[Attributes],
        numbers: Mapping[Call, int],
    ) -> None:
        self._calls = calls
        self._patterns = patterns
        self._asker = asker
        self._attributes = attributes
        self.searches = [FamilySearch(one) for one in attributes]
        self._constant: dict[int, tuple[Input, ...] | None] = {}
        self._numbers = numbers
        self._answers: dict[tuple[int, int], Answered] = {}
        self._grounded: dict[tuple[int, Call], Answer] = {}
        self.asked = 0

    def ask(self, pairs: Sequence[tuple[int, int]]) -> list[Answered]:
        """What is said to these calls about these items, all asked together."""
        several = [self._several(item, call) if self._calls[call].given else [] for item, call in pairs]
        questions: list[Question] = []
        places: list[tuple[int, Call] | None] = []
        for (item, call), some in zip(pairs, several, strict=True):
            if not self._calls[call].given:
                questions.append(self._question(item, call))
                places.append(None)
            for one in some if isinstance(some, list) else ():
                if (item, one) not in self._grounded:
                    questions.append(question_of(one, self._attributes[item]))
                    places.append((item, one))
        self.asked += len(questions)
        said = self._asker.ask(questions)
        self._grounded.update((place, one) for place, one in zip(places, said, strict=True) if place is not None)
        plain = (one for place, one in zip(places, said, strict=True) if place is None)
        for pair, some in zip(pairs, several, strict=True):
            given = self._calls[pair[1]].given
            self._answers[pair] = self._united(pair[0], some) if given else _answered(next(plain))
        return [self._answers[pair] for pair in pairs]

    def _question(self, item: int, call: int) -> Question:
        if call not in self._constant:
            self._constant[call] = _constants(self._calls[call])
        inputs = self._constant[call]
        if inputs is None:
            return question_of(self._calls[call], self._attributes[item])
        return Question((self._calls[call].operator, self._calls[call].version), self._attributes[item], inputs)

    def _several(self, item: int, call: int) -> list[Call] | Failed:
        """The questions that an item's patterns make of a call, or why they cannot be asked."""
        rows = pattern_rows(self._patterns[call], self.searches[item].rows)
        if rows is None:
            return Failed(TOO_MANY_SOLUTIONS, passing=False)
        found = list(grounded(self._calls[call], rows).values())
        return found if len(found) <= MOST_INPUTS else Failed(TOO_MANY_INPUTS, passing=False)

    def _united(self, item: int, some: list[Call] | Failed) -> Answered:
        """All that was said to the questions of a call that is given variables."""
        if isinstance(some, Failed):
            return Answered(failure=some)
        said = [self._grounded[item, one] for one in some]
        failures = [one for one in said if isinstance(one, Failed)]
        rows = dict.fromkeys(row for one in said if not isinstance(one, Failed) for row in one)
        if not failures:
            return Answered(tuple(rows))
        # What passes by itself is worth asking again, even if another will not.
        worst = next((one for one in failures if one.passing), failures[0])
        return Answered(tuple(rows), worst, partly=len(failures) < len(said))

    def was_asked(self, item: int, call: int) -> bool:
        """Whether a call was asked about an item, with or without an answer."""
        return (item, call) in self._answers

    def failure(self, item: int, call: int) -> Failed | None:
        """Why a call had no answer, or not all of it."""
        return self._answers[item, call].failure if (item, call) in self._answers else None

    def answers(self, item: int) -> Answers:
        """What was said about an item, to those who check terms."""

        def answer(call: Call) -> Rows | None:
            question = call.question
            number = self._numbers.get(question)
            if number is not None and (item, number) in self._answers:
                told = self._answers[item, number]
                return None if told.failure is not None else told.rows
            said = self._grounded.get((item, question))
            return None if isinstance(said, Failed) else said

        return answer


def _answered(said: Answer) -> Answered:
    return Answered(failure=said) if isinstance(said, Failed) else Answered(said)


def question_of(call: Call, attributes: Attributes) -> Question:
    """What an operator is asked for a call about an item."""
    inputs = tuple(_input(one, attributes) for one in call.inputs)
    return Question((call.operator, call.version), attributes, inputs)


def _constants(call: Call) -> tuple[Input, ...] | None:
    """The inputs of a call, where they are constants."""
    constant = all(isinstance(one, Literally) for one in call.inputs)
    return question_of(call, {}).inputs if constant else None


def _input(argument: Argument, attributes: Attributes) -> Input:
    match argument:
        case Literally(value):
            return value  # type: ignore[return-value]
        case Attribute(name):
            return attributes.get(name, ())
        case Variable() | Given():
            raise RunnelError("a variable was given to an operator as an input")
