"""Crashes at every boundary between writing a file and its row, and between a row and the next step."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import match_segments
from runnel.engine import Engine, connect
from tests import catalog_rows
from tests.crash.harness import (
    SCRIPT,
    Victim,
    allow_operators,
    asking_script,
    deadly_storage,
    item,
    items_again,
    set_due,
    undecided_items,
    verify,
    wait_until,
)
from tests.log_upkeep import collect_garbage

pytestmark = [pytest.mark.crash, pytest.mark.spark]


def _client_dies(root: Path, storage: str, code: str) -> None:
    """Run client code in a process that is killed at a boundary."""
    program = (
        "import os, sys\nfrom runnel.engine import connect\nfrom tests.crash.harness import item, SCRIPT\n"
        "storage = sys.argv[2].replace('GROUP', str(os.getpgrp()))\n"
        f"engine = connect(sys.argv[1], storage=storage)\n{code}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(root), storage],
        start_new_session=True,
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == -9, ended.stderr.decode()


def _segments(engine: Engine) -> int:
    with engine.workspace.catalog.read() as connection:
        return len(match_segments.match_segments(connection))


def _known_answers(engine: Engine) -> int:
    with engine.workspace.catalog.read() as connection:
        return operator_cache.cache_totals(connection).answers


def _finished_batches(root: Path) -> int:
    return len([path for path in root.glob("checkpoints/*/commits/*") if path.name.isdigit()])


def test_crash_at_any_boundary_loses_and_repeats_nothing(tmp_path: Path) -> None:
    root, counter, switch = tmp_path / "root", tmp_path / "counter", tmp_path / "switch"
    engine = connect(root)
    engine.close()
    allow_operators(root)

    # Plan written, its row not: the script had no effect at all.
    _client_dies(root, deadly_storage(root, counter, "plans/", "after"), "engine.execute(SCRIPT)")
    engine = connect(root, orphan_seconds=0.0)
    assert engine.status().virtual_feeds == 0
    assert collect_garbage(engine.workspace.catalog, engine.workspace.storage, older_than=0) == 0, "not most files"
    engine.execute(SCRIPT + asking_script(switch))
    assert collect_garbage(engine.workspace.catalog, engine.workspace.storage, older_than=0) > 0

    # Item file written, its row not: the items were not accepted, and can be published again.
    publish = "engine.publish('Wire', [item(n) for n in range(50)])"
    _client_dies(root, deadly_storage(root, counter, "items/log", "after"), publish)
    assert engine.workspace.items.last_sequence() == 0
    engine.publish("Wire", [item(number) for number in range(50)])
    engine.publish("Other", [item(number) for number in range(50, 80)])

    # Offset logged, match part not written.
    victim = Victim(root, "--once", "--storage", deadly_storage(root, counter, "matches/", "before"))
    assert victim.wait() != 0
    assert list(root.glob("checkpoints/*/offsets/0")) != []
    assert (_segments(engine), list(root.glob("matches/*/*"))) == (0, [])

    # Match part written, and a file of answers too; segment not committed.
    victim = Victim(root, "--once", "--storage", deadly_storage(root, counter, "operators/cache", "after"))
    assert victim.wait() != 0
    assert (_segments(engine), _known_answers(engine), undecided_items(engine)) == (0, 0, 0)
    assert list(root.glob("matches/*/*")) != []
    assert list(root.glob("operators/cache/*")) != []

    # Segment committed, checkpoint not: kill as soon as the row is there.
    victim = Victim(root, "--once")
    wait_until(lambda: _segments(engine) == 1 or not victim.is_running, pause=0.001)
    victim.kill()
    victim.wait()
    assert _segments(engine) == 1
    assert _finished_batches(root) == 0, "too late: the checkpoint was already written"
    assert _known_answers(engine) > 0
    waiting = undecided_items(engine)
    assert waiting > 0, "undecided items are recorded with the segment"
    set_due(engine, minutes=55)

    # Output written, ledger not: the lines are in the file, the message is still open.
    victim = Victim(root, "--once", "--die-after-output")
    assert victim.wait() != 0
    with engine.workspace.catalog.read() as connection:
        assert catalog_rows.open_messages(connection) != []
    assert (root / "out" / "rock.jsonl").read_text() != ""
    assert undecided_items(engine) == waiting, "a replayed batch records nothing twice"

    # File of items that are logged again written, its row not.
    set_due(engine)
    victim = Victim(root, "--once", "--storage", deadly_storage(root, counter, "items/log", "after"))
    assert victim.wait() != 0
    assert (undecided_items(engine), items_again(engine), engine.workspace.items.last_sequence()) == (waiting, 0, 80)

    # Items logged again, not matched: kill as soon as the rows are there.
    victim = Victim(root, "--once")
    wait_until(lambda: items_again(engine) > 0 or not victim.is_running, pause=0.001)
    victim.kill()
    victim.wait()
    assert (undecided_items(engine), items_again(engine)) == (0, waiting)
    assert engine.workspace.matches.matched_upto() == 80, "too late: the items were already matched"
    switch.touch()

    # Archive file written, its row not.
    engine.publish("Wire", [item(number) for number in range(80, 100)])
    victim = Victim(root, "--once", "--storage", deadly_storage(root, counter, "items/day", "after"))
    assert victim.wait() != 0
    verify(engine, 100)

    # Checkpoint deleted: a new lineage starts after the last committed item.
    shutil.rmtree(root / "checkpoints")
    engine.publish("Other", [item(number) for number in range(100, 120)])
    victim = Victim(root, "--once")
    assert victim.wait() == 0
    with engine.workspace.catalog.read() as connection:
        lineage = match_segments.current_lineage(connection)
        assert lineage is not None
        assert lineage.after_sequence == 100 + waiting
    verify(engine, 120)
    engine.close()
