"""Rules, applied in a sandbox: facts in, rows out, or the reason why there are none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runnel.sandbox.process import BadReplyError, EndCause, SandboxError, SandboxProcess, SandboxProgram
from runnel.sandbox.rules_child import MAX_ROWS, ReplyKind
from runnel.sandbox.rules_program import RulesProblem, RulesRefusedError

START_SECONDS = 60.0
"""How long checking the rules may take."""

CLOCK = 2
"""How many times longer than its CPU time an item may take."""

MAX_REPLY = 4 << 20
"""Bytes of the rows that rules may give for an item."""


_KINDS = {"number": int, "text": str, "truth": bool}


class RulesProcessError(Exception):
    """A process ended instead of answering; `reason` in words, and whether trying again may help."""

    def __init__(self, reason: str, *, passing: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.passing = passing


@dataclass(frozen=True, slots=True)
class RulesLimits:
    """What rules may take for one item."""

    seconds: float
    megabytes: int


class RulesProcess:
    """One process that has loaded its rules. `places` and `needs` say what the rules give and what they look at."""

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
        """The number of the process."""
        return self._process.pid

    def rows(self, facts: Sequence[Any], seconds: float) -> list[Any]:
        """The rows that follow from facts; Refused where the rules do not decide, Died where they took too much.

        `seconds` are left by the clock, for this item and all others.
        """
        kind, value = self._exchange(facts, min(seconds, CLOCK * self._limits.seconds))
        self.served += 1
        match kind:
            case ReplyKind.ROWS:
                return list(value)
            case ReplyKind.LARGE:
                raise RulesRefusedError(RulesProblem(f"the rules give more than {MAX_ROWS} rows"))
            case _:
                raise RulesRefusedError(_problem(value))

    def close(self) -> None:
        """End the process, whatever it does."""
        self.dead = True
        self._process.close()

    def _exchange(self, task: Any, seconds: float) -> tuple[ReplyKind, Any]:
        data = json.dumps(task, separators=(",", ":")).encode()
        try:
            return self._process.ask(data, _read_reply, seconds=seconds, max_reply=MAX_REPLY + 1)
        except SandboxError as error:
            self.dead = True
            raise self._stopped(error, seconds) from error

    def _stopped(self, error: SandboxError, seconds: float) -> RulesProcessError:
        limits = self._limits
        match error.cause:
            case EndCause.DEADLINE:
                late = seconds < CLOCK * limits.seconds
                return RulesProcessError(f"they took more than {seconds:.3g} seconds", passing=late)
            case EndCause.CPU_TIME:
                return RulesProcessError(f"they took more than {limits.seconds:g} seconds", passing=False)
            case EndCause.MEMORY:
                return RulesProcessError(f"they took more than {limits.megabytes} megabytes", passing=False)
            case EndCause.CRASHED:
                return RulesProcessError(
                    f"the solver crashed, perhaps because {limits.megabytes} megabytes are too little", passing=False
                )
            case _:
                return RulesProcessError("something ended the process that applies them", passing=True)


def _read_reply(reply: memoryview) -> tuple[ReplyKind, Any]:
    """The kind of a reply, and its value in the form that `RulesProcess` relies on."""
    kind, value = ReplyKind(reply[0]), json.loads(bytes(reply[1:]))
    match kind, value:
        case ReplyKind.ROWS, list() if len(value) <= MAX_ROWS and all(map(_is_row, value)):
            pass
        case ReplyKind.READY, {"places": int(), "needs": dict(needs)} if all(map(_is_need, needs.values())):
            pass
        case ((ReplyKind.REFUSED | ReplyKind.LARGE), _):
            pass
        case _:
            raise BadReplyError("it has another form")
    return kind, value


def _is_row(row: Any) -> bool:
    """Whether a row is a list of pairs of kind and value."""
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
            return RulesProblem("they cannot be used")
