"""Materialized feeds: the output of a stylesheet becomes items of another feed.

In: a message of the internal subscription of `register feed V apply 'x.xsl' as W`. Out: items in the item log, of the
feed W. The delivery contains the function that decodes and accepts them, because sinks do not import sources. A
repeated message has no effect: its items are recognized as seen. Only materialized feeds create new items. The
bindings of a match become attributes of the new item.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runnel.errors import DeliveryError, InputError
from runnel.model.bindings import Bindings
from runnel.model.item import MAX_NAME, Attributes
from runnel.model.subscription import INTERNAL
from runnel.sinks.contract import Delivery, LocalSink
from runnel.sinks.files.feed_entries import entry_id
from runnel.sinks.files.render_rss import rss_document


class MaterializedFeed(LocalSink):
    """The sink of a materialized feed. Its target is the id of that feed, in digits."""

    kind = INTERNAL
    is_offered = False
    takes_content = True
    takes_documents = True

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """Refuse subscriptions: they could put items into the feeds of other owners."""
        raise InputError(
            "this output cannot be used by subscriptions",
            hint="to create a feed from a stylesheet's output, use `register feed News apply 'sheet.xsl' as Shaped`",
        )

    def host(self, target: str) -> str:
        """Return the feed as the queue: while matching lags, its messages wait without delaying others."""
        return target

    def deliver(self, delivery: Delivery) -> str:
        """Accept the output of the stylesheet, or the unchanged items if there is no stylesheet."""
        if delivery.accept is None:
            raise DeliveryError("this process cannot accept items", hint="start the runner of this workspace")
        target = delivery.subscription.target or ""
        if not (target.isascii() and target.isdigit()):
            raise DeliveryError(f"{target[:40]!r} is not the id of a feed", permanent=True)
        data = rss_document(delivery) if delivery.content is None else delivery.content.data
        bound = {
            entry_id(delivered.item): bound_attributes(delivered.bindings)
            for delivered in delivery.items
            if delivered.bindings.rows
        }
        try:
            return delivery.accept(
                int(target), data, f"stylesheet output for {delivery.feed_name} ({delivery.key})", bound
            )
        except InputError as error:
            raise DeliveryError(
                f"the output of the stylesheet is not a feed: {error}",
                hint="change the stylesheet to write RSS, Atom or JSON Feed",
                permanent=True,
            ) from error


def bound_attributes(bindings: Bindings) -> Attributes:
    """Return the bindings as attributes: per variable, all its values.

    >>> bound_attributes(Bindings(({"people": 60.0}, {"people": 70.0}), 2))
    {'binding:people': (60.0, 70.0)}
    """
    attributes = {
        f"binding:{name}": tuple(value for value in values if value != "")
        for name, values in bindings.values().items()
    }
    return {name: values for name, values in attributes.items() if values and len(name) <= MAX_NAME}
