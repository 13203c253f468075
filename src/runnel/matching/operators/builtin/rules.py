"""The operator `rules`: derive facts from an item's attributes with Datalog rules.

The attributes of an item become facts: `has(Attribute, Value)` for every value, and `number`, `text`, `word` and
`day` for values of these types. The inputs of a call become `input(Position, Value)`. The rows are the derived facts
of the goal. Numbers in rules are integers: a value is multiplied by `scale` and rounded. The rules run in a sandbox.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from runnel.algebra.semantics.evaluate import is_text
from runnel.algebra.values.words import words
from runnel.errors import OperatorRefusedError
from runnel.matching.operators.builtin.configuration import WORK_SHARE, Configuration
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext
from runnel.model.item import Attributes, Value
from runnel.model.operator import Parameter, Row
from runnel.sandbox.rules_child import is_constant
from runnel.sandbox.rules_process import RulesLimits, RulesProcess, RulesProcessError
from runnel.sandbox.rules_program import MAX_BYTES, MAX_NUMBER, RulesProblem, RulesRefusedError, screen

MAX_FACTS = 20_000
MAX_TEXT_LENGTH = 4096
"""Texts in facts are cut to this number of characters."""

MAX_SERVED = 2000
"""Items after which the process is replaced, because clingo never releases a text that it has seen."""

_OPTIONS = ("rules", "file", "goal", "scale", "seconds", "megabytes")
_Fact = list[Any]


class Rules:
    """Derives facts of a goal from an item: `needsReview(?reason)`.

    >>> rules = Rules(OperatorContext({"rules": 'holds(P) :- number(price, P), P > 50, not has(category, "food").'}))
    >>> rules.answer([OperatorCall({"price": (60.0,)}), OperatorCall({"price": (60.0,), "category": ("food",)})])
    [((60.0,),), ()]
    >>> rules.close()
    """

    parameters: tuple[Parameter, ...] = ()
    cost = timedelta(milliseconds=1)
    pure = True
    batch = 64

    def __init__(self, context: OperatorContext) -> None:
        configuration = Configuration("rules", context, _OPTIONS)
        self._program = _read_program(configuration)
        self._goal = configuration.text("goal", "holds")
        if not is_constant(self._goal):
            raise configuration.error(
                "the goal must be the name of a relation",
                key="goal",
                hint="use ASCII letters, digits and _, and begin with a lower-case letter",
            )
        self._scale = configuration.integer("scale", 1, minimum=1, maximum=1_000_000)
        self._limits = RulesLimits(
            seconds=configuration.number("seconds", 1.0, minimum=0.1, maximum=60.0),
            megabytes=configuration.integer("megabytes", 128, minimum=32, maximum=4096),
        )
        self._time_limit = context.time_limit
        self._lock = threading.Lock()  # the process evaluates one item at a time
        self._process: RulesProcess | None = None
        key = "rules" if configuration.has("rules") else "file"
        try:
            self._process = self._running_process()
        except RulesRefusedError as error:
            raise _program_error(configuration, key, error.problem) from error
        except RulesProcessError as error:
            problem = RulesProblem(
                f"the rules were stopped: {error.reason}",
                hint="this happened before the first item; simplify the rules",
            )
            raise _program_error(configuration, key, problem) from error
        self._needs = self._process.needs

    def answer(self, calls: Sequence[OperatorCall]) -> Sequence[Answer]:
        """Return the rows of the goal for every call. A call that exceeds a limit fails without affecting others."""
        deadline = time.monotonic() + WORK_SHARE * self._time_limit
        answers: list[Answer] = []
        for call in calls:
            with self._lock:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    answers.append(FailedCall("previous items of the batch used up the time limit"))
                else:
                    answers.append(self._answer(call, remaining))
        return answers

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()

    def _answer(self, call: OperatorCall, seconds: float) -> Answer:
        facts = list(self._facts(call))
        if len(facts) > MAX_FACTS:
            return FailedCall(f"the item has more than {MAX_FACTS} facts", passing=False)
        if (large := next((fact for fact in facts if _is_too_large(fact)), None)) is not None:
            return FailedCall(
                f"the value of {_subject(large)} is too large: scaled numbers in rules go up to {MAX_NUMBER}",
                passing=False,
            )
        try:
            rows = self._running_process().rows(facts, seconds)
        except RulesRefusedError as error:
            return FailedCall(error.problem.message, passing=False)
        except RulesProcessError as error:
            return FailedCall(f"the rules were stopped: {error.reason}", passing=error.passing)
        return tuple(dict.fromkeys(_row(row) for row in rows))

    def _running_process(self) -> RulesProcess:
        """Return the process. Replace it if it is dead or has evaluated its maximum number of items."""
        if self._process is None or self._process.dead or self._process.served >= MAX_SERVED:
            self.close()
            self._process = RulesProcess(self._program, self._goal, self._limits)
        return self._process

    def _facts(self, call: OperatorCall) -> Iterator[_Fact]:
        """Yield the facts that the rules use, from the item and from the inputs of the call."""
        for relation, names in self._needs.items():
            if relation == "input":
                for position, given in enumerate(call.inputs, 1):
                    values = given if isinstance(given, tuple) else (given,)
                    yield from (["input", position, *self._value(value)] for value in values)
                continue
            attributes: Attributes = call.attributes
            for name in attributes if names is None else names:
                for value in attributes.get(name, ()):
                    yield from self._attribute_facts(relation, name[:MAX_TEXT_LENGTH], value)

    def _attribute_facts(self, relation: str, name: str, value: Value) -> Iterator[_Fact]:
        match relation, value:
            case ("has", _):
                yield [relation, name, *self._value(value)]
            case ("number", int() | float()) if not isinstance(value, bool):
                yield [relation, name, *self._value(value)]
            case ("text", str()) if is_text(value):
                yield [relation, name, *self._value(value)]
            case ("word", str()) if is_text(value):
                for word in dict.fromkeys(words(value)):
                    yield [relation, name, "text", word[:MAX_TEXT_LENGTH]]
            case ("day", datetime()):
                yield [relation, name, "number", value.year * 10_000 + value.month * 100 + value.day]
            case _:
                return

    def _value(self, value: Value) -> tuple[str, Any]:
        match value:
            case bool():
                return "truth", value
            case str():
                return "text", value.replace("\0", "")[:MAX_TEXT_LENGTH]
            case datetime():
                return "text", value.isoformat()
            case _:
                return "number", round(value * self._scale)


def _read_program(configuration: Configuration) -> str:
    if configuration.has("rules") == configuration.has("file"):
        raise configuration.error(
            "exactly one of the options rules and file is required",
            hint="use: with (rules '…') or with (file 'name')",
        )
    if configuration.has("rules"):
        program, key = configuration.text("rules"), "rules"
    else:
        key = "file"
        try:
            program = configuration.read(key, MAX_BYTES).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise configuration.error("the file is not UTF-8 text", key=key) from error
    if (problem := screen(program)) is not None:
        raise _program_error(configuration, key, problem)
    return program


def _program_error(configuration: Configuration, key: str, problem: RulesProblem) -> OperatorRefusedError:
    location = f"{key}, line {problem.line}" if problem.line else key
    return configuration.error(problem.message, key=location, hint=problem.hint or None)


def _subject(fact: _Fact) -> str:
    return f"input {fact[1]}" if fact[0] == "input" else str(fact[1])


def _is_too_large(fact: _Fact) -> bool:
    return bool(fact[2] == "number" and abs(fact[3]) > MAX_NUMBER)


def _row(row: Sequence[Sequence[Any]]) -> Row:
    return tuple(float(value) if kind == "number" else value for kind, value in row)
