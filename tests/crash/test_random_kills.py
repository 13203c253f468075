"""`kill -9` at random moments while items are published. Afterwards all guarantees hold.

`make test` kills twice; `make crash` sets RUNNEL_KILLS to 30 and more.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

from runnel.engine import Engine, connect
from tests.crash.harness import (
    JOINS,
    SCRIPT,
    Victim,
    allow_operators,
    asking_script,
    item,
    items_again,
    set_due,
    undecided_items,
    verify,
    wait_until,
)

pytestmark = [pytest.mark.crash, pytest.mark.spark]

_KILLS = int(os.environ.get("RUNNEL_KILLS", "2"))


class _Trickle(threading.Thread):
    """Publishes a few items at a time until it is stopped."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._ended = threading.Event()
        self.published = 0

    def run(self) -> None:
        with connect(self._root) as engine:
            while not self._ended.is_set():
                feed = "Wire" if self.published % 2 else "Other"
                batch = [item(self.published + more) for more in range(1 + self.published % 4)]
                engine.publish(feed, batch)
                self.published += len(batch)
                time.sleep(0.05)

    def stop(self) -> None:
        self._ended.set()
        self.join()


def _is_done(engine: Engine) -> bool:
    """Return whether everything is matched and decided. Make all waiting items due immediately."""
    if engine.workspace.matches.matched_upto() < engine.workspace.items.last_sequence():
        return False
    if undecided_items(engine) == 0:
        return engine.workspace.matches.matched_upto() == engine.workspace.items.last_sequence()
    set_due(engine)
    return False


def test_random_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    root, switch = tmp_path / "root", tmp_path / "switch"
    chance = random.Random(20261115)
    connect(root).close()
    allow_operators(root)
    with connect(root) as engine:
        engine.execute(SCRIPT + JOINS + asking_script(switch))
        trickle = _Trickle(root)
        trickle.start()
        for turn in range(_KILLS):
            # The service of an operator becomes unavailable and comes back.
            if turn % 2:
                switch.touch()
            else:
                switch.unlink(missing_ok=True)
            before = engine.workspace.matches.matched_upto()
            # Two runs partition the plan, and are killed meanwhile. The next run uses the whole plan again.
            victim = Victim(root, partitions=1 if turn % 3 == 2 else 3)
            # Wait for progress, so that each kill hits a different moment of a busy stream.
            wait_until(lambda before=before: engine.workspace.matches.matched_upto() > before)  # type: ignore[misc]
            time.sleep(chance.uniform(0, 2.5))
            assert victim.is_running
            victim.kill()
            victim.wait()
        trickle.stop()
        switch.touch()
        set_due(engine)
        victim = Victim(root)
        wait_until(lambda: _is_done(engine), pause=0.5)
        victim.terminate()
        assert victim.wait() == 0, "SIGTERM must drain and end well"
        verify(engine, trickle.published)
        assert items_again(engine) > 0, "no item was ever retried"
