"""The child process of rules, from its parent's side: facts in, rows out, or how it ended.

As with stylesheets (`sandbox.stylesheet_process`), whatever rules do they do in a process that has little time and
memory and no files: it is ended when it takes more, and what was asked of it fails alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clingo

from runnel.sandbox.rules_child import EXHAUSTED, MAX_ROWS, REPLY, TASK, ReplyKind
from runnel.sandbox.rules_program import RulesProblem

CHILD = "runnel.sandbox.rules_child"
START_SECONDS = 60.0
"""How long a process may take to be ready, besides checking the rules."""

CLOCK = 2
"""How much longer than its processor time an item may take by the clock."""

MAX_REPLY = 4 << 20
"""Bytes of the rows that rules may give for an item."""


class RulesProcessError(Exception):
    """A process ended instead of answering; `reason` in words, and whether trying again may help."""

    def __init__(self, reason: str, *, passing: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.passing = passing


class RulesRefusedError(Exception):
    """Rules that cannot be used, or not for this item."""

    def __init__(self, problem: RulesProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


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
        try:
            self._process = self._start(limits)
        except OSError as error:
            raise RulesProcessError("no process could be started", passing=True) from error
        became, value = self._exchange({"rules": program, "goal": goal}, START_SECONDS)
        if became is not ReplyKind.READY:
            self.close()
            raise RulesRefusedError(_problem(value))
        self.places: int = int(value["places"])
        self.needs: dict[str, list[str] | None] = value["needs"]

    @staticmethod
    def _start(limits: RulesLimits) -> subprocess.Popen[bytes]:
        places = {str(Path(__file__).parents[2]), str(Path(clingo.__path__[0]).parent)}
        return subprocess.Popen(  # noqa: S603 - our own module, and arguments that are numbers
            [sys.executable, "-s", "-P", "-m", CHILD, str(limits.seconds), str(limits.megabytes), str(MAX_REPLY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PYTHONPATH": os.pathsep.join(sorted(places)), "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )

    def rows(self, facts: Sequence[Any], seconds: float) -> list[Any]:
        """The rows that follow from facts; Refused where the rules do not decide, Died where they took too much.

        `seconds` are left by the clock, for this item and all others.
        """
        became, value = self._exchange(facts, min(seconds, CLOCK * self._limits.seconds))
        self.served += 1
        match became:
            case ReplyKind.ROWS:
                return list(value)
            case ReplyKind.LARGE:
                raise RulesRefusedError(RulesProblem(f"the rules give more than {MAX_ROWS} rows"))
            case _:
                raise RulesRefusedError(_problem(value))

    def close(self) -> None:
        """End the process, whatever it does."""
        self.dead = True
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def _exchange(self, task: Any, seconds: float) -> tuple[ReplyKind, Any]:
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        data = json.dumps(task, separators=(",", ":")).encode()
        with self._watched(seconds):
            with suppress(BrokenPipeError):  # The exit code tells more.
                self._process.stdin.write(TASK.pack(len(data)) + data)
                self._process.stdin.flush()
            became, size = REPLY.unpack(self._read(REPLY.size))
            # A process that was taken over could say anything: what it says is measured before it is read.
            if became not in set(ReplyKind) or size > MAX_REPLY:
                raise EOFError
            return ReplyKind(became), json.loads(self._read(size))

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise EOFError
        return data

    @contextmanager
    def _watched(self, seconds: float) -> Iterator[None]:
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        watchdog = threading.Timer(seconds, end)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        except (EOFError, ValueError) as error:
            self.close()
            raise self._died(seconds if late.is_set() else None) from error
        finally:
            watchdog.cancel()
        if late.is_set():
            self.close()
            raise self._died(seconds)

    def _died(self, late: float | None) -> RulesProcessError:
        match self._process.returncode:
            case _ if late is not None:
                return RulesProcessError(
                    f"they took more than {late:.3g} seconds", passing=late < CLOCK * self._limits.seconds
                )
            case code if code == -signal.SIGPROF:
                return RulesProcessError(f"they took more than {self._limits.seconds:g} seconds", passing=False)
            case code if code in (EXHAUSTED, -signal.SIGABRT, -signal.SIGSEGV):
                return RulesProcessError(f"they took more than {self._limits.megabytes} megabytes", passing=False)
            case _:
                return RulesProcessError("something ended the process that applies them", passing=True)


def _problem(value: Any) -> RulesProblem:
    message, line, hint = value if isinstance(value, list) and len(value) == 3 else ("they cannot be used", 0, "")
    return RulesProblem(str(message)[:400], int(line), str(hint)[:200])
