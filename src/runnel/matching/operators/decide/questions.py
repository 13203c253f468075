"""The questions to operators about the items of a batch, and the answers.

In: calls of a plan, in the order that was chosen. Out: rows, or failures. Most calls are one question per item. A
call whose inputs are variables of item patterns is one question per distinct value of these variables on the item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Argument, Call, Given, Literally, Variable
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.semantics.bindings import MAX_INPUTS, Answers, grounded, pattern_rows
from runnel.errors import RunnelError
from runnel.matching.operators.plugins.contract import Answer, Asker, FailedCall, Input, Question
from runnel.matching.patterns.item_search import FamilySearch
from runnel.model.item import Attributes
from runnel.model.operator import Rows

TOO_MANY_SOLUTIONS = "a pattern that provides its inputs has too many solutions"
TOO_MANY_INPUTS = f"a pattern provides more than {MAX_INPUTS} different inputs for one item"


@dataclass(frozen=True, slots=True)
class CallResult:
    """The answer to a call about an item. `partly` means that only some of the call's questions failed."""

    rows: Rows = ()
    failure: FailedCall | None = None
    partly: bool = False


class Questions:
    """The questions about the items of one batch. Items and calls are identified by numbers.

    `numbers` has the numbers of the calls without variables of item patterns.
    """

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
        self.searches = [FamilySearch(item_attributes) for item_attributes in attributes]
        self._constant_inputs: dict[int, tuple[Input, ...] | None] = {}
        self._numbers = numbers
        self._answers: dict[tuple[int, int], CallResult] = {}
        self._grounded: dict[tuple[int, Call], Answer] = {}
        self.asked = 0

    def ask(self, pairs: Sequence[tuple[int, int]]) -> list[CallResult]:
        """Send all questions of these calls about these items together, and return one answer per pair."""
        ground_calls = [self._ground_calls(item, call) if self._calls[call].given else [] for item, call in pairs]
        questions: list[Question] = []
        sources: list[
            tuple[int, Call] | None
        ] = []  # the item and the ground call of a question; None for plain calls
        for (item, call), own_calls in zip(pairs, ground_calls, strict=True):
            if not self._calls[call].given:
                questions.append(self._question(item, call))
                sources.append(None)
            for ground_call in own_calls if isinstance(own_calls, list) else ():
                if (item, ground_call) not in self._grounded:
                    questions.append(question_of(ground_call, self._attributes[item]))
                    sources.append((item, ground_call))
        self.asked += len(questions)
        answers = self._asker.ask(questions)
        self._grounded.update(
            (source, answer) for source, answer in zip(sources, answers, strict=True) if source is not None
        )
        plain = (answer for source, answer in zip(sources, answers, strict=True) if source is None)
        for pair, own_calls in zip(pairs, ground_calls, strict=True):
            given = self._calls[pair[1]].given
            self._answers[pair] = self._merge_answers(pair[0], own_calls) if given else _answered(next(plain))
        return [self._answers[pair] for pair in pairs]

    def _question(self, item: int, call: int) -> Question:
        if call not in self._constant_inputs:
            self._constant_inputs[call] = _constants(self._calls[call])
        inputs = self._constant_inputs[call]
        if inputs is None:
            return question_of(self._calls[call], self._attributes[item])
        return Question((self._calls[call].operator, self._calls[call].version), self._attributes[item], inputs)

    def _ground_calls(self, item: int, call: int) -> list[Call] | FailedCall:
        """Return the call once per distinct value of its pattern variables, or FailedCall if there are too many."""
        rows = pattern_rows(self._patterns[call], self.searches[item].rows)
        if rows is None:
            return FailedCall(TOO_MANY_SOLUTIONS, passing=False)
        calls = list(grounded(self._calls[call], rows).values())
        return calls if len(calls) <= MAX_INPUTS else FailedCall(TOO_MANY_INPUTS, passing=False)

    def _merge_answers(self, item: int, ground_calls: list[Call] | FailedCall) -> CallResult:
        """Merge the answers to all questions of a call with pattern variables."""
        if isinstance(ground_calls, FailedCall):
            return CallResult(failure=ground_calls)
        answers = [self._grounded[item, call] for call in ground_calls]
        failures = [answer for answer in answers if isinstance(answer, FailedCall)]
        rows = dict.fromkeys(row for answer in answers if not isinstance(answer, FailedCall) for row in answer)
        if not failures:
            return CallResult(tuple(rows))
        # Report a passing failure if there is one: a retry may succeed for it, even if other questions fail again.
        reported = next((failure for failure in failures if failure.passing), failures[0])
        return CallResult(tuple(rows), reported, partly=len(failures) < len(answers))

    def was_asked(self, item: int, call: int) -> bool:
        """Return whether a call about an item was made, successfully or not."""
        return (item, call) in self._answers

    def failure(self, item: int, call: int) -> FailedCall | None:
        """Return the failure of a call, which may concern only some of its questions, or None."""
        return self._answers[item, call].failure if (item, call) in self._answers else None

    def answers(self, item: int) -> Answers:
        """Return a function that looks up the answers about an item. It returns None for missing answers."""

        def answer(call: Call) -> Rows | None:
            question = call.question
            number = self._numbers.get(question)
            if number is not None and (item, number) in self._answers:
                answered = self._answers[item, number]
                return None if answered.failure is not None else answered.rows
            rows = self._grounded.get((item, question))
            return None if isinstance(rows, FailedCall) else rows

        return answer


def _answered(answer: Answer) -> CallResult:
    return CallResult(failure=answer) if isinstance(answer, FailedCall) else CallResult(answer)


def question_of(call: Call, attributes: Attributes) -> Question:
    """Return the question of a call about an item."""
    inputs = tuple(_input(argument, attributes) for argument in call.inputs)
    return Question((call.operator, call.version), attributes, inputs)


def _constants(call: Call) -> tuple[Input, ...] | None:
    """Return the inputs of a call if all of them are constants, otherwise None."""
    is_constant = all(isinstance(argument, Literally) for argument in call.inputs)
    return question_of(call, {}).inputs if is_constant else None


def _input(argument: Argument, attributes: Attributes) -> Input:
    match argument:
        case Literally(value):
            return value  # type: ignore[return-value]
        case Attribute(name):
            return attributes.get(name, ())
        case Variable() | Given():
            raise RunnelError("an input of an operator call is an unbound variable")
