"""Fixtures of the contract tests: new catalogs on every supported database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.services import PostgreSQL, postgresql

from runnel.catalog.store.connection import Catalog
from runnel.testing import FakeClock
from runnel.workspace_key import WorkspaceKey

KEY = WorkspaceKey.make()

__all__ = ["postgresql"]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new, empty catalog."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    server: PostgreSQL = request.getfixturevalue("postgresql")
    return server.schema()


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves only when a test advances it."""
    return FakeClock()


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    """A new catalog with the machine's clock."""
    made = Catalog(url, key=lambda: KEY)
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def timed(url: str, clock: FakeClock) -> Iterator[Catalog]:
    """A new catalog with the clock of the test."""
    made = Catalog(url, clock=clock, key=lambda: KEY)
    made.migrate()
    yield made
    made.close()
