"""The process that workers are forked from exempts its objects from garbage collection."""

from __future__ import annotations

import gc

import pyspark.daemon
import pytest

from runnel.streaming.worker import daemon


def test_imported_objects_are_frozen_before_workers_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[tuple[int, int]] = []
    monkeypatch.setattr(daemon, "warm_up", lambda: None)
    monkeypatch.setattr(
        pyspark.daemon, "manager", lambda: counts.append((gc.get_freeze_count(), len(gc.get_objects())))
    )
    try:
        daemon.main()
    finally:
        gc.unfreeze()
    ((frozen, collectable),) = counts
    assert frozen > 10_000
    assert collectable < frozen / 100
