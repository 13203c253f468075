"""The program of the sandbox in which rules are applied.

In: rules, then the facts of items one after another. Out: what the rules need to know of an item, then the rows that
they give. A reply is a byte that says its kind, and JSON. Little of Runnel is imported here, so that a fresh process
is soon ready.
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
"""The relations that describe an item; each has two places."""

MAX_ROWS = 1000
"""Rows that rules may give for an item."""

_TWO = 2
_CONTEXT = "".join(f"{name}(A, B) :- (A, B) = @{name}().\n" for name in GIVEN)
_HEADS = "a rule makes facts of one relation: name(…) :- conditions."


class ReplyKind(IntEnum):
    """What became of a task."""

    READY = 1
    REFUSED = 2
    ROWS = 3
    LARGE = 4


class TooManyRowsError(Exception):
    """More rows than are taken."""


def open_program(max_reply: int) -> Callable[[bytes], bytes]:
    """The function that answers requests: the first one loads rules, the others apply them."""
    _warm_up()
    return RulesServer(max_reply).answer


class RulesServer:
    """Applies rules to items; a reply has at most `max_reply` bytes."""

    def __init__(self, max_reply: int) -> None:
        self._max_reply = max_reply
        self._rules: LoadedRules | None = None

    def answer(self, request: bytes) -> bytes:
        """The reply to a request."""
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
    """Rules that were checked, and what they need and give."""

    def __init__(self, program: str, goal: str) -> None:
        self._program = program
        self._goal = goal
        self.needs: dict[str, list[str] | None] = {}
        statements: list[Any] = []
        log: list[str] = []
        try:
            ast.parse_string(program, statements.append, logger=lambda code, said: log.append(said))
        except RuntimeError as error:
            raise _explained(log, str(error), program) from error
        found = {places for one in statements for name, places in _heads(one) if name == goal}
        if len(found) != 1:
            message = (
                f"no rule makes {goal}" if not found else f"{goal} has a different number of places in two rules"
            )
            raise RulesRefusedError(RulesProblem(message, 0, f"{goal} gives the rows"))
        (self.places,) = found
        constants = {one.name for one in statements if one.ast_type == ast.ASTType.Definition}
        for statement in statements:
            self._note_needs(statement, constants)

    def rows(self, facts: Sequence[Any]) -> list[list[list[Any]]]:
        """The facts of the goal that follow from facts, as pairs of kind and value."""
        log: list[str] = []
        control = clingo.Control(["--warn=none", "2"], logger=lambda code, said: log.append(said), message_limit=8)
        try:
            control.add("base", [], f"{self._program}\n{_CONTEXT}#show {self._goal}/{self.places}.\n")
            control.ground([("base", [])], context=_Facts(facts))
            models: list[Sequence[clingo.Symbol]] = []
            control.solve(on_model=lambda model: models.append(model.symbols(shown=True)))
        except RuntimeError as error:
            if "bad_alloc" in str(error):
                raise MemoryError from error
            raise _explained(log, str(error), self._program) from error
        if len(models) != 1:
            message = "the rules do not decide: something follows from its own negation"
            raise RulesRefusedError(RulesProblem(message, 0, "mind `not` in a circle"))
        if len(models[0]) > MAX_ROWS:
            raise TooManyRowsError
        return [[_plain(argument) for argument in one.arguments] for one in sorted(models[0])]

    def _note_needs(self, node: Any, constants: Collection[str]) -> None:
        for one in _below(node):
            if one.ast_type != ast.ASTType.SymbolicAtom or one.symbol.ast_type != ast.ASTType.Function:
                if one.ast_type == ast.ASTType.Pool:
                    self.needs.update(dict.fromkeys(GIVEN))
                continue
            name, arguments = one.symbol.name, one.symbol.arguments
            if name in GIVEN and len(arguments) == _TWO and self.needs.get(name, []) is not None:
                attribute = _attribute(arguments[0])
                if attribute is None or attribute in constants:
                    self.needs[name] = None
                else:
                    self.needs[name] = sorted({*(self.needs.get(name) or ()), attribute})


class _Facts:
    """Gives the facts of an item to the grounder: as values, so that no text can be taken for a rule."""

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
    """Whether a name can be written without quotes in rules.

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
    """The relation that a statement makes facts of, and its places; Refused where it is no plain rule."""
    kinds = ast.ASTType
    line = statement.location.begin.line
    match statement.ast_type:
        case kinds.Program if statement.name == "base":
            return
        case kinds.Comment | kinds.Definition:
            return
        case kinds.Rule:
            head = statement.head
            plain = head.ast_type == kinds.Literal and head.sign == ast.Sign.NoSign
            if not plain or head.atom.ast_type != kinds.SymbolicAtom or head.atom.symbol.ast_type != kinds.Function:
                raise RulesRefusedError(RulesProblem("this is not a rule that can be used", line, _HEADS))
            symbol = head.atom.symbol
            if symbol.name in GIVEN and len(symbol.arguments) == _TWO:
                problem = RulesProblem(f"{symbol.name} is given by the item", line, "give your facts another name")
                raise RulesRefusedError(problem)
            yield symbol.name, len(symbol.arguments)
        case _:
            raise RulesRefusedError(RulesProblem("this is not a rule", line, _HEADS))


def _below(node: Any) -> Iterator[Any]:
    """A node and all nodes below it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.AST):
            yield one
            waiting.extend(getattr(one, key) for key in one.child_keys)
        elif isinstance(one, ast.ASTSequence | list | tuple):
            waiting.extend(one)


def _attribute(node: Any) -> str | None:
    """The attribute that the first place of a fact names, or None where it may be any."""
    if node.ast_type == ast.ASTType.Function and not node.arguments and not node.external:
        return str(node.name)
    if node.ast_type == ast.ASTType.SymbolicTerm:
        symbol = node.symbol
        if symbol.type == clingo.SymbolType.String:
            return str(symbol.string)
        return str(symbol)
    return None


def _explained(log: Sequence[str], otherwise: str, program: str) -> RulesRefusedError:
    """clingo's first complaint: it says `<block>:2:1-5: error: what is wrong`."""
    said = (log[0] if log else otherwise).strip()
    place, separator, message = said.partition(": error: ")
    parts = place.split(":")
    line = int(parts[1]) if separator and len(parts) > 1 and parts[1].isdigit() else 0
    # What comes too early to its end is said to be wrong on the line after the last.
    words = " ".join((message or said).replace("[#inc_base];", "").split())
    return RulesRefusedError(RulesProblem(words[:300], min(line, program.count("\n") + 1)))


def _warm_up() -> None:
    """Have everything loaded that rules may need, as no file can be opened later."""
    LoadedRules("holds(X) :- has(a, X), not has(b, X).", "holds").rows([["has", "a", "text", "x"]])
    with contextlib.suppress(RulesRefusedError):
        LoadedRules("holds(", "holds")
    json.loads(json.dumps([["text", "é"]]))
