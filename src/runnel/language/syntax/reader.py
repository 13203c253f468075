"""The token reader that all grammar rules use, and the tables that make up a grammar.

In: a script and a grammar. Out: the current token; the rules advance to the next one. The reader records which tokens
the rules have tried at the current position, so that a syntax error can list all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from runnel.algebra.nodes.render import RESERVED
from runnel.errors import Span, StatementSyntaxError
from runnel.language.syntax import expectations
from runnel.language.syntax.describe_problem import Problem, describe_problem
from runnel.language.syntax.nesting import MAX_NESTING, nesting_error
from runnel.language.syntax.parameters import Parameters, ValueToken
from runnel.language.syntax.script_tokens import (
    END,
    LIST,
    NUMBER,
    PARAMETER,
    QUOTED,
    SIGN,
    TEXT,
    TOKEN,
    WORD,
    Script,
    Token,
)
from runnel.model.item import MAX_NAME

if TYPE_CHECKING:
    from runnel.algebra.nodes.gate_rules import GateRule
    from runnel.language.syntax.conditions import ParsedCondition
    from runnel.language.syntax.operator_terms import ParsedQuantity
    from runnel.language.syntax.statements import Statement

    ParseStatement = Callable[["TokenReader", Token], Statement]
    ParseCondition = Callable[["TokenReader"], ParsedCondition | ParsedQuantity]
    ParseGate = Callable[["TokenReader"], GateRule]


@dataclass(frozen=True, slots=True)
class PrefixSyntax:
    """How patterns of a family use prefixes such as `ex:`, which are registered in a workspace.

    `is_used` returns whether a parsed pattern has prefixes to expand. `expand` is called with the pattern and the
    registered prefixes, and returns the pattern without prefixes. It raises UnknownNameError if one is not defined.
    """

    is_used: Callable[[Any], bool]
    expand: Callable[[Any, Mapping[str, str]], Any]


@dataclass(frozen=True, slots=True)
class ConditionSyntax:
    """The syntax of one family of conditions.

    `starts` are the words, signs or token kinds that begin such a condition. `parse` is called with the first token
    of the condition as the current one, and returns with the token after the condition as the current one. A family
    whose names have prefixes also has `prefixes`.
    """

    starts: Collection[str]
    parse: ParseCondition
    prefixes: PrefixSyntax | None = None


@dataclass(frozen=True, slots=True)
class GateSyntax:
    """The syntax of one kind of gate, a clause between `from` and `where`.

    `word` begins the clause. `parse` is called with the token after that word as the current one. `hint` returns a
    hint for the syntax errors that it recognizes.
    """

    word: str
    parse: ParseGate
    hint: Callable[[Problem], str | None] = lambda problem: None


class Grammar:
    """The rules of a parser: those for statements, conditions and gates, by the tokens that begin them."""

    def __init__(
        self,
        statements: Mapping[str, ParseStatement],
        conditions: Iterable[ConditionSyntax],
        gates: Iterable[GateSyntax] = (),
    ) -> None:
        self.statements = statements
        self.gates = tuple(gates)
        self.families = tuple(conditions)
        self.conditions: dict[str, ParseCondition] = {}
        for family in self.families:
            if isinstance(family.starts, str):
                raise ValueError(f"ConditionSyntax.starts must be a tuple of texts, not the text {family.starts!r}")
            for start in family.starts:
                if start in self.conditions:
                    raise ValueError(f"two families of conditions begin with {start}")
                self.conditions[start] = family.parse

    def with_conditions(self, *families: ConditionSyntax) -> Grammar:
        """Return this grammar with additional families of conditions."""
        return Grammar(self.statements, (*self.families, *families), self.gates)


class TokenReader:
    """Reads the tokens of a script from left to right.

    `kind`, `text`, `start` and `end` describe the current token. `word` is its text in lower case if it is a word or
    a sign, and otherwise empty, so that rules can compare it with keywords and signs. `is_scoped` is set inside the
    brackets of a condition on a variable, and `is_joined` inside those of a join. A parameter is replaced by the
    token of its value.
    """

    __slots__ = (
        "_depth",
        "_expected",
        "_matches",
        "_parameters",
        "conditions",
        "end",
        "grammar",
        "is_joined",
        "is_scoped",
        "kind",
        "previous_end",
        "script",
        "start",
        "text",
        "word",
    )

    def __init__(self, text: str, grammar: Grammar, parameters: Parameters | None = None) -> None:
        self.script = Script(text)
        self.grammar = grammar
        self.conditions = grammar.conditions
        self._parameters = parameters or Parameters()
        self._matches: Iterator[re.Match[str] | ValueToken] = TOKEN.finditer(text)
        self._expected: list[str] = []
        self._depth = 0
        self.is_scoped = False
        self.is_joined = False
        self.end = 0
        self.advance()

    def advance(self) -> None:
        """Advance to the next token."""
        match = next(self._matches)
        self.kind = kind = match.lastgroup or END
        self.text = text = match[kind]
        self.previous_end = self.end
        self.start, self.end = match.span(kind)
        if kind == WORD:
            self.word = text.lower()
        elif kind == SIGN:
            self.word = text
        else:
            self.word = ""
            if kind == PARAMETER:
                self._read_parameter()
        self._expected.clear()

    def _read_parameter(self) -> None:
        """Replace the current token, a parameter, by the token of its value."""
        self.kind, self.text = self._parameters.kind_and_text(self.text[1:], self.span)

    def token(self) -> Token:
        """Return the current token without advancing."""
        return Token(self.text, self.start, self.end, self.script)

    def take_token(self) -> Token:
        """Return the current token and advance."""
        token = Token(self.text, self.start, self.end, self.script)
        self.advance()
        return token

    @property
    def span(self) -> Span:
        """The span of the current token."""
        return self.script.span(self.start, self.end)

    # Keywords and signs.

    def is_at(self, word: str) -> bool:
        """Return whether the current token is this keyword or sign."""
        if self.word == word:
            return True
        self._expected.append(word)
        return False

    def take(self, word: str) -> bool:
        """Advance if the current token is this keyword or sign; return whether it is."""
        if self.word == word:
            self.advance()
            return True
        self._expected.append(word)
        return False

    def note_expected(self, *expected: str) -> None:
        """Record that these were also possible here, for the error message."""
        self._expected += expected

    def expect(self, *words: str) -> None:
        """Advance over these keywords and signs. Raise a syntax error if one is missing."""
        for word in words:
            if not self.take(word):
                raise self.unexpected()

    def take_one_of(self, *words: str) -> Token | None:
        """Return the current token and advance if it is one of these keywords, else return None."""
        if self.word in words:
            return self.take_token()
        self._expected += words
        return None

    # Names and constants.

    def is_at_kind(self, kind: str, expected: str) -> bool:
        """Return whether the current token is of a kind. `expected` names the kind in error messages."""
        if self.kind == kind:
            return True
        self._expected.append(expected)
        return False

    def take_kind(self, kind: str, expected: str) -> Token | None:
        """Return the current token and advance if it is of a kind, else return None."""
        return self.take_token() if self.is_at_kind(kind, expected) else None

    def expect_kind(self, kind: str, expected: str) -> Token:
        """Return the current token and advance. Raise a syntax error if it is not of this kind."""
        if self.kind != kind:
            raise self.unexpected(expected)
        return self.take_token()

    def expect_text(self) -> Token:
        """Return a text in single quotes and advance. Raise a syntax error if there is none."""
        return self.expect_kind(TEXT, expectations.TEXT)

    def take_text(self) -> Token | None:
        """Return a text in single quotes and advance, or return None if there is none."""
        return self.take_kind(TEXT, expectations.TEXT)

    def expect_any_word(self, expected: str) -> Token:
        """Return a word, even a reserved one, and advance. `expected` describes it in error messages."""
        return self.expect_kind(WORD, expected)

    def expect_word(self, expected: str) -> Token:
        """Return a word that is not reserved, and advance. `expected` describes it in error messages."""
        if self.kind != WORD or self.word in RESERVED:
            raise self.unexpected(expected)
        if len(self.text) > MAX_NAME:
            raise StatementSyntaxError(f"names must have at most {MAX_NAME} characters", span=self.span)
        return self.take_token()

    def expect_name(self, expected: str = expectations.NAME) -> Token:
        """Return a bare or double-quoted name and advance."""
        return self.take_token() if self.kind == QUOTED else self.expect_word(expected)

    def expect_integer(self) -> Token:
        """Return a whole number without a sign, and advance."""
        if self.kind != NUMBER or not self.text.isdigit():
            raise self.unexpected(expectations.INTEGER)
        return self.take_token()

    def is_at_number(self) -> bool:
        """Return whether the current token begins a number: digits, or a sign directly before digits."""
        if self.kind == NUMBER:
            return True
        if self.word not in ("+", "-"):
            return False
        following = TOKEN.match(self.script.text, self.end)
        return following is not None and following.lastgroup == NUMBER and following.start(NUMBER) == self.end

    def take_number(self) -> Token:
        """Return the number at the current token, including its sign, and advance."""
        if self.kind == NUMBER:
            return self.take_token()
        sign = self.token()
        self.advance()
        number = self.take_token()
        return Token(sign.text + number.text, sign.start, number.end, self.script)

    def expect_number(self) -> Token:
        """Return a number with an optional sign, and advance. Raise a syntax error if there is none."""
        if not self.is_at_number():
            raise self.unexpected(expectations.NUMBER)
        return self.take_number()

    # Parentheses.

    def open_list(self) -> None:
        """Advance over the `(` of a list of values, or into the entries of a parameter that is a list."""
        if self.kind == LIST:
            entries = self._parameters.entries(self.text[1:], self.start, self.end, self.span)
            self._matches = chain(entries, self._matches)
            self.advance()
        else:
            self.expect("(")

    def open(self) -> None:
        """Advance over a `(` and count a level of nesting."""
        if self._depth == MAX_NESTING:
            raise nesting_error(self.span)
        self._depth += 1
        self.expect("(")

    def close(self) -> None:
        """Advance over the `)` that ends a level of nesting."""
        self.expect(")")
        self._depth -= 1

    # Errors.

    def unexpected(self, *expected: str) -> StatementSyntaxError:
        """Return the syntax error for the current token. It lists `expected` and all tokens that rules tried here."""
        return describe_problem(
            self.script,
            self.start,
            self.previous_end,
            frozenset((*self._expected, *expected)),
            self.grammar.statements.keys(),
            self.grammar.conditions.keys(),
            [gate.hint for gate in self.grammar.gates],
        )
