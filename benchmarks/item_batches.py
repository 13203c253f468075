"""Batches made from columns: what a workload's items become before a matcher sees them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from runnel.arrays import Array
from runnel.model.item_batch import ITEM_SCHEMA, NUMBER, TEXT, VALUE, ItemBatch


def batch_of(texts: Mapping[str, pa.Array], numbers: Mapping[str, Array], *, source: int, first: int) -> ItemBatch:
    """Items with one value of each attribute, texts before numbers; the first has the sequence `first`."""
    names = (*texts, *numbers)
    width, count = len(names), len(next(iter((*texts.values(), *numbers.values()))))
    kinds = np.tile(np.array([TEXT] * len(texts) + [NUMBER] * len(numbers), dtype=np.int8), count)
    # The columns lie one after the other; an item takes its value from each in turn.
    places = (np.arange(count)[:, None] + count * np.arange(width)).reshape(-1)
    all_texts = pa.concat_arrays([*texts.values(), pa.nulls(count * len(numbers), pa.string())])
    all_numbers = np.concatenate([np.zeros(count * len(texts)), *numbers.values()])
    fields = [
        pa.array(names).take(pa.array(np.tile(np.arange(width), count))),
        pa.array(kinds),
        all_texts.take(pa.array(places)),
        pa.array(all_numbers[places], mask=kinds == TEXT),
        pa.nulls(count * width, VALUE.field("moment").type),
    ]
    columns = [
        pa.array(np.arange(first, first + count)),
        pa.array(np.zeros(count, dtype=np.int64)).cast(ITEM_SCHEMA.field("accepted").type),
        pa.array(np.full(count, source, dtype=np.int64)),
        pa.array([f"item-{number}" for number in range(first, first + count)], pa.string()),
        pa.array(np.ones(count, dtype=np.int32)),
        pa.ListArray.from_arrays(
            pa.array(np.arange(count + 1, dtype=np.int32) * width),
            pa.StructArray.from_arrays(fields, fields=list(VALUE)),
            type=ITEM_SCHEMA.field("attributes").type,
        ),
    ]
    return ItemBatch(pa.RecordBatch.from_arrays(columns, schema=ITEM_SCHEMA))
