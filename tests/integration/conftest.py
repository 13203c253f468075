"""Fixtures of the integration tests: a shared Spark session, a fake clock, and an engine on a new workspace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import runnel
from runnel.engine import Engine
from runnel.testing import FakeClock, MemorySink


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session that all engines share, because starting one takes longer than most tests."""
    from runnel.streaming.session import open_session

    folder = tmp_path_factory.mktemp("spark")
    session = open_session(master="local[2]", driver_memory="1g", logs=folder, local_folder=folder)
    yield session
    session.stop()


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves only when a test advances it."""
    return FakeClock()


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    """An engine on a new workspace, with the clock of the test."""
    MemorySink.clear()
    with runnel.connect(tmp_path / "root", clock=clock) as opened:
        yield opened
    MemorySink.clear()
