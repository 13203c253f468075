"""The process that workers are forked from leaves nothing of its own for their collector to go through."""

from __future__ import annotations

import gc

import pyspark.daemon
import pytest

from runnel.streaming.worker import daemon


def test_what_was_imported_is_collected_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(daemon, "warm_up", lambda: None)
    monkeypatch.setattr(
        pyspark.daemon, "manager", lambda: seen.append((gc.get_freeze_count(), len(gc.get_objects())))
    )
    try:
        daemon.main()
    finally:
        gc.unfreeze()
    ((frozen, left),) = seen
    assert frozen > 10_000
    assert left < frozen / 100
