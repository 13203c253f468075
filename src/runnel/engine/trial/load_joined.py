"""Load the items that annotations refer to, as an actor may read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from runnel.catalog.logs import item_segments
from runnel.engine.workspace import Workspace
from runnel.model.annotation import Annotation
from runnel.model.item import Item


def load_joined_items(
    workspace: Workspace, annotations: Iterable[Sequence[Annotation]], names: Mapping[int, str]
) -> dict[int, Item]:
    """Return the items by sequence, without deleted ones. `names` are the feeds that the actor may read."""
    with workspace.catalog.read() as connection:
        kept_after = item_segments.retained_upto(connection)
    numbers = {number for several in annotations for each in several for number in each.newest}
    batches = workspace.items.get(sorted(number for number in numbers if number > kept_after))
    return {
        item.sequence or 0: item
        for batch in batches
        for feed, item in zip(batch.feeds.tolist(), batch.items(names), strict=True)
        if feed in names
    }
