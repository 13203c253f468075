"""Items in columns: what the logs hold and what the matchers take.

A batch is an Arrow record batch of ITEM_SCHEMA. All values of all attributes of all items lie flat in one child
array, so that a kernel can walk the UTF-8 buffers without touching Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.families import registry
from runnel.model.item import Item, Value
from runnel.model.structured_value import StructuredValue, kind_of_code

TEXT, NUMBER, BOOLEAN, MOMENT = 0, 1, 2, 3
"""The kinds of ordinary values, as stored in the column `kind`; `runnel.families` has those of structured values."""

VALUE = pa.struct(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("number", pa.float64()),
        pa.field("moment", pa.timestamp("us", tz="UTC")),
    ]
)

ITEM_SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("accepted", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("feed", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("attributes", pa.list_(pa.field("item", VALUE, nullable=False)), nullable=False),
    ],
    metadata={"runnel.format": "items/1"},
)


@dataclass(frozen=True)
class ItemBatch:
    """Some items in columns; `records` has ITEM_SCHEMA. Feeds are catalog ids here."""

    records: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.records.num_rows)

    @cached_property
    def sequences(self) -> npt.NDArray[np.int64]:
        """The log sequence of every item."""
        return np.asarray(self.records.column("sequence").to_numpy(zero_copy_only=False))

    @cached_property
    def feeds(self) -> npt.NDArray[np.int64]:
        """The catalog id of every item's source feed."""
        return np.asarray(self.records.column("feed").to_numpy(zero_copy_only=False))

    def items(self, names: Mapping[int, str]) -> Iterator[Item]:
        """The items as objects; `names` gives the feed's name for its id (its number where unknown)."""
        for row in self.records.to_pylist():
            yield Item(
                feed=names.get(row["feed"], f"#{row['feed']}"),
                id=row["id"],
                attributes=_attributes(row["attributes"]),
                version=row["version"],
                sequence=row["sequence"],
                time=row["accepted"],
            )

    def attributes(self) -> Iterator[dict[str, tuple[Value, ...]]]:
        """Only the attributes, item by item."""
        for values in self.records.column("attributes").to_pylist():
            yield _attributes(values)

    @staticmethod
    def of(
        items: Sequence[Item],
        feeds: Mapping[str, int],
        *,
        first_sequence: int = 1,
        accepted: datetime = datetime(1970, 1, 1, tzinfo=UTC),
    ) -> ItemBatch:
        """A batch from objects. Items that have no sequence or time yet get those given."""
        columns: list[Any] = [
            [item.sequence or first_sequence + row for row, item in enumerate(items)],
            [item.time or accepted for item in items],
            [feeds[item.feed] for item in items],
            [item.id for item in items],
            [item.version for item in items],
            [list(_values(item)) for item in items],
        ]
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, ITEM_SCHEMA, strict=True)]
        return ItemBatch(pa.RecordBatch.from_arrays(arrays, schema=ITEM_SCHEMA))


def _values(item: Item) -> Iterator[dict[str, Any]]:
    for name, values in item.attributes.items():
        for value in values:
            match value:
                case bool():
                    yield {"name": name, "kind": BOOLEAN, "number": float(value)}
                case StructuredValue():
                    yield {"name": name, "kind": registry().kinds[value.kind].code, "text": str(value)}
                case str():
                    yield {"name": name, "kind": TEXT, "text": value}
                case datetime():
                    yield {"name": name, "kind": MOMENT, "moment": value}
                case _:
                    yield {"name": name, "kind": NUMBER, "number": value}


def _attributes(values: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Value, ...]]:
    found: dict[str, list[Value]] = {}
    for value in values:
        match value["kind"]:
            case 0:
                typed: Value = value["text"]
            case 1:
                typed = value["number"]
            case 2:
                typed = bool(value["number"])
            case 3:
                typed = value["moment"].astimezone(UTC)
            case code:
                typed = kind_of_code(code)(value["text"])
        found.setdefault(value["name"], []).append(typed)
    return {name: tuple(several) for name, several in found.items()}
