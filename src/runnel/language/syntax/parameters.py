"""Parameters of a script: `:word` stands for a value of the caller, wherever a constant can be written.

In: values by name. Out: tokens. A value becomes one token, or one per entry of a list. It is never inserted into the
text of the script, so nothing in a value can be read as a part of the statement.
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
"""What a parameter stands for: a text, a number, a truth value, a day or an instant."""

ParameterValue = Scalar | Sequence[Scalar]


@dataclass(frozen=True, slots=True)
class ValueToken:
    """A token that a parameter stands for. It is read as a match of `TOKEN` is, at the place of the parameter."""

    lastgroup: str
    text: str
    start: int
    end: int

    def __getitem__(self, kind: str) -> str:
        return self.text

    def span(self, kind: str) -> tuple[int, int]:
        """The offsets of the parameter in the script."""
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
        """The token that a parameter stands for. The entries of a list have tokens of their own."""
        value = self._take(name, span)
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)
        return (LIST, f":{name}") if is_list else _write(value, name, span)

    def entries(self, name: str, start: int, end: int, span: Span) -> Iterator[ValueToken]:
        """The tokens behind the `(` that a list stands for: its entries with commas between them, and the `)`."""
        values = self._values[name]
        if not isinstance(values, Sequence) or not values:
            raise StatementError(f"the list :{name} is empty", span=span, hint="pass at least one value")
        for number, value in enumerate(values):
            if number:
                yield ValueToken(SIGN, ",", start, end)
            yield ValueToken(*_write(value, name, span), start, end)
        yield ValueToken(SIGN, ")", start, end)

    def texts(self, name: str) -> list[str]:
        """The texts among the values of a parameter, none if there is no such parameter."""
        value = self._values.get(name)
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        return [one for one in values if isinstance(one, str)]

    def refuse_unused(self, text: str, span: Span) -> None:
        """Raise an error if a value was passed that the script does not use."""
        unused = sorted(self._values.keys() - self._used)
        if unused:
            raise StatementError(
                f"the script has no parameter :{unused[0]}",
                span=span,
                text=text,
                hint=did_you_mean(unused[0], sorted(self._used))
                or f"write :{unused[0]} where the value belongs, or do not pass it",
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


def _write(value: object, name: str, span: Span) -> tuple[str, str]:
    """The kind and the text of the token that reads as a value."""
    match value:
        case str():
            # `str.__str__` gives the text of a member of an enumeration of texts.
            return TEXT, "'" + str.__str__(value).replace("'", "''") + "'"
        case bool():
            return TRUTH, "true" if value else "false"
        case Real():
            return NUMBER, _write_number(value, name, span)
        case datetime():
            return DATE, f"'{_write_instant(value, name, span)}'"
        case date():
            return DATE, f"'{value.isoformat()}'"
    raise StatementError(
        f"the parameter :{name} cannot be a value of the type {type(value).__name__}",
        span=span,
        hint="pass a text, a number, a truth value, a date, a datetime, or a list of these"
        if value is not None
        else "an attribute without a value is found with: attribute not exists",
    )


def _write_number(value: Real, name: str, span: Span) -> str:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise StatementError(f"the parameter :{name} must be a finite number up to about 1.8e308", span=span)
    return str(int(value)) if isinstance(value, Integral) else float.__repr__(number)


def _write_instant(value: datetime, name: str, span: Span) -> str:
    try:
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    except OverflowError:
        raise StatementError(f"the parameter :{name} must lie in the years 1 to 9999 in UTC", span=span) from None
