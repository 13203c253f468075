"""A pytest plugin: every catalog that would be a SQLite file is a schema of a real PostgreSQL server instead.

python -m pytest -p tests.on_postgresql -m "not spark" tests/unit/catalog tests/integration

Tests that start processes of their own keep SQLite there, and those about SQLite itself cannot pass; all others
must: whatever a catalog module asks, it asks in words that both databases understand.
"""

from __future__ import annotations

from typing import Any

import pytest

from runnel.catalog.store.connection import Catalog
from tests.services import PostgreSQL

_KEY = pytest.StashKey[PostgreSQL]()


def pytest_configure(config: pytest.Config) -> None:
    """Start the server and put it under every catalog."""
    server = PostgreSQL()
    config.stash[_KEY] = server
    databases: dict[str, str] = {}
    open_catalog = Catalog.__init__

    def on_server(catalog: Catalog, url: str, **options: Any) -> None:
        if url.startswith("sqlite:"):
            if url not in databases:
                databases[url] = server.schema()
            url = databases[url]
        open_catalog(catalog, url, **options)

    Catalog.__init__ = on_server  # type: ignore[method-assign, assignment]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server."""
    if _KEY in config.stash:
        config.stash[_KEY].close()
