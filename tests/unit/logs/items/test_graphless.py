"""RSS items that were accepted before these had graphs are not taken for edited; all others are."""

from __future__ import annotations

from pathlib import Path

import pytest

from runnel.catalog.store import counters
from runnel.catalog.store.connection import Catalog
from runnel.logs.items.item_log import ItemLog
from runnel.model.graph import RdfGraph
from runnel.model.item import Item
from runnel.storage.file_storage import FileStorage

TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
RSS = RdfGraph.of([("<https://a.example/1>", TYPE, "<http://purl.org/rss/1.0/item>")])
OLDER = RdfGraph.of([("<https://a.example/1>", TYPE, "<http://my.netscape.com/rdf/simple/0.9/item>")])
OTHER = RdfGraph.of([("<https://a.example/1>", "<urn:p>", '"1"')])


def accepted(log: ItemLog, graph: RdfGraph | None, title: str = "Rock") -> int:
    graphs = {} if graph is None else {"graph": (graph,)}
    return log.accept(1, [Item("Wire", "1", {"title": (title,), **graphs})]).accepted


@pytest.mark.parametrize(
    ("upgraded", "graph", "title", "expected"),
    [
        (True, RSS, "Rock", 0),
        (True, OLDER, "Rock", 0),
        (True, OTHER, "Rock", 1),
        (True, RSS, "Edited", 1),
        (False, RSS, "Rock", 1),
    ],
)
def test_only_a_graph_that_an_rss_item_could_not_have_before(
    tmp_path: Path, upgraded: bool, graph: RdfGraph, title: str, expected: int
) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.sqlite'}")
    catalog.migrate()
    log = ItemLog(catalog, FileStorage(tmp_path.as_uri()))
    assert accepted(log, None) == 1
    if upgraded:
        with catalog.write() as connection:
            counters.set_counter(connection, counters.GRAPHLESS, 1)
    assert accepted(log, graph, title) == expected
    assert accepted(log, graph, title) == 0
