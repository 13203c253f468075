"""Reads a script token by token: the part of the parser that every rule of the grammar uses.

In: a script and a grammar. Out: the current token, and on request the next one. The reader notes which words the
rules looked for at the current token, so that an error can name everything that could have stood there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from runnel.algebra.nodes.render import RESERVED
from runnel.errors import Span, StatementSyntaxError
from runnel.language.syntax import expectations
from runnel.language.syntax.describe_problem import Problem, describe_problem
from runnel.language.syntax.nesting import DEEPEST, too_deep
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
    from runnel.language.syntax.conditions import Built
    from runnel.language.syntax.operator_terms import Written
    from runnel.language.syntax.statements import Statement

    ParseStatement = Callable[["TokenReader", Token], Statement]
    ParseCondition = Callable[["TokenReader"], Built | Written]
    ParseGate = Callable[["TokenReader"], GateRule]


@dataclass(frozen=True, slots=True)
class ConditionSyntax:
    """How one family of conditions is written.

    `starts` are the words, signs or kinds of tokens that begin such a condition. `parse` reads it: the first token is
    the reader's current one, and afterwards the current token is the one behind the condition.
    """

    starts: Collection[str]
    parse: ParseCondition


@dataclass(frozen=True, slots=True)
class GateSyntax:
    """How one kind of gate is written, between `from` and `where`.

    `word` begins the clause. `parse` reads it, from the token after that word on. `hint` recognizes common mistakes.
    """

    word: str
    parse: ParseGate
    hint: Callable[[Problem], str | None] = lambda problem: None


class Grammar:
    """The statements, the conditions and the gates that a parser knows, by the tokens that begin them."""

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
                raise ValueError(f"the starts of a family must be a tuple, not the text {family.starts!r}")
            for start in family.starts:
                if start in self.conditions:
                    raise ValueError(f"two families of conditions begin with {start}")
                self.conditions[start] = family.parse

    def with_conditions(self, *families: ConditionSyntax) -> Grammar:
        """This grammar with more families of conditions."""
        return Grammar(self.statements, (*self.families, *families), self.gates)


class TokenReader:
    """The tokens of a script, from left to right.

    `kind`, `text`, `start` and `end` describe the current token. `word` is a word in small letters or a sign, and
    empty for every other token, so that rules compare it with keywords and signs alike. `is_scoped` says that the
    brackets of a condition on a variable are open, and `is_joined` that they are those of a join. The token of a
    parameter is that of its value.
    """

    __slots__ = (
        "_depth",
        "_matches",
        "_missed",
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
        self._missed: list[str] = []
        self._depth = 0
        self.is_scoped = False
        self.is_joined = False
        self.end = 0
        self.advance()

    def advance(self) -> None:
        """Go on to the next token."""
        found = next(self._matches)
        self.kind = kind = found.lastgroup or END
        self.text = text = found[kind]
        self.previous_end = self.end
        self.start, self.end = found.span(kind)
        if kind == WORD:
            self.word = text.lower()
        elif kind == SIGN:
            self.word = text
        else:
            self.word = ""
            if kind == PARAMETER:
                self._read_parameter()
        self._missed.clear()

    def _read_parameter(self) -> None:
        """Replace the current token, a parameter, by the token of its value."""
        self.kind, self.text = self._parameters.kind_and_text(self.text[1:], self.span)

    def token(self) -> Token:
        """The current token, to be kept."""
        return Token(self.text, self.start, self.end, self.script)

    def take_token(self) -> Token:
        """The current token; go on to the next one."""
        token = Token(self.text, self.start, self.end, self.script)
        self.advance()
        return token

    @property
    def span(self) -> Span:
        """The place of the current token."""
        return self.script.span(self.start, self.end)

    # Keywords and signs.

    def at(self, word: str) -> bool:
        """Whether the current token is a keyword or sign."""
        if self.word == word:
            return True
        self._missed.append(word)
        return False

    def take(self, word: str) -> bool:
        """Whether the current token is a keyword or sign; if it is, go on to the next one."""
        if self.word == word:
            self.advance()
            return True
        self._missed.append(word)
        return False

    def miss(self, *expected: str) -> None:
        """Note that something else could have stood here too."""
        self._missed += expected

    def expect(self, *words: str) -> None:
        """Go over these keywords and signs; refuse anything else."""
        for word in words:
            if not self.take(word):
                raise self.unexpected()

    def take_one_of(self, *words: str) -> Token | None:
        """One of several keywords, if the current token is one."""
        if self.word in words:
            return self.take_token()
        self._missed += words
        return None

    # Names and constants.

    def at_kind(self, kind: str, expected: str) -> bool:
        """Whether the current token is of a kind; `expected` is what an error calls it."""
        if self.kind == kind:
            return True
        self._missed.append(expected)
        return False

    def take_kind(self, kind: str, expected: str) -> Token | None:
        """The current token, if it is of a kind."""
        return self.take_token() if self.at_kind(kind, expected) else None

    def expect_kind(self, kind: str, expected: str) -> Token:
        """The current token, which must be of a kind."""
        if self.kind != kind:
            raise self.unexpected(expected)
        return self.take_token()

    def expect_text(self) -> Token:
        """A text in single quotes."""
        return self.expect_kind(TEXT, expectations.TEXT)

    def take_text(self) -> Token | None:
        """A text in single quotes, if there is one."""
        return self.take_kind(TEXT, expectations.TEXT)

    def expect_any_word(self, expected: str) -> Token:
        """A word, even a reserved one; `expected` says what it names."""
        return self.expect_kind(WORD, expected)

    def expect_word(self, expected: str) -> Token:
        """A word that names something, and is not reserved; `expected` says what."""
        if self.kind != WORD or self.word in RESERVED:
            raise self.unexpected(expected)
        if len(self.text) > MAX_NAME:
            raise StatementSyntaxError(f"a name has at most {MAX_NAME} characters", span=self.span)
        return self.take_token()

    def expect_name(self, expected: str = expectations.NAME) -> Token:
        """A bare or double-quoted name."""
        return self.take_token() if self.kind == QUOTED else self.expect_word(expected)

    def expect_integer(self) -> Token:
        """A whole number without a sign."""
        if self.kind != NUMBER or not self.text.isdigit():
            raise self.unexpected(expectations.INTEGER)
        return self.take_token()

    def at_number(self) -> bool:
        """Whether a number begins here, perhaps with a sign right before its digits."""
        if self.kind == NUMBER:
            return True
        if self.word not in ("+", "-"):
            return False
        following = TOKEN.match(self.script.text, self.end)
        return following is not None and following.lastgroup == NUMBER and following.start(NUMBER) == self.end

    def take_number(self) -> Token:
        """The number that begins here, with its sign."""
        if self.kind == NUMBER:
            return self.take_token()
        sign = self.token()
        self.advance()
        number = self.take_token()
        return Token(sign.text + number.text, sign.start, number.end, self.script)

    def expect_number(self) -> Token:
        """A number, perhaps with a sign."""
        if not self.at_number():
            raise self.unexpected(expectations.NUMBER)
        return self.take_number()

    # Parentheses.

    def open_list(self) -> None:
        """Go over the parenthesis that opens a list of values, or into a parameter that is a list."""
        if self.kind == LIST:
            entries = self._parameters.entries(self.text[1:], self.start, self.end, self.span)
            self._matches = chain(entries, self._matches)
            self.advance()
        else:
            self.expect("(")

    def open(self) -> None:
        """Go over a parenthesis that opens a level of nesting."""
        if self._depth == DEEPEST:
            raise too_deep(self.span)
        self._depth += 1
        self.expect("(")

    def close(self) -> None:
        """Go over the parenthesis that closes it."""
        self.expect(")")
        self._depth -= 1

    # Errors.

    def unexpected(self, *expected: str) -> StatementSyntaxError:
        """The refusal of the current token: it is none of these, nor anything else that was looked for here."""
        return describe_problem(
            self.script,
            self.start,
            self.previous_end,
            frozenset((*self._missed, *expected)),
            self.grammar.statements.keys(),
            self.grammar.conditions.keys(),
            [gate.hint for gate in self.grammar.gates],
        )
