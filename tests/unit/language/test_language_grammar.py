"""The grammar in the reference and the parser define the same language."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripts.reference_language import EBNF, language_reference

from runnel.errors import StatementError
from runnel.language import grammar
from runnel.language.grammar.parser import current_grammar, parse

RULES = {match[1]: match[2] for match in re.finditer(r"^([a-z-]+) *::=(.*(?:\n +.*)*)", EBNF, re.MULTILINE)}
_SYMBOL = re.compile(r'"[^"]+"|[A-Za-z-]+|[()|?*+]')
SAMPLES = {
    "WORD": ["title", "Wire", "days", "hours", "english", "text", "year", "rss", "ms", "calls", "retry", "x1"],
    "QUOTED": ['"a name"', '"from"', '"dc:title"'],
    "TEXT": ["'rock'", "'it''s'", "'10.0.0.0/8'", "'https://muse.example/news'", "'2026-11-15'"],
    "NUMBER": ["3", "-2.5", "+1e3", ".5"],
    "INTEGER": ["1", "12"],
    "UNIT": ["days", "Hour", "weeks"],
    "VARIABLE": ["$v"],
    "BINDING": ["?x", "?people"],
    "GRAPH": ["graph { ?page rdf:type ?kind }"],
    "TREE": ["tree //news[/company = 'ACME']/author!val"],
}


@dataclass(frozen=True)
class Part:
    """A symbol or a group of alternatives, and how often it may occur."""

    symbol: str
    group: list[list[Part]]
    repetition: str


def read_rule(text: str) -> list[list[Part]]:
    """Return the alternatives of a rule."""
    symbols = [*_SYMBOL.findall(text), ")"]
    rule = read_alternatives(symbols)
    assert not symbols, text
    return rule


def read_alternatives(symbols: list[str]) -> list[list[Part]]:
    """Read the alternatives up to the next closing parenthesis, and remove their symbols from the list."""
    results: list[list[Part]] = [[]]
    while (symbol := symbols.pop(0)) != ")":
        if symbol == "|":
            results.append([])
            continue
        group = read_alternatives(symbols) if symbol == "(" else []
        results[-1].append(Part(symbol, group, symbols.pop(0) if symbols[0] in ("?", "*", "+") else ""))
    return results


GRAMMAR_RULES = {name: read_rule(text) for name, text in RULES.items()}


def derive(alternatives: list[list[Part]], chance: random.Random, depth: int = 0) -> list[str]:
    """Derive random words from a rule; at great depth, as few as possible."""
    words: list[str] = []
    for part in chance.choice(alternatives):
        least = 0 if part.repetition in ("?", "*") else 1
        most = 1 if part.repetition in ("", "?") or depth > 8 else 3
        for _ in range(chance.randint(least, least if depth > 14 else most)):
            if part.symbol in SAMPLES:
                words.append(chance.choice(SAMPLES[part.symbol]))
            elif part.symbol.startswith('"'):
                words.append(part.symbol.strip('"'))
            else:
                words += derive(part.group or GRAMMAR_RULES[part.symbol], chance, depth + 1)
    return words


def keywords_of_grammar() -> set[str]:
    return set(re.findall(r'"([a-z]+)"', EBNF))


def keywords_of_parser() -> set[str]:
    """Return every keyword that the parser compares tokens with."""
    nodes: list[ast.expr | None] = []
    for path in Path(grammar.__file__).parent.glob("parse*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr="take" | "is_at" | "expect" | "take_one_of"), args=arguments):
                    nodes += arguments
                case ast.Compare(left=ast.Attribute(attr="word"), comparators=compared):
                    nodes += compared
                case ast.AnnAssign(value=ast.Call(args=[ast.Dict(keys=keys)])):
                    nodes += keys
                case ast.AnnAssign(value=ast.Tuple(elts=entries)):
                    nodes += entries
    words = {start for start in current_grammar().conditions if start.islower()} | set(current_grammar().statements)
    words |= {gate.word for gate in current_grammar().gates}
    words |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {word for word in words if word.isalpha() and word.islower()}


def test_every_rule_is_defined_and_used() -> None:
    used = {symbol for text in RULES.values() for symbol in re.findall(r"[a-z-]+", re.sub(r'"[^"]*"', "", text))}
    assert used | {"script"} == set(RULES)
    assert set(re.findall(r"\b[A-Z]+\b", " ".join(RULES.values()))) == set(SAMPLES)
    assert EBNF.rstrip() in language_reference()


def test_grammar_and_parser_have_the_same_keywords() -> None:
    patterns = {"graph", "tree"}
    assert keywords_of_grammar() | patterns == keywords_of_parser()


@pytest.mark.parametrize("rule", ["statement", "create", "register", "condition", "filter", "comparison", "call"])
def test_statements_derived_from_the_grammar_are_no_syntax_errors(rule: str) -> None:
    """Derived statements may only be invalid for other reasons: a word is not a unit, or a text not a network."""
    chance = random.Random(7)
    outcomes: Counter[str] = Counter()
    for _ in range(600):
        words = " ".join(derive(GRAMMAR_RULES[rule], chance))
        text = words if rule in ("statement", "create", "register") else f"create feed F from A as $v where {words}"
        try:
            parse(text)
            outcomes["parsed"] += 1
        except StatementError as error:
            outcomes["refused"] += 1
            reason = error.message
            assert not reason.startswith("expected"), f"{reason}: {text}"
    assert outcomes["parsed"] > 60, outcomes


def test_keyword_removed_from_the_grammar_is_detected() -> None:
    chance = random.Random(3)
    refused = 0
    for _ in range(300):
        words = derive(GRAMMAR_RULES["drop"], chance)
        words.pop(chance.randrange(2))
        with pytest.raises(StatementError):
            parse(" ".join(words))
        refused += 1
    assert refused == 300
