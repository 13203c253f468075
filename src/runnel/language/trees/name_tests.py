"""The names of steps: `news`, `media:thumbnail`, `@url`, `*`, `@*`, `"first name"`, `"{http://muse.example/}news"`.

In: the current token. Out: a test of names. A name without a prefix has any namespace. The namespace of a registered
prefix is looked up when the statement is bound, because a script may register a prefix and then use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from runnel.algebra.trees.steps import NameTest, PendingNamespace, Step, TreeCondition, replace_steps, steps_of
from runnel.errors import StatementSyntaxError, UnknownNameError
from runnel.language.graphs.iri_prefixes import PREDEFINED_PREFIXES
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.literals import read_name
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import END, NON_ASCII_WORD, QUOTED, WORD
from runnel.model.item import clean_text

_NAME = re.compile(r"[^\W\d]\w*(?:[.-]\w+)*")
_PREFIXED = re.compile(rf"({_NAME.pattern})(?::({_NAME.pattern}))?")
_PREDEFINED = {**PREDEFINED_PREFIXES, "xml": "http://www.w3.org/XML/1998/namespace"}

NAME = "a name, * or @name"


def parse_name_test(tokens: TokenReader) -> NameTest:
    """Parse the name of a step, after its axis."""
    is_attribute = tokens.take("@")
    if tokens.take("*"):
        return NameTest(None, None, is_attribute)
    if tokens.kind == QUOTED:
        return _read_quoted(tokens, is_attribute)
    if tokens.kind not in (WORD, NON_ASCII_WORD):
        raise tokens.unexpected(*(("a name", "*") if is_attribute else (NAME,)))
    return _read_prefixed(tokens, is_attribute)


def _read_quoted(tokens: TokenReader, is_attribute: bool) -> NameTest:
    token = tokens.take_token()
    name = read_name(token)
    if not name.startswith("{"):
        return NameTest(name, None, is_attribute)
    namespace, brace, local = name[1:].partition("}")
    if not brace or not local:
        raise StatementSyntaxError(
            "a namespace in braces must be followed by a name",
            span=token.span,
            hint='write "{http://muse.example/}news"; for a JSON key that begins with a brace, write "{}{key"',
        )
    return NameTest(local, namespace, is_attribute)


def _read_prefixed(tokens: TokenReader, is_attribute: bool) -> NameTest:
    """Read a name, which may consist of several tokens: `media:thumbnail-url`."""
    start = tokens.start
    match = _PREFIXED.match(tokens.script.text, start)
    if match is None:
        raise tokens.unexpected(NAME)
    first = tokens.token()
    while tokens.start < match.end() and tokens.kind != END:
        tokens.advance()
    span = tokens.script.span(start, match.end())
    if tokens.previous_end != match.end():
        raise StatementSyntaxError(
            "this is not a name", span=first.span, hint='write names with other characters in double quotes: "a.1."'
        )
    name, local = match.groups()
    if local is None:
        return NameTest(clean_text(name), None, is_attribute)
    namespace = _PREDEFINED.get(name) or PendingNamespace.of(name, span)
    return NameTest(clean_text(local), namespace, is_attribute)


def uses_prefixes(condition: TreeCondition) -> bool:
    """Return whether a condition has prefixes to look up."""
    return any(isinstance(step.test.namespace, PendingNamespace) for step in steps_of(condition))


def expand_condition(condition: TreeCondition, prefixes: Mapping[str, str]) -> TreeCondition:
    """Return a condition with the namespaces of its prefixes. Raise UnknownNameError if a prefix is not defined."""

    def expand(step: Step) -> Step:
        pending = step.test.namespace
        if not isinstance(pending, PendingNamespace):
            return step
        namespace = prefixes.get(pending)
        if namespace is None:
            definition = f"define it: register prefix {pending} as 'http://…'; or omit it to match any namespace"
            hint = did_you_mean(pending, [*_PREDEFINED, *prefixes]) or definition
            raise UnknownNameError(f"there is no prefix {pending}:", span=pending.span, hint=hint)
        return replace(step, test=replace(step.test, namespace=namespace))

    return replace_steps(condition, expand)
