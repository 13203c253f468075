"""One Spark session for all tests of this folder, and roots to try things on."""

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
    """A session that engines find and keep: starting one costs more than most tests."""
    from runnel.streaming.session import open_session

    folder = tmp_path_factory.mktemp("spark")
    session = open_session(master="local[2]", driver_memory="1g", logs=folder, local_folder=folder)
    yield session
    session.stop()


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still until a test moves it."""
    return FakeClock()


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    """An engine on a new root, on the clock of the test."""
    MemorySink.clear()
    with runnel.connect(tmp_path / "root", clock=clock) as opened:
        yield opened
    MemorySink.clear()
