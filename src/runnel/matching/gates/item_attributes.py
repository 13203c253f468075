"""Read some attributes of items. In: items in columns. Out: the attributes that gates compare, as Python values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.model.item import Attributes
from runnel.model.item_batch import ItemBatch


def attributes_named(records: Any, names: Collection[str]) -> list[Attributes]:
    """Return the attributes with these names for each item. The others, most of an item, are not decoded."""
    lists = records.column("attributes")
    wanted = pc.is_in(pc.struct_field(lists.flatten(), "name"), pa.array(sorted(names), pa.string()))
    lengths = np.asarray(pc.list_value_length(lists))
    owners = pa.array(np.repeat(np.arange(len(lengths)), lengths))
    chosen = np.bincount(owners.filter(wanted).to_numpy(), minlength=len(lengths))
    offsets = np.concatenate([[0], np.cumsum(chosen)]).astype(np.int32)
    shorter = pa.ListArray.from_arrays(pa.array(offsets), lists.flatten().filter(wanted), type=lists.type)
    column = records.schema.get_field_index("attributes")
    return list(ItemBatch(records.set_column(column, records.schema.field(column), shorter)).attributes())
