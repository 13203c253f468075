"""How color patterns are written."""

from __future__ import annotations

from runnel.language.syntax.reader import ConditionSyntax, TokenReader
from runnel.language.syntax.script_tokens import BINDING
from runnel_colors.patterns import CHANNELS, ColorPattern


def parse_color(tokens: TokenReader) -> ColorPattern:
    """`color { red >= 200 ?shade }`."""
    span = tokens.span
    tokens.expect("color", "{")
    lows = dict.fromkeys(CHANNELS, 0)
    shades: list[str] = []
    while not tokens.take("}"):
        if shade := tokens.take_kind(BINDING, "a variable"):
            shades.append(shade.text[1:])
        elif channel := tokens.take_one_of(*CHANNELS):
            tokens.expect(">=")
            lows[channel.text.lower()] = int(tokens.expect_integer().text)
        else:
            raise tokens.unexpected()
    red, green, blue = lows.values()
    return ColorPattern((red, green, blue), tuple(shades), span=span)


COLOR_SYNTAX = ConditionSyntax(("color",), parse_color)
