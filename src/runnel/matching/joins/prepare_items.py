"""Prepare in workers the columns that the commit needs of items that reach windows or joins.

In: items, and the attributes that windows store or that conditions read. Out: a table with a row per item: its feed,
its id, the values of some attributes as JSON, and a column of texts or terms for each indexed attribute. Words are
separated by spaces, because words contain no spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.algebra.nodes.attributes import WHOLE, Attribute
from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.evaluate import is_text, values_of
from runnel.algebra.semantics.joins import NO_INDEX, index_of
from runnel.algebra.semantics.window_conditions import atoms_of
from runnel.algebra.values.words import words
from runnel.arrays import encode_text
from runnel.matching.gates.contract import Prepared
from runnel.matching.gates.item_attributes import attributes_named
from runnel.matching.joins.item_values import encode_values
from runnel.matching.joins.window_items import Column
from runnel.matching.joins.window_terms import EXACT, listed_terms, sought_terms
from runnel.matching.joins.word_index import PREFIXES
from runnel.model.item import Attributes, Value
from runnel.model.item_batch import ItemBatch

Numbers = npt.NDArray[np.int64]
Terms = Callable[[str, Value], Iterator[str]]


@dataclass(frozen=True)
class Needs:
    """The attributes whose values are needed, and those whose texts or terms are, with the kinds of their indexes."""

    values: frozenset[str]
    columns: frozenset[tuple[Attribute, str]]

    @staticmethod
    def of_windows(columns: Iterable[Column]) -> Needs:
        """Return what windows with these columns store."""
        distinct = set(columns)
        values = frozenset(name for name, kind in distinct if kind not in EXACT)
        return Needs(values, frozenset((Attribute(name), kind) for name, kind in distinct if kind != NO_INDEX))

    @staticmethod
    def of_joins(conditions: Iterable[Expression]) -> Needs:
        """Return what joins with these conditions read of the items that reach them."""
        values: set[str] = set()
        columns: set[tuple[Attribute, str]] = set()
        for condition in conditions:
            for atom in atoms_of(condition):
                attribute = getattr(atom, "attribute", None)  # `true` and `false` read none
                if attribute is None:
                    continue
                kind = index_of(atom) if isinstance(atom, WindowAtom) else NO_INDEX
                if kind != NO_INDEX:
                    columns.add((attribute, kind))
                if kind not in EXACT:
                    values.add(attribute.name)
        return Needs(frozenset(values), frozenset(columns))


def column_name(attribute: Attribute, kind: str) -> str:
    """Return the name of the column with the texts or terms of an attribute.

    >>> column_name(Attribute("title"), "words"), column_name(Attribute("title"), "all words")
    ('words  title', 'words  title')
    """
    return f"{'words' if kind in PREFIXES else kind} {attribute.part or ''} {attribute.name}"


def prepare_items(items: ItemBatch, rows: Numbers, needs: Needs, terms: Terms) -> Prepared:
    """Return a row for each distinct item, and the row of each of the given rows."""
    reached, positions = np.unique(rows, return_inverse=True)
    records = items.records.take(pa.array(reached))
    names = needs.values | {attribute.name for attribute, _ in needs.columns}
    if WHOLE.name in names:
        attributes: list[Attributes] = list(ItemBatch(records).attributes())
    else:
        attributes = attributes_named(records, names)
    columns = {column_name(*column): column for column in sorted(needs.columns, key=str)}
    table = {
        "feed": records.column("feed"),
        "id": records.column("id").cast(pa.large_binary()),
        "values": pa.array(_values(attributes, needs.values), pa.large_binary()),
        **{
            name: pa.array(
                [[encode_text(text) for text in _texts(each, *column, terms)] for each in attributes],
                pa.large_list(pa.large_binary()),
            )
            for name, column in columns.items()
        },
    }
    return Prepared(pa.table(table), positions.reshape(-1))


def _values(attributes: Iterable[Attributes], names: frozenset[str]) -> Iterator[bytes]:
    is_whole = WHOLE.name in names
    for each in attributes:
        yield encode_values({name: values for name, values in each.items() if is_whole or name in names})


def _texts(attributes: Attributes, attribute: Attribute, kind: str, terms: Terms) -> Iterable[str]:
    """Return the texts of an attribute as their distinct words, or its terms."""
    values = [value for _, value in values_of(attribute, attributes)]
    if kind in PREFIXES:
        return [" ".join(dict.fromkeys(words(value))) for value in values if is_text(value)]
    return dict.fromkeys(term for value in values for term in terms(kind, value))


def prepare_window_items(items: ItemBatch, rows: Numbers, columns: Iterable[Column]) -> Prepared:
    """Prepare items that reach windows with these columns."""
    return prepare_items(items, rows, Needs.of_windows(columns), listed_terms)


def prepare_joined_items(items: ItemBatch, rows: Numbers, conditions: Iterable[Expression]) -> Prepared:
    """Prepare items that reach joins with these conditions."""
    return prepare_items(items, rows, Needs.of_joins(conditions), sought_terms)


def list_rows(column: Any, rows: Numbers) -> tuple[Numbers, Any]:
    """Return the texts of some rows of a column, and for each text the position of its row in `rows`."""
    lists = column.combine_chunks().take(pa.array(rows)) if isinstance(column, pa.ChunkedArray) else column.take(rows)
    lengths = np.diff(np.asarray(lists.offsets))
    if lists.null_count:
        lengths = np.where(np.asarray(lists.is_valid()), lengths, 0)
    return np.repeat(np.arange(len(lists)), lengths), lists.flatten()
