"""The values of a batch of items by attribute. Texts are split into words once for all plan parts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa

from runnel.algebra.nodes.attributes import PARTS, WHOLE
from runnel.algebra.semantics.evaluate import part_of
from runnel.algebra.values.stems import stem_words
from runnel.algebra.values.words import words
from runnel.arrays import Array
from runnel.matching.filters.atoms.atom_tests import DAY
from runnel.model.item import Attributes
from runnel.model.item_batch import ItemBatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ItemColumns:
    """The values of a batch in flat columns. A *position* is the index of a value."""

    def __init__(self, batch: ItemBatch) -> None:
        self.batch = batch
        self.feeds = batch.feeds
        self.sequences = batch.sequences
        attributes = batch.records.column("attributes")
        offsets = np.asarray(attributes.offsets)
        self._offsets = offsets
        self._values = attributes.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        self.value_rows: Array = np.repeat(np.arange(len(batch)), np.diff(offsets))
        self._words: dict[int, list[str]] = {}
        self._stems: dict[tuple[int, str], list[str]] = {}
        self._attributes: dict[int, Attributes] = {}

    def __len__(self) -> int:
        return len(self.batch)

    @cached_property
    def names(self) -> dict[str, Array]:
        """The positions of the values of every attribute, in ascending order."""
        if not len(self._values):
            return {}
        encoded = pa.compute.dictionary_encode(self._values.field("name"))
        codes = np.asarray(encoded.indices)
        order = np.argsort(codes, kind="stable")
        cuts = np.flatnonzero(np.diff(codes[order])) + 1
        return dict(zip(_group_names(encoded, codes[order], cuts), np.split(order, cuts), strict=True))

    @cached_property
    def kinds(self) -> Array:
        """The kind of every value; see `model.item_batch`."""
        return np.asarray(self._field("kind"))

    @cached_property
    def numbers(self) -> Array:
        """The number of every value, or NaN if the value is not a number."""
        return np.asarray(self._field("number").to_numpy(zero_copy_only=False))

    @property
    def text_array(self) -> pa.StringArray:
        """The text of every value as an Arrow array, or null if the value is not a text."""
        return self._field("text")

    @cached_property
    def texts(self) -> list[str]:
        """The text of every value, or None if the value is not a text."""
        return list(self._field("text").to_pylist())

    @cached_property
    def _accepted(self) -> list[int]:
        return list(self.batch.records.column("accepted").cast(pa.int64()).to_pylist())

    @cached_property
    def moments(self) -> list[datetime | None]:
        """The date of every value, or None if the value is not a date."""
        counts = self._field("moment").cast(pa.int64()).to_pylist()
        return [None if count is None else _EPOCH + timedelta(microseconds=count) for count in counts]

    def words(self, position: int) -> list[str]:
        """Return the words of the text at a position."""
        text_words = self._words.get(position)
        if text_words is None:
            text_words = self._words[position] = words(self.texts[position])
        return text_words

    def stems(self, position: int, language: str) -> list[str]:
        """Return the stems of the words of the text at a position."""
        stems = self._stems.get((position, language))
        if stems is None:
            stems = self._stems[position, language] = stem_words(language, self.words(position))
        return stems

    def facet(self, facet: str, positions: Array) -> list[float]:
        """Return a date part, or the day number, of the dates at these positions."""
        moments = (cast(datetime, self.moments[position]) for position in positions.tolist())
        if facet == DAY:
            return [float(moment.toordinal()) for moment in moments]
        part = next(part for part in PARTS if part == facet)
        return [part_of(moment, part) for moment in moments]

    def positions(self, row: int, name: str) -> list[int]:
        """Return the positions of the values of one item's attribute, or of all its values for `item`."""
        if name == WHOLE.name:
            return list(range(*(self._offsets[row : row + 2] - self._offsets[0]).tolist()))
        positions = self.names.get(name)
        if positions is None:
            return []
        first, last = np.searchsorted(positions, self._offsets[row : row + 2] - self._offsets[0])
        return list(positions[first:last].tolist())

    def accepted(self, row: int) -> datetime:
        """Return the time when an item was accepted. Relative times are relative to it."""
        return _EPOCH + timedelta(microseconds=self._accepted[row])

    def attributes(self, row: int) -> Attributes:
        """Return the attributes of one item, for the reference evaluator."""
        attributes = self._attributes.get(row)
        if attributes is None:
            attributes = self._attributes[row] = next(ItemBatch(self.batch.records.slice(row, 1)).attributes())
        return attributes

    def _field(self, name: str) -> pa.Array:
        return self._values.field(name)


def _group_names(encoded: pa.DictionaryArray, codes: Array, cuts: Array) -> list[str]:
    """Return the name of each group of equal codes; `cuts` are the starts of the groups after the first."""
    names = encoded.dictionary.to_pylist()
    return [names[codes[start]] for start in (0, *cuts.tolist())]
