"""Items in columns, for the logs and the matchers.

A batch is an Arrow record batch with ITEM_SCHEMA. All values of all attributes of all items are in one flat child
array, so that compiled loops can read the UTF-8 buffers without creating Python objects.
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
"""The kinds of ordinary values in the column `kind`. `runnel.families` lists those of structured values."""

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
    """Items in columns. `records` has ITEM_SCHEMA. Feeds are catalog ids."""

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
        """Return the items as objects. `names` gives the names of feeds by id; for unknown ids, the id is used."""
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
        """Return only the attributes of each item."""
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
        """Create a batch from objects. Items without a sequence or time get the given ones."""
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
    attributes: dict[str, list[Value]] = {}
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
        attributes.setdefault(value["name"], []).append(typed)
    return {name: tuple(several) for name, several in attributes.items()}
