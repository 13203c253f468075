"""The grammar rule for tree patterns.

    tree    = "tree" bracket* step*, with at least one of them
    step    = ("/" | "//") name mark* bracket*
    mark    = "!" ("val" | "cont" | "id") [ "as" ?variable ]
    bracket = "[" branch { ("and" | "or") branch } "]", with "not" and parentheses
    branch  = step+ [comparison] | "." comparison

In: the current token. Out: a tree pattern, or an error. Common mistakes, such as parts of XPath, get a hint.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from runnel.algebra.nodes.calls import Variable
from runnel.algebra.trees.steps import (
    FORMS,
    MAX_STEPS,
    MAX_VARIABLES,
    AllOf,
    AnyOf,
    Axis,
    Complement,
    Form,
    Mark,
    NameTest,
    Step,
    TreeCondition,
    all_of,
    conjuncts_of,
    marks_of,
)
from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.errors import InvalidConditionError, Span, StatementSyntaxError
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.literals import read_binding
from runnel.language.syntax.nesting import MAX_NESTING, nesting_error
from runnel.language.syntax.reader import ConditionSyntax, PrefixSyntax, TokenReader
from runnel.language.syntax.script_tokens import BINDING
from runnel.language.trees.name_tests import expand_condition, parse_name_test, uses_prefixes
from runnel.language.trees.parse_tests import begins_test, take_test
from runnel.language.trees.xpath_hints import find_hint

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_tree(tokens: TokenReader) -> TreePattern:
    """Parse `tree …`."""
    return _TreeReader(tokens).parse()


_CONTINUATIONS = ("[", "!", "|", ".", "{", ":")
"""Signs that can only be an attempt to continue the pattern."""


def _with_hint(error: StatementSyntaxError, tokens: TokenReader) -> StatementSyntaxError:
    """Return an error with a hint about tree patterns instead of a general hint, if there is one."""
    if error.span == tokens.span:
        error.hint = find_hint(tokens) or (None if error.hint == "comments begin with --" else error.hint)
    return error


class _TreeReader:
    """Reads one pattern. `_blocked` is the word under which marks are refused: `not`, `or`, or empty."""

    def __init__(self, tokens: TokenReader) -> None:
        self._tokens = tokens
        self._steps = 0
        self._depth = 0
        self._blocked = ""
        self._marks: list[tuple[Variable, bool]] = []

    def parse(self) -> TreePattern:
        """Parse the whole pattern."""
        tokens = self._tokens
        span = tokens.span
        tokens.expect("tree")
        try:
            condition = all_of(self._parse_conjuncts(None))
            if condition is None:
                raise tokens.unexpected("/", "//", "[")
            if begins_test(tokens) or tokens.word in _CONTINUATIONS or tokens.word == "(":
                raise tokens.unexpected("and", "or")
        except StatementSyntaxError as error:
            raise _with_hint(error, tokens) from None
        self._check_variables()
        return TreePattern(condition, span=span)

    def _parse_conjuncts(self, test: NameTest | None) -> tuple[TreeCondition, ...]:
        """Parse the brackets and the path after a step, or after `tree` if `test` is None."""
        parts = self._parse_brackets(test)
        step = self._take_step(test)
        return parts if step is None else (*parts, step)

    def _parse_brackets(self, test: NameTest | None) -> tuple[TreeCondition, ...]:
        parts: list[TreeCondition] = []
        while self._tokens.take("["):
            parts += conjuncts_of(self._parse_disjunction(test))
            self._tokens.expect("]")
        return tuple(parts)

    def _take_step(self, parent: NameTest | None) -> Step | None:
        """Parse a step with everything after it, or return None if the current token begins none."""
        step = self._take_bare_step(parent)
        return None if step is None else replace(step, condition=all_of(self._parse_conjuncts(step.test)))

    def _take_bare_step(self, parent: NameTest | None) -> Step | None:
        """Parse the axis, the name and the marks of a step."""
        tokens = self._tokens
        span = tokens.span
        axis: Axis = "//" if tokens.word == "//" else "/"
        if tokens.word == "/*":
            tokens.advance()
            test = NameTest()
        elif tokens.take("//") or tokens.take("/"):
            test = parse_name_test(tokens)
        else:
            return None
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise InvalidConditionError(f"a tree pattern can have at most {MAX_STEPS} steps", span=span)
        if parent is not None and parent.is_attribute:
            raise InvalidConditionError("attributes contain no nodes", span=span, hint="end the path here")
        if parent is None and test.is_attribute and axis == "/":
            raise InvalidConditionError(
                "a document has no attributes", span=span, hint="write /*/@name, or //@name for any element"
            )
        return Step(axis, test, self._parse_marks(test, span))

    def _parse_marks(self, test: NameTest, step_span: Span) -> tuple[Mark, ...]:
        tokens = self._tokens
        marks: list[Mark] = []
        while tokens.is_at("!"):
            span = tokens.span
            tokens.advance()
            form_token = tokens.take_one_of(*FORMS)
            if form_token is None:
                raise tokens.unexpected()
            form: Form = next(each for each in FORMS if each == form_token.text.lower())
            variable, is_named = self._parse_variable(test, step_span)
            self._check_mark(form, test, span)
            self._marks.append((variable, is_named))
            marks.append(Mark(form, variable))
        return tuple(marks)

    def _parse_variable(self, test: NameTest, step_span: Span) -> tuple[Variable, bool]:
        """Return the variable of a mark, and whether it was named with `as`."""
        tokens = self._tokens
        if tokens.take("as"):
            return read_binding(tokens.expect_kind(BINDING, expects.BINDING)), True
        if test.name is None or not _VARIABLE_NAME.fullmatch(test.name):
            shown = "*" if test.name is None else test.name
            raise InvalidConditionError(
                f"the name of the step, {shown}, cannot be the name of a variable",
                span=step_span,
                hint="name the variable: !val as ?value",
            )
        return Variable(test.name, step_span), False

    def _check_mark(self, form: Form, test: NameTest, span: Span) -> None:
        if self._blocked:
            raise _blocked_mark(self._blocked, span)
        if form == "cont" and test.is_attribute:
            raise InvalidConditionError("attributes have no content", span=span, hint="write !val")

    def _parse_disjunction(self, test: NameTest | None) -> TreeCondition:
        first = self._parse_conjunction(test)
        if not self._tokens.is_at("or"):
            return first
        parts = [first]
        mark = next(marks_of(first), None)
        if mark is not None:
            raise _blocked_mark("or", mark.variable.span or self._tokens.span)
        outer, self._blocked = self._blocked, self._blocked or "or"
        while self._tokens.take("or"):
            parts.append(self._parse_conjunction(test))
        self._blocked = outer
        flat = (each for part in parts for each in (part.parts if isinstance(part, AnyOf) else (part,)))
        return AnyOf(tuple(flat))

    def _parse_conjunction(self, test: NameTest | None) -> TreeCondition:
        parts = [self._parse_negation(test)]
        while self._tokens.take("and"):
            parts.append(self._parse_negation(test))
        flat = tuple(conjunct for part in parts for conjunct in conjuncts_of(part))
        return flat[0] if len(flat) == 1 else AllOf(flat)

    def _parse_negation(self, test: NameTest | None) -> TreeCondition:
        tokens = self._tokens
        if not tokens.take("not"):
            return self._parse_branch(test)
        self._enter()
        outer, self._blocked = self._blocked, self._blocked or "not"
        part = self._parse_negation(test)
        self._blocked = outer
        self._depth -= 1
        return Complement(part)

    def _parse_branch(self, test: NameTest | None) -> TreeCondition:
        tokens = self._tokens
        if tokens.is_at("("):
            self._enter()
            tokens.advance()
            condition = self._parse_disjunction(test)
            tokens.expect(")")
            self._depth -= 1
            return condition
        if tokens.is_at("."):
            return self._parse_own_test(test)
        return self._parse_compared_path(test)

    def _parse_own_test(self, test: NameTest | None) -> TreeCondition:
        """Parse `. = 'ACME'`."""
        tokens = self._tokens
        span = tokens.span
        tokens.advance()
        if test is None:
            raise InvalidConditionError(
                "a document has no value", span=span, hint="compare its root: tree /*[. contains 'rock']"
            )
        parsed = take_test(tokens)
        if parsed is None:
            raise tokens.unexpected()
        return Complement(parsed.test) if parsed.is_negated else parsed.test

    def _parse_compared_path(self, test: NameTest | None) -> TreeCondition:
        """Parse a path with an optional comparison of its last step."""
        tokens = self._tokens
        marks = len(self._marks)
        steps: list[Step] = []
        while step := self._take_bare_step(steps[-1].test if steps else test):
            steps.append(replace(step, condition=all_of(self._parse_brackets(step.test))))
        if not steps:
            raise tokens.unexpected("/", "//", ".", "not", "(")
        span = tokens.span
        parsed = take_test(tokens)
        last = steps.pop()
        if parsed is not None:
            last = replace(last, condition=all_of((*conjuncts_of(last.condition), parsed.test)))
            if parsed.is_negated and len(self._marks) > marks:
                raise InvalidConditionError(
                    "a negated comparison of a path means that no node has the value, so it binds no variables",
                    span=span,
                    hint="compare the node: [/qty!val[. != 5]]",
                )
        condition: Step = last
        for outer in reversed(steps):
            condition = replace(outer, condition=all_of((*conjuncts_of(outer.condition), condition)))
        return Complement(condition) if parsed is not None and parsed.is_negated else condition

    def _enter(self) -> None:
        if self._depth == MAX_NESTING:
            raise nesting_error(self._tokens.span)
        self._depth += 1

    def _check_variables(self) -> None:
        counts = Counter(variable.name for variable, _ in self._marks)
        for variable, is_named in self._marks:
            if counts[variable.name] > 1 and not is_named:
                raise InvalidConditionError(
                    f"two marks bind ?{variable.name}",
                    span=variable.span,
                    hint="name one of them: !val as ?other",
                )
        if len(counts) > MAX_VARIABLES:
            raise InvalidConditionError(
                f"a tree pattern can have at most {MAX_VARIABLES} variables", span=self._marks[-1][0].span
            )


def _blocked_mark(word: str, span: Span) -> InvalidConditionError:
    return InvalidConditionError(
        f"steps under `{word}` bind no variables",
        span=span,
        hint="remove the mark, or bind the variable in a condition of its own: tree … and tree …",
    )


def _uses_prefixes(pattern: TreePattern) -> bool:
    return uses_prefixes(pattern.condition)


def _expand(pattern: TreePattern, prefixes: Mapping[str, str]) -> TreePattern:
    return replace(pattern, condition=expand_condition(pattern.condition, prefixes))


TREE_SYNTAX = ConditionSyntax(("tree",), parse_tree, PrefixSyntax(_uses_prefixes, _expand))
