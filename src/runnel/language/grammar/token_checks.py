"""What is looked at in the tokens between the lexer and the parser: nesting, reserved words, names without end."""

from __future__ import annotations

from collections.abc import Iterator

from lark import Token
from lark.lark import PostLex

from runnel.algebra.nodes.render import RESERVED
from runnel.errors import StatementSyntaxError
from runnel.language.syntax.conditions import DEEPEST, too_deep
from runnel.language.syntax.graph_blocks import OPEN
from runnel.language.syntax.literals import span_of
from runnel.language.syntax.read_graph import read_graph
from runnel.model.item import MAX_NAME

_WORDS = frozenset({"NAME", "KIND", "UNIT", "PART", "LANGUAGE"})
_BEFORE_LISTS = frozenset({"_IN", "_NETWORK", "_SHARES", "_PATTERN", "ALL", "ANY", "NAME", "QUOTED", "WITH"})
"""A parenthesis after these opens a list of constants or arguments, which is no level of a condition."""


class TokenChecks(PostLex):
    """Refuses what the grammar cannot: what is nested too deeply, reserved words as names, and names without end."""

    always_accept = ("UNKNOWN",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """The same tokens, reserved words under a type of their own."""
        depth = 0
        in_list = False
        previous = ""
        for token in stream:
            kind = token.type
            if kind in _WORDS:
                if token.lower() in RESERVED:
                    # No rule takes this type, so the parser stops here and knows what it expected instead.
                    token.type = "RESERVED"
                elif len(token) > MAX_NAME:
                    raise StatementSyntaxError(f"a name has at most {MAX_NAME} characters", span=span_of(token))
            elif kind == OPEN:
                read_graph(token)  # which refuses it, at the place where it goes wrong
            elif kind == "_LPAR":
                in_list = previous in _BEFORE_LISTS
                depth += not in_list
                if depth > DEEPEST:
                    raise too_deep(span_of(token))
            elif kind == "_RPAR":
                depth -= not in_list
                in_list = False
            elif kind == "_SEMICOLON":
                depth, in_list = 0, False
            previous = kind
            yield token


class TokenRecorder(TokenChecks):
    """As `TokenChecks`, and keeps the tokens of the text that is read."""

    def __init__(self) -> None:
        self.seen: list[Token] = []

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """The same tokens; `seen` holds them afterwards."""
        self.seen = []
        for token in super().process(stream):
            self.seen.append(token)
            yield token
