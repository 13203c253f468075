"""Tree patterns end to end: statements, published documents, bindings in outputs, `why`, `preview` and prefixes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runnel.engine import Engine, connect
from runnel.errors import InvalidItemError, StatementError

NEWS = (
    "<news><company>ACME</company><author>Ann</author><s><headline>Up <b>5</b></headline></s>"
    "<media:thumbnail xmlns:media='http://search.yahoo.com/mrss/' url='a.png'/></news>"
)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return connect(tmp_path / "root")


def test_statements_are_declared_previewed_tested_and_explained(engine: Engine) -> None:
    engine.execute(
        "register feed News; create feed Acme from News where"
        " tree //news[//company = 'ACME'][/author!val]//headline!cont;"
        " subscribe to Acme output jsonl 'acme.jsonl';"
    )
    engine.publish("News", [{"id": "1", "tree": NEWS}, {"id": "2", "tree": NEWS.replace("ACME", "ACNE")}])
    found = engine.preview("Acme")
    (newest,) = found.newest
    assert newest.id == "1"
    binding = {"author": "Ann", "headline": "<headline>Up <b>5</b></headline>"}
    assert list(found.bindings[newest.sequence or 0].rows) == [binding]
    (tried,) = engine.test([{"id": "3", "tree": NEWS}]).items
    assert tried.queries == ("Acme",)
    (explained,) = engine.execute("explain feed Acme;")
    assert "tree //news[/author!val as ?1]" in "\n".join(explained.lines)


def test_why_shows_the_steps_that_hold_and_the_text_that_comes_close(engine: Engine) -> None:
    engine.execute("register feed News; create feed Acme from News where tree //news[//company = 'ACME'][/author];")
    engine.publish("News", [{"id": "1", "tree": NEWS}, {"id": "2", "tree": NEWS.replace("ACME", "ACNE")}])
    (holds,) = engine.execute("why item '1' in Acme;")
    assert holds.message == "item 1 is in Acme"
    (fails,) = engine.execute("why item '2' in Acme;")
    assert fails.message == "item 2 is not in Acme"
    assert [line.strip() for line in fails.lines if line.strip()[:4] in ("✓ //", "✗ //")] == [
        "✓ //news  [ACNEAnnUp 5]",
        "✗ //news//company = 'ACME'  [ACNE]",
        "✓ //news/author  [Ann]",
    ]


def test_documents_are_read_as_xml_or_json_and_bad_ones_are_refused(engine: Engine) -> None:
    engine.execute(
        'register feed Orders; create feed Flat from Orders where "lines:sku" = \'A\' and "lines:qty" > 5;'
        "create feed Right from Orders where tree //lines[/sku = 'A'][/qty > 5];"
    )
    lines = {"lines": [{"sku": "A", "qty": 1}, {"sku": "B", "qty": 9}]}
    swapped = {"lines": [{"sku": "A", "qty": 9}, {"sku": "B", "qty": 1}]}
    engine.publish("Orders", [{"id": "1", **lines, "tree": json.dumps(lines)}])
    assert [item.id for item in engine.preview("Flat").newest] == ["1"]
    assert list(engine.preview("Right").newest) == []
    engine.publish("Orders", [{"id": "2", **swapped, "tree": json.dumps(swapped)}])
    assert [item.id for item in engine.preview("Right").newest] == ["2"]
    with pytest.raises(InvalidItemError, match="not well-formed XML"):
        engine.publish("Orders", [{"id": "3", "tree": "<a>"}])


def test_namespaces_of_registered_prefixes_are_looked_up(engine: Engine) -> None:
    engine.execute(
        "register feed News; register prefix media as 'http://search.yahoo.com/mrss/';"
        "register prefix other as 'http://muse.example/';"
        "create feed Media from News where tree //media:thumbnail/@url!val;"
        "create feed Other from News where tree //other:thumbnail;"
    )
    engine.publish("News", [{"id": "1", "tree": NEWS}])
    found = engine.preview("Media")
    assert [list(each.rows) for each in found.bindings.values()] == [[{"url": "a.png"}]]
    assert list(engine.preview("Other").newest) == []
    with pytest.raises(StatementError, match="there is no prefix medai:") as refused:
        engine.execute("create feed Wrong from News where tree //medai:thumbnail;")
    assert refused.value.hint == "did you mean media?"
    assert refused.value.span is not None


def test_variables_of_trees_and_graphs_cannot_be_joined(engine: Engine) -> None:
    engine.execute("register feed News;")
    with pytest.raises(StatementError, match="bound by a graph and a tree pattern"):
        engine.execute("create feed F from News where tree //name!val as ?n and graph { ?p foaf:name ?n };")


def test_attribute_is_written_in_double_quotes(engine: Engine) -> None:
    engine.execute('register feed News; create feed Documents from News where "tree" exists;')
    engine.publish("News", [{"id": "1", "tree": NEWS}, {"id": "2", "title": "rock"}])
    assert [item.id for item in engine.preview("Documents").newest] == ["1"]
