"""Applies rules in a sandbox. In: the facts of an item. Out: rows, or an error with the reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runnel.sandbox.process import BadReplyError, EndCause, SandboxError, SandboxProcess, SandboxProgram
from runnel.sandbox.rules_child import MAX_ROWS, ReplyKind
from runnel.sandbox.rules_program import RulesProblem, RulesRefusedError

START_SECONDS = 60.0
"""Time limit for loading and checking the rules."""

WALL_CLOCK_FACTOR = 2
"""The wall-clock limit of an item, as a multiple of its CPU time limit."""

MAX_REPLY = 4 << 20
"""Maximum size of the rows for an item, in bytes."""


_KINDS = {"number": int, "text": str, "truth": bool}


class RulesProcessError(Exception):
    """A process ended without a reply. `passing` says whether another attempt may succeed."""

    def __init__(self, reason: str, *, passing: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.passing = passing


@dataclass(frozen=True, slots=True)
class RulesLimits:
    """Limits of CPU time and memory for one item."""

    seconds: float
    megabytes: int


class RulesProcess:
    """A process that has loaded rules. `places` is the number of columns of the rows.

    `needs` contains the relations that the rules use, each with attribute names, or None for all attributes.
    """

    def __init__(self, program: str, goal: str, limits: RulesLimits) -> None:
        self.served = 0
        self.dead = False
        self._limits = limits
        arguments = {"max_reply": MAX_REPLY}
        sandbox = SandboxProgram(
            "runnel.sandbox.rules_child", ("clingo", "cffi"), limits.megabytes, limits.seconds, arguments
        )
        try:
            self._process = SandboxProcess(sandbox)
        except SandboxError as error:
            raise RulesProcessError(error.reason, passing=True) from error
        kind, value = self._exchange({"rules": program, "goal": goal}, START_SECONDS)
        if kind is not ReplyKind.READY:
            self.close()
            raise RulesRefusedError(_problem(value))
        self.places: int = int(value["places"])
        self.needs: dict[str, list[str] | None] = value["needs"]

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._process.pid

    def rows(self, facts: Sequence[Any], seconds: float) -> list[Any]:
        """Return the rows that follow from facts.

        Raise RulesRefusedError if the rules have no unique result or give too many rows. Raise RulesProcessError if
        they exceed a limit. `seconds` is the remaining wall-clock time for this and all other items.
        """
        kind, value = self._exchange(facts, min(seconds, WALL_CLOCK_FACTOR * self._limits.seconds))
        self.served += 1
        match kind:
            case ReplyKind.ROWS:
                return list(value)
            case ReplyKind.LARGE:
                raise RulesRefusedError(
                    RulesProblem(f"the rules give more than {MAX_ROWS} rows or {MAX_REPLY >> 20} MB")
                )
            case _:
                raise RulesRefusedError(_problem(value))

    def close(self) -> None:
        """End the process."""
        self.dead = True
        self._process.close()

    def _exchange(self, task: Any, seconds: float) -> tuple[ReplyKind, Any]:
        data = json.dumps(task, separators=(",", ":")).encode()
        try:
            return self._process.ask(data, _read_reply, seconds=seconds, max_reply=MAX_REPLY + 1)
        except SandboxError as error:
            self.dead = True
            raise self._explain_end(error, seconds) from error

    def _explain_end(self, error: SandboxError, seconds: float) -> RulesProcessError:
        limits = self._limits
        match error.cause:
            case EndCause.DEADLINE:
                is_out_of_time = seconds < WALL_CLOCK_FACTOR * limits.seconds
                return RulesProcessError(f"they took more than {seconds:.3g} seconds", passing=is_out_of_time)
            case EndCause.CPU_TIME:
                return RulesProcessError(f"they took more than {limits.seconds:g} seconds of CPU time", passing=False)
            case EndCause.MEMORY:
                return RulesProcessError(f"they took more than {limits.megabytes} megabytes of memory", passing=False)
            case EndCause.CRASHED:
                return RulesProcessError(
                    f"the solver crashed, possibly because it needs more than {limits.megabytes} megabytes of memory",
                    passing=False,
                )
            case _:
                return RulesProcessError("their process ended unexpectedly", passing=True)


def _read_reply(reply: memoryview) -> tuple[ReplyKind, Any]:
    """Return the kind and the value of a reply. Raise BadReplyError if the value has an unexpected form."""
    kind, value = ReplyKind(reply[0]), json.loads(bytes(reply[1:]))
    match kind, value:
        case ReplyKind.ROWS, list() if len(value) <= MAX_ROWS and all(map(_is_row, value)):
            pass
        case ReplyKind.READY, {"places": int(), "needs": dict(needs)} if all(map(_is_need, needs.values())):
            pass
        case ((ReplyKind.REFUSED | ReplyKind.LARGE), _):
            pass
        case _:
            raise BadReplyError("the reply has an unexpected form")
    return kind, value


def _is_row(row: Any) -> bool:
    """Return whether a row is a list of pairs of kind and value."""
    return isinstance(row, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and type(pair[1]) is _KINDS.get(pair[0])
        for pair in row
    )


def _is_need(names: Any) -> bool:
    return names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))


def _problem(value: Any) -> RulesProblem:
    match value:
        case [str() as message, int() as line, str() as hint]:
            return RulesProblem(message[:400], line, hint[:200])
        case _:
            return RulesProblem("the rules cannot be used")
