"""Parameters of a script: `:word` stands for a value that the caller passes, wherever a constant is allowed.

In: values by name. Out: tokens. A value becomes one token, and a list becomes one token per entry. Values are never
inserted into the text of the script, so a value cannot change the structure of a statement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from numbers import Integral, Real

from runnel.errors import Span, StatementError
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.script_tokens import DATE, LIST, NUMBER, SIGN, TEXT, TRUTH

Scalar = str | float | bool | date
"""A text, a number, a truth value, a date or a time."""

ParameterValue = Scalar | Sequence[Scalar]


@dataclass(frozen=True, slots=True)
class ValueToken:
    """A token for a parameter's value, with the interface of a match of `TOKEN` and the parameter's offsets."""

    lastgroup: str
    text: str
    start: int
    end: int

    def __getitem__(self, kind: str) -> str:
        return self.text

    def span(self, kind: str) -> tuple[int, int]:
        """Return the offsets of the parameter in the script."""
        return self.start, self.end


class Parameters:
    """The values that a caller passes with a script, and which of them the script has used.

    >>> parameters = Parameters({"word": "it's"})
    >>> parameters.kind_and_text("word", Span(1, 1, 6))
    ('TEXT', "'it''s'")
    """

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self._values = dict(values or {})
        self._used: set[str] = set()

    def kind_and_text(self, name: str, span: Span) -> tuple[str, str]:
        """Return the kind and text of the token for a parameter. For a list, `entries` yields the other tokens."""
        value = self._take(name, span)
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)
        return (LIST, f":{name}") if is_list else _format_value(value, name, span)

    def entries(self, name: str, start: int, end: int, span: Span) -> Iterator[ValueToken]:
        """Yield the tokens of a list after its `(`: the entries, separated by commas, and the `)`."""
        values = self._values[name]
        if not isinstance(values, Sequence) or not values:
            raise StatementError(f"the list :{name} is empty", span=span, hint="pass at least one value")
        for index, value in enumerate(values):
            if index:
                yield ValueToken(SIGN, ",", start, end)
            yield ValueToken(*_format_value(value, name, span), start, end)
        yield ValueToken(SIGN, ")", start, end)

    def texts(self, name: str) -> list[str]:
        """Return the texts among the values of a parameter, or an empty list if there is no such parameter."""
        value = self._values.get(name)
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        return [entry for entry in values if isinstance(entry, str)]

    def refuse_unused(self, text: str, span: Span) -> None:
        """Raise StatementError if the caller passed a value that the script does not use."""
        unused = sorted(self._values.keys() - self._used)
        if unused:
            raise StatementError(
                f"a value was passed for :{unused[0]}, but the script has no such parameter",
                span=span,
                text=text,
                hint=did_you_mean(unused[0], sorted(self._used))
                or f"write :{unused[0]} in the script, or do not pass the value",
            )

    def _take(self, name: str, span: Span) -> object:
        if name not in self._values:
            raise StatementError(
                f"no value was passed for the parameter :{name}",
                span=span,
                hint=did_you_mean(name, sorted(self._values))
                or f"in Python, pass {name}=…; or write a constant, such as 'text'",
            )
        self._used.add(name)
        return self._values[name]


def _format_value(value: object, name: str, span: Span) -> tuple[str, str]:
    """Return the kind and the text of a token that the parser reads as the value."""
    match value:
        case str():
            # `str.__str__` returns the text of a StrEnum member, which `str(value)` need not.
            return TEXT, "'" + str.__str__(value).replace("'", "''") + "'"
        case bool():
            return TRUTH, "true" if value else "false"
        case Real():
            return NUMBER, _format_number(value, name, span)
        case datetime():
            return DATE, f"'{_format_instant(value, name, span)}'"
        case date():
            return DATE, f"'{value.isoformat()}'"
    raise StatementError(
        f"the parameter :{name} has a value of the unsupported type {type(value).__name__}",
        span=span,
        hint="pass a text, a number, a truth value, a date, a datetime, or a list of these"
        if value is not None
        else "to find items without an attribute, write: attribute not exists",
    )


def _format_number(value: Real, name: str, span: Span) -> str:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise StatementError(f"the parameter :{name} must be a finite number of at most about 1.8e308", span=span)
    return str(int(value)) if isinstance(value, Integral) else float.__repr__(number)


def _format_instant(value: datetime, name: str, span: Span) -> str:
    try:
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    except OverflowError:
        raise StatementError(f"the parameter :{name} must be in the years 1 to 9999 in UTC", span=span) from None
