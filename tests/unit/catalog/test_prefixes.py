"""Prefixes in the catalog: registered, replaced, dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.catalog.declared.prefixes import all_prefixes, drop_prefix, register_prefix
from runnel.catalog.store.connection import Catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog(f"sqlite:///{tmp_path / 'catalog.sqlite'}")
    opened.migrate()
    yield opened
    opened.close()


def test_prefix_exists_until_it_is_dropped(catalog: Catalog) -> None:
    with catalog.write() as connection:
        assert register_prefix(connection, "lab", "http://lab.example/") is None
        assert register_prefix(connection, "ex", "urn:it's") is None
    with catalog.read() as connection:
        assert list(all_prefixes(connection).items()) == [("ex", "urn:it's"), ("lab", "http://lab.example/")]
    with catalog.write() as connection:
        assert register_prefix(connection, "ex", "urn:b:") == "urn:it's"
        assert drop_prefix(connection, "lab") == "http://lab.example/"
        assert drop_prefix(connection, "lab") is None
    with catalog.read() as connection:
        assert all_prefixes(connection) == {"ex": "urn:b:"}


def test_names_differ_by_case(catalog: Catalog) -> None:
    with catalog.write() as connection:
        register_prefix(connection, "ex", "urn:a:")
        register_prefix(connection, "EX", "urn:b:")
    with catalog.read() as connection:
        assert all_prefixes(connection) == {"EX": "urn:b:", "ex": "urn:a:"}


def test_uncommitted_prefix_is_not_visible(catalog: Catalog) -> None:
    def fail() -> None:
        with catalog.write() as connection:
            register_prefix(connection, "ex", "urn:a:")
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        fail()
    with catalog.read() as connection:
        assert all_prefixes(connection) == {}
