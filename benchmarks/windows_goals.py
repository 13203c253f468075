"""Figures of `benchmarks.windows` with their goals, and whether all answers were equal."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks import measuring

NAME = "windows"


@dataclass
class Figures:
    """Prints figures, and remembers which answers differed and which goals were missed."""

    is_silent: bool = False
    differing: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def say(self, figure: str, **values: Any) -> None:
        """Print a figure as a line of JSON."""
        if not self.is_silent:
            measuring.say(NAME, figure, **values)

    def compare(self, contender: str, answer: npt.NDArray[Any], expected: npt.NDArray[Any]) -> dict[str, Any]:
        """Compare an answer with the right one, and return what to print of it."""
        equal = np.array_equal(answer, expected)
        if not equal:
            self.differing.append(contender)
        return {"digest": digest(answer), "equal": equal}

    def at_most(self, figure: str, value: float, most: float, **values: Any) -> None:
        """Print a figure that must not exceed a goal."""
        self._judge(figure, value, f"at most {most:g}", value <= most, values)

    def at_least(self, figure: str, value: float, least: float, **values: Any) -> None:
        """Print a figure that must reach a goal."""
        self._judge(figure, value, f"at least {least:g}", value >= least, values)

    def exactly(self, figure: str, value: float, wanted: float, **values: Any) -> None:
        """Print a figure that must have one value."""
        self._judge(figure, value, f"exactly {wanted:g}", value == wanted, values)

    def _judge(self, figure: str, value: float, goal: str, met: bool, values: dict[str, Any]) -> None:
        if not met:
            self.missed.append(figure)
        self.say(figure, **values, value=value, goal=goal, met=met)


def digest(answer: npt.NDArray[Any]) -> str:
    """Return a digest of an answer, whose rows are in order.

    >>> digest(np.array([[1, 2]])) == digest(np.array([[1, 2]], dtype=np.int32)) != digest(np.array([[1, 3]]))
    True
    """
    return hashlib.blake2b(np.ascontiguousarray(answer, dtype="<i8").tobytes(), digest_size=8).hexdigest()
