"""What workers observe while they match: few items, all words, atoms in turn, however hostile the items."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.encode import encode_expression
from runnel.algebra.nodes.expressions import Compare, Contains
from runnel.arrays import Texts
from runnel.matching.costs.observe_stream import Observer, observations_to_json
from runnel.model.item import Item, Value
from runnel.model.item_batch import ItemBatch
from runnel.model.learned.stream_statistics import ObservedShare, StreamSample, observations_from_json

FEEDS = {"News": 1, "Blogs": 2}
CHEAP = json.dumps(encode_expression(Compare(Attribute("price"), "<", 10.0)))
PHRASE = json.dumps(encode_expression(Contains(Attribute("title"), ("rock", "concert"))))


def batch(count: int, first: int = 1, **more: Value) -> ItemBatch:
    """Items of two feeds by turns; every tenth is cheap."""
    items = []
    for number in range(first, first + count):
        attributes: dict[str, tuple[Value, ...]] = {name: (value,) for name, value in more.items()}
        attributes |= {"title": (f"Rock concert Number{number % 10}",), "price": (float(number % 10 * 5 + 5),)}
        items.append(Item(feed="News" if number % 2 else "Blogs", id=str(number), attributes=attributes))
    return ItemBatch.of(items, FEEDS, first_sequence=first)


def observer(*atoms: str) -> Observer:
    """An observer that asks these atoms."""
    return Observer(Texts.of(atoms), np.arange(len(atoms)))


def total(observed: dict[int, StreamSample]) -> float:
    """How many items were looked at."""
    return sum(one.items for one in observed.values())


def test_few_items_are_sampled_and_at_least_one() -> None:
    sizes = {count: total(observer().observe(batch(count))) for count in (0, 1, 7, 1023, 1024, 5000)}
    assert sizes == {0: 0, 1: 1, 7: 1, 1023: 1, 1024: 2, 5000: 5}
    long = ItemBatch(pa.concat_batches([batch(5000).records] * 8))
    assert total(observer().observe(long)) == 32


def test_all_words_of_a_sampled_item_count_once() -> None:
    [seen] = observer().observe(batch(1, note="rock ROCK, rock!")).values()
    assert seen.words == {"rock": 1, "concert": 1, "number1": 1}
    assert observer().observe(batch(300)) == observer().observe(batch(300)), "the same slice shows the same"


def test_slices_are_not_always_looked_at_in_the_same_place() -> None:
    """Not even where slices are as long as the rhythm of the stream."""
    slices = [observer().observe(batch(10, first)) for first in range(1, 1000, 10)]
    seen = {word for observed in slices for one in observed.values() for word in one.words}
    assert seen == {"rock", "concert", *(f"number{number}" for number in range(10))}
    assert {feed for observed in slices for feed in observed} == {1, 2}


def test_atoms_are_asked_by_turns_and_counted() -> None:
    whole = StreamSample()
    one = observer(CHEAP, PHRASE, *(CHEAP + " " * size for size in range(1, 21)), "[1, " + " " * 2000 + "2]")
    for first in range(1, 2000, 10):
        for seen in one.observe(batch(10, first)).values():
            whole = whole.merge(seen)
    assert whole.items == 200
    assert len(whole.atoms) == 22, "all but the one that is too long"
    assert whole.atoms[PHRASE] == ObservedShare(whole.atoms[PHRASE].asked, whole.atoms[PHRASE].asked)
    assert 0 < sum(share.held for share in whole.atoms.values()) < sum(share.asked for share in whole.atoms.values())


def test_an_atom_that_fails_is_not_counted() -> None:
    [seen] = observer("no JSON", '["nobody knows"]', CHEAP).observe(batch(1)).values()
    assert set(seen.atoms) == {CHEAP}


def test_a_huge_item_is_read_in_part() -> None:
    long = " ".join(f"w{number}" for number in range(100_000))
    [seen] = observer().observe(batch(1, body=long, other="x" * 100)).values()
    assert len(seen.words) <= 2_000
    assert all(len(word) <= 64 for word in seen.words)


def test_observations_travel_as_json() -> None:
    observed = observer(CHEAP, PHRASE).observe(batch(5000))
    told = json.loads(json.dumps(observations_to_json(observed)))
    assert observations_from_json(told) == observed
    assert observations_from_json({"x": {}, "7": "nonsense"}) == {7: StreamSample()}
