"""`register operator shouted from 'shouted'`: whether words of a text are in capitals, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from runnel.matching.operators.plugins.contract import Answer, OperatorCall, OperatorContext
from runnel.model.operator import Parameter


class Shouted:
    """Holds for texts with capitalized words, and counts them."""

    parameters = (Parameter("field", "attribute"), Parameter("words", "result", "int"))
    cost = timedelta(microseconds=5)
    pure = True

    def __init__(self, place: OperatorContext) -> None:
        """`place` has the configuration of the registration; this operator needs none."""

    def answer(self, calls: Sequence[OperatorCall]) -> list[Answer]:
        """One answer for every question: a row with the number of words, or no row."""
        return [self._count(call.inputs[0]) for call in calls]

    def _count(self, field: object) -> Answer:
        texts = [value for value in field if isinstance(value, str)] if isinstance(field, tuple) else []
        words = sum(word.isupper() for text in texts for word in text.split())
        return ((words,),) if words else ()
