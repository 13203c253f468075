"""Public type annotations: a user's program is checked by mypy in strict mode against the installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from datetime import datetime, timedelta

import runnel

with runnel.connect("news") as engine:
    name: str = engine.feeds()[0].name
    every: timedelta | None = engine.subscriptions()[0].every
    reads: tuple[str, ...] = engine.feed("Rock").reads
    time: datetime = engine.quarantine()[0].time
    why: runnel.Why = engine.why("1", "Rock")
    holds: bool = why.holds
    answers: list[runnel.Answer] = engine.execute("show feed :x", x="a", n=1, day=datetime.now(), many=["a", 1.5])
    text: str = str(answers[0])
    for answer in answers:
        if isinstance(answer, runnel.Subscribed):
            ticket: str = answer.ticket
    matched: int = engine.preview("Rock").matched
    ids: list[str] = [match.item.id for match in engine.matches("Rock")]
    lag: int = engine.status().lag

try:
    plan: runnel.CompiledPlan = runnel.compile("create feed A from B where n > :low", low=3)
    found: list[list[str]] = plan.match([{"n": 4}])
except runnel.StatementSyntaxError as error:
    hint: str | None = error.hint
except runnel.RunnelError as error:
    message: str = error.message
"""

WRONG = {
    "engine.feeds()[0].nam": "has no attribute",
    "engine.why('1', 'Rock').holds + ''": "Unsupported operand",
    "engine.execute('show feeds', word=object())": "incompatible type",
    "engine.feeds()[0].name = 'x'": "read-only",
}


CONFIGURATION = """
[mypy]
strict = True
follow_imports = silent

[mypy-pyarrow.*,pyspark.*,py4j.*,numba.*,re2.*,Stemmer.*,feedparser.*]
ignore_missing_imports = True
follow_imports = skip
"""


def test_mypy_reports_exactly_the_wrong_lines_of_a_user_program(tmp_path: Path) -> None:
    wrong = "".join(f"    {line}\n" for line in WRONG)
    program = tmp_path / "program.py"
    program.write_text(f"{PROGRAM}\nwith runnel.connect('news') as engine:\n{wrong}", "utf-8")
    config = tmp_path / "mypy.ini"
    config.write_text(CONFIGURATION, "utf-8")
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            str(config),
            "--cache-dir",
            str(tmp_path / "cache"),
            str(program),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if ": error:" in line]
    first = PROGRAM.count("\n") + 3
    assert [line.split(":")[1] for line in lines] == [str(first + number) for number in range(len(WRONG))], ran.stdout
    for line, expected in zip(lines, WRONG.values(), strict=True):
        assert expected in line
