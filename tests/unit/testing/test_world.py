"""Generated worlds: identical on every machine, with well-formed documents and overlapping interests."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from runnel.algebra.nodes.query import Node
from runnel.algebra.semantics.evaluate import accepts
from runnel.language.binding.bind_query import bind_query
from runnel.language.grammar.parser import parse
from runnel.language.syntax.statements import CreateFeed, RegisterFeed, Subscribe
from runnel.sources.documents.adapt import adapt
from runnel.sources.documents.decode import decode
from runnel.testing.dice import Dice
from runnel.testing.editions import render_document
from runnel.testing.world import World
from runnel.testing.world_words import TOPICS, companies, invented_words, people, places

DIGEST = "a8d6b3fb0e6590d856ed1681336dfd5d2e9e2b64eda659124edb94c325e0dc98"
"""The digest of the small world below. Change it only on purpose, because benchmarks compare versions of Runnel."""


@pytest.fixture(scope="module")
def world() -> World:
    return World.generate(seed=3, feeds=12, items=600, queries=400)


def digest(world: World) -> str:
    sha256 = hashlib.sha256(world.script().encode())
    for item in world.items:
        sha256.update(repr(item).encode())
    for feed in world.feeds:
        sha256.update(repr(feed).encode())
    return sha256.hexdigest()


def test_small_world_has_the_expected_digest(world: World) -> None:
    assert digest(world) == DIGEST


def test_world_does_not_depend_on_the_hash_seed_of_the_process(world: World) -> None:
    program = (
        "import hashlib; from runnel.testing.world import World\n"
        "world = World.generate(seed=3, feeds=12, items=600, queries=400)\n"
        "print(hashlib.sha256((world.script() + repr(world.items)).encode()).hexdigest())"
    )
    expected = hashlib.sha256((world.script() + repr(world.items)).encode()).hexdigest()
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
    assert result.stdout.decode().strip() == expected


def test_different_seeds_give_different_worlds(world: World) -> None:
    assert World.generate(seed=4, feeds=12, items=600, queries=400).script() != world.script()


@settings(derandomize=True, deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**40),
    feeds=st.integers(1, 30),
    items=st.integers(0, 120),
    queries=st.integers(0, 120),
    editions=st.integers(1, 9),
)
def test_sizes_are_exact_and_names_unique(seed: int, feeds: int, items: int, queries: int, editions: int) -> None:
    world = World.generate(seed, feeds, items, queries, editions)
    assert (len(world.feeds), len(world.items), len(world.queries)) == (feeds, items, queries)
    names = [feed.name for feed in world.feeds] + [query.name for query in world.queries]
    assert len({name.lower() for name in names}) == feeds + queries
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", name) for name in names)
    known = {feed.name for feed in world.feeds}
    for query in world.queries:
        assert known.issuperset(query.reads)
        known.add(query.name)
    assert all(1 <= item.edition <= editions for item in world.items)


@pytest.mark.parametrize("sizes", [{"feeds": 0}, {"seed": -1}, {"items": -1}, {"queries": -1}, {"editions": 0}])
def test_invalid_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a world needs"):
        World.generate(**sizes)


def test_items_have_realistic_times_texts_and_numbers(world: World) -> None:
    assert [item.edition for item in world.items] == sorted(item.edition for item in world.items)
    keys = [(item.feed, item.id, item.version) for item in world.items]
    assert len(dict.fromkeys(keys)) == len(keys)
    hours = Counter(item.published.hour for item in world.items)
    assert sum(hours[hour] for hour in range(8, 20)) > 4 * sum(hours[hour] for hour in (22, 23, 0, 1, 2, 3))
    breaking = [item for item in world.items if "breaking" in item.categories]
    assert len({item.feed for item in breaking}) > len(world.feeds) // 2
    assert any("<b>" in (item.markup or "") for item in world.items)
    texts = "".join(item.title + item.description for item in world.items)
    assert re.search("[\u4e00-\u9fff]", texts)
    assert re.search("[\U0001f300-\U0001faff]", texts)
    assert "ë" in texts
    numbered = {feed.name for feed in world.feeds if feed.numbered}
    assert numbered
    assert all(bool(item.numbers) == (item.feed in numbered) for item in world.items)


def test_edit_has_the_id_of_an_earlier_item_and_another_title(world: World) -> None:
    originals = {(item.feed, item.id): item for item in world.items if item.version == 1}
    edits = [item for item in world.items if item.version == 2]
    assert len(edits) == 18
    for edit in edits:
        original = originals[edit.feed, edit.id]
        assert original.edition < edit.edition
        assert original.title != edit.title
        assert edit.updated is not None
        assert edit.updated > original.published


def test_popular_words_are_more_frequent_than_rare_words(world: World) -> None:
    counts = Counter(word for item in world.items for word in re.findall(r"\w+", item.description))
    for topic in TOPICS:
        assert counts[topic.nouns[0]] > counts[topic.nouns[-1]]
    assert sum(count == 1 for count in counts.values()) > 50


def test_interests_overlap(world: World) -> None:
    conditions = Counter(query.condition for query in world.queries)
    assert len(conditions) < 0.7 * len(world.queries)
    assert conditions.most_common(1)[0][1] >= 8
    names = {query.name for query in world.queries}
    assert sum(bool(names.intersection(query.reads)) for query in world.queries) > 40
    statements = " ".join(query.statement for query in world.queries)
    for form in (
        " | ",
        " as $one",
        "$all[",
        "as $inner",
        "not ",
        " or ",
        " in (",
        " between ",
        "date '",
        ".weekday",
        "price",
    ):
        assert form in statements


def test_most_subscriptions_use_the_log_and_some_write_files(world: World) -> None:
    kinds = Counter(subscription.kind for subscription in world.subscriptions)
    assert set(kinds) == {"log", "rss", "atom", "json", "jsonl"}
    assert kinds["log"] > 0.8 * len(world.queries)
    targets = [subscription.target for subscription in world.subscriptions if subscription.target]
    assert len(set(targets)) == len(targets) == 40
    assert all(re.fullmatch(r"[a-z0-9-]+\.(rss|atom|json|jsonl)", target) for target in targets)


def test_script_can_be_declared_in_order_and_matches_items(world: World) -> None:
    ids: dict[str, int] = {}
    nodes: dict[int, Node] = {}
    subscribed = 0
    for parsed in parse(world.script()):
        match parsed.statement:
            case RegisterFeed(name, address):
                assert address == f"feeds/{name.text}"
                ids[name.text] = len(ids)
            case CreateFeed(name, query):
                nodes[len(ids)] = bind_query(query, ids.get, lambda: ids)
                ids[name.text] = len(ids)
            case Subscribe(feed):
                assert feed.text in ids
                subscribed += 1
    assert len(ids) == len(world.feeds) + len(world.queries)
    assert subscribed == len(world.subscriptions)
    matches = Counter(
        query
        for item in list(world.model_items())[::12]
        for query, node in nodes.items()
        if accepts(node, ids[item.feed], item.attributes, nodes)
    )
    assert sum(matches.values()) > 50
    assert len(matches) > 40


def test_documents_are_well_formed_and_contain_the_items_of_their_edition(world: World, tmp_path: Path) -> None:
    written = world.write(tmp_path)
    assert written[0].read_text(encoding="utf-8") == world.script()
    assert {path.suffix for path in written[1:]} == {".rss", ".rdf", ".atom", ".json", ".jsonl"}
    assert not list(tmp_path.rglob("*.part"))
    seen = 0
    for path in written[1:]:
        edition = int(path.stem.removeprefix("edition-"))
        assert path.parent.parent.parent.name == path.stem
        expected = sorted(item.id for item in world.edition(edition)[path.parent.name])
        assert sorted(_ids(path)) == expected
        seen += len(expected)
    assert seen == len(world.items)


def _ids(path: Path) -> list[str]:
    data = path.read_bytes()
    match path.suffix:
        case ".jsonl":
            return [json.loads(line)["id"] for line in data.decode().splitlines()]
        case ".json":
            return [entry["id"] for entry in json.loads(data)["items"]]
        case suffix:
            return [str(value) for value in _evaluate_xpath(etree.fromstring(data), _ID_PATHS[suffix])]


def _evaluate_xpath(document: Any, path: str) -> list[Any]:
    return list(document.xpath(path))


_ID_PATHS = {
    ".rdf": "//*[local-name()='item']/@*",
    ".rss": "//item/guid/text()",
    ".atom": "/*/*[local-name()='entry']/*[local-name()='id']/text()",
}


def test_items_read_from_documents_equal_the_model_items(world: World) -> None:
    news = world.edition(2)
    for feed in world.feeds:
        adapted = adapt(decode(render_document(feed, news[feed.name]).encode(), feed.name), feed.name)
        assert adapted.problems == []
        items = {item.id: item for item in adapted.items}
        for item in news[feed.name]:
            read, expected = items[item.id].attributes, item.as_item().attributes
            for name in ("title", "link", "author", "category", "published", "price", "rating"):
                assert read.get(name) == expected.get(name)
            assert str(read["description"][0]).split() == str(expected["description"][0]).split()


def test_edition_can_be_written_again_into_the_same_folder(world: World, tmp_path: Path) -> None:
    first = {path: path.read_bytes() for path in world.write_edition(1, tmp_path)}
    assert first == {path: path.read_bytes() for path in world.write_edition(1, tmp_path)}
    assert all(path.parts[-3] == "feeds" for path in first)


def test_invented_names_are_distinct() -> None:
    assert len(set(invented_words())) == len(invented_words())
    for names in (people(), places(), companies()):
        assert len(set(names)) == len(names) >= 300


def test_dice_follow_their_distributions_and_depend_on_the_purpose() -> None:
    dice = Dice(1, "test")
    below = dice.below(5, 1000).tolist()
    assert (min(below), max(below)) == (0, 4)
    ranks = Counter(dice.ranks(10, 5000).tolist())
    assert ranks[0] > ranks[1] > ranks[4] > ranks[9] > 0
    assert sorted(dice.shuffled(50).tolist()) == list(range(50))
    assert 200 < int(dice.chances(0.25, 1000).sum()) < 300
    assert Dice(1, "test").below(10**9, 3).tolist() == Dice(1, "test").below(10**9, 3).tolist()
    assert Dice(1, "test").below(10**9, 3).tolist() != Dice(1, "other").below(10**9, 3).tolist()
