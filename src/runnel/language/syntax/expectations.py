"""Names for the tokens that the parser can expect, as they appear in error messages.

Keywords and signs are not listed here; an error message quotes them as they are.
"""

from __future__ import annotations

from typing import Final

STATEMENT: Final = "a statement"
CONDITION: Final = "a condition"
ARGUMENT: Final = "an argument (an attribute, a constant, or a variable such as ?x)"
CONSTANT: Final = "a constant (a number, 'text', true, false or date '2026-11-15')"
CALCULATION: Final = "a calculation (+ - * /)"
RELATION: Final = "a comparison (= != < <= > >=)"
NAME: Final = "a name"
TEXT: Final = "a text in single quotes"
NUMBER: Final = "a number"
INTEGER: Final = "a whole number"
VARIABLE: Final = "a variable such as $v"
BINDING: Final = "a variable such as ?x"
KIND: Final = "a kind of output such as rss"
UNIT: Final = "a unit of time such as hours"
AGO_UNIT: Final = "a unit of time such as days"
SHORT_UNIT: Final = "a unit of time such as ms"
BUDGET_UNIT: Final = "`calls` or `seconds`"
PART: Final = "a part of a date such as year"
LANGUAGE: Final = "a language such as english"
TYPE: Final = "a type such as text"
POLICY: Final = "`unknown` or `retry`"
ALL_FEEDS: Final = "`all feeds`"

FIRST: Final = (STATEMENT, CONDITION, ARGUMENT, CONSTANT, CALCULATION)
"""Error messages list these before all other expectations."""

RARE: Final = (".", AGO_UNIT)
"""Error messages list these only if nothing else is expected."""
