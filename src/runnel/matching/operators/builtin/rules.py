"""Rules: what follows from an item's attributes, by rules in the manner of Datalog.

In: rules from a configuration once, then items as facts: `has(Attribute, Value)` for every value, and `number`,
`text`, `word` and `day` for those of a kind; `input(Place, Value)` for the inputs of a call. Out: the facts of the
goal, as rows. Numbers are whole: decimals are multiplied by `scale` and rounded. The rules run in a child process.
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
from runnel.matching.operators.builtin.configuration import IN_TIME, Configuration
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, OperatorContext
from runnel.model.item import Attributes, Value
from runnel.model.operator import Parameter, Row
from runnel.sandbox.rules_child import is_constant
from runnel.sandbox.rules_process import RulesLimits, RulesProcess, RulesProcessError
from runnel.sandbox.rules_program import LARGEST, MAX_BYTES, RulesProblem, RulesRefusedError, screen

MAX_FACTS = 20_000
LONGEST = 4096
"""Characters of a text that rules see."""

SERVED = 2000
"""Items after which a process is replaced: clingo keeps every text it has seen."""

_SETTINGS = ("rules", "file", "goal", "scale", "seconds", "megabytes")
_Fact = list[Any]


class Rules:
    """What follows from an item: `needsReview(?reason)`, from rules that make facts of a goal.

    >>> rules = Rules(OperatorContext({"rules": 'holds(P) :- number(price, P), P > 50, not has(category, "food").'}))
    >>> rules.answer([Ask({"price": (60.0,)}), Ask({"price": (60.0,), "category": ("food",)})])
    [((60.0,),), ()]
    >>> rules.close()
    """

    parameters: tuple[Parameter, ...] = ()
    cost = timedelta(milliseconds=1)
    pure = True
    batch = 64

    def __init__(self, place: OperatorContext) -> None:
        configuration = Configuration("rules", place, _SETTINGS)
        self._program = _program(configuration)
        self._goal = configuration.text("goal", "holds")
        if not is_constant(self._goal):
            raise configuration.refused("this is no relation", key="goal", hint="a name in small letters")
        self._scale = configuration.whole("scale", 1, least=1, most=1_000_000)
        self._limits = RulesLimits(
            seconds=configuration.number("seconds", 1.0, least=0.1, most=60.0),
            megabytes=configuration.whole("megabytes", 128, least=32, most=4096),
        )
        self._time_limit = place.time_limit
        self._turn = threading.Lock()  # The process takes one item at a time.
        self._process: RulesProcess | None = None
        key = "rules" if configuration.has("rules") else "file"
        try:
            self._process = self._ready()
        except RulesRefusedError as error:
            raise _refusal(configuration, key, error.problem) from error
        except RulesProcessError as error:
            problem = RulesProblem(f"the rules were stopped: {error.reason}", hint="without any item")
            raise _refusal(configuration, key, problem) from error
        self._needs = self._process.needs

    def answer(self, asks: Sequence[Ask]) -> Sequence[Answer]:
        """The rows of the goal for every ask; one that takes too long or too much fails alone."""
        deadline = time.monotonic() + IN_TIME * self._time_limit
        answers: list[Answer] = []
        for ask in asks:
            with self._turn:
                left = deadline - time.monotonic()
                if left <= 0:
                    answers.append(Failed("the rules took too long over the items before this one"))
                else:
                    answers.append(self._one(ask, left))
        return answers

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()

    def _one(self, ask: Ask, seconds: float) -> Answer:
        facts = list(self._facts(ask))
        if len(facts) > MAX_FACTS:
            return Failed(f"the item makes more than {MAX_FACTS} facts", passing=False)
        if (large := next((fact for fact in facts if _is_too_large(fact)), None)) is not None:
            return Failed(f"{large[1]} is too large a number for rules, which go up to {LARGEST}", passing=False)
        try:
            rows = self._ready().rows(facts, seconds)
        except RulesRefusedError as error:
            return Failed(error.problem.message, passing=False)
        except RulesProcessError as error:
            return Failed(f"the rules were stopped: {error.reason}", passing=error.passing)
        return tuple(dict.fromkeys(_row(row) for row in rows))

    def _ready(self) -> RulesProcess:
        if self._process is None or self._process.dead or self._process.served >= SERVED:
            self.close()
            self._process = RulesProcess(self._program, self._goal, self._limits)
        return self._process

    def _facts(self, ask: Ask) -> Iterator[_Fact]:
        """The facts that the rules look at, of an item and of a call's inputs."""
        for relation, names in self._needs.items():
            if relation == "input":
                for place, given in enumerate(ask.inputs, 1):
                    values = given if isinstance(given, tuple) else (given,)
                    yield from (["input", place, *self._value(value)] for value in values)
                continue
            attributes: Attributes = ask.attributes
            for name in attributes if names is None else names:
                for value in attributes.get(name, ()):
                    yield from self._of_kind(relation, name[:LONGEST], value)

    def _of_kind(self, relation: str, name: str, value: Value) -> Iterator[_Fact]:
        match relation, value:
            case ("has", _):
                yield [relation, name, *self._value(value)]
            case ("number", int() | float()) if not isinstance(value, bool):
                yield [relation, name, *self._value(value)]
            case ("text", str()) if is_text(value):
                yield [relation, name, *self._value(value)]
            case ("word", str()) if is_text(value):
                for word in dict.fromkeys(words(value)):
                    yield [relation, name, "text", word[:LONGEST]]
            case ("day", datetime()):
                yield [relation, name, "number", value.year * 10_000 + value.month * 100 + value.day]
            case _:
                return

    def _value(self, value: Value) -> tuple[str, Any]:
        match value:
            case bool():
                return "truth", value
            case str():
                return "text", value.replace("\0", "")[:LONGEST]
            case datetime():
                return "text", value.isoformat()
            case _:
                return "number", round(value * self._scale)


def _program(configuration: Configuration) -> str:
    if configuration.has("rules") == configuration.has("file"):
        raise configuration.refused("rules are needed", hint="with (rules '…') or with (file 'name'), and not both")
    if configuration.has("rules"):
        program, key = configuration.text("rules"), "rules"
    else:
        key = "file"
        try:
            program = configuration.read(key, MAX_BYTES).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise configuration.refused("this is no text in UTF-8", key=key) from error
    if (problem := screen(program)) is not None:
        raise _refusal(configuration, key, problem)
    return program


def _refusal(configuration: Configuration, key: str, problem: RulesProblem) -> OperatorRefusedError:
    place = f"{key}, line {problem.line}" if problem.line else key
    return configuration.refused(problem.message, key=place, hint=problem.hint or None)


def _is_too_large(fact: _Fact) -> bool:
    return bool(fact[2] == "number" and abs(fact[3]) > LARGEST)


def _row(row: Sequence[Sequence[Any]]) -> Row:
    return tuple(float(value) if kind == "number" else value for kind, value in row)
