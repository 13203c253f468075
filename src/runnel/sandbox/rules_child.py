"""The sandbox program for rules: loads rules and applies them to the facts of items with clingo.

In: rules, then the facts of one item after the other. Out: the relations and attributes that the rules use, then the
rows of each item. A reply is a byte with its kind, followed by JSON. Little of Runnel is imported, so that a new
process starts quickly.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import astuple
from enum import IntEnum
from typing import Any

import clingo
from clingo import ast

from runnel.sandbox.rules_program import RulesProblem, RulesRefusedError

GIVEN = ("has", "number", "text", "word", "day", "input")
"""The relations that describe an item. Each has two arguments."""

MAX_ROWS = 1000
"""Maximum number of rows for an item."""

_ARGUMENTS = 2
_CONTEXT = "".join(f"{name}(A, B) :- (A, B) = @{name}().\n" for name in GIVEN)
_HEADS = "a rule must have the form name(…) :- conditions."


class ReplyKind(IntEnum):
    """The result of a request."""

    READY = 1
    REFUSED = 2
    ROWS = 3
    LARGE = 4


class TooManyRowsError(Exception):
    """The rules give more than `MAX_ROWS` rows."""


def open_program(max_reply: int) -> Callable[[bytes], bytes]:
    """Return the function that answers requests. The first request loads rules, the others apply them."""
    _warm_up()
    return RulesServer(max_reply).answer


class RulesServer:
    """Applies rules to items. A reply has at most `max_reply` bytes."""

    def __init__(self, max_reply: int) -> None:
        self._max_reply = max_reply
        self._rules: LoadedRules | None = None

    def answer(self, request: bytes) -> bytes:
        """Return the reply to a request."""
        kind, value = self._serve(json.loads(request))
        data = json.dumps(value, separators=(",", ":")).encode()
        if len(data) >= self._max_reply:
            kind, data = ReplyKind.LARGE, b"null"
        return bytes([kind]) + data

    def _serve(self, task: Any) -> tuple[ReplyKind, Any]:
        try:
            if self._rules is not None:
                return ReplyKind.ROWS, self._rules.rows(task)
            rules = LoadedRules(task["rules"], task["goal"])
            rules.rows([])
            self._rules = rules
            return ReplyKind.READY, {"places": rules.places, "needs": rules.needs}
        except RulesRefusedError as error:
            return ReplyKind.REFUSED, astuple(error.problem)
        except TooManyRowsError:
            return ReplyKind.LARGE, None


class LoadedRules:
    """Checked rules. `needs` and `places` are as in `RulesProcess`."""

    def __init__(self, program: str, goal: str) -> None:
        self._program = program
        self._goal = goal
        self.needs: dict[str, list[str] | None] = {}
        statements: list[Any] = []
        log: list[str] = []
        try:
            ast.parse_string(program, statements.append, logger=lambda code, text: log.append(text))
        except RuntimeError as error:
            raise _explain_error(log, str(error), program) from error
        argument_counts = {places for statement in statements for name, places in _heads(statement) if name == goal}
        if len(argument_counts) != 1:
            message = (
                f"{goal} has a different number of arguments in two rules"
                if argument_counts
                else f"no rule defines {goal}"
            )
            hint = f"define {goal} by rules with the same number of arguments: each of its facts becomes a row"
            raise RulesRefusedError(RulesProblem(message, 0, hint))
        (self.places,) = argument_counts
        constants = {statement.name for statement in statements if statement.ast_type == ast.ASTType.Definition}
        for statement in statements:
            self._add_needs(statement, constants)

    def rows(self, facts: Sequence[Any]) -> list[list[list[Any]]]:
        """Return the facts of the goal that follow from facts. Each is a list of pairs of kind and value."""
        log: list[str] = []
        control = clingo.Control(["--warn=none", "2"], logger=lambda code, text: log.append(text), message_limit=8)
        try:
            control.add("base", [], f"{self._program}\n{_CONTEXT}#show {self._goal}/{self.places}.\n")
            control.ground([("base", [])], context=_Facts(facts))
            models: list[Sequence[clingo.Symbol]] = []
            control.solve(on_model=lambda model: models.append(model.symbols(shown=True)))
        except RuntimeError as error:
            if "bad_alloc" in str(error):
                raise MemoryError from error
            raise _explain_error(log, str(error), self._program) from error
        if len(models) != 1:
            message = "the rules have no unique result: a fact depends on its own negation"
            raise RulesRefusedError(RulesProblem(message, 0, "remove cycles of rules that contain `not`"))
        if len(models[0]) > MAX_ROWS:
            raise TooManyRowsError
        return [[_plain(argument) for argument in fact.arguments] for fact in sorted(models[0])]

    def _add_needs(self, node: Any, constants: Collection[str]) -> None:
        for inner in _descendants(node):
            if inner.ast_type != ast.ASTType.SymbolicAtom or inner.symbol.ast_type != ast.ASTType.Function:
                if inner.ast_type == ast.ASTType.Pool:
                    self.needs.update(dict.fromkeys(GIVEN))
                continue
            name, arguments = inner.symbol.name, inner.symbol.arguments
            if name in GIVEN and len(arguments) == _ARGUMENTS and self.needs.get(name, []) is not None:
                attribute = _attribute(arguments[0])
                if attribute is None or attribute in constants:
                    self.needs[name] = None
                else:
                    self.needs[name] = sorted({*(self.needs.get(name) or ()), attribute})


class _Facts:
    """Passes the facts of an item to the grounder as values, so that no text can be parsed as a rule."""

    def __init__(self, facts: Sequence[Any]) -> None:
        self._facts: dict[str, list[clingo.Symbol]] = {name: [] for name in GIVEN}
        for relation, subject, kind, value in facts:
            pair = clingo.Tuple_([_subject(subject), _symbol(kind, value)])
            self._facts[relation].append(pair)

    def __getattr__(self, name: str) -> Any:
        if name not in GIVEN:
            raise AttributeError(name)
        return lambda: self._facts[name]


def is_constant(name: str) -> bool:
    """Return whether a name can be written without quotes in rules.

    >>> is_constant("price"), is_constant("geo:lat"), is_constant("Price"), is_constant("not")
    (True, False, False, False)
    """
    return name.isascii() and name.isidentifier() and name[:1].islower() and name != "not"


def _subject(value: Any) -> clingo.Symbol:
    if isinstance(value, int):
        return clingo.Number(value)
    return clingo.Function(value) if is_constant(value) else clingo.String(value)


def _symbol(kind: str, value: Any) -> clingo.Symbol:
    match kind:
        case "number":
            return clingo.Number(value)
        case "truth":
            return clingo.Function("true" if value else "false")
        case _:
            return clingo.String(value)


def _plain(symbol: clingo.Symbol) -> list[Any]:
    match symbol.type:
        case clingo.SymbolType.Number:
            return ["number", symbol.number]
        case clingo.SymbolType.String:
            return ["text", symbol.string]
        case clingo.SymbolType.Function if str(symbol) in ("true", "false"):
            return ["truth", str(symbol) == "true"]
        case _:
            return ["text", str(symbol)]


def _heads(statement: Any) -> Iterator[tuple[str, int]]:
    """Yield the relation that a rule defines and its number of arguments. Raise an error for other statements."""
    kinds = ast.ASTType
    line = statement.location.begin.line
    match statement.ast_type:
        case kinds.Program if statement.name == "base":
            return
        case kinds.Comment | kinds.Definition:
            return
        case kinds.Rule:
            head = statement.head
            is_plain = head.ast_type == kinds.Literal and head.sign == ast.Sign.NoSign
            if (
                not is_plain
                or head.atom.ast_type != kinds.SymbolicAtom
                or head.atom.symbol.ast_type != kinds.Function
            ):
                raise RulesRefusedError(RulesProblem("this kind of rule cannot be used", line, _HEADS))
            symbol = head.atom.symbol
            if symbol.name in GIVEN and len(symbol.arguments) == _ARGUMENTS:
                problem = RulesProblem(
                    f"rules cannot define {symbol.name}, because it is a relation of items",
                    line,
                    "choose another name",
                )
                raise RulesRefusedError(problem)
            yield symbol.name, len(symbol.arguments)
        case _:
            raise RulesRefusedError(RulesProblem("this is not a rule", line, _HEADS))


def _descendants(node: Any) -> Iterator[Any]:
    """Yield a node and all its descendants."""
    waiting = [node]
    while waiting:
        value = waiting.pop()
        if isinstance(value, ast.AST):
            yield value
            waiting.extend(getattr(value, key) for key in value.child_keys)
        elif isinstance(value, ast.ASTSequence | list | tuple):
            waiting.extend(value)


def _attribute(node: Any) -> str | None:
    """Return the attribute that the first argument of an atom names, or None if it may be any."""
    if node.ast_type == ast.ASTType.Function and not node.arguments and not node.external:
        return str(node.name)
    if node.ast_type == ast.ASTType.SymbolicTerm:
        symbol = node.symbol
        if symbol.type == clingo.SymbolType.String:
            return str(symbol.string)
        return str(symbol)
    return None


def _explain_error(log: Sequence[str], default: str, program: str) -> RulesRefusedError:
    """Convert the first error of clingo, in the form `<block>:2:1-5: error: message`."""
    text = (log[0] if log else default).strip()
    place, separator, message = text.partition(": error: ")
    parts = place.split(":")
    line = int(parts[1]) if separator and len(parts) > 1 and parts[1].isdigit() else 0
    # clingo reports an unexpected end on the line after the last one.
    words = " ".join((message or text).replace("[#inc_base];", "").split())
    return RulesRefusedError(RulesProblem(words[:300], min(line, program.count("\n") + 1)))


def _warm_up() -> None:
    """Load everything that rules may need, because no file can be opened later."""
    LoadedRules("holds(X) :- has(a, X), not has(b, X).", "holds").rows([["has", "a", "text", "x"]])
    with contextlib.suppress(RulesRefusedError):
        LoadedRules("holds(", "holds")
    json.loads(json.dumps([["text", "é"]]))
