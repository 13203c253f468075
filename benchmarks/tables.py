"""Tables: opening, catching up, memory of the tail, and bytes of rewriting. A JSON line per figure.

    python -m benchmarks.tables [--rows 1000000] [--changes 1000000] [--seed 7]

Rows of four columns are accepted, and then changed at random: 80 % updates, 10 % deletions, 10 % new rows. The
runner's rule decides when the table is rewritten. Opening is measured in a new process. Seconds are CPU seconds
unless the name says wall.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.measuring import say
from sqlalchemy import func, select

from runnel.catalog.declared.feeds import feed_by_name
from runnel.catalog.store import leases, schema
from runnel.engine import Engine, connect
from runnel.logs.tables.rewrite_tables import RewriteRule, rewrite_steps
from runnel.logs.tables.table_store import TableStore
from runnel.model.table import RowChange, change_of, deletion_of

NAME = "tables"
TABLE = "register table Stocks (symbol text key, per number, checked date, note text)"
_CHUNK = 5_000
_CATCH_UP = 20_000
_START = datetime(2026, 1, 1, tzinfo=UTC)
GOALS = {"open_seconds": 2.0, "catch_up_microseconds": 5.0, "tail_bytes": 60.0, "rewritten_per_byte": 5.0}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--open", type=Path, help="Only open the table in this workspace.")
    options = parser.parse_args()
    if options.open is not None:
        open_table(options.open)
        return
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder, connect(folder) as engine:
        engine.execute(TABLE)
        changes = Changes(engine, random.Random(options.seed))
        fill(engine, changes, options.rows)
        change(engine, changes, options.changes)
        print(run_opening(Path(folder)), end="", flush=True)
        catch_up(engine, changes)


class Changes:
    """Generates random changes of the table."""

    def __init__(self, engine: Engine, dice: random.Random) -> None:
        with engine.workspace.catalog.read() as connection:
            feed = feed_by_name(connection, "Stocks")
        assert feed is not None
        self.feed = feed.id
        self.schema = engine.workspace.tables.files(feed.id).table.schema
        self._dice = dice
        self._rows = 0

    def new_row(self) -> RowChange:
        """Return a row with a new key."""
        self._rows += 1
        return self._row(self._rows)

    def any_change(self) -> RowChange:
        """Return an update, a deletion or a new row."""
        chance = self._dice.random()
        if chance < 0.1:
            return self.new_row()
        number = self._dice.randint(1, self._rows)
        return deletion_of("Stocks", self.schema, (_symbol(number),)) if chance < 0.2 else self._row(number)

    def _row(self, number: int) -> RowChange:
        dice = self._dice
        values: dict[str, Any] = {
            "symbol": _symbol(number),
            "per": round(dice.uniform(0, 100), 2),
            "checked": _START + timedelta(seconds=dice.randrange(1 << 24)),
            "note": f"n{dice.randrange(1000)}",
        }
        return change_of("Stocks", self.schema, {name: (value,) for name, value in values.items()})


def _symbol(number: int) -> str:
    return f"S{number:07}"


def fill(engine: Engine, changes: Changes, rows: int) -> None:
    """Accept rows with new keys, and write the first base."""
    began = time.process_time()
    for count in _chunks(rows):
        engine.workspace.items.change_rows(changes.feed, [changes.new_row() for _ in range(count)])
    say(NAME, "accepting", rows=rows, microseconds_per_row=1e6 * (time.process_time() - began) / rows)
    began = time.process_time()
    rewrite(engine, RewriteRule(tail_rows=0))
    files = engine.workspace.tables.files(changes.feed)
    assert files.base is not None
    say(
        NAME,
        "first base",
        rows=rows,
        seconds=time.process_time() - began,
        bytes_per_row=files.base.bytes / files.base.rows,
    )


def change(engine: Engine, changes: Changes, count: int) -> None:
    """Accept changes, and rewrite the table whenever that is due. Compare the bytes."""
    before, files_before = _logged_bytes(engine), _file_bytes(engine)
    rewritten = accepted = 0
    seconds = 0.0
    for chunk in _chunks(count):
        offered = [changes.any_change() for _ in range(chunk)]
        accepted += engine.workspace.items.change_rows(changes.feed, offered).accepted
        began = time.process_time()
        rewritten += rewrite(engine, RewriteRule(engine.workspace.settings.table_tail_rows))
        seconds += time.process_time() - began
    ratio = (_file_bytes(engine) - files_before) / (_logged_bytes(engine) - before)
    say(
        NAME,
        "rewriting",
        changes=accepted,
        rewritten=rewritten,
        seconds_per_rewriting=seconds / rewritten if rewritten else 0.0,
        **_judged("rewritten_per_byte", ratio),
    )


def rewrite(engine: Engine, rule: RewriteRule) -> int:
    """Rewrite the table if it is due; gives 1 if it was."""
    workspace = engine.workspace
    with workspace.catalog.write() as connection:
        lease = leases.acquire(connection, 1e6)
    done = sum(rewrite_steps(workspace.catalog, workspace.storage, workspace.tables, rule, epoch=lease.epoch))
    with workspace.catalog.write() as connection:
        leases.release(connection, lease)
    return done


def run_opening(folder: Path) -> str:
    """Open the table in a new process; gives what it printed."""
    command = [sys.executable, "-m", "benchmarks.tables", "--open", str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def open_table(folder: Path) -> None:
    """Read the current rows of the table, with nothing in memory, and again with the tail in memory."""
    with connect(folder, create=False) as engine:
        (table,) = engine.tables()
        began, wall = time.process_time(), time.perf_counter()
        view = engine.workspace.tables.view(table.id)
        seconds, wall_seconds = time.process_time() - began, time.perf_counter() - wall
        began = time.process_time()
        engine.workspace.tables.view(table.id)
        again = time.process_time() - began
        say(
            NAME,
            "opening",
            rows=len(view),
            tail=table.tail,
            wall_seconds=wall_seconds,
            seconds_again=again,
            **_judged("open_seconds", seconds),
        )


def catch_up(engine: Engine, changes: Changes) -> None:
    """Read further changes into a tail in memory, and measure the memory of the whole tail."""
    workspace = engine.workspace
    store = TableStore(workspace.catalog, workspace.storage, workspace.items)
    files = store.files(changes.feed)
    store.changes(files, files.table.last_change)
    accepted = 0
    while accepted < _CATCH_UP:
        offered = [changes.any_change() for _ in range(min(5_000, _CATCH_UP))]
        accepted += workspace.items.change_rows(changes.feed, offered).accepted
    files = store.files(changes.feed)
    began = time.process_time()
    tail = store.changes(files, files.table.last_change)
    seconds = time.process_time() - began
    say(NAME, "catching up", changes=accepted, **_judged("catch_up_microseconds", 1e6 * seconds / accepted))
    values = sum(tail.column(column.name).nbytes for column in changes.schema.columns)
    say(
        NAME,
        "tail",
        changes=len(tail),
        bytes_of_values=values / len(tail),
        **_judged("tail_bytes", tail.nbytes / len(tail)),
    )


def _judged(goal: str, value: float) -> dict[str, Any]:
    return {goal: value, "goal": f"G11: at most {GOALS[goal]:g}", "met": value <= GOALS[goal]}


def _logged_bytes(engine: Engine) -> int:
    with engine.workspace.catalog.read() as connection:
        return int(connection.execute(select(func.coalesce(func.sum(schema.item_segments.c.bytes), 0))).scalar_one())


def _file_bytes(engine: Engine) -> int:
    """Return the bytes of all files of tables that were ever written: none was deleted yet."""
    with engine.workspace.catalog.read() as connection:
        return int(connection.execute(select(func.coalesce(func.sum(schema.table_files.c.bytes), 0))).scalar_one())


def _chunks(count: int) -> Iterator[int]:
    for start in range(0, count, _CHUNK):
        yield min(_CHUNK, count - start)


if __name__ == "__main__":
    main()
