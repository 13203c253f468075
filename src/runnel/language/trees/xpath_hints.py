"""Hints for mistakes in tree patterns. Most of them are parts of XPath that have another notation here.

In: the token that cannot be used, and the text around it. Out: what to write instead, or None.
"""

from __future__ import annotations

import re

from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import NON_ASCII_WORD, NUMBER, QUOTED, VARIABLE, WORD
from runnel.language.trees.parse_tests import KEYWORDS, RELATIONS

_CALL = re.compile(r"[\w-]+\s*\(")
_CALLED = re.compile(r"([\w-]+)\s*\Z")
_BRANCH_START = re.compile(r"(?:\[|\(|\b(?:and|or|not))\s*\Z", re.IGNORECASE)
_AFTER_TREE = re.compile(r"\btree\s*\Z", re.IGNORECASE)
_NAMES = (WORD, NON_ASCII_WORD, QUOTED)

_TEXT_HINT = "write [. = 'ACME'] to compare the text of a node, and !val to bind it"
_FUNCTION_HINT = "functions are not supported; write a comparison such as [. contains 'rock'] or [/price < 20]"
_SIGN_HINTS = {
    "|": "write two conditions: tree … or tree …",
    "!": "marks follow the name of a step: //author!val[/name]",
    "{": 'write a namespace in double quotes: //"{http://muse.example/}news"',
    ".": "steps lead only to nodes below: write the parent first, //author[/name]",
    ":": "the only axes are / and //",
    "..": "steps lead only to nodes below",
}


def find_hint(tokens: TokenReader) -> str | None:
    """Return what to write instead of the current token, or None."""
    before = tokens.script.text[max(0, tokens.start - 60) : tokens.start]
    after = tokens.script.text[tokens.start : tokens.start + 60]
    if _AFTER_TREE.search(before):
        return _hint_after_tree(tokens)
    if before.endswith("!"):
        return "write !val for the text of a node, !cont for its XML or JSON, or !id for its position"
    if _BRANCH_START.search(before):
        return _hint_at_branch(tokens, after)
    if tokens.word == "(" and (called := _CALLED.search(before)):
        return _TEXT_HINT if called[1] == "text" else _FUNCTION_HINT
    if tokens.kind == VARIABLE:
        return "variables begin with ?: !val as ?author"
    if tokens.word in RELATIONS or tokens.word in KEYWORDS:
        return "compare a node inside brackets: //company[. = 'ACME'], or news[//company = 'ACME']"
    return _SIGN_HINTS.get(tokens.word)


def _hint_after_tree(tokens: TokenReader) -> str | None:
    if tokens.word == "of":
        return "conditions read the trees of the attribute tree: write tree //name"
    if tokens.word in RELATIONS or tokens.word in (*KEYWORDS, "exists", "not"):
        return 'write the attribute in double quotes: "tree" exists'
    if tokens.kind in _NAMES:
        return f"begin with / for the root or // for any node: tree //{tokens.text}"
    return None


def _hint_at_branch(tokens: TokenReader, after: str) -> str | None:
    """Return a hint for a token at the beginning of a branch inside brackets."""
    if tokens.kind == NUMBER or tokens.word in ("+", "-"):
        return "positions are not supported; compare the value of a node: [/rank = 1]"
    if tokens.word == "@":
        return "write a slash before an attribute: [/@id = 'x']"
    if tokens.kind in _NAMES and _CALL.match(after):
        return _TEXT_HINT if tokens.word == "text" else _FUNCTION_HINT
    if tokens.kind in _NAMES:
        return f"write [/{tokens.text} …] for a child, or [//{tokens.text} …] for any node below"
    if tokens.word == "]":
        return "write a condition in the brackets, such as [/author] or [. = 'ACME']"
    return None
