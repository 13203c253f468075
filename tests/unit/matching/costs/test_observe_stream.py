"""Stream statistics of workers: they sample few items, count all their words and evaluate atoms in turn."""

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
    """Build items of alternating feeds; one in ten has a price below 10."""
    items = []
    for number in range(first, first + count):
        attributes: dict[str, tuple[Value, ...]] = {name: (value,) for name, value in more.items()}
        attributes |= {"title": (f"Rock concert Number{number % 10}",), "price": (float(number % 10 * 5 + 5),)}
        items.append(Item(feed="News" if number % 2 else "Blogs", id=str(number), attributes=attributes))
    return ItemBatch.of(items, FEEDS, first_sequence=first)


def observer(*atoms: str) -> Observer:
    """Build an observer that evaluates these atoms."""
    return Observer(Texts.of(atoms), np.arange(len(atoms)))


def total(observed: dict[int, StreamSample]) -> float:
    """Return the number of sampled items."""
    return sum(sample.items for sample in observed.values())


def test_at_least_one_and_at_most_32_items_are_sampled() -> None:
    sizes = {count: total(observer().observe(batch(count))) for count in (0, 1, 7, 1023, 1024, 5000)}
    assert sizes == {0: 0, 1: 1, 7: 1, 1023: 1, 1024: 2, 5000: 5}
    large = ItemBatch(pa.concat_batches([batch(5000).records] * 8))
    assert total(observer().observe(large)) == 32


def test_each_word_of_a_sampled_item_counts_once() -> None:
    [sample] = observer().observe(batch(1, note="rock ROCK, rock!")).values()
    assert sample.words == {"rock": 1, "concert": 1, "number1": 1}
    assert observer().observe(batch(300)) == observer().observe(batch(300)), "sampling is deterministic"


def test_sampled_position_varies_between_slices() -> None:
    """Even if the length of the slices is the period of the stream."""
    slices = [observer().observe(batch(10, first)) for first in range(1, 1000, 10)]
    words = {word for observed in slices for sample in observed.values() for word in sample.words}
    assert words == {"rock", "concert", *(f"number{number}" for number in range(10))}
    assert {feed for observed in slices for feed in observed} == {1, 2}


def test_atoms_are_evaluated_in_turn_and_counted() -> None:
    merged = StreamSample()
    atoms = observer(CHEAP, PHRASE, *(CHEAP + " " * size for size in range(1, 21)), "[1, " + " " * 2000 + "2]")
    for first in range(1, 2000, 10):
        for sample in atoms.observe(batch(10, first)).values():
            merged = merged.merge(sample)
    assert merged.items == 200
    assert len(merged.atoms) == 22, "all atoms except the one that is too long"
    assert merged.atoms[PHRASE] == ObservedShare(merged.atoms[PHRASE].asked, merged.atoms[PHRASE].asked)
    shares = merged.atoms.values()
    assert 0 < sum(share.held for share in shares) < sum(share.asked for share in shares)


def test_failing_atom_is_not_counted() -> None:
    [sample] = observer("no JSON", '["unknown"]', CHEAP).observe(batch(1)).values()
    assert set(sample.atoms) == {CHEAP}


def test_number_and_length_of_counted_words_are_limited() -> None:
    long = " ".join(f"w{number}" for number in range(100_000))
    [sample] = observer().observe(batch(1, body=long, other="x" * 100)).values()
    assert len(sample.words) <= 2_000
    assert all(len(word) <= 64 for word in sample.words)


def test_observations_survive_json_and_invalid_ones_are_dropped() -> None:
    observed = observer(CHEAP, PHRASE).observe(batch(5000))
    decoded = json.loads(json.dumps(observations_to_json(observed)))
    assert observations_from_json(decoded) == observed
    assert observations_from_json({"x": {}, "7": "nonsense"}) == {7: StreamSample()}
